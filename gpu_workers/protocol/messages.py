"""What crosses the wire. Structs travel as msgpack arrays: fields may be appended, never moved.

Times are integer milliseconds of the Unix epoch, durations milliseconds, counts tokens.
"""

from enum import StrEnum
from typing import Final, Literal

import msgspec

from gpu_workers.protocol.figures import EngineFigures, GpuFigures

WIRE_VERSION = 1


class Message(msgspec.Struct, frozen=True, kw_only=True, array_like=True, omit_defaults=False):
    """A frozen value that crosses a process boundary."""


class Api(StrEnum):
    """Which OpenAI endpoint a request came by; decides the shape of body and chunks."""

    CHAT_COMPLETIONS = "chat.completions"
    COMPLETIONS = "completions"


class WorkerState(StrEnum):
    """What a worker says of itself; only a ready one is given requests."""

    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"
    DRAINED = "drained"  # and stays until it is resumed or stopped


class Outcome(StrEnum):
    """How an admitted request ended. Terminal is final."""

    COMPLETED = "completed"  # the engine ended it: stop, length, tool_calls
    CANCELLED = "cancelled"  # the client left or said so
    REFUSED = "refused"  # tokenizer, template or grammar judged it before the engine; unbilled
    EXPIRED = "expired"  # no worker took it before its deadline
    FAILED = "failed"  # engine or worker died, or an internal error


# Why an attempt is over and another one takes its place. A lost worker, or one that can get no
# adapter, counts as a try and is not given the request again; lost frames count as a try;
# preemption does neither.
RetryReason = Literal["worker_lost", "adapters_unavailable", "frames_lost", "preempted"]


class WasteReason(StrEnum):
    """Why tokens were generated that nobody is billed for."""

    PREEMPTED = "preempted"  # made before the attempt could stop for another request
    WORKER_LOST = "worker_lost"  # by a worker that was stopped, or taken for dead
    FRAMES_LOST = "frames_lost"  # on their way; another attempt made them again
    REDIS_LOST = "redis_lost"  # another worker had the request when Redis was back
    ENDED = "ended"  # the request had its end, or another attempt, already
    AFTER_CANCEL = "after_cancel"  # between the client's leaving and the engine's hearing of it
    NOT_RESUMED = "not_resumed"  # by earlier attempts; the last one ended before it resumed


class Requeued(StrEnum):
    """The answer to handing an attempt's request back to the queue."""

    REQUEUED = "requeued"
    EXHAUSTED = "exhausted"  # it has been tried often enough, and is its caller's to finish
    STALE = "stale"  # it is not the current attempt, or its client has cancelled it


class Prices(msgspec.Struct, frozen=True, array_like=True):
    """Pico-dollars a token (micro-dollars a million), and a multiplier in permille, at which a
    request was admitted. Whoever ends the request repeats them, so that it is charged at the rates
    that were reserved."""

    prompt: int
    cached: int
    completion: int
    permille: int


FREE = Prices(0, 0, 0, 1000)


class LimitDetail(Message, frozen=True):
    """The limit behind a refusal, for machines. `scope` is `key`, `project`, `tenant` or `tier`;
    `reset_seconds` None where waiting does not help. Of `ttft_target_ms`, `used` is the expected
    wait."""

    limit: str
    scope: str
    used: int
    limit_value: int
    reset_seconds: int | None


class WireError(Message, frozen=True):
    """An error on its way to a client, in the terms of OpenAI's envelope.

    `status` is the HTTP status for an answer that has not begun; `should_retry` False tells
    clients that retry by themselves not to.
    """

    status: int
    message: str
    type: str
    code: str | None = None
    param: str | None = None
    retry_after_seconds: int | None = None
    retry_after_ms: int | None = None
    should_retry: bool | None = None
    limit: LimitDetail | None = None


class Envelope(Message, frozen=True, tag="request-2"):
    """A request as a worker gets it: rebuilt by the gateway from an allow-list, never the client's.

    `body` is the JSON of the OpenAI request with validated fields only, `cache_salt` an HMAC of
    the tenant, `max_output_tokens` the bound per choice that the worker enforces even where the
    client named none, `max_context_tokens` the tier's bound of prompt and output together.

    For the scheduler: the tenant's `weight` and `service_class`, the most tokens that all prompts
    and all outputs of the request may come to, how soon its first token is promised, how long it
    may wait at all, and whether it would rather `wait` or be `refuse`d where the promise cannot be
    kept. `adapter` is the opaque name that is counted by, `adapter_name` and `adapter_version` what
    the client asked for and got; all are empty without one.

    A request that `is_resumable` can be resumed by another worker after its first token: from
    `resumed_token_ids`, all the output that earlier attempts have generated. One that an operator
    runs once more `is_billed` to nobody. `prices` are for the record alone. `sequences`: how many
    the engine decodes at a time for it, its choices over all its prompts; each takes a slot.
    `reads_last_frames`: its gateway reads, and removes, what `finish` keeps of the output;
    `reads_texts`: it builds events itself, of a `TextDelta`. `inter_token_target_ms`: the tier's
    promise for the 95th percentile between tokens, 0 if its gateway does not say. `traceparent`:
    its gateway's span in W3C's form, empty where nothing is traced. `labels`: whom it is for, for
    the record alone. `owed`: the service owes it what its tier promises, as the queue has judged
    (dispatch/lua/waits.lua). `proof`: its gateway's word for all of this that goes on record
    (inference/proofs.py), which workers carry and cannot make; it stands last, as the queue
    replaces these two.
    """

    request_id: str
    tenant_id: str
    project_id: str
    api_key_id: str
    tier: str
    gateway_id: str
    pool: str
    model: str
    api: Api
    stream: bool
    body: bytes
    max_output_tokens: int
    priority: int
    cache_salt: str
    arrived_at_ms: int
    ttft_target_ms: int
    max_wait_ms: int
    max_context_tokens: int | None = None
    weight: int = 1
    service_class: str = "interactive"
    prompt_bound: int = 0
    output_bound: int = 0
    on_saturation: str = "wait"
    is_resumable: bool = False
    adapter: str = ""
    resumed_token_ids: list[int] = []
    is_billed: bool = True
    prices: Prices = FREE
    sequences: int = 1
    reads_last_frames: bool = False
    reads_texts: bool = False
    adapter_name: str = ""
    adapter_version: int = 0
    inter_token_target_ms: int = 0
    traceparent: str = ""
    labels: dict[str, str] = {}
    owed: bool = False
    proof: bytes = b""


class Assignment(Message, frozen=True):
    """Inbox: run this attempt of a request. The envelope stays encoded, as the gateway wrote it."""

    request_id: str
    attempt: int
    envelope: bytes


class Cancellation(Message, frozen=True):
    """Inbox: abort this attempt, keep what it generated, finish it as cancelled."""

    request_id: str
    attempt: int


class Preemption(Message, frozen=True):
    """Inbox: stop this attempt, and give its request back to the queue with what it generated."""

    request_id: str
    attempt: int


class Resend(Message, frozen=True):
    """Inbox: send the frames of this attempt again, from this sequence number on; some are
    missing at its gateway, which is to be told if they are no longer kept."""

    request_id: str
    attempt: int
    from_seq: int
    gateway_id: str = ""


class Confirmation(Message, frozen=True):
    """Inbox: this gateway has all batches up to this number."""

    gateway_id: str
    number: int


class Prefetch(Message, frozen=True):
    """Inbox: get this adapter, by its opaque name, to memory; a request that needs it waits."""

    adapter: str


class Drain(Message, frozen=True):
    """Inbox: take nothing new, finish or give back what is open, leave. A repetition is no error
    and does not hurry. Where the worker `stays` it finishes what is open and is there still."""

    stays: bool = False


class Resume(Message, frozen=True):
    """Inbox: take requests again, of a worker that drained to stay; for others it means nothing."""


InboxMessage = (
    Assignment | Cancellation | Preemption | Resend | Confirmation | Prefetch | Drain | Resume
)


class TokenUsage(Message, frozen=True):
    """Token counts of one attempt, as the engine counted them. Cached ones are part of the prompt,
    reasoning ones of the completion."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    reasoning_tokens: int = 0


class Delta(Message, frozen=True, tag="d"):
    """New output of one request. `seq` counts a request's frames from 0 within an attempt.

    `chunks` are the JSON texts of the stream's events without SSE framing; `completion_tokens`
    is cumulative; `token_ids` are the new ones (empty where n > 1). The first of an attempt has
    `prompt_tokens`, once all prompts are counted, and how many of them were cached; elsewhere both
    are 0.
    """

    request_id: str
    attempt: int
    seq: int
    chunks: list[bytes]
    completion_tokens: int
    token_ids: list[int]
    prompt_tokens: int = 0
    cached_tokens: int = 0


class TextDelta(Message, frozen=True, tag="x", gc=False):
    """New output of one request, as a `Delta` of one event, where its events differ in their text
    alone: what precedes the JSON of the text and what follows it are the attempt's `form`, which
    the first of its `TextDelta`s has. For gateways that read them, and never an attempt's first
    frame."""

    request_id: str
    attempt: int
    seq: int
    text: str
    completion_tokens: int
    token_ids: list[int]
    form: tuple[bytes, bytes] | None = None


class Terminal(Message, frozen=True, tag="t"):
    """The last frame of an attempt, sent after `finish` accepted it.

    `body` is the JSON of the whole answer where the request did not stream and succeeded. One that
    `is_body_kept` is large and stands with the last frames, in Redis, alone.
    """

    request_id: str
    attempt: int
    seq: int
    outcome: Outcome
    usage: TokenUsage
    finish_reason: str | None = None
    body: bytes | None = None
    error: WireError | None = None
    is_body_kept: bool = False


Frame = Delta | TextDelta | Terminal


# Of one batch, so that neither side's event loop stands still for what an outage has gathered.
MAX_FRAMES_OF_A_BATCH: Final = 1_000


class FrameBatch(Message, frozen=True, tag="frames-1"):
    """All frames that one flush of a worker sends to one gateway process. Batches for a gateway
    are numbered without gaps, by workers that want them confirmed. `unkept` are demands for frames
    that the worker keeps no longer.

    Also the last frames of an attempt, unnumbered: what its gateway had not confirmed when the
    request was finished, and its end.
    """

    worker_id: str
    frames: list[Frame]
    number: int = 0
    unkept: list[Resend] = []


class WorkerInfo(Message, frozen=True, tag="worker-2"):
    """What a worker publishes about itself at registration and with each heartbeat.

    `slots` is how many sequences it decodes at a time. `template_overhead_tokens` bounds what the
    chat template adds to the text of a request, `max_token_bytes` is the longest token of the
    vocabulary in UTF-8 bytes: together they let a gateway bound prompts without a tokenizer.
    `can_resume`: its engine resumes from another's output where a request `is_resumable`.
    `problem`: why it takes no request although it is ready, or why it drains by itself; empty where
    it serves, or drains as it was asked to. `warning`: what is to be seen to although it serves.
    `figures` and `gpus` are None of a worker that does not tell them, and before its engine has
    started; `gpus` is empty where it has none. `loop_age_ms`: how
    long ago its event loop was last alive, as its heartbeat reports; `degraded`: the parts of its
    engine that it serves on a slower or lesser path, as this version of the engine differs from
    what they rely on. `model_digest` tells its model and tokenizer from others; empty where that is
    not known: of an earlier version, of a model that is not on its disk yet, of no model at all.
    `stays`: it takes nothing, as an operator asked, and is there until it is resumed or stopped.
    """

    worker_id: str
    name: str
    pool: str
    model: str
    engine: str
    engine_version: str
    state: WorkerState
    slots: int
    context_tokens: int
    kv_cache_tokens: int
    template_overhead_tokens: int
    max_token_bytes: int
    running: int
    waiting_in_engine: int
    started_at_ms: int
    host: str
    pid: int
    metrics_url: str
    adapter_slots: int = 0
    adapters: list[str] = []
    can_resume: bool = True
    problem: str = ""
    loop_age_ms: int = 0
    degraded: list[str] = []
    warning: str = ""
    figures: EngineFigures | None = None
    gpus: list[GpuFigures] | None = None
    model_digest: str = ""
    stays: bool = False
