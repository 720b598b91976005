"""The programs of a stack, as data: a command line, its environment, how it is stopped."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from local_stack.credentials import NOT_FOR_WORKERS
from local_stack.postgres_server import PostgresServer
from local_stack.redis_server import RedisServer
from local_stack.services import LOOPBACK, guarded

WEB = "web"
POSTGRES = "postgres"
DISPATCH_REDIS = "dispatch-redis"
REDIS = "redis"
GRACEFUL_SHUTDOWN_SECONDS = 10
# Longer than the minute for which load balancers keep an idle connection: who closes it second
# meets no request on it.
KEEP_ALIVE_SECONDS = 75


@dataclass(frozen=True, kw_only=True)
class Program:
    """One supervised process group. `port` is the loopback port that it listens on, if any."""

    name: str
    command: list[str]
    environ: Mapping[str, str] = field(default_factory=dict)
    stop_signal: str = "TERM"
    stop_wait_seconds: int = 15
    # Whether stopping signals its children too, rather than leaving them to their parent.
    stop_as_group: bool = False
    # Whether it stays away once it has ended by itself with status 0.
    may_leave: bool = False
    port: int | None = None
    port_variable: str | None = None


def server_program(name: str, server: PostgresServer | RedisServer, port_variable: str) -> Program:
    """Return a server as a program of supervisord."""
    return Program(
        name=name,
        command=server.command,
        stop_signal="INT" if isinstance(server, PostgresServer) else "TERM",
        port=server.port,
        port_variable=port_variable,
    )


def web_program(port: int, keep_alive_seconds: int = KEEP_ALIVE_SECONDS) -> Program:
    """Return the gateway, the websocket door and Django in one uvicorn process."""
    uvicorn = [sys.executable, "-m", "uvicorn", "control_plane.asgi:application"]
    uvicorn += ["--host", LOOPBACK, "--port", str(port), "--loop", "uvloop", "--http", "httptools"]
    uvicorn += ["--ws", "websockets-sansio", "--ws-max-size", "1179648", "--no-access-log"]
    # Who is calling is told by control_plane/edge.py, for every server alike.
    uvicorn += ["--no-proxy-headers"]
    uvicorn += ["--ws-per-message-deflate", "false", "--lifespan", "on"]
    uvicorn += ["--timeout-keep-alive", str(keep_alive_seconds)]
    uvicorn += ["--header", f"Keep-Alive:timeout={keep_alive_seconds}"]
    uvicorn += ["--timeout-graceful-shutdown", str(GRACEFUL_SHUTDOWN_SECONDS)]
    return Program(
        name=WEB,
        command=guarded(uvicorn),
        port=port,
        port_variable="PENSTOCK_WEB_PORT",
        stop_wait_seconds=GRACEFUL_SHUTDOWN_SECONDS + 5,
    )


def celery_programs(schedule_file: Path) -> list[Program]:
    """Return the workers of periodic jobs, of webhooks, of adapters and of what is slow, and the
    beat that schedules them."""
    celery = [sys.executable, "-m", "celery", "--app", "control_plane.celery"]
    worker = [*celery, "worker", "--concurrency", "1", "--loglevel", "INFO", "--without-gossip"]
    worker += ["--without-mingle", "--hostname", "local@penstock"]
    beat = [
        *celery,
        "beat",
        "--loglevel",
        "INFO",
        "--schedule",
        str(schedule_file),
        "--pidfile",
        "",
    ]
    # Threads: it waits for other people's servers.
    telling = [*celery, "worker", "--queues", "webhooks", "--pool", "threads", "--concurrency", "2"]
    telling += ["--loglevel", "INFO", "--without-gossip", "--without-mingle"]
    telling += ["--hostname", "webhooks@penstock"]
    # One at a time: each starts a process that may take a core for seconds.
    looking = [*celery, "worker", "--queues", "adapters", "--pool", "solo", "--concurrency", "1"]
    looking += ["--loglevel", "INFO", "--without-gossip", "--without-mingle"]
    looking += ["--hostname", "adapters@penstock"]
    # Two, so that a night's fsck holds up no payment.
    slow = [*celery, "worker", "--queues", "slow", "--concurrency", "2", "--loglevel", "INFO"]
    slow += ["--without-gossip", "--without-mingle", "--hostname", "slow@penstock"]
    return [
        Program(name="celery", command=guarded(worker)),
        Program(name="webhooks", command=guarded(telling)),
        Program(name="adapters", command=guarded(looking)),
        Program(name="slow", command=guarded(slow)),
        Program(name="beat", command=guarded(beat)),
    ]


def collector_program(root: Path) -> Program:
    """Return the collector, which moves usage from the dispatch Redis to PostgreSQL."""
    manage = [sys.executable, str(root / "manage.py"), "collect_usage"]
    return Program(name="collector", command=guarded(manage))


def worker_programs(
    python: Path,
    groups: tuple[str | None, ...],
    *,
    model: str,
    metrics_port: int,
    redis_url_file: Path,
    outbox_folder: Path,
) -> list[Program]:
    """Return one GPU worker per group.

    Its name is that of its slot, so a restarted worker fences the incarnation before it; a drained
    one stays away until it is started again. It ends
    its engine's processes itself, in order. It signs in to the dispatch Redis as its pool's user,
    and does not get the control plane's secrets.
    """
    programs = []
    for number, devices in enumerate(groups):
        environ = dict.fromkeys(NOT_FOR_WORKERS, "") | {
            "PENSTOCK_DISPATCH_REDIS_URL_FILE": str(redis_url_file),
            "PENSTOCK_WORKER_MODEL": model,
            "PENSTOCK_WORKER_NAME": f"local-{number}",
            "PENSTOCK_WORKER_OUTBOX": str(outbox_folder / f"local-{number}"),
            "PENSTOCK_WORKER_METRICS_PORT": str(metrics_port + number),
        }
        if devices is not None:
            environ["CUDA_VISIBLE_DEVICES"] = devices
        programs.append(
            Program(
                name=f"worker-{number}",
                command=guarded([str(python), "-m", "gpu_workers"]),
                environ=environ,
                stop_wait_seconds=20,
                may_leave=True,
                port=metrics_port + number,
                port_variable="PENSTOCK_WORKER_METRICS_PORT",
            )
        )
    return programs
