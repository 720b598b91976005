"""What a gateway tells the control plane of requests that it refused: how many, by whose they were
and why, and the sentences of the newest. Gathered in the process and told each second.

A batch is sent until Redis has it and added once (`RefusalBatch`), so nothing is counted twice. A
gateway that is killed loses what it had not told, at most a second's while Redis takes it. Memory
is bounded whatever is sent: a tenant's rows beyond `_ROWS_OF_A_TENANT`, and all beyond `_ROWS`, are
counted by code and limit alone.
"""

import asyncio
import uuid
from collections import deque
from typing import Final, NamedTuple

from prometheus_client import Counter
from redis.asyncio import Redis
from redis.exceptions import RedisError

from gpu_workers.protocol import codec, keys, stream_fields
from gpu_workers.protocol.clock import now_ms
from gpu_workers.protocol.policy import Caller
from gpu_workers.protocol.refusals import (
    NEWEST,
    OTHER_MODELS,
    RefusalBatch,
    RefusalCount,
    RefusalNotice,
)
from inference.background import Background
from inference.errors import InferenceError
from tenants import key_format

_UNCOUNTED: Final = Counter(
    "penstock_gateway_uncounted_refusals_total",
    "Refusals that no report will show: a gateway could not tell of them for too long.",
)

# What the stream holds at most, while nobody reads it, and what each of its entries does.
MOST_BATCHES: Final = 100
_ROWS_OF_A_BATCH: Final = 500

_FLUSH_SECONDS: Final = 1.0
_ROWS_OF_A_TENANT: Final = 1_000
_ROWS: Final = 20_000
_MOST_ROWS: Final = 40_000
_NOTICES: Final = 10_000
_MESSAGE_CHARACTERS: Final = 500
_HOUR_MS: Final = 3_600_000

# What is kept in place of a message that may repeat what the caller sent.
_WITHOUT_QUOTE: Final = {
    "model_not_found": "The request names a model that does not exist, or that its API key may not"
    " call.",
    "unknown_field": "The request has a parameter that does not exist.",
    "connection_requests_exceeded": "The websocket connection had as many requests open as it may"
    " have.",
    "duplicate_id": "The id of the request was in use on its websocket connection.",
    "invalid_frame": "A websocket frame was not understood.",
}


class _Row(NamedTuple):
    hour: int
    project_id: str
    api_key_id: str
    model: str
    code: str
    limit: str
    scope: str

    def of_the_rest(self) -> "_Row":
        return self._replace(project_id="", api_key_id="", model=OTHER_MODELS)


class Refusals:
    """The refusals of one gateway process."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._background = Background()
        self._process_id = str(uuid.uuid4())
        self._number = 0
        # What Redis may have already, and has to have before anything else.
        self._unconfirmed: bytes | None = None
        self._counts: dict[str, dict[_Row, int]] = {}
        self._rows = 0
        self._notices: dict[str, deque[RefusalNotice]] = {}
        self._kept_notices = 0

    def start(self) -> None:
        self._background.supervise(self._flush_regularly, name="refusals")

    async def stop(self) -> None:
        """Tell the rest, if Redis is there to hear it."""
        await self._background.stop()
        try:
            await self.flush()
        except (RedisError, OSError):
            return

    def note(
        self,
        error: InferenceError,
        caller: Caller,
        *,
        model: str = "",
        request_id: str = "",
        parameter: str | None = None,
    ) -> None:
        """Count a request that was refused. `model` is "" where it was not read, and no name that
        only the caller knows; `parameter` is the API's name of what is wrong."""
        wire, at_ms = error.to_wire(), now_ms()
        row = _Row(
            hour=at_ms // _HOUR_MS,
            project_id=caller.key.project_id,
            api_key_id=caller.key.key_id,
            model=model,
            code=wire.code or "",
            limit=wire.limit.limit if wire.limit is not None else "",
            scope=wire.limit.scope if wire.limit is not None else "",
        )
        self._count(caller.tenant_id, row)
        self._keep(
            RefusalNotice(
                tenant_id=caller.tenant_id,
                at_ms=at_ms,
                request_id=request_id,
                project_id=row.project_id,
                api_key_id=row.api_key_id,
                model=row.model,
                code=row.code,
                limit=row.limit,
                scope=row.scope,
                status=wire.status,
                message=_sentence(error, row.code, parameter),
            )
        )

    async def flush(self) -> None:
        """Tell what has gathered; keep it where that fails, or where too much waits to be read."""
        while self._unconfirmed is not None or self._counts or self._notices:
            if await self._redis.xlen(keys.refusals()) >= MOST_BATCHES:
                return
            if self._unconfirmed is None:
                self._unconfirmed = self._next_batch()
            await self._redis.xadd(
                keys.refusals(), {stream_fields.REFUSALS_FIELD: self._unconfirmed}
            )
            self._unconfirmed = None

    async def _flush_regularly(self) -> None:
        while True:
            await asyncio.sleep(_FLUSH_SECONDS)
            await self.flush()

    def _count(self, tenant_id: str, row: _Row) -> None:
        counts = self._counts.setdefault(tenant_id, {})
        if row not in counts:
            if len(counts) >= _ROWS_OF_A_TENANT or self._rows >= _ROWS:
                row = row.of_the_rest()
            if row not in counts:
                if self._rows >= _MOST_ROWS:
                    _UNCOUNTED.inc()
                    return
                self._rows += 1
        counts[row] = counts.get(row, 0) + 1

    def _keep(self, notice: RefusalNotice) -> None:
        newest = self._notices.setdefault(notice.tenant_id, deque(maxlen=NEWEST))
        if len(newest) < NEWEST:
            if self._kept_notices >= _NOTICES:
                # Of whoever has most: nobody's flood takes away another's.
                max(self._notices.values(), key=len).popleft()
            else:
                self._kept_notices += 1
        newest.append(notice)

    def _next_batch(self) -> bytes:
        """Take what one batch holds out of what has gathered."""
        counts: list[RefusalCount] = []
        notices: list[RefusalNotice] = []
        while self._counts and len(counts) < _ROWS_OF_A_BATCH:
            tenant_id, rows = next(iter(self._counts.items()))
            while rows and len(counts) < _ROWS_OF_A_BATCH:
                row, count = rows.popitem()
                counts.append(RefusalCount(tenant_id=tenant_id, **row._asdict(), count=count))
            if not rows:
                del self._counts[tenant_id]
        while self._notices and len(notices) < _ROWS_OF_A_BATCH:
            tenant_id, newest = next(iter(self._notices.items()))
            while newest and len(notices) < _ROWS_OF_A_BATCH:
                notices.append(newest.popleft())
            if not newest:
                del self._notices[tenant_id]
        self._rows -= len(counts)
        self._kept_notices -= len(notices)
        self._number += 1
        batch = RefusalBatch(
            process_id=self._process_id, number=self._number, counts=counts, notices=notices
        )
        return codec.encode(batch)


def _sentence(error: InferenceError, code: str, parameter: str | None) -> str:
    """Return what is kept of the message: nothing that the caller has sent."""
    if not error.quotes_caller and key_format.PATTERN.search(error.message) is None:
        return error.message[:_MESSAGE_CHARACTERS]
    if code in _WITHOUT_QUOTE:
        return _WITHOUT_QUOTE[code]
    if parameter is not None:
        return f"The request is not valid: see its parameter {parameter!r}."
    return "The request is not valid; its answer said why."
