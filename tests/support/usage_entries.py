"""What a worker says of one request, for tests of what becomes of it."""

from typing import Any, Final

import msgspec

from gpu_workers.protocol.messages import Api, Outcome, TokenUsage, UsageEntry
from gpu_workers.protocol.request_id import new_request_id
from tenants.models import ApiKey

POOL: Final = "usage-tests"
ARRIVED_MS: Final = 1_790_000_000_123


def usage_entry(api_key: ApiKey, at_ms: int = ARRIVED_MS, /, **changes: Any) -> UsageEntry:
    """Of a completed request that arrived `at_ms`."""
    entry = UsageEntry(
        request_id=new_request_id(at_ms),
        tenant_id=str(api_key.project.tenant_id),
        project_id=str(api_key.project_id),
        api_key_id=str(api_key.id),
        tier="premium",
        pool=POOL,
        model="penstock-demo",
        api=Api.CHAT_COMPLETIONS,
        stream=True,
        attempt=1,
        worker_id="w#1",
        outcome=Outcome.COMPLETED,
        finish_reason="stop",
        error_code=None,
        usage=TokenUsage(prompt_tokens=11, cached_tokens=4, completion_tokens=7),
        arrived_at_ms=at_ms,
        finished_at_ms=at_ms + 1333,
        queue_ms=3,
        ttft_ms=21,
    )
    return msgspec.structs.replace(entry, **changes)
