"""API keys as records: what may be known of a key after it was shown once."""

import uuid
from dataclasses import dataclass
from datetime import datetime

from django.conf import settings
from django.core.validators import RegexValidator
from django.db import models
from django.utils import timezone

from gpu_workers.protocol.policy import ApiKeyPolicy
from tenants import api_keys
from tenants.models.policy_version import AffectsPolicy, PolicyQuerySet
from tenants.models.tenant import Project


@dataclass(frozen=True, kw_only=True)
class IssuedApiKey:
    """A new key's record and the key itself, which nobody can read again."""

    record: "ApiKey"
    key: str


class ApiKeyQuerySet(PolicyQuerySet["ApiKey"]):
    def issue(self, project: Project, *, name: str = "", key: str | None = None) -> IssuedApiKey:
        """Make a key, or take in one that was made before; `MalformedApiKey` if that is none."""
        record = ApiKey(project=project, name=name)
        key = record.take(api_keys.generate() if key is None else key)
        record.save(force_insert=True)
        return IssuedApiKey(record=record, key=key)

    def find(self, key: str) -> "ApiKey | None":
        """The record of a key, revoked or not, if the key is genuine."""
        try:
            public_id = api_keys.parse(key).public_id
        except api_keys.MalformedApiKey:
            return None
        record = self.filter(public_id=public_id).first()
        if record is None or not record.is_genuine(key):
            return None
        return record

    def with_policy_parts(self) -> "ApiKeyQuerySet":
        return self.select_related("project__tenant__tier")


class ApiKey(AffectsPolicy):
    """A tenant's key. Holds an HMAC of the key, never the key."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="api_keys")
    name = models.CharField(max_length=200, blank=True, help_text="What the key is for.")
    public_id = models.CharField(
        max_length=api_keys.PUBLIC_ID_LENGTH,
        unique=True,
        editable=False,
        validators=[RegexValidator(r"\A[a-z0-9]{16}\Z")],
    )
    last_four = models.CharField(max_length=4, editable=False)
    secret_digest = models.BinaryField(max_length=32, editable=False)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    revoked_at = models.DateTimeField(null=True, blank=True, editable=False)

    # The key itself, between its making and the one page that shows it. Never stored.
    shown_once: str | None = None

    objects = ApiKeyQuerySet.as_manager()  # type: ignore[misc]

    class Meta:
        verbose_name = "API key"
        ordering = ["-created_at"]

    def __str__(self) -> str:
        return self.masked

    @property
    def masked(self) -> str:
        """Enough to recognise the key by: `pk-<public id>-…<last four>`."""
        return f"{api_keys.PREFIX}-{self.public_id}-…{self.last_four}"

    @property
    def is_revoked(self) -> bool:
        return self.revoked_at is not None

    def take(self, key: str) -> str:
        """Become the record of a key: keep what may be kept of it, and hand it back."""
        parsed = api_keys.parse(key)
        self.public_id = parsed.public_id
        self.last_four = parsed.last_four
        self.secret_digest = api_keys.digest(key, settings.PENSTOCK_API_KEY_PEPPER)
        return key

    def is_genuine(self, key: str) -> bool:
        return api_keys.is_genuine(key, bytes(self.secret_digest), settings.PENSTOCK_API_KEY_PEPPER)

    def revoke(self) -> datetime:
        """Refuse the key from now on; calling it again keeps the first time. Returns that time."""
        if self.revoked_at is None:
            self.revoked_at = timezone.now()
            self.save(update_fields=["revoked_at"])
        return self.revoked_at

    def to_policy(self) -> ApiKeyPolicy:
        tenant = self.project.tenant
        return ApiKeyPolicy(
            key_id=str(self.id),
            secret_digest=bytes(self.secret_digest),
            tenant_id=str(tenant.id),
            tenant_name=tenant.name,
            project_id=str(self.project_id),
            tier=tenant.tier.to_policy(),
            refusal=self._refusal(),
        )

    def _refusal(self) -> str | None:
        if self.is_revoked:
            return "This API key has been revoked."
        if self.project.tenant.is_suspended:
            return "This API key's organisation is suspended; ask the operator of the service."
        return None
