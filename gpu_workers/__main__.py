"""`python -m gpu_workers`: one worker process. Needs no Django, and for `--engine sim` no vLLM."""

import argparse
import asyncio
import os
import resource
import secrets
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import structlog
import uvloop

from gpu_workers.config import ConfigError, WorkerConfig, read_env_file
from gpu_workers.engine import Engine
from gpu_workers.heap import delay_collections, freeze_heap, measure_collections
from gpu_workers.heartbeat import Heartbeat
from gpu_workers.logs import configure_logging
from gpu_workers.metrics import serve_metrics
from gpu_workers.model_digest import digest_of
from gpu_workers.outbox.disk import OutboxError
from gpu_workers.outbox.outbox import Outbox
from gpu_workers.process_tree import adopt_children
from gpu_workers.protocol.tracing import open_tracer
from gpu_workers.transport import Transport
from gpu_workers.worker import Exit, Worker

DEMO_ENV = Path("var") / "demo.env"
REDIS_URL = "PENSTOCK_DISPATCH_REDIS_URL"


def make_engine(config: WorkerConfig) -> Engine:
    """Return the engine that the settings name."""
    if config.engine == "sim":
        from gpu_workers.sim.engine import SimEngine

        return SimEngine.from_config(config)
    from gpu_workers.vllm.engine import VllmEngine

    return VllmEngine(config)


def main(make_engine: Callable[[WorkerConfig], Engine] = make_engine) -> int:
    """Run a worker until it leaves; return the exit status. `make_engine` is for whoever watches an
    engine, such as a benchmark."""
    # The memory of worker and engine holds prompts: no crash of either leaves an image of it.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    environ = {**_running_stack(), **os.environ, **_flags()}
    try:
        config = WorkerConfig.from_environ(environ)
    except ConfigError as error:
        sys.stderr.write(f"The worker's settings are wrong:\n{error}\n")
        return Exit.START_FAILED
    configure_logging(config.log_format, config.log_level)
    adopt_children()
    delay_collections()
    measure_collections()
    return uvloop.run(run(config, make_engine))


async def run(config: WorkerConfig, make_engine: Callable[[WorkerConfig], Engine]) -> Exit:
    try:
        outbox = _outbox(config)
    except OutboxError as error:
        sys.stderr.write(f"{error}\n")
        return Exit.START_FAILED
    worker_id = f"{config.name}#{secrets.token_hex(4)}"
    transport = Transport(
        config.dispatch_redis_url, pool=config.pool, worker_id=worker_id, worker_name=config.name
    )
    worker = Worker(
        engine=make_engine(config),
        transport=transport,
        heartbeat=Heartbeat(
            config.dispatch_redis_url,
            pool=config.pool,
            worker_id=worker_id,
            stuck_seconds=config.stuck_seconds,
        ),
        outbox=outbox,
        worker_id=worker_id,
        name=config.name,
        pool=config.pool,
        model=config.model,
        engine_name=config.engine,
        slots=config.slots,
        drain_seconds=config.drain_seconds,
        hung_seconds=config.hung_seconds,
        metrics_url=serve_metrics(config.metrics_host, config.metrics_port),
        model_digest=_model_digest(config),
        adapter_cache=config.adapter_cache,
        adapter_cache_bytes=config.adapter_cache_bytes,
        on_warm=freeze_heap,
        tracer=open_tracer("penstock-worker", config.traces_endpoint),
    )
    loop = asyncio.get_running_loop()
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signal_number, worker.drain)
    code = await worker.run()
    structlog.get_logger("gpu_workers").info("stopped", worker_id=worker_id, code=code.name)
    return code


def _outbox(config: WorkerConfig) -> Outbox:
    if config.outbox is not None:
        return Outbox.open(config.outbox, pool=config.pool)
    return Outbox.open_free(Path("var") / "outbox", pool=config.pool)


def _model_digest(config: WorkerConfig) -> str:
    """Return the digest of the model folder; "" without one: the simulated engine has no model, and
    one by a name of the hub may not be on this disk yet."""
    folder = Path(config.model_path)
    if config.engine == "sim" or not folder.is_dir():
        return ""
    try:
        return digest_of(folder)
    except OSError:
        return ""  # which the engine will tell better, as it cannot read it either


def _flags() -> dict[str, str]:
    """Parse a flag for every setting but secrets: a command line shows in the process list."""
    parser = argparse.ArgumentParser(
        prog="python -m gpu_workers",
        description="Runs one worker: it registers with the dispatch Redis and serves a pool.",
        epilog=f"Each flag overrides its environment variable. Without {REDIS_URL} the worker joins"
        f" the stack that {DEMO_ENV} of the current folder describes.",
    )
    for variable, setting in WorkerConfig.variables().items():
        if not setting.metadata["secret"]:
            parser.add_argument(
                f"--{setting.name.replace('_', '-')}", dest=variable, metavar="VALUE", help=variable
            )
    return {name: value for name, value in vars(parser.parse_args()).items() if value is not None}


def _running_stack() -> dict[str, str]:
    if os.environ.get(REDIS_URL) or os.environ.get(f"{REDIS_URL}_FILE") or not DEMO_ENV.is_file():
        return {}
    return {REDIS_URL: read_env_file(DEMO_ENV).get(REDIS_URL, "")}


if __name__ == "__main__":
    sys.exit(main())
