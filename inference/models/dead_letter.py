"""Dead letters as operators see them: copied from the dispatch Redis, without their payload."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import models, transaction
from django.utils import timezone

RETENTION = timedelta(days=7)
# What a later copy leaves as it is.
_OUR_OWN = ("request_id", "retried_at", "retry_outcome")


@dataclass(frozen=True, kw_only=True)
class DeadLetterFacts:
    """What a letter in Redis says of itself."""

    request_id: str
    pool: str
    model: str
    api: str
    attempts: int
    last_worker_id: str
    died_at: datetime


class DeadLetterManager(models.Manager["DeadLetter"]):
    @transaction.atomic
    def sync(self, kept: Iterable[DeadLetterFacts], now: datetime | None = None) -> None:
        """Note which are in Redis now, and forget those long gone."""
        now = now or timezone.now()
        rows = [DeadLetter(**vars(facts), is_kept=True) for facts in kept]
        fields = [field.name for field in DeadLetter._meta.concrete_fields]
        self.bulk_create(
            rows,
            update_conflicts=True,
            unique_fields=["request_id"],
            update_fields=[name for name in fields if name not in _OUR_OWN],
        )
        gone = self.exclude(request_id__in=[row.request_id for row in rows])
        gone.filter(is_kept=True).update(is_kept=False)
        gone.filter(died_at__lt=now - RETENTION).delete()

    def note_retry(self, request_id: str, end: str, now: datetime | None = None) -> None:
        self.filter(request_id=request_id).update(
            retried_at=now or timezone.now(), retry_outcome=end
        )


class DeadLetter(models.Model):
    """A request that every worker died with."""

    request_id = models.UUIDField(primary_key=True)
    pool = models.CharField(max_length=100)
    model = models.CharField(max_length=200)
    api = models.CharField("API", max_length=40)
    attempts = models.PositiveIntegerField()
    last_worker_id = models.CharField("last worker", max_length=200, blank=True)
    died_at = models.DateTimeField("failed at")
    is_kept = models.BooleanField(
        "payload stored",
        help_text="Stored for one day, until a retry succeeds, or until it is discarded.",
    )
    retried_at = models.DateTimeField(null=True)
    retry_outcome = models.CharField(
        "retry outcome", max_length=100, blank=True, help_text="The outcome and any error."
    )

    objects = DeadLetterManager()

    class Meta:
        ordering = ["-died_at"]

    def __str__(self) -> str:
        return str(self.request_id)
