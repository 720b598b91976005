"""API keys as records: what may be known of a key after it was shown once."""

import ipaddress
import uuid
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.core.exceptions import ValidationError
from django.core.validators import RegexValidator
from django.db import models
from django.utils import timezone

from gpu_workers.protocol.policy import Scope
from tenants import key_format
from tenants.isolation.audit_actor import Actor, ActorKind, Verb, audited_as
from tenants.isolation.scoping import ScopedManager
from tenants.models.policy_change import AffectsPolicy, PolicyImpact, PolicyPart, PolicyQuerySet
from tenants.models.tenant import Project, Tenant
from tenants.names import one_line

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class ApiKeyQuerySet(PolicyQuerySet["ApiKey"]):
    def find(self, key: str) -> "ApiKey | None":
        """Return the record of a key, revoked or not, if the key is genuine."""
        try:
            public_id = key_format.parse(key).public_id
        except key_format.MalformedApiKey:
            return None
        record = self.filter(public_id=public_id).first()
        if record is None or not record.is_genuine(key):
            return None
        return record

    def with_tenant(self, public_id: str) -> "ApiKey | None":
        """Return the key with all that the policies of key and tenant read, or None."""
        found = self.select_related("project", "tenant__tier", "budget_key")
        quotas = ("quotas", "project__quotas", "tenant__quotas", "budget_key__quotas")
        return found.filter(public_id=public_id).prefetch_related(*quotas).first()


ApiKeyManager = ScopedManager.from_queryset(ApiKeyQuerySet)


def default_scopes() -> list[str]:
    return [Scope.INFERENCE.value]


def parse_network(text: str) -> Network:
    """Parse an address or a CIDR block. Raises `ValidationError` for anything else, and for a block
    with host bits set."""
    try:
        return ipaddress.ip_network(text.strip())
    except ValueError as error:
        raise ValidationError(
            f"{text!r} is not a network in CIDR notation, e.g. 192.0.2.0/24: {error}.",
            code="invalid_network",
        ) from None


def check_network(text: str) -> None:
    parse_network(text)


class ApiKey(AffectsPolicy):
    """A tenant's key. Holds an HMAC of the key, never the key.

    One of a playground stands for a member in a project. It never had a secret, so nobody can
    present it: its requests come by tickets that the member's session gets.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(
        Tenant, on_delete=models.PROTECT, related_name="api_keys", editable=False
    )
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="api_keys")
    name = models.CharField(
        max_length=200, blank=True, validators=[one_line], help_text="What the key is for."
    )
    public_id = models.CharField(
        max_length=key_format.PUBLIC_ID_LENGTH,
        unique=True,
        editable=False,
        validators=[RegexValidator(r"\A[a-z0-9]{16}\Z")],
    )
    last_four = models.CharField(max_length=4, editable=False)
    secret_digest = models.BinaryField(max_length=32, editable=False)
    # The secret before the last rotation, which works a while longer.
    previous_digest = models.BinaryField(max_length=32, null=True, editable=False)
    previous_expires_at = models.DateTimeField("old key valid until", null=True, editable=False)
    scopes = ArrayField(
        models.CharField(max_length=30, choices=[(scope.value, scope.value) for scope in Scope]),
        default=default_scopes,
    )
    expires_at = models.DateTimeField(
        null=True, blank=True, help_text="Leave blank if the key should not expire."
    )
    allowed_networks = ArrayField(
        models.CharField(max_length=50, validators=[check_network]),
        null=True,
        blank=True,
        help_text="CIDR blocks that may use the key. Leave blank for any address.",
    )
    allowed_models = ArrayField(
        models.CharField(max_length=200),
        null=True,
        blank=True,
        help_text="Leave blank for every model that the tenant may use.",
    )
    allowed_adapters = ArrayField(
        models.CharField(max_length=200),
        null=True,
        blank=True,
        help_text="Leave blank for all of the tenant's adapters.",
    )
    # At whose quotas its requests count, with those quotas: see access/widths/budgets.py.
    budget_key = models.ForeignKey(
        "self",
        verbose_name="counts into",
        on_delete=models.RESTRICT,
        null=True,
        editable=False,
        related_name="family",
    )
    is_playground = models.BooleanField("playground", default=False, editable=False)
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

    non_policy_fields = frozenset({"name", "last_used_at"})

    # The key itself, between its making and the one page that shows it. Never stored.
    shown_once: str | None = None

    objects = ApiKeyManager()

    class Meta:
        verbose_name = "API key"
        ordering = ["-created_at"]
        indexes = [
            models.Index(fields=["-created_at", "-id"], name="api_key_newest"),
            models.Index(fields=["tenant", "-created_at", "-id"], name="api_key_newest_of_tenant"),
        ]
        constraints = [
            # What quotas refer to, so that they cannot name another tenant's key.
            models.UniqueConstraint(fields=["id", "tenant"], name="api_key_of_tenant"),
            models.CheckConstraint(
                condition=models.Q(scopes__contained_by=[scope.value for scope in Scope])
                & models.Q(scopes__len__gt=0),
                name="api_key_scopes_are_known",
            ),
            models.CheckConstraint(
                condition=models.Q(is_playground=False)
                | models.Q(secret_digest=b"", previous_digest=None),
                name="api_key_of_playground_has_no_secret",
            ),
            models.UniqueConstraint(
                fields=["project", "created_by"],
                condition=models.Q(is_playground=True, revoked_at=None),
                name="api_key_of_playground_once",
            ),
        ]

    def __str__(self) -> str:
        return self.masked

    @property
    def masked(self) -> str:
        """Return enough to recognise the key by: `pk-<public id>-…<last four>`."""
        if self.is_playground:
            return f"{key_format.PREFIX}-{self.public_id} (no secret)"
        return f"{key_format.PREFIX}-{self.public_id}-…{self.last_four}"

    @property
    def title(self) -> str:
        """Return what people call the key: its name, or where it has none how it looks."""
        return self.name or self.masked

    @property
    def is_revoked(self) -> bool:
        return self.revoked_at is not None

    def as_actor(self) -> Actor:
        return Actor(kind=ActorKind.API_KEY, id=str(self.pk), name=self.name or self.public_id)

    def clean(self) -> None:
        super().clean()
        self._take_tenant()
        if self.project_id is not None and self.project.tenant_id != self.tenant_id:
            raise ValidationError({"project": "The project is not of the key's tenant."})

    def save(self, *args: Any, **kwargs: Any) -> None:
        self._take_tenant()
        super().save(*args, **kwargs)

    def set_no_key(self) -> None:
        """Make this the record of a playground's key, which nobody can present."""
        self.is_playground = True
        self.public_id = key_format.new_public_id()
        self.last_four, self.secret_digest = "", b""

    def set_key(self, key: str) -> str:
        """Make this the record of a key: store what may be stored of it, and return it."""
        parsed = key_format.parse(key)
        self.public_id = parsed.public_id
        self.last_four = parsed.last_four
        self.secret_digest = key_format.digest(key, settings.PENSTOCK_API_KEY_PEPPER)
        return key

    @staticmethod
    def possible_digests(key: str) -> list[bytes]:
        """Return the digests that the record of this key may hold, one for each pepper in use."""
        return [key_format.digest(key, pepper) for pepper in _peppers()]

    def is_genuine(self, key: str) -> bool:
        """Return whether it is this key, under any pepper in use, or has the secret before the last
        rotation while that works."""
        now = timezone.now()
        return any(
            key_format.is_genuine(key, digest, pepper)
            for digest, expires_at in self.digests()
            for pepper in _peppers()
            if expires_at is None or expires_at > now
        )

    def digests(self) -> list[tuple[bytes, datetime | None]]:
        """Return what the record holds of its secrets, the newest first, and until when each
        works (None: no end). A playground's key has none."""
        if self.is_playground:
            return []
        digests: list[tuple[bytes, datetime | None]] = [(bytes(self.secret_digest), None)]
        if self.previous_digest is not None:
            digests.append((bytes(self.previous_digest), self.previous_expires_at))
        return digests

    def replace_secret(self, overlap: timedelta) -> str:
        """Return a new key under the same id; the one before works for `overlap` more. Who may
        have it is for `access.api_keys.rotate_api_key` to say."""
        self.previous_digest = bytes(self.secret_digest)
        self.rotated_at = timezone.now()
        self.previous_expires_at = self.rotated_at + overlap
        key = self.set_key(key_format.generate(self.public_id))
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

    def policy_impact(self) -> PolicyImpact:
        return PolicyImpact(PolicyPart.API_KEYS, self.public_id)

    def _take_tenant(self) -> None:
        if self._state.adding and self.tenant_id is None and self.project_id is not None:
            self.tenant_id = self.project.tenant_id


def _peppers() -> list[bytes]:
    return [settings.PENSTOCK_API_KEY_PEPPER, *settings.PENSTOCK_PREVIOUS_API_KEY_PEPPERS]
