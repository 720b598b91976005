"""Whom requests of an organisation were for, and the views of its usage that somebody has saved."""

from datetime import UTC, datetime, timedelta
from typing import Final

from inference.usage.labels import add_to_label_usage
from inference.usage.rollups import Use
from tenants.models import ApiKey, Membership, Project, SavedView

# Customers, how many thousand tokens of a day each has, and the team that serves them.
_CUSTOMERS: Final = (
    ("customer-4711", 410, "growth"),
    ("customer-0815", 230, "growth"),
    ("nightly import of the archive", 96, "data"),
    ("customer-1102", 61, "support"),
    ("customer-0042", 8, "support"),
)
_VIEWS: Final = (
    ("Spend by project, this month's people", "by=project&then_by=created_by&days=30", True),
    ("Tokens of a week by model", "measure=tokens&by=model&days=7", True),
    ("My keys", "by=api_key&days=14", False),
)


def have_labels_and_views(keys: list[ApiKey], owner: Membership) -> None:
    """Write them; within an operator's scope."""
    key, now = keys[0], datetime.now(UTC)
    Project.objects.filter(id=key.project_id).update(usage_labels=["user", "metadata.team"])
    add_to_label_usage(
        [
            (_use(key, now - timedelta(days=day), thousands), {"user": user, "metadata.team": team})
            for user, thousands, team in _CUSTOMERS
            for day in range(20)
        ]
    )
    for name, query, is_for_all in _VIEWS:
        SavedView.objects.add(owner.tenant, None if is_for_all else owner, name=name, query=query)


def _use(key: ApiKey, at: datetime, thousands: int) -> Use:
    return Use(
        tenant_id=str(key.tenant_id),
        project_id=str(key.project_id),
        api_key_id=str(key.id),
        model="llama-3.1-8b",
        adapter="",
        tier="premium",
        arrived_ms=int(at.timestamp() * 1000),
        outcome="completed",
        prompt_tokens=800 * thousands,
        completion_tokens=200 * thousands,
        cost_nanos=2_517_003 * thousands,
    )
