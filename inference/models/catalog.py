"""The catalogue: which models can be called, and which pool of workers serves each."""

import uuid
from collections.abc import Iterable, Iterator, Sequence

from django.contrib.postgres.fields import ArrayField
from django.core.exceptions import ValidationError
from django.core.validators import MinValueValidator, RegexValidator
from django.db import models
from django.utils import timezone

from gpu_workers.protocol.policy import Capability, ModelPolicy, PricePolicy
from tenants.billing.models import Price
from tenants.isolation.scoping import operator_scope
from tenants.models import (
    AffectsPolicy,
    PolicyImpact,
    PolicyManager,
    PolicyPart,
    ScopedPolicyManager,
    Tenant,
)

# Both are part of Redis keys, the pool inside their hash tag: so no braces and no spaces.
_NAME = RegexValidator(
    r"\A[A-Za-z0-9][A-Za-z0-9._:/@+-]*\Z",
    "Use letters, digits and . _ : / @ + - only, starting with a letter or digit.",
)


CAPABILITY_CHOICES = [(each.value, each.name.replace("_", " ").title()) for each in Capability]


def default_capabilities() -> list[str]:
    return [Capability.CHAT.value, Capability.COMPLETIONS.value]


class _InCatalogue(AffectsPolicy):
    class Meta:
        abstract = True

    def policy_impact(self) -> PolicyImpact:
        return PolicyImpact(PolicyPart.MODELS)


class Pool(_InCatalogue):
    """Workers that serve the same model and share one queue. A dedicated pool serves the tenants
    that are named, and nobody else."""

    name = models.CharField(primary_key=True, max_length=100, validators=[_NAME])
    description = models.CharField(max_length=200, blank=True)
    # What the pool serves, as its first worker said, or empty: the next one says it. Redis has the
    # copy that the door of the pool goes by (dispatch/lua/registration.lua).
    engine = models.CharField(max_length=40, blank=True, default="", editable=False)
    model_digest = models.CharField(max_length=80, blank=True, default="", editable=False)
    scales_from_zero = models.BooleanField(
        default=False,
        help_text="Requests wait although no worker runs: whoever reads the queue's length starts "
        "one. Otherwise they are refused at once (503 no_worker).",
    )
    tenants = models.ManyToManyField(
        Tenant,
        through="PoolTenant",
        related_name="pools",
        help_text="Tenants that the pool is dedicated to. Leave blank for all tenants.",
    )

    objects = PolicyManager()

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class ServedModel(_InCatalogue):
    """A model as callers name it."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    name = models.CharField(max_length=200, unique=True, validators=[_NAME])
    pool = models.ForeignKey(
        Pool, on_delete=models.PROTECT, related_name="models", db_column="pool"
    )
    context_tokens = models.PositiveIntegerField(
        "context length (tokens)", validators=[MinValueValidator(1)]
    )
    owned_by = models.CharField(max_length=100, default="penstock")
    capabilities = ArrayField(
        models.CharField(max_length=30, choices=CAPABILITY_CHOICES),
        default=default_capabilities,
    )
    is_enabled = models.BooleanField(
        "enabled", default=True, help_text="Disabled models are hidden from callers."
    )
    tenants = models.ManyToManyField(
        Tenant,
        through="ServedModelTenant",
        related_name="served_models",
        help_text="Tenants that may see the model. Leave blank for all tenants.",
    )
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    objects = PolicyManager()

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name

    def clean(self) -> None:
        """Refuse what PostgreSQL refuses (served_model_names.sql), in words."""
        super().clean()
        first, slash, _ = self.name.partition("/")
        if slash and Tenant.objects.filter(slug=first.lower()).exists():
            of_tenant = ValidationError(
                f"Names that begin with {first.lower()}/ are those of a tenant's adapters.",
                code="name_of_tenant",
            )
            raise ValidationError({"name": of_tenant})
        stored = ServedModel.objects.filter(pk=self.pk).exclude(name=self.name).first()
        if stored is not None and stored.adapters.exists():
            named = ValidationError(
                "Adapters name this model; serve it under another name beside this one.",
                code="has_adapters",
            )
            raise ValidationError({"name": named})

    def to_policy(self, prices: Sequence[PricePolicy] = ()) -> ModelPolicy:
        return ModelPolicy(
            name=self.name,
            pool=self.pool_id,
            context_tokens=self.context_tokens,
            created_at=int(self.created_at.timestamp()),
            owned_by=self.owned_by,
            tenant_ids=self._tenant_ids(),
            capabilities=list(self.capabilities),
            prices=list(prices),
            scales_from_zero=self.pool.scales_from_zero,
        )

    def _tenant_ids(self) -> list[str] | None:
        """Return who may see the model and is served by its pool; None for everybody."""
        named = [{row.tenant_id for row in self.visibilities.all()}]
        named.append({row.tenant_id for row in self.pool.dedications.all()})
        named = [tenants for tenants in named if tenants]
        return sorted(map(str, set.intersection(*named))) if named else None


class ServedModelTenant(_InCatalogue):
    """A model that is not for everybody is for this tenant."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    model = models.ForeignKey(ServedModel, on_delete=models.CASCADE, related_name="visibilities")
    # Not CASCADE: with its last tenant a model would come to be for everybody.
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT)

    objects = ScopedPolicyManager()

    class Meta:
        verbose_name = "visibility"
        verbose_name_plural = "visible only to"
        constraints = [
            models.UniqueConstraint(
                fields=["model", "tenant"],
                name="served_model_tenant_once",
                violation_error_message="The model is already visible to this tenant.",
            )
        ]

    def __str__(self) -> str:
        return f"{self.model} for {self.tenant}"


class PoolTenant(_InCatalogue):
    """A pool that is not for everybody is for this tenant."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    pool = models.ForeignKey(Pool, on_delete=models.CASCADE, related_name="dedications")
    # Not CASCADE: with its last tenant a pool would come to be for everybody.
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT)

    objects = ScopedPolicyManager()

    class Meta:
        verbose_name = "dedication"
        verbose_name_plural = "dedicated to"
        constraints = [
            models.UniqueConstraint(
                fields=["pool", "tenant"],
                name="pool_tenant_once",
                violation_error_message="The pool is already dedicated to this tenant.",
            )
        ]

    def __str__(self) -> str:
        return f"{self.pool_id} for {self.tenant_id}"


def model_names() -> Iterable[str]:
    """Return the models of the catalogue, enabled or not."""
    return ServedModel.objects.order_by("name").values_list("name", flat=True)


def visible_models() -> Iterator[ModelPolicy]:
    """Return the catalogue as the policy snapshot shows it."""
    prices = Price.objects.in_policy()
    enabled = ServedModel.objects.filter(is_enabled=True).select_related("pool")
    for model in enabled.prefetch_related("visibilities", "pool__dedications"):
        yield model.to_policy(prices.get(model.name, ()))


def pool_names() -> Iterator[str]:
    """Return the names of all pools, whether or not anything can be called there."""
    return Pool.objects.values_list("name", flat=True).iterator()


def models_visible_to(tenant_id: uuid.UUID) -> list[ModelPolicy]:
    """Return those of the catalogue that a tenant may know of."""
    return [
        model
        for model in _catalogue()
        if model.tenant_ids is None or str(tenant_id) in model.tenant_ids
    ]


def public_models() -> list[ModelPolicy]:
    """Return those of the catalogue that anybody may know of."""
    return [model for model in _catalogue() if model.tenant_ids is None]


def _catalogue() -> list[ModelPolicy]:
    # Behind its walls a tenant sees no other's visibility: a model for another would look as if it
    # were for everybody.
    with operator_scope("model catalogue"):
        return list(visible_models())
