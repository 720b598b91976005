"""What a change affects of the policy snapshot, noted in the change's own transaction."""

import uuid
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from typing import Any, ClassVar, Final, NamedTuple, TypeVar

from django.contrib.postgres.fields import ArrayField
from django.db import models, transaction

from tenants.isolation.scoping import ScopedManager
from tenants.models.policy_version import version_text

_Row = TypeVar("_Row", bound="AffectsPolicy")

# A change of more rows than this has the whole snapshot written anew.
MAX_ROWS: Final = 5000


_publishers: list[Callable[[], None]] = []


def register_publisher(publish_after_commit: Callable[[], None]) -> None:
    """Register what brings noted changes to Redis after the commit. The policy writer reads every
    model that makes the policy, so it stands on a floor above them."""
    if publish_after_commit not in _publishers:
        _publishers.append(publish_after_commit)


class PolicyPart(models.TextChoices):
    """What a change names, by the ids in brackets, and so which rows of the snapshot it reaches."""

    API_KEYS = "api_keys"  # [public ids]: their rows
    PROJECTS = "projects"  # [ids]: the rows of their keys
    TENANTS = "tenants"  # [ids]: their rows
    TIERS = "tiers"  # [ids]: the rows of their tenants
    MODELS = "models"  # []: all models
    ADAPTERS = "adapters"  # [public names]: their rows, and the lists of their tenants
    EVERYTHING = "everything"  # []: the whole snapshot


class PolicyImpact(NamedTuple):
    """The rows of the snapshot that a change affects, by the record that they are made from."""

    part: PolicyPart
    row_id: str = ""


class PolicyChangeQuerySet(models.QuerySet["PolicyChange"]):
    def after(self, written: str | None) -> "list[PolicyChange] | None":
        """Return the committed changes after a version of the snapshot, in their order; None where
        that is no version that this database remembers."""
        number = (written or "").partition("-")[0]
        if not (number.isascii() and number.isdigit() and len(number) < 19):
            return None
        changes = list(self.filter(version__gte=int(number)).order_by("version"))
        if not changes or str(changes[0]) != written:
            return None
        return changes[1:]


class PolicyChange(models.Model):
    """One change. A deferred trigger numbers it while its transaction commits (see
    `policy/versions.sql`), so versions are in the order of commits, and nobody waits for a long
    transaction to number their own."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    part = models.CharField(max_length=20, choices=PolicyPart)
    row_ids = ArrayField(models.TextField(), default=list)
    version = models.PositiveBigIntegerField(null=True, unique=True, editable=False)

    objects = PolicyChangeQuerySet.as_manager()

    def __str__(self) -> str:
        return version_text(self.version or 0, self.id)

    @classmethod
    def note(cls, impacts: Iterable[PolicyImpact], *, at_once: bool = True) -> None:
        """Call it inside the change's transaction. Redis follows after the commit, if not
        `at_once` when the reconciler looks next, seconds later."""
        rows: defaultdict[PolicyPart, set[str]] = defaultdict(set)
        for part, row_id in impacts:
            rows[part].add(row_id)
        if not rows:
            return
        if sum(map(len, rows.values())) > MAX_ROWS:
            rows = defaultdict(set, {PolicyPart.EVERYTHING: {""}})
        cls.objects.bulk_create(
            cls(part=part, row_ids=sorted(row_ids - {""})) for part, row_ids in rows.items()
        )
        if at_once:
            for publish_after_commit in _publishers:
                publish_after_commit()


class PolicyQuerySet(models.QuerySet[_Row]):
    """Writes in bulk are noted too."""

    def update(self, **kwargs: Any) -> int:
        if not self.model.shows_in_policy(kwargs):
            return super().update(**kwargs)
        with transaction.atomic(using=self.db):
            rows, only_them = self._locked()
            changed = super(PolicyQuerySet, only_them).update(**kwargs)
            PolicyChange.note(row.policy_impact() for row in rows)
        return changed

    def delete(self) -> tuple[int, dict[str, int]]:
        with transaction.atomic(using=self.db):
            rows, only_them = self._locked()
            impacts = [row.policy_impact() for row in rows]
            deleted = super(PolicyQuerySet, only_them).delete()
            PolicyChange.note(impacts)
        return deleted

    def bulk_create(self, objs: Iterable[_Row], *args: Any, **kwargs: Any) -> list[_Row]:
        with transaction.atomic(using=self.db):
            created = super().bulk_create(objs, *args, **kwargs)
            PolicyChange.note(row.policy_impact() for row in created)
        return created

    def _locked(self) -> "tuple[list[_Row], PolicyQuerySet[_Row]]":
        """Lock and return the rows as they are now, with a query for just them: one that comes to
        match a moment later is not changed without a note."""
        plain: PolicyQuerySet[_Row] = PolicyQuerySet(self.model, using=self.db)
        wanted = self.order_by().values("pk")
        rows = list(plain.filter(pk__in=wanted).select_for_update().order_by("pk"))
        return rows, plain.filter(pk__in=[row.pk for row in rows])


# Of what is everybody's, and of what belongs to tenants.
PolicyManager = models.Manager.from_queryset(PolicyQuerySet)
ScopedPolicyManager = ScopedManager.from_queryset(PolicyQuerySet)


class AffectsPolicy(models.Model):
    """A model whose every change must reach the gateways. Its `objects` must be made from
    `PolicyQuerySet`, so that changes in bulk do too."""

    # Fields that the snapshot does not show: writing only them is no change of the policy.
    non_policy_fields: ClassVar[frozenset[str]] = frozenset()

    class Meta:
        abstract = True

    def policy_impact(self) -> PolicyImpact:
        """Return what a change of this record affects."""
        raise NotImplementedError

    @classmethod
    def shows_in_policy(cls, fields: Collection[str]) -> bool:
        return not cls.non_policy_fields.issuperset(fields)

    def save(self, *args: Any, **kwargs: Any) -> None:
        fields = kwargs.get("update_fields")
        if fields and not self.shows_in_policy(fields):
            return super().save(*args, **kwargs)
        with transaction.atomic():
            super().save(*args, **kwargs)
            PolicyChange.note([self.policy_impact()])
        return None

    def delete(self, *args: Any, **kwargs: Any) -> tuple[int, dict[str, int]]:
        with transaction.atomic():
            impact = self.policy_impact()
            deleted = super().delete(*args, **kwargs)
            PolicyChange.note([impact])
        return deleted
