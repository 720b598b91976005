"""LoRA adapters on record: whose, of which served model, which versions, and which of them answer.

What is stored of a version is what was validated, and never changes (see adapter_versions.sql).
"""

import uuid
from collections.abc import Mapping
from typing import ClassVar, Final

from django.core.validators import MaxValueValidator, MinValueValidator, RegexValidator
from django.db import models
from django.db.models import F, Q
from django.utils import timezone

from gpu_workers.protocol.policy import WHOLE, AdapterPolicy, AdapterVersionPolicy
from inference.models.catalog import ServedModel
from inference.models.upload import Upload
from tenants.models import (
    AffectsPolicy,
    PolicyImpact,
    PolicyPart,
    ScopedPolicyManager,
    Tenant,
)

# It follows a tenant's slug and a slash, in names as in Redis: so no slash, no @, no braces.
ADAPTER_SLUG: Final = RegexValidator(
    r"\A[a-z0-9]+(?:[._-][a-z0-9]+)*\Z",
    "Use small letters and digits, with single . _ - between them.",
)
_SHARE: Final = [MinValueValidator(1), MaxValueValidator(WHOLE - 1)]


class AdapterState(models.TextChoices):
    """What a version is good for. Whether workers hold it they say themselves."""

    QUEUED = "queued", "queued"
    VALIDATING = "validating", "validating"
    READY = "ready", "ready"
    REFUSED = "refused", "refused"
    ARCHIVED = "archived", "archived"
    DELETED = "deleted", "deleted"


class VersionEffect(models.TextChoices):
    """What a version does to its base's answers, as a worker found by probe prompts."""

    UNKNOWN = "unknown", "unknown"
    CHANGES = "changes", "changes answers"
    NONE = "none", "changes nothing"
    NOT_FINITE = "not_finite", "gives no numbers"


# What each may become; adapter_versions.sql holds whoever writes to it. A ready one is refused
# where a worker finds that it gives no numbers, and for nothing else.
MOVES: Final[Mapping[AdapterState, frozenset[AdapterState]]] = {
    AdapterState.QUEUED: frozenset({AdapterState.VALIDATING, AdapterState.REFUSED}),
    AdapterState.VALIDATING: frozenset({AdapterState.READY, AdapterState.REFUSED}),
    AdapterState.READY: frozenset({AdapterState.ARCHIVED, AdapterState.REFUSED}),
    AdapterState.ARCHIVED: frozenset({AdapterState.DELETED}),
    AdapterState.REFUSED: frozenset({AdapterState.DELETED}),
    AdapterState.DELETED: frozenset(),
}
# Those whose upload is still to be validated.
IN_PROGRESS: Final = (AdapterState.QUEUED, AdapterState.VALIDATING)
# Those that workers may have; nothing is stored of the others.
HELD_STATES: Final = (AdapterState.READY, AdapterState.ARCHIVED)
# Those of which something is stored, or is about to be.
STORED_STATES: Final = (
    AdapterState.QUEUED,
    AdapterState.VALIDATING,
    AdapterState.READY,
    AdapterState.ARCHIVED,
)


class Adapter(AffectsPolicy):
    """A name that requests may ask for, `<tenant's slug>/<slug>`. It points at one version, or at
    two by weight; without any it answers nobody."""

    # What is kept at hand is told to workers, not to gateways.
    non_policy_fields: ClassVar[frozenset[str]] = frozenset({"pinned_at"})

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="adapters")
    slug = models.CharField("name", max_length=100, validators=[ADAPTER_SLUG])
    # By name, which stays while an adapter has it.
    model = models.ForeignKey(
        ServedModel,
        on_delete=models.PROTECT,
        to_field="name",
        db_column="model",
        related_name="adapters",
    )
    # What answers requests that name no version: all, or what the canary leaves.
    main = models.PositiveIntegerField("version that answers", null=True, blank=True)
    canary = models.PositiveIntegerField("second version", null=True, blank=True)
    canary_permille = models.PositiveSmallIntegerField(
        "its share (‰)", null=True, blank=True, validators=_SHARE
    )
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    archived_at = models.DateTimeField(null=True, blank=True, editable=False)
    # Since when workers are to keep at hand what answers; a tier bounds how many count.
    pinned_at = models.DateTimeField(null=True, blank=True, editable=False)

    objects = ScopedPolicyManager()

    class Meta:
        ordering = ["slug"]
        indexes = [
            models.Index(
                fields=["tenant", "pinned_at"],
                condition=Q(pinned_at__isnull=False),
                name="adapter_pinned",
            ),
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["tenant", "slug"],
                name="adapter_once_in_tenant",
                violation_error_code="unique_together",
                violation_error_message="An adapter with this name already exists.",
            ),
            models.UniqueConstraint(fields=["id", "tenant"], name="adapter_of_tenant"),
            models.CheckConstraint(
                condition=Q(canary=None, canary_permille=None)
                | Q(
                    main__isnull=False,
                    canary__isnull=False,
                    canary_permille__gte=1,
                    canary_permille__lt=WHOLE,
                )
                & ~Q(main=F("canary")),
                name="adapter_traffic_is_whole",
            ),
            models.CheckConstraint(
                condition=Q(archived_at=None) | Q(main=None), name="adapter_archived_is_silent"
            ),
            models.CheckConstraint(
                condition=Q(archived_at=None) | Q(pinned_at=None),
                name="adapter_archived_is_not_pinned",
            ),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def name(self) -> str:
        return f"{self.tenant.slug}/{self.slug}"

    def policy_impact(self) -> PolicyImpact:
        return PolicyImpact(PolicyPart.ADAPTERS, self.name)

    def permille_of(self, number: int) -> int:
        """Return a version's share of the requests that name none."""
        if number == self.canary:
            return self.canary_permille or 0
        return WHOLE - (self.canary_permille or 0) if number == self.main else 0

    @property
    def shares(self) -> list[dict[str, int]]:
        """Return the traffic as it is pointed: versions and their shares in permille."""
        numbers = [number for number in (self.main, self.canary) if number is not None]
        return [{"version": number, "permille": self.permille_of(number)} for number in numbers]

    def to_policy(self, ready: "list[AdapterVersion]") -> AdapterPolicy:
        return AdapterPolicy(
            name=self.name,
            tenant_id=str(self.tenant_id),
            model=self.model_id,
            created_at=int(self.created_at.timestamp()),
            versions=[
                AdapterVersionPolicy(
                    number=version.number,
                    adapter=version.opaque_name,
                    permille=self.permille_of(version.number),
                )
                for version in ready
            ],
        )


class AdapterVersion(AffectsPolicy):
    """One upload of an adapter, and what became of it. Its number is used once; what it is once it
    was validated, it stays."""

    # How an upload goes is not told to gateways.
    non_policy_fields: ClassVar[frozenset[str]] = frozenset(
        {"upload", "upload_bytes", "delete_at", "effect", "warnings", "live_at", "salt"}
    )

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+", db_index=False)
    adapter = models.ForeignKey(Adapter, on_delete=models.CASCADE, related_name="versions")
    number = models.PositiveIntegerField(validators=[MinValueValidator(1)])
    state = models.CharField(
        max_length=20, choices=AdapterState, default=AdapterState.QUEUED, editable=False
    )
    # What came in, until it is validated, and the most that it may come to.
    upload = models.ForeignKey(
        Upload, on_delete=models.SET_NULL, null=True, editable=False, related_name="+"
    )
    upload_bytes = models.PositiveBigIntegerField(default=0, editable=False)
    # SHA-256 in hex: of the tenant's id and what is stored, and of what is stored alone.
    opaque_name = models.CharField(max_length=64, blank=True, default="", editable=False)
    digest = models.CharField("SHA-256", max_length=64, blank=True, default="", editable=False)
    # Where the sealed bytes are in the blob store, and how many.
    path = models.CharField(max_length=300, blank=True, default="", editable=False)
    stored_bytes = models.PositiveBigIntegerField(default=0, editable=False)
    # Of the sealed stream: with the tenant's key it makes the key that opens this blob alone. None
    # of a version from before it was kept; the blob begins with it.
    salt = models.BinaryField(max_length=32, null=True, editable=False)
    base_digest = models.CharField(max_length=64, blank=True, default="", editable=False)
    rank = models.PositiveIntegerField(null=True, blank=True, editable=False)
    parameters = models.PositiveBigIntegerField(null=True, blank=True, editable=False)
    warnings = models.JSONField(blank=True, default=list, editable=False)
    effect = models.CharField(
        max_length=10, choices=VersionEffect, default=VersionEffect.UNKNOWN, editable=False
    )
    refusal_code = models.CharField(max_length=80, blank=True, default="", editable=False)
    refusal = models.CharField(max_length=1000, blank=True, default="", editable=False)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    ready_at = models.DateTimeField(null=True, blank=True, editable=False)
    # When a worker first had it in its engine.
    live_at = models.DateTimeField(null=True, blank=True, editable=False)
    archived_at = models.DateTimeField(null=True, blank=True, editable=False)
    # From then on nothing can need it any more, and what is stored of it goes.
    delete_at = models.DateTimeField(null=True, blank=True, editable=False)

    objects = ScopedPolicyManager()

    class Meta:
        ordering = ["adapter", "-number"]
        indexes = [
            models.Index(fields=["opaque_name"], name="adapter_version_by_name"),
            models.Index(
                fields=["delete_at"],
                condition=Q(delete_at__isnull=False),
                name="adapter_version_to_delete",
            ),
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["adapter", "number"], name="adapter_version_once_in_adapter"
            ),
            models.CheckConstraint(
                condition=~Q(state="ready")
                | ~Q(opaque_name="") & ~Q(digest="") & ~Q(path="") & Q(rank__isnull=False),
                name="adapter_version_ready_is_stored",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.adapter.name}@{self.number}"

    @property
    def is_ready(self) -> bool:
        return self.state == AdapterState.READY

    @property
    def is_in_progress(self) -> bool:
        """Return whether its upload is still to be validated."""
        return self.state in IN_PROGRESS

    @property
    def needs_probe(self) -> bool:
        """Return whether the worker that loads it first has to find out what it does."""
        return self.effect == VersionEffect.UNKNOWN

    def policy_impact(self) -> PolicyImpact:
        return self.adapter.policy_impact()
