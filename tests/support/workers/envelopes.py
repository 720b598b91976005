"""Requests as a gateway writes them. Needs neither pytest nor Redis: the engine's environment has
neither pytest nor the tests' servers."""

import json
import time
from collections.abc import Sequence
from typing import Any

from gpu_workers.protocol.messages import Api, Envelope
from gpu_workers.protocol.request_id import new_request_id

ACME = "tenant-acme"
ENDLESS: dict[str, Any] = {
    "messages": [{"role": "user", "content": "Go on for ever."}],
    "ignore_eos": True,
}


def make_envelope(
    body: dict[str, Any] | None = None,
    *,
    api: Api = Api.CHAT_COMPLETIONS,
    stream: bool = True,
    max_output_tokens: int = 32,
    max_context_tokens: int | None = None,
    request_id: str | None = None,
    tenant_id: str = ACME,
    gateway_id: str = "gateway-1",
    pool: str = "sim",
    model: str = "sim",
    priority: int = 0,
    cache_salt: str = "c2FsdA",
    is_resumable: bool = True,
    service_class: str = "interactive",
    resumed_token_ids: Sequence[int] = (),
    prompt_bound: int = 0,
    sequences: int = 1,
    reads_last_frames: bool = False,
    reads_texts: bool = False,
    adapter: str = "",
    adapter_name: str = "",
    adapter_version: int = 0,
) -> Envelope:
    """Alice of Acme asks something."""
    if body is None:
        body = {"messages": [{"role": "user", "content": "What is a penstock?"}]}
    now_ms = time.time_ns() // 1_000_000
    return Envelope(
        request_id=request_id or new_request_id(),
        tenant_id=tenant_id,
        project_id="project-1",
        api_key_id="key-1",
        tier="standard",
        gateway_id=gateway_id,
        pool=pool,
        model=model,
        api=api,
        stream=stream,
        body=json.dumps({"model": model, "stream": stream} | body).encode(),
        max_output_tokens=max_output_tokens,
        priority=priority,
        cache_salt=cache_salt,
        arrived_at_ms=now_ms,
        ttft_target_ms=500,
        max_wait_ms=60_000,
        max_context_tokens=max_context_tokens,
        service_class=service_class,
        is_resumable=is_resumable,
        resumed_token_ids=list(resumed_token_ids),
        prompt_bound=prompt_bound,
        sequences=sequences,
        reads_last_frames=reads_last_frames,
        reads_texts=reads_texts,
        adapter=adapter,
        adapter_name=adapter_name,
        adapter_version=adapter_version,
    )
