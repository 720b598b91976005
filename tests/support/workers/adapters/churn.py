"""Streams on a real worker with vLLM, and adapters that come and go beside them by the worker's own
way: a source in Redis, a fetch, the cache, a load; then room is made for others."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, cast

import msgspec
from redis.asyncio import Redis

from gpu_workers.cancellation import cancel_and_wait
from gpu_workers.demo_model import MODEL_FOLDER
from gpu_workers.demo_model.evaluate import questions
from gpu_workers.demo_model.voices import ADAPTERS_FOLDER, VOICES
from gpu_workers.protocol import codec, keys
from gpu_workers.protocol.adapters import AdapterBase, AdapterLevel
from gpu_workers.protocol.messages import Envelope, WorkerState
from tests.support.greedy_answers.asking import DETAILED
from tests.support.greedy_answers.compared import Answer
from tests.support.polling import eventually
from tests.support.workers.adapters.lora_files import stored_form, write_adapter
from tests.support.workers.adapters.store import AdapterStore, MadeAdapter, made_of
from tests.support.workers.adapters.timed_gateway import TimedGateway, TimedStream
from tests.support.workers.envelopes import make_envelope
from tests.support.workers.worker_process import published, worker_process

START_SECONDS: Final = 240
STREAM_SECONDS: Final = 300
NEWCOMER_TOKENS: Final = 2
NEWCOMERS_AT_ONCE: Final = 2
RANK: Final = 16
CACHE_BYTES: Final = 128 * 1024 * 1024


class Way(StrEnum):
    """How adapters come: each with a request that needs it; or all prefetched, while the streams
    have every slot, so that a load takes a slot that is in use."""

    REQUESTS = "requests"
    PREFETCHES = "prefetches"


@dataclass(frozen=True, kw_only=True)
class Size:
    """Of `slots` the streams' adapters take all, or leave some to those that come and go."""

    base_streams: int = 64
    adapter_streams: int = 16
    stream_adapters: int = 6
    newcomers: int = 200
    tokens: int = 640
    slots: int = 8
    in_memory: int = 16


@dataclass(frozen=True, kw_only=True)
class Round:
    """All streams of a round. Adapters came and went while these had between `first` and `last`
    tokens; `newcomers` are the requests that these came with."""

    streams: list[TimedStream]
    newcomers: list[TimedStream]
    first: int
    last: int
    seconds: float

    def gaps_ms(self, first: int, last: int) -> list[float]:
        """Return the times between two arrivals of a stream, of those within these tokens."""
        return [
            1000 * (at - before)
            for stream in self.streams
            for (before, had), (at, has) in zip(stream.arrivals, stream.arrivals[1:], strict=False)
            if first <= had and has <= last
        ]


class ChurnedWorker:
    """Asks a worker's streams again and again, the same each time."""

    def __init__(
        self, gateway: TimedGateway, store: AdapterStore, redis: Redis, worker_id: str, size: Size
    ) -> None:
        self.size = size
        self._gateway = gateway
        self._store = store
        self._redis = redis
        self._worker_id = worker_id
        self._of_streams: list[MadeAdapter] = []
        self._newcomers: list[MadeAdapter] = []

    async def prepare(self, folder: Path, base: AdapterBase) -> None:
        """Make all adapters, and offer those of the streams."""
        made = [made_of(stored_form(ADAPTERS_FOLDER / voice.adapter)) for voice in VOICES]
        for seed in range(self.size.stream_adapters - len(made) + self.size.newcomers):
            written = write_adapter(folder, base, seed, rank=RANK, strength=0.3)
            made.append(made_of(stored_form(written.folder)))
        self._of_streams = made[: self.size.stream_adapters]
        self._newcomers = made[self.size.stream_adapters :]
        for each in self._of_streams:
            await self._store.offer(each)

    async def undisturbed(self) -> Round:
        """Run the streams alone."""
        streams = await self._begin(self._envelopes())
        await self._end(streams)
        return self._round(streams, [], 0, self.size.tokens)

    async def detailed(self) -> list[Answer]:
        """Return what the streams say alone, with the log-probabilities of their tokens."""
        streams = await self._begin(self._envelopes(DETAILED, reads_texts=False))
        await self._end(streams)
        return [stream.answer for stream in streams]

    async def churned(self, way: Way) -> Round:
        """Run the streams while the newcomers come and go, a few at once."""
        streams = await self._begin(self._envelopes())
        first = max(len(stream.token_ids) for stream in streams)
        newcomers = await self._come_and_go(way)
        last = min(len(stream.token_ids) for stream in streams)
        assert last < self.size.tokens, "the streams ended before all had come and gone"
        await self._end(streams)
        return self._round(streams, newcomers, first, last)

    async def _begin(self, envelopes: Sequence[Envelope]) -> list[TimedStream]:
        streams = [await self._gateway.ask(envelope) for envelope in envelopes]
        async with asyncio.timeout(STREAM_SECONDS):
            for stream in streams:
                await stream.begun.wait()
        return streams

    async def _end(self, streams: Sequence[TimedStream]) -> None:
        async with asyncio.timeout(STREAM_SECONDS):
            await asyncio.gather(*(stream.ended for stream in streams))

    def _round(
        self, streams: list[TimedStream], newcomers: list[TimedStream], first: int, last: int
    ) -> Round:
        arrivals = [stream.arrivals for stream in streams]
        seconds = max(each[-1][0] for each in arrivals) - min(each[0][0] for each in arrivals)
        return Round(streams=streams, newcomers=newcomers, first=first, last=last, seconds=seconds)

    async def _come_and_go(self, way: Way) -> list[TimedStream]:
        turns = asyncio.Semaphore(NEWCOMERS_AT_ONCE)

        async def one(adapter: MadeAdapter) -> TimedStream | None:
            async with turns, asyncio.timeout(STREAM_SECONDS):
                await self._store.offer(adapter)
                stream = None
                if way is Way.REQUESTS:
                    body = {"messages": [{"role": "user", "content": "What is water?"}]}
                    stream = await self._gateway.ask(self._envelope(body, adapter, NEWCOMER_TOKENS))
                    await stream.ended
                else:
                    await self._prefetch(adapter)
                await self._store.withdraw(adapter.name)
                return stream

        came = await asyncio.gather(*map(one, self._newcomers))
        return [stream for stream in came if stream is not None]

    async def _prefetch(self, adapter: MadeAdapter) -> None:
        inbox = keys.pool_inbox("sim", self._worker_id)
        levels = keys.pool_worker_levels("sim", self._worker_id)
        await self._redis.rpush(inbox, f"prefetch {adapter.name}\n")

        async def is_loaded() -> bool:
            level = cast("bytes | None", await self._redis.hget(levels, adapter.name))
            return level is not None and int(level) >= AdapterLevel.MEMORY

        await eventually(is_loaded, timeout_seconds=STREAM_SECONDS)

    def _envelopes(
        self, fields: dict[str, Any] | None = None, *, reads_texts: bool = True
    ) -> list[Envelope]:
        asked = [question for _, question in questions()]
        count = self.size.base_streams + self.size.adapter_streams
        envelopes = []
        for number in range(count):
            adapter = None
            if number >= self.size.base_streams:
                adapter = self._of_streams[number % len(self._of_streams)]
            content = asked[7 * number % len(asked)]
            body = {"messages": [{"role": "user", "content": content}]} | (fields or {})
            envelope = self._envelope(body, adapter, self.size.tokens)
            envelopes.append(msgspec.structs.replace(envelope, reads_texts=reads_texts))
        return envelopes

    def _envelope(self, body: dict[str, Any], adapter: MadeAdapter | None, tokens: int) -> Envelope:
        return make_envelope(
            body | {"temperature": 0, "ignore_eos": True},
            max_output_tokens=tokens,
            adapter=adapter.name if adapter else "",
            adapter_name="acme/support" if adapter else "",
            adapter_version=1 if adapter else 0,
        )


@asynccontextmanager
async def churned_worker(
    redis: Redis, worker_redis_url: str, folder: Path, size: Size
) -> AsyncIterator[ChurnedWorker]:
    """Run a worker with vLLM, a store and a gateway, until the block ends."""
    gateway = TimedGateway(redis)
    reading = asyncio.create_task(gateway.read_forever())
    worker = worker_process(
        worker_redis_url,
        folder,
        engine="vllm",
        name="churned",
        log_level="warning",
        model_path=str(MODEL_FOLDER),
        dtype="float32",
        max_num_seqs=str(size.base_streams + size.adapter_streams + NEWCOMERS_AT_ONCE),
        adapter_slots=str(size.slots),
        adapters_in_memory=str(size.in_memory),
        adapter_max_rank=str(RANK),
        adapter_cache=str(folder / "adapter-cache"),
        adapter_cache_bytes=str(CACHE_BYTES),
    )
    try:
        async with AdapterStore(redis).running() as store, worker:
            worker_id = await _ready(redis)
            base = cast("bytes", await redis.get(keys.pool_adapter_base("sim")))
            churned = ChurnedWorker(gateway, store, redis, worker_id, size)
            await churned.prepare(folder / "made", codec.decode_adapter_base(base))
            yield churned
    finally:
        await cancel_and_wait([reading])


async def _ready(redis: Redis) -> str:
    async def worker_id() -> str:
        info = await published(redis)
        is_ready = info is not None and info.state is WorkerState.READY
        has_base = await redis.exists(keys.pool_adapter_base("sim"))
        return info.worker_id if info and is_ready and has_base else ""

    return await eventually(worker_id, timeout_seconds=START_SECONDS)
