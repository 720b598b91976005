"""What Celery counts for /metrics; `control_plane/celery.py` says when."""

from celery import shared_task
from django.conf import settings
from django.db.models import Count, Min, Q
from django.utils import timezone

from control_plane.status.background import Figures, background_redis, note_figures
from inference.models import UsageQuarantine
from inference.models.usage import QuarantineCause
from tenants.billing.models import PoolCost, ProviderEvent
from tenants.isolation.scoping import operator_scope
from tenants.webhooks.models import Delivery, EmailNotice
from tenants.webhooks.models.delivery import DeliveryState
from tenants.webhooks.models.email import EmailState

_NANOS_IN_A_MICRO = 1000


@shared_task(name="control_plane.count_for_metrics", expires=15)  # type: ignore[untyped-decorator]
def count_for_metrics() -> int:
    """Count in PostgreSQL what /metrics shows; returns how many webhooks wait. Whoever scrapes has
    no rights there, and comes as often as it likes."""
    with operator_scope("figures for metrics"):
        figures = _figures()
    with background_redis(settings.PENSTOCK_REDIS_URL) as redis:
        note_figures(redis, figures)
    return figures.webhooks_waiting


def _figures() -> Figures:
    now = timezone.now()
    waiting = Delivery.objects.filter(state=DeliveryState.PENDING.value)
    oldest = waiting.aggregate(at=Min("next_attempt_at"))["at"]
    emails = EmailNotice.objects.filter(state=EmailState.PENDING.value)
    costs = PoolCost.objects.filter(
        Q(effective_until=None) | Q(effective_until__gt=now), effective_from__lte=now
    )
    quarantined = UsageQuarantine.objects.order_by().values_list("cause").annotate(Count("id"))
    return Figures(
        webhooks_waiting=waiting.count(),
        webhooks_oldest_due_seconds=max(0.0, (now - oldest).total_seconds()) if oldest else 0.0,
        emails_waiting=emails.count(),
        worker_hour_nanos={
            cost.pool: cost.micros_per_gpu_hour * cost.gpus_per_worker * _NANOS_IN_A_MICRO
            for cost in costs
        },
        payment_events_unresolved=ProviderEvent.objects.unresolved().count(),
        quarantined=dict.fromkeys(QuarantineCause.values, 0) | dict(quarantined),
    )
