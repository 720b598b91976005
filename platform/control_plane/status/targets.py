"""/metrics/targets: where the live workers' metrics are, as Prometheus' http_sd reads it."""

from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit

from control_plane.status.health import PoolState
from gpu_workers.protocol.messages import WorkerInfo


def targets(pools: Iterable[PoolState]) -> list[dict[str, Any]]:
    """Return a group for each live worker, with what its series are to be told apart by. One whose
    address is none, as a worker without metrics has it, is left out."""
    return [
        {
            "targets": [place],
            "labels": {
                "__metrics_path__": urlsplit(worker.info.metrics_url).path or "/metrics",
                "pool": pool.name,
                "worker": worker.info.name,
                "host": worker.info.host,
            },
        }
        for pool in pools
        for worker in pool.live
        if (place := _place(worker.info))
    ]


def _place(info: WorkerInfo) -> str:
    """Return host and port; empty where there is none."""
    try:
        url = urlsplit(info.metrics_url)
        return url.netloc if url.scheme == "http" and url.hostname and url.port else ""
    except ValueError:
        return ""
