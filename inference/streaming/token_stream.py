"""The output of one request on its way to one reader, in order and without holes.

Nobody waits for the reader: what a slow one has not taken yet merges into its next batch, up to a
cap in bytes, beyond which its stream ends with a typed error.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import structlog
from prometheus_client import Counter

from gpu_workers.protocol.messages import Delta, Frame, Resend, Terminal, TextDelta
from gpu_workers.protocol.text_event import text_event
from inference.errors import InferenceError, SlowReader, StreamBroken
from inference.streaming.reorder_buffer import ReorderBuffer
from inference.streaming.replay import Replay

_log = structlog.get_logger(__name__)

# Output that a client has not read yet, per stream.
MAX_UNREAD_BYTES: Final = 4 * 1024 * 1024
# What waits until it is known who holds the request.
MAX_UNPROVEN_FRAMES: Final = 1024

STALE = Counter("penstock_gateway_stale_frames_total", "Frames dropped: unknown or an old attempt.")
FORGED = Counter("penstock_gateway_forged_frames_total", "Frames dropped: of no holder's.")
GAPS = Counter("penstock_gateway_frame_gaps_total", "Frames found missing, and asked for again.")
BROKEN = Counter("penstock_gateway_broken_streams_total", "Streams whose gap nobody filled.")
MERGES = Counter("penstock_gateway_merged_deltas_total", "Deltas merged for a reader behind.")
OVERFLOWS = Counter("penstock_gateway_slow_readers_total", "Streams ended: unread output too big.")
TOKENS = Counter("penstock_gateway_output_tokens_total", "Completion tokens received.")


# Sends chunks at once and returns True, or does neither.
Write = Callable[[list[bytes]], bool]


@dataclass(frozen=True, slots=True)
class Progress:
    """What a reader gets at one wake: the new chunks, and the end if that has come.

    Neither of the two means that nothing came for a while and the client wants a sign of life.
    """

    chunks: list[bytes]
    end: Terminal | None


class TokenStream:
    """The output of one request on its way to one reader."""

    __slots__ = (
        "_broken",
        "_chunks",
        "_form",
        "_frames_at_count",
        "_held",
        "_holder",
        "_is_silent",
        "_keeps_token_ids",
        "_next_seq",
        "_on_body_kept",
        "_on_end",
        "_on_gap",
        "_on_prompt_counted",
        "_on_unfilled",
        "_on_unproven",
        "_reorder",
        "_replay",
        "_terminal",
        "_unkept_seq",
        "_unproven",
        "_unread_bytes",
        "_waiter",
        "_write",
        "attempt",
        "cached_tokens",
        "completion_tokens",
        "first_frame_at",
        "last_frame_at",
        "pool",
        "prompt_tokens",
        "request_id",
        "token_ids",
        "worker_id",
    )

    def __init__(
        self,
        request_id: str,
        on_end: Callable[[Terminal], None],
        on_prompt_counted: Callable[[], None],
        on_gap: Callable[["TokenStream"], None],
        *,
        pool: str = "",
        on_body_kept: Callable[["TokenStream"], None] = lambda stream: None,
        on_unproven: Callable[["TokenStream"], None] = lambda stream: None,
        on_unfilled: Callable[[], None] = lambda: None,
        keeps_token_ids: bool = False,
    ) -> None:
        self.request_id = request_id
        self.pool = pool
        self.attempt = 1
        self.worker_id: str | None = None  # the last known holder of the request
        self.prompt_tokens = 0  # 0 until the worker has counted them
        self.cached_tokens = 0
        self.completion_tokens = 0
        self.token_ids: list[int] = []  # all of them, where they are kept
        self.first_frame_at: float | None = None
        self.last_frame_at = time.monotonic()
        self._on_end = on_end
        self._on_prompt_counted = on_prompt_counted
        self._keeps_token_ids = keeps_token_ids
        self._on_gap = on_gap
        self._on_body_kept = on_body_kept
        self._on_unproven = on_unproven
        self._on_unfilled = on_unfilled
        self._reorder = ReorderBuffer(self._ask_for_gap, self._give_gap_up)
        self._next_seq = 0
        self._unkept_seq: int | None = None  # of the frame that its worker keeps no longer
        self._frames_at_count = 0  # taken since `completion_tokens` last grew
        self._replay: Replay | None = None  # while an attempt may say what has been taken
        self._holder: str | None = None  # of this attempt, once that is known
        self._unproven: list[tuple[Frame, str]] = []
        self._held: list[tuple[Frame, str]] | None = None
        self._form = (b"", b"")  # of the attempt's texts
        self._chunks: list[bytes] = []
        self._unread_bytes = 0
        self._terminal: Terminal | None = None
        self._broken: InferenceError | None = None
        self._is_silent = False
        self._waiter: asyncio.Future[None] | None = None
        self._write: Write | None = None  # while a reader waits that need not be woken for output

    @property
    def has_begun(self) -> bool:
        """Return whether any output of the request has come."""
        return self.first_frame_at is not None

    @property
    def has_ended(self) -> bool:
        """Return whether the end has come."""
        return self._terminal is not None

    @property
    def is_broken(self) -> bool:
        """Return whether the output cannot be given whole any more."""
        return self._broken is not None

    @property
    def can_resume(self) -> bool:
        """Return whether another attempt can go on where this one is."""
        known = self._keeps_token_ids and len(self.token_ids) == self.completion_tokens
        return not self.is_broken and (known or not self.completion_tokens)

    @property
    def is_unfillable(self) -> bool:
        """Return whether its worker keeps no longer what has to come next."""
        return self._unkept_seq == self._next_seq

    @property
    def next_seq(self) -> int:
        """Return the number of the frame that has to come next in this attempt."""
        return self._next_seq

    async def next(self, write: "Write | None" = None) -> Progress:
        """Wait for output, the end, or a sign of silence. Output that comes meanwhile goes to
        `write` as long as that takes it, without waking the reader. Raises `StreamBroken` or
        `SlowReader` where the output cannot be given whole; what came before the break has been
        given."""
        while not (self._chunks or self._terminal or self._broken or self._is_silent):
            self._waiter = asyncio.get_running_loop().create_future()
            self._write = write
            try:
                await self._waiter
            finally:
                self._waiter = self._write = None
        self._is_silent = False
        chunks, self._chunks, self._unread_bytes = self._chunks, [], 0
        if self._broken is not None and not chunks:
            raise self._broken
        return Progress(chunks, None if self._broken else self._terminal)

    def note_holder(self, attempt: int, worker_id: str) -> None:
        """Take this attempt from this worker, "" for nobody, and from no other: who holds it never
        changes. What came before that was known is taken or dropped."""
        if worker_id and attempt >= self.attempt:
            if attempt > self.attempt:
                self._begin_attempt(attempt)
            self._holder = self.worker_id = worker_id
        unproven, self._unproven = self._unproven, []
        for frame, sender in unproven:
            if frame.attempt == self.attempt and sender == self._holder:
                self.feed(frame, sender)
            else:
                FORGED.inc()

    def feed(self, frame: Frame, worker_id: str) -> None:
        """Accept a frame, if the worker that sent it holds the request. Never blocks."""
        if self._held is not None:
            self._held.append((frame, worker_id))
            return
        if self._terminal is not None or frame.attempt < self.attempt:
            STALE.inc()
            return
        if worker_id != self._holder or frame.attempt != self.attempt:
            self._doubt(frame, worker_id)
            return
        if frame.seq < self._next_seq:
            STALE.inc()
            return
        self.last_frame_at = time.monotonic()
        if frame.seq > self._next_seq and self._broken is None:
            self._hold_back(frame)
            return
        self._accept(frame)
        while self._reorder.has_gap and (held := self._reorder.pop(self._next_seq)) is not None:
            self._accept(held)

    def note_unkept(self, demand: Resend, worker_id: str) -> None:
        """Give up what was asked for, as its worker keeps it no longer."""
        is_next = (demand.attempt, demand.from_seq) == (self.attempt, self._next_seq)
        if is_next and worker_id == self._holder and self._held is None:
            self._unkept_seq = demand.from_seq
            if self._reorder.has_gap:
                self._give_gap_up()

    def hold(self) -> None:
        """Hold frames back until `release`: what has come is being sent to another worker."""
        self._held = self._held or []

    def release(self, attempt: int = 0) -> None:
        """Feed what was held back, as far as it is of this attempt or a later one."""
        held, self._held = self._held or [], None
        if attempt > self.attempt:
            self._begin_attempt(attempt)
        for frame, worker_id in held:
            self.feed(frame, worker_id)

    def end(self, terminal: Terminal) -> None:
        """End the stream: nothing comes after this. The owner hears it once, read or not."""
        if self._terminal is not None:
            return
        self._reorder.flush()
        self._count(terminal.usage.completion_tokens)
        self._terminal = terminal
        self._on_end(terminal)
        self._wake()

    def break_off(self, error: InferenceError) -> None:
        """Give the reader this error once it has read what is there; the end is still awaited."""
        if self._broken is None:
            self._broken = error
            self._wake()

    def note_silence(self) -> None:
        self._is_silent = True
        self._wake()

    def _doubt(self, frame: Frame, worker_id: str) -> None:
        """Drop a frame of a worker that does not hold this attempt; hold it back as long as its
        holder is unknown."""
        is_known = frame.attempt == self.attempt and self._holder is not None
        if is_known or len(self._unproven) >= MAX_UNPROVEN_FRAMES:
            FORGED.inc()
            return
        self._unproven.append((frame, worker_id))
        if len(self._unproven) == 1:
            self._on_unproven(self)

    def _accept(self, frame: Frame) -> None:
        if isinstance(frame, Terminal) and frame.is_body_kept:
            self._on_body_kept(self)  # the whole of it comes from there, in this one's place
            return
        self._next_seq = frame.seq + 1
        if isinstance(frame, Terminal):
            self.end(frame)
            return
        if isinstance(frame, TextDelta):
            self._form = frame.form or self._form
        if not self._is_replayed(frame):
            self._take(frame)

    def _hold_back(self, frame: Frame) -> None:
        if not self._reorder.has_gap:
            GAPS.inc()
        self._reorder.put(frame)

    def _ask_for_gap(self) -> None:
        self._on_gap(self)

    def _give_gap_up(self) -> None:
        """Give up a gap that nobody can fill. Another worker may make it again, unless the end has
        come behind it; otherwise what came counts, and the reader is told."""
        held = self._reorder.flush()
        if self.can_resume and not any(isinstance(frame, Terminal) for frame in held):
            self.hold()
            self._on_unfilled()
            return
        BROKEN.inc()
        self.break_off(frames_lost())
        for frame in held:
            self._accept(frame)

    def _begin_attempt(self, attempt: int) -> None:
        self._reorder.flush()
        self.attempt, self._next_seq, self._holder = attempt, 0, None
        self._unkept_seq = None
        if not self.has_begun:
            return
        if self.can_resume:
            self._replay = Replay(list(self.token_ids), frames=self._frames_at_count)
        else:
            self.break_off(StreamBroken("The request began anew after output had been sent."))

    def _is_replayed(self, delta: Delta | TextDelta) -> bool:
        if self._replay is None:
            return False
        try:
            if self._replay.covers(delta):
                return True
        except StreamBroken as error:
            self.break_off(error)
        self._replay = None
        return False

    def _take(self, delta: Delta | TextDelta) -> None:
        if self.first_frame_at is None:
            self.first_frame_at = self.last_frame_at
        if isinstance(delta, TextDelta):
            chunks = [text_event(self._form, delta.text)]
        else:
            chunks = delta.chunks
            if delta.prompt_tokens and not self.prompt_tokens:
                self.prompt_tokens, self.cached_tokens = delta.prompt_tokens, delta.cached_tokens
                self._on_prompt_counted()
        grows = delta.completion_tokens > self.completion_tokens
        self._frames_at_count = 1 if grows else self._frames_at_count + 1
        if self._keeps_token_ids:
            self.token_ids += delta.token_ids
        self._count(delta.completion_tokens)
        if self._broken is not None:
            return
        if self._chunks:
            MERGES.inc()
        elif self._write is not None:
            # Behind all that the hub has read, which goes out in one piece.
            asyncio.get_running_loop().call_soon(self._write_out)
        self._chunks.extend(chunks)
        for chunk in chunks:
            self._unread_bytes += len(chunk)
        if self._unread_bytes > MAX_UNREAD_BYTES:
            OVERFLOWS.inc()
            self.break_off(SlowReader("The output was read too slowly to be kept any longer."))
        if self._write is None:
            self._wake()

    def _write_out(self) -> None:
        """Give a waiting reader's connection what has come, or wake the reader to do it."""
        if self._write is None:
            return  # it is awake
        if self._chunks and self._write(self._chunks):
            self._chunks, self._unread_bytes = [], 0
        elif self._chunks:
            self._wake()

    def _count(self, completion_tokens: int) -> None:
        if completion_tokens > self.completion_tokens:
            TOKENS.inc(completion_tokens - self.completion_tokens)
            self.completion_tokens = completion_tokens

    def _wake(self) -> None:
        self._write = None
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def frames_lost() -> StreamBroken:
    return StreamBroken("Part of the output was lost in transit; try again.")
