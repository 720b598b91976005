"""Invitations: who was asked to join a tenant, in which role, and what came of it."""

import uuid
from datetime import datetime, timedelta
from typing import Final

from django.conf import settings
from django.db import models
from django.utils import timezone

from tenants.isolation.scoping import ScopedManager
from tenants.models.api_key import ApiKey
from tenants.models.tenant import Tenant
from tenants.permissions import Role

LIFETIME: Final = timedelta(days=7)


class InvitationState(models.TextChoices):
    """`open` can be accepted. An open one expires by itself; the others are on record."""

    OPEN = "open"
    ACCEPTED = "accepted"
    DECLINED = "declined"
    WITHDRAWN = "withdrawn"
    EXPIRED = "expired"


_OUTCOMES: Final = [(state.value, state.label) for state in InvitationState if state != "open"]


class Invitation(models.Model):
    """An email address was asked to join. Holds a digest of the link's token, never the token.

    Whoever sent the link last stands behind it: a member (`invited_by`), a key (`api_key`), or
    neither, the operator.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="invitations")
    email = models.EmailField()
    role = models.CharField(max_length=20, choices=[(role.value, role.value) for role in Role])
    # With whoever vouches for it an invitation goes: without them it would be the operator's.
    invited_by = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.CASCADE,
        null=True,
        editable=False,
        related_name="+",
    )
    api_key = models.ForeignKey(
        ApiKey, on_delete=models.CASCADE, null=True, editable=False, related_name="+"
    )
    digest = models.BinaryField(max_length=32, unique=True, editable=False)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    sent_at = models.DateTimeField(default=timezone.now, editable=False)
    expires_at = models.DateTimeField(editable=False)
    outcome = models.CharField(max_length=20, choices=_OUTCOMES, default="", blank=True)
    ended_at = models.DateTimeField(null=True, blank=True, editable=False)

    objects = ScopedManager["Invitation"]()

    class Meta:
        ordering = ["-created_at"]
        indexes = [
            models.Index(
                fields=["tenant", "-created_at", "-id"], name="invitation_newest_of_tenant"
            )
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["tenant", "email"],
                condition=models.Q(outcome=""),
                name="invitation_open_once_in_tenant",
                violation_error_message="This address has an open invitation already.",
            ),
            models.CheckConstraint(
                condition=models.Q(outcome="", ended_at=None)
                | ~models.Q(outcome="") & models.Q(ended_at__isnull=False),
                name="invitation_ended_with_outcome",
            ),
        ]

    def __str__(self) -> str:
        return self.email

    @property
    def state(self) -> InvitationState:
        """Return the state as of now."""
        if self.outcome:
            return InvitationState(self.outcome)
        is_over = self.expires_at <= timezone.now()
        return InvitationState.EXPIRED if is_over else InvitationState.OPEN

    def renew(self, digest: bytes) -> None:
        """Let the token of that digest, and no other, work for seven days from now."""
        self.digest = digest
        self.sent_at = timezone.now()
        self.expires_at = self.sent_at + LIFETIME

    def end(self, outcome: InvitationState, at: datetime | None = None) -> None:
        """Put what came of it on record: its link does not work any more."""
        self.outcome, self.ended_at = outcome.value, at or timezone.now()
        self.save(update_fields=["outcome", "ended_at"])
