"""API keys as records: what may be known of a key after it was shown once."""

import ipaddress
import uuid
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.core.exceptions import ValidationError
from django.core.validators import RegexValidator
from django.db import models
from django.utils import timezone

from gpu_workers.protocol.policy import ApiKeyPolicy, KeyDigest, Scope
from tenants import api_keys
from tenants.acting import Actor, ActorKind, Verb, audited_as
from tenants.models.policy_version import AffectsPolicy, PolicyQuerySet
from tenants.models.tenant import Project, Tenant
from tenants.scoping import ScopedManager


@dataclass(frozen=True, kw_only=True)
class IssuedApiKey:
    """A new key's record and the key itself, which nobody can read again."""

    record: "ApiKey"
    key: str


class ApiKeyQuerySet(PolicyQuerySet["ApiKey"]):
    def issue(
        self, project: Project, *, name: str = "", key: str | None = None, **fields: object
    ) -> IssuedApiKey:
        """Make a key, or take in one that was made before; `MalformedApiKey` if that is none."""
        record = ApiKey(project=project, tenant_id=project.tenant_id, name=name, **fields)
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
        return self.select_related("project").prefetch_related("quotas", "project__quotas")


ApiKeyManager = ScopedManager.from_queryset(ApiKeyQuerySet)


def _default_scopes() -> list[str]:
    return [Scope.INFERENCE.value]


def check_network(text: str) -> None:
    """Raises `ValidationError` unless the text is an address or a CIDR block without host bits."""
    try:
        ipaddress.ip_network(text)
    except ValueError as error:
        raise ValidationError(f"{text!r} is no network such as 192.0.2.0/24: {error}") from None


class ApiKey(AffectsPolicy):
    """A tenant's key. Holds an HMAC of the key, never the key."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(
        Tenant, on_delete=models.PROTECT, related_name="api_keys", editable=False
    )
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
    # The secret before the last rotation, which works a while longer.
    previous_digest = models.BinaryField(max_length=32, null=True, editable=False)
    previous_expires_at = models.DateTimeField(null=True, editable=False)
    scopes = ArrayField(
        models.CharField(max_length=30, choices=[(scope.value, scope.value) for scope in Scope]),
        default=_default_scopes,
    )
    expires_at = models.DateTimeField(null=True, blank=True, help_text="Empty: never.")
    allowed_networks = ArrayField(
        models.CharField(max_length=50, validators=[check_network]),
        null=True,
        blank=True,
        help_text="Addresses that may use it, as CIDR blocks; empty: any.",
    )
    allowed_models = ArrayField(
        models.CharField(max_length=200), null=True, blank=True, help_text="Empty: any."
    )
    allowed_adapters = ArrayField(
        models.CharField(max_length=200), null=True, blank=True, help_text="Empty: any."
    )
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.SET_NULL,
        null=True,
        editable=False,
        related_name="+",
    )
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    rotated_at = models.DateTimeField(null=True, blank=True, editable=False)
    last_used_at = models.DateTimeField(null=True, blank=True, editable=False)
    revoked_at = models.DateTimeField(null=True, blank=True, editable=False)

    # The key itself, between its making and the one page that shows it. Never stored.
    shown_once: str | None = None

    objects = ApiKeyManager()

    class Meta:
        verbose_name = "API key"
        ordering = ["-created_at"]
        constraints = [
            # What quotas refer to, so that they cannot name another tenant's key.
            models.UniqueConstraint(fields=["id", "tenant"], name="api_key_of_tenant"),
            models.CheckConstraint(
                condition=models.Q(scopes__contained_by=[scope.value for scope in Scope])
                & models.Q(scopes__len__gt=0),
                name="api_key_scopes_are_known",
            ),
        ]

    def __str__(self) -> str:
        return self.masked

    @property
    def masked(self) -> str:
        """Enough to recognise the key by: `pk-<public id>-…<last four>`."""
        return f"{api_keys.PREFIX}-{self.public_id}-…{self.last_four}"

    @property
    def is_revoked(self) -> bool:
        return self.revoked_at is not None

    def as_actor(self) -> Actor:
        return Actor(kind=ActorKind.API_KEY, id=str(self.pk), name=self.name or self.public_id)

    def take(self, key: str) -> str:
        """Become the record of a key: keep what may be kept of it, and hand it back."""
        parsed = api_keys.parse(key)
        self.public_id = parsed.public_id
        self.last_four = parsed.last_four
        self.secret_digest = api_keys.digest(key, settings.PENSTOCK_API_KEY_PEPPER)
        return key

    def is_genuine(self, key: str) -> bool:
        return api_keys.is_genuine(key, bytes(self.secret_digest), settings.PENSTOCK_API_KEY_PEPPER)

    def rotate(self, *, overlap: timedelta) -> str:
        """A new secret under the same id; the one before works for `overlap` more. Returns the
        new key, which nobody can read again."""
        self.previous_digest = bytes(self.secret_digest)
        self.rotated_at = timezone.now()
        self.previous_expires_at = self.rotated_at + overlap
        key = self.take(api_keys.generate(self.public_id))
        with audited_as(Verb.ROTATED):
            self.save(
                update_fields=[
                    "secret_digest",
                    "last_four",
                    "previous_digest",
                    "previous_expires_at",
                    "rotated_at",
                ]
            )
        return key

    def revoke(self) -> datetime:
        """Refuse the key from now on; calling it again keeps the first time. Returns that time."""
        if self.revoked_at is None:
            self.revoked_at = timezone.now()
            with audited_as(Verb.REVOKED):
                self.save(update_fields=["revoked_at"])
        return self.revoked_at

    def to_policy(self) -> ApiKeyPolicy:
        """Asks for quotas; see `with_policy_parts`."""
        return ApiKeyPolicy(
            key_id=str(self.id),
            digests=self._digests(),
            tenant_id=str(self.tenant_id),
            project_id=str(self.project_id),
            scopes=[Scope(scope) for scope in self.scopes],
            expires_at_ms=_milliseconds(self.expires_at),
            networks=self.allowed_networks,
            models=self.allowed_models,
            adapters=self.allowed_adapters,
            limits=[quota.to_policy() for quota in self.quotas.all()],
            project_name=self.project.name,
            project_limits=[quota.to_policy() for quota in self.project.quotas.all()],
            refusal="This API key has been revoked." if self.is_revoked else None,
        )

    def _digests(self) -> list[KeyDigest]:
        digests = [KeyDigest(digest=bytes(self.secret_digest))]
        if self.previous_digest is not None:
            digests.append(
                KeyDigest(
                    digest=bytes(self.previous_digest),
                    expires_at_ms=_milliseconds(self.previous_expires_at),
                )
            )
        return digests


def _milliseconds(moment: datetime | None) -> int | None:
    return None if moment is None else int(moment.timestamp() * 1000)
