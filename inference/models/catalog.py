"""The catalogue: which models can be called, and which pool of workers serves each."""

import uuid
from collections.abc import Iterator

from django.core.validators import MinValueValidator, RegexValidator
from django.db import models
from django.utils import timezone

from gpu_workers.protocol.policy import ModelPolicy
from tenants.models import AffectsPolicy, Tenant

# Both are part of Redis keys, the pool inside their hash tag: so no braces and no spaces.
_NAME = RegexValidator(
    r"\A[A-Za-z0-9][A-Za-z0-9._:/@+-]*\Z",
    "A name starts with a letter or digit and holds letters, digits and . _ : / @ + - only.",
)


class ServedModel(AffectsPolicy):
    """A model as callers name it."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    name = models.CharField(max_length=200, unique=True, validators=[_NAME])
    pool = models.CharField(max_length=100, validators=[_NAME])
    context_tokens = models.PositiveIntegerField(validators=[MinValueValidator(1)])
    owned_by = models.CharField(max_length=100, default="penstock")
    is_enabled = models.BooleanField(default=True, help_text="Callers see enabled models only.")
    tenants = models.ManyToManyField(
        Tenant,
        through="ServedModelTenant",
        related_name="served_models",
        help_text="Who may see it; nobody named means everybody.",
    )
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name

    def to_policy(self) -> ModelPolicy:
        tenant_ids = sorted(str(tenant.id) for tenant in self.tenants.all())
        return ModelPolicy(
            name=self.name,
            pool=self.pool,
            context_tokens=self.context_tokens,
            created_at=int(self.created_at.timestamp()),
            owned_by=self.owned_by,
            tenant_ids=tenant_ids or None,
        )


class ServedModelTenant(AffectsPolicy):
    """A model that is not for everybody is for this tenant."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    model = models.ForeignKey(ServedModel, on_delete=models.CASCADE)
    # Not CASCADE: with its last tenant a model would come to be for everybody.
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT)

    class Meta:
        verbose_name = "visibility"
        verbose_name_plural = "visible only to"
        constraints = [
            models.UniqueConstraint(fields=["model", "tenant"], name="served_model_tenant_once")
        ]

    def __str__(self) -> str:
        return f"{self.model} for {self.tenant}"


def visible_models() -> Iterator[ModelPolicy]:
    """The catalogue as the policy snapshot shows it."""
    for model in ServedModel.objects.filter(is_enabled=True).prefetch_related("tenants"):
        yield model.to_policy()
