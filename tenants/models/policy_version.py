"""The version of the policy snapshot. PostgreSQL counts it up while a change commits."""

import uuid

from django.db import models


class PolicyVersion(models.Model):
    """One row. `mark` is the id of the newest change: a version of the same number from another
    database, or from before a backup was restored, has another."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1, editable=False)
    version = models.PositiveBigIntegerField(default=0)
    mark = models.UUIDField(default=uuid.UUID(int=0), editable=False)

    class Meta:
        constraints = [
            models.CheckConstraint(condition=models.Q(id=1), name="policy_version_is_one_row")
        ]

    def __str__(self) -> str:
        return version_text(self.version, self.mark)

    @classmethod
    def current(cls) -> "PolicyVersion":
        """Return what was committed last; version 0 where nothing ever was."""
        return cls.objects.first() or PolicyVersion()

    @classmethod
    def locked(cls) -> "PolicyVersion":
        """Lock and return the current version: until the transaction ends no change of the policy
        can commit."""
        return cls.objects.select_for_update().first() or PolicyVersion()


def version_text(version: int, mark: uuid.UUID) -> str:
    """Return the version's name in the snapshot in Redis."""
    return f"{version}-{mark.hex[:8]}"
