"""The fleet as operators see it: workers copied from the registry in Redis, which is the truth."""

from datetime import datetime, timedelta

from django.db import models
from django.utils import timezone

from gpu_workers.protocol.messages import WorkerState

LEASE = timedelta(seconds=6)
# The copy is renewed every few seconds, so a live worker's row may be this old.
SEEN_RECENTLY = LEASE + timedelta(seconds=10)


class Worker(models.Model):
    """One worker process, from its registration to its end."""

    worker_id = models.CharField(primary_key=True, max_length=200)
    name = models.CharField(max_length=150)
    pool = models.CharField(max_length=100)
    model = models.CharField(max_length=200)
    engine = models.CharField(max_length=40)
    engine_version = models.CharField(max_length=80)
    state = models.CharField(
        max_length=20, choices=[(state.value, state.value) for state in WorkerState]
    )
    slots = models.PositiveIntegerField()
    running = models.PositiveIntegerField()
    waiting_in_engine = models.PositiveIntegerField()
    context_tokens = models.PositiveIntegerField()
    kv_cache_tokens = models.PositiveBigIntegerField("KV cache (tokens)")
    host = models.CharField(max_length=255)
    pid = models.PositiveIntegerField("process id")
    metrics_url = models.CharField(max_length=500, blank=True)
    started_at = models.DateTimeField()
    last_seen_at = models.DateTimeField()

    class Meta:
        ordering = ["pool", "name", "-started_at"]
        indexes = [models.Index(fields=["pool", "last_seen_at"], name="worker_pool_seen")]

    def __str__(self) -> str:
        return self.worker_id

    def is_live(self, now: datetime | None = None) -> bool:
        """Whether it held its lease when the registry was last copied."""
        return self.last_seen_at > (now or timezone.now()) - SEEN_RECENTLY
