"""The cast of the inference tests: Alice of Acme, Bob of Globex, and the worker they share."""

import time

from gpu_workers.protocol import codec
from gpu_workers.protocol.messages import Api, Envelope, WorkerInfo, WorkerState
from gpu_workers.protocol.request_id import new_request_id

POOL = "pool-a"
MODEL = "model-a"


def an_envelope(
    *,
    request_id: str | None = None,
    tenant_id: str = "acme",
    gateway_id: str = "gateway-1",
    pool: str = POOL,
    seconds: float = 30,
) -> Envelope:
    now_ms = time.time_ns() // 1_000_000
    return Envelope(
        request_id=request_id or new_request_id(),
        tenant_id=tenant_id,
        project_id="project",
        api_key_id="key",
        tier="standard",
        gateway_id=gateway_id,
        pool=pool,
        model=MODEL,
        api=Api.CHAT_COMPLETIONS,
        stream=True,
        body=b"{}",
        max_output_tokens=16,
        priority=0,
        cache_salt="salt",
        arrived_at_ms=now_ms,
        ttft_target_ms=int(seconds * 1000),
        max_wait_ms=int(seconds * 1000),
    )


def a_worker_info(
    worker_id: str = "worker-1#a",
    *,
    pool: str = POOL,
    state: WorkerState = WorkerState.READY,
    slots: int = 4,
    context_tokens: int = 2048,
    max_token_bytes: int = 8,
    can_resume: bool = True,
) -> WorkerInfo:
    return WorkerInfo(
        worker_id=worker_id,
        name=worker_id.partition("#")[0],
        pool=pool,
        model=MODEL,
        engine="scripted",
        engine_version="1",
        state=state,
        slots=slots,
        context_tokens=context_tokens,
        kv_cache_tokens=65_536,
        template_overhead_tokens=16,
        max_token_bytes=max_token_bytes,
        running=0,
        waiting_in_engine=0,
        started_at_ms=0,
        host="localhost",
        pid=1,
        metrics_url="",
        can_resume=can_resume,
    )


def encoded_worker_info(worker_id: str = "worker-1#a", **changes: object) -> bytes:
    return codec.encode(a_worker_info(worker_id, **changes))  # type: ignore[arg-type]
