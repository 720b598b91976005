"""Single sign-on of a tenant: its provider, its mail domains, and who is bound to which subject."""

import secrets
import uuid
from typing import Final

from django.conf import settings
from django.db import models
from django.utils import timezone

from tenants import encryption
from tenants.isolation.scoping import ScopedManager
from tenants.models.tenant import Tenant
from tenants.permissions import Role

_ROLES: Final = [(role.value, role.value) for role in Role]
# The label that a domain's TXT record stands at.
CHALLENGE_LABEL: Final = "_penstock-challenge"


def new_token() -> str:
    return secrets.token_hex(16)


class SignOnConfiguration(models.Model):
    """The OpenID Connect provider of a tenant, and which roles its people have. `roles` maps values
    of the claim `role_claim` to roles; without a claim a role, once given, stays."""

    tenant = models.OneToOneField(
        Tenant, on_delete=models.CASCADE, primary_key=True, related_name="+"
    )
    issuer = models.CharField(max_length=500)
    client_id = models.CharField(max_length=255)
    encrypted_client_secret = models.BinaryField()
    role_claim = models.CharField(max_length=100, blank=True, default="")
    roles = models.JSONField(blank=True, default=dict)
    # Of whoever has none by the claim; empty: they are refused.
    default_role = models.CharField(max_length=20, blank=True, default="", choices=_ROLES)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    objects = ScopedManager["SignOnConfiguration"]()

    class Meta:
        verbose_name = "single sign-on"
        verbose_name_plural = "single sign-on"

    def __str__(self) -> str:
        return self.issuer

    @property
    def client_secret(self) -> str:
        """Raises `encryption.SecretLost`."""
        return encryption.decrypt(bytes(self.encrypted_client_secret), encryption.SIGN_ON)

    @client_secret.setter
    def client_secret(self, secret: str) -> None:
        self.encrypted_client_secret = encryption.encrypt(secret, encryption.SIGN_ON)


class ProofOfDomain(models.TextChoices):
    """Who has seen that a domain is the tenant's."""

    DNS = "dns", "TXT record"
    OPERATOR = "operator", "operator"


class MailDomain(models.Model):
    """A domain that a tenant says its people have addresses in. Proven it is this tenant's alone;
    till then several may claim it, and it is good for nothing."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="+")
    domain = models.CharField(max_length=253)
    token = models.CharField(max_length=32, default=new_token, editable=False)
    proven_at = models.DateTimeField(null=True, blank=True, editable=False)
    proven_by = models.CharField(
        max_length=20, blank=True, default="", choices=ProofOfDomain, editable=False
    )
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    objects = ScopedManager["MailDomain"]()

    class Meta:
        ordering = ["domain"]
        constraints = [
            models.UniqueConstraint(
                fields=["tenant", "domain"],
                name="mail_domain_once_in_tenant",
                violation_error_code="unique_together",
                violation_error_message="This organisation has this domain already.",
            ),
            models.UniqueConstraint(
                fields=["domain"],
                condition=models.Q(proven_at__isnull=False),
                name="mail_domain_proven_once",
                violation_error_message="This domain is proven by another organisation.",
            ),
            models.CheckConstraint(
                condition=models.Q(proven_at=None, proven_by="")
                | models.Q(proven_at__isnull=False) & ~models.Q(proven_by=""),
                name="mail_domain_proven_by_somebody",
            ),
        ]

    def __str__(self) -> str:
        return self.domain

    @property
    def is_proven(self) -> bool:
        return self.proven_at is not None

    @property
    def record_name(self) -> str:
        return f"{CHALLENGE_LABEL}.{self.domain}"

    @property
    def record_value(self) -> str:
        return f"penstock-domain-verification={self.token}"


class SignOnIdentity(models.Model):
    """Whom a provider means by a subject. Bound at the first sign-in, and never found by an
    address again."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="+", db_index=False)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    issuer = models.CharField(max_length=500)
    subject = models.CharField(max_length=255)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    last_used_at = models.DateTimeField(default=timezone.now, editable=False)

    objects = ScopedManager["SignOnIdentity"]()

    class Meta:
        verbose_name_plural = "sign-on identities"
        constraints = [
            models.UniqueConstraint(
                fields=["tenant", "issuer", "subject"], name="sign_on_subject_once_in_tenant"
            ),
            models.UniqueConstraint(
                fields=["tenant", "issuer", "user"], name="sign_on_user_once_at_issuer"
            ),
        ]

    def __str__(self) -> str:
        return str(self.id)
