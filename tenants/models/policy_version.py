"""The version of the policy snapshot, bumped in the transaction of every change it must show."""

import uuid
from collections.abc import Iterable
from typing import Any, TypeVar

from django.db import models, transaction
from django.db.models import F

from tenants.scoping import ScopedManager

_Row = TypeVar("_Row", bound=models.Model)


class PolicyVersion(models.Model):
    """One row. `epoch` tells the snapshot of this database from that of another one."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1, editable=False)
    version = models.PositiveBigIntegerField(default=0)
    epoch = models.UUIDField(default=uuid.uuid4, editable=False)

    class Meta:
        constraints = [
            models.CheckConstraint(condition=models.Q(id=1), name="policy_version_is_one_row")
        ]

    def __str__(self) -> str:
        return f"{self.version}-{self.epoch.hex[:8]}"

    @classmethod
    def bump(cls) -> None:
        """Note a change; call it inside the change's transaction. Redis follows after the commit.

        The row stays locked until then, so that changes reach the snapshot in their order.
        """
        # The writer reads every model that makes the policy, this one among them.
        from tenants.policy import publish_after_commit

        if not cls.objects.filter(id=1).update(version=F("version") + 1):
            PolicyVersion.objects.bulk_create([PolicyVersion(id=1)], ignore_conflicts=True)
            cls.objects.filter(id=1).update(version=F("version") + 1)
        publish_after_commit()

    @classmethod
    def locked(cls) -> "PolicyVersion":
        """The row, locked: until the transaction ends no change of the policy can commit."""
        PolicyVersion.objects.bulk_create([PolicyVersion(id=1)], ignore_conflicts=True)
        return cls.objects.select_for_update().get(id=1)


class PolicyQuerySet(models.QuerySet[_Row]):
    """Writes in bulk bump the version too."""

    def update(self, **kwargs: Any) -> int:
        with transaction.atomic(using=self.db):
            changed = super().update(**kwargs)
            if changed:
                PolicyVersion.bump()
        return changed

    def delete(self) -> tuple[int, dict[str, int]]:
        with transaction.atomic(using=self.db):
            deleted = super().delete()
            PolicyVersion.bump()
        return deleted

    def bulk_create(self, objs: Iterable[_Row], *args: Any, **kwargs: Any) -> list[_Row]:
        with transaction.atomic(using=self.db):
            created = super().bulk_create(objs, *args, **kwargs)
            PolicyVersion.bump()
        return created


# Of what is everybody's, and of what belongs to tenants.
PolicyManager = models.Manager.from_queryset(PolicyQuerySet)
ScopedPolicyManager = ScopedManager.from_queryset(PolicyQuerySet)


class AffectsPolicy(models.Model):
    """A model whose every change must reach the gateways. Its `objects` must be made from
    `PolicyQuerySet`, so that changes in bulk do too."""

    class Meta:
        abstract = True

    def save(self, *args: Any, **kwargs: Any) -> None:
        with transaction.atomic():
            super().save(*args, **kwargs)
            PolicyVersion.bump()

    def delete(self, *args: Any, **kwargs: Any) -> tuple[int, dict[str, int]]:
        with transaction.atomic():
            deleted = super().delete(*args, **kwargs)
            PolicyVersion.bump()
        return deleted
