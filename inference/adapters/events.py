"""What a tenant is told of its adapters' versions, once of each."""

from collections.abc import Mapping
from typing import Any

from inference.models.adapter import AdapterVersion
from tenants.webhooks.event_types import EventType
from tenants.webhooks.events import publish


def tell_live(version: AdapterVersion) -> None:
    """Tell that a worker has a version in its engine, for the first time."""
    _tell(version, EventType.ADAPTER_LIVE, {})


def tell_refused(version: AdapterVersion) -> None:
    """Tell that a version can answer nobody, and why."""
    refusal = {"code": version.refusal_code, "message": version.refusal}
    _tell(version, EventType.ADAPTER_REFUSED, refusal)


def _tell(version: AdapterVersion, kind: EventType, more: Mapping[str, Any]) -> None:
    adapter = version.adapter
    data = {
        "adapter_id": adapter.pk,
        "adapter": adapter.name,
        "version_id": version.pk,
        "version": version.number,
        "model": adapter.model_id,
        "permille": adapter.permille_of(version.number),
        **more,
    }
    publish(version.tenant_id, kind, data, key=str(version.pk))
