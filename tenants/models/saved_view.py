"""Views of usage that somebody has named: a range, filters and a grouping to come back to."""

import uuid
from typing import Final

from django.core.exceptions import ValidationError
from django.db import models
from django.db.models import Q
from django.utils import timezone

from tenants.isolation.scoping import ScopedManager
from tenants.models.tenant import Membership, Tenant
from tenants.names import one_line

MOST_OWN: Final = 20
MOST_FOR_ALL: Final = 50


class SavedViewManager(ScopedManager["SavedView"]):
    def seen_by(self, member: Membership | None) -> "models.QuerySet[SavedView]":
        """Return the views of the open tenant that a member sees, their own and those for all, by
        name; of an operator who acts as one those for all."""
        seen = Q(owner=None) if member is None else Q(owner=None) | Q(owner=member)
        return self.filter(seen).order_by("name", "created_at")

    def add(
        self, tenant: Tenant, owner: Membership | None, *, name: str, query: str
    ) -> "SavedView":
        """Save a view of the owner, or without one for all; who may is the door's to check. Raises
        `ValidationError` for a name that is taken or none, and where there are as many views as
        there may be."""
        view = SavedView(tenant=tenant, owner=owner, name=name.strip(), query=query)
        most = MOST_FOR_ALL if owner is None else MOST_OWN
        # One after the other: two at once would both be the last that has room.
        Tenant.objects.select_for_update(no_key=True).get(pk=tenant.pk)
        if self.filter(tenant=tenant, owner=owner).count() >= most:
            whose = "for everybody" if owner is None else "of your own"
            full = f"There are {most} views {whose} already; delete one first."
            raise ValidationError({"name": ValidationError(full, code="too_many")})
        view.full_clean()
        view.save(force_insert=True)
        return view


class SavedView(models.Model):
    """`query` is that of the page's address. One without an owner is for all of the tenant; that of
    a member ends with the membership."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="saved_views")
    owner = models.ForeignKey(
        Membership, on_delete=models.CASCADE, null=True, blank=True, related_name="saved_views"
    )
    name = models.CharField(max_length=80, validators=[one_line])
    query = models.CharField(max_length=4000, blank=True)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    objects = SavedViewManager()

    class Meta:
        ordering = ["name"]
        constraints = [
            models.UniqueConstraint(
                fields=["tenant", "name"],
                condition=Q(owner=None),
                name="saved_view_once_for_all",
                violation_error_message="There is a view of this name for everybody already.",
            ),
            models.UniqueConstraint(
                fields=["owner", "name"],
                condition=Q(owner__isnull=False),
                name="saved_view_once_of_member",
                violation_error_message="You have a view of this name already.",
            ),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def is_for_all(self) -> bool:
        return self.owner_id is None
