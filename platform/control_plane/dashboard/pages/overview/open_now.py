"""What of the organisation is open now, with its places in the queues."""

import uuid
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from control_plane.live.dispatch_redis import dashboards_redis
from control_plane.live.panels import Panel
from inference.dispatch.queue import RequestState
from inference.models.catalog import models_visible_to
from inference.operations.open_requests import OpenRequest, PoolUse, read_open
from tenants.models import ApiKey, Project, Tenant


@dataclass(frozen=True, kw_only=True)
class QueueRow:
    """What runs and waits on a pool's models, and what one more request would find."""

    models: str
    use: PoolUse


@dataclass(frozen=True, kw_only=True)
class RequestRow:
    """An open request: `models` of its pool, and for how long it has been open, in ms."""

    request: OpenRequest
    models: str
    key: str
    project: str
    open_ms: int

    @property
    def is_waiting(self) -> bool:
        return self.request.state is RequestState.QUEUED


@dataclass(frozen=True, kw_only=True)
class OpenNow:
    count: int
    queues: tuple[QueueRow, ...]
    requests: tuple[RequestRow, ...]


def open_panel(tenant: Tenant) -> Panel:
    return Panel(
        name="open",
        title="Open now",
        template="dashboard/overview/open.html",
        read=lambda: _read(tenant),
        variant=str(tenant.id),
        redis="The queue",
    )


def _read(tenant: Tenant) -> OpenNow:
    """Return what is open. Raises `RedisError` within seconds."""
    names: defaultdict[str, list[str]] = defaultdict(list)
    for model in models_visible_to(tenant.id):
        names[model.pool].append(model.name)
    with dashboards_redis() as redis:
        found = read_open(redis, str(tenant.id), tenant.tier.service_class, sorted(names))
    models = {pool: ", ".join(each) for pool, each in names.items()}
    keys = ApiKey.objects.in_bulk(_ids(each.key_id for each in found.requests))
    projects = Project.objects.in_bulk(_ids(each.project_id for each in found.requests))
    now_ms = int(datetime.now(UTC).timestamp() * 1000)
    return OpenNow(
        count=found.count,
        queues=tuple(
            QueueRow(models=models[use.pool], use=use)
            for use in found.pools
            if use.running or use.waiting
        ),
        requests=tuple(
            RequestRow(
                request=each,
                models=models.get(each.pool, each.pool),
                key=_key_word(keys.get(uuid.UUID(each.key_id))),
                project=_project_word(projects.get(uuid.UUID(each.project_id))),
                open_ms=max(0, now_ms - each.at_ms),
            )
            for each in found.requests
        ),
    )


def _ids(texts: Iterable[str]) -> set[uuid.UUID]:
    return {uuid.UUID(text) for text in texts}


def _key_word(key: ApiKey | None) -> str:
    return "" if key is None else key.title


def _project_word(project: Project | None) -> str:
    return "" if project is None else project.name
