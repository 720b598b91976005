"""What a worker asks of an engine. vLLM and the simulated engine are held to one contract suite."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from gpu_workers.protocol.adapters import AdapterBase, AdapterEffect
from gpu_workers.protocol.messages import Envelope, Outcome, TokenUsage, WireError


@dataclass(frozen=True, kw_only=True)
class EngineDescription:
    """What an engine can do, known once it has started. Counts are tokens."""

    engine: str
    version: str
    slots: int
    context_tokens: int
    kv_cache_tokens: int
    template_overhead_tokens: int
    max_token_bytes: int
    # Whether text follows from tokens alone and each token from those before: see
    # `Envelope.is_resumable`
    can_resume: bool = True
    # What it does on a slower or lesser path than it could: see `WorkerInfo.degraded`
    degraded: tuple[str, ...] = ()
    # LoRA adapters that one step can have, and that can be loaded at once, at least as many; both
    # are 0 for an engine without adapters
    adapter_slots: int = 0
    adapters_in_memory: int = 0
    # What its adapters are made for; None for an engine without adapters
    adapter_base: AdapterBase | None = None
    # What tells its model from others, where that was not known before it started; see
    # `model_digest`
    model_digest: str = ""
    # How many of the GPUs that its process sees it uses, the first ones; 0: it computes elsewhere
    gpus: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadableAdapter:
    """A LoRA adapter on this machine's disk: `name` is the opaque one, never used for another;
    `folder` has PEFT's `adapter_config.json` and `adapter_model.safetensors`, and stays until the
    adapter is unloaded."""

    name: str
    folder: Path


@dataclass(frozen=True, kw_only=True, slots=True)
class Output:
    """New output of a streaming request: JSON events without SSE framing, and the new tokens.

    `completion_tokens` is cumulative over all choices; `token_ids` are the new ones, empty where
    the request has several choices; `prompt_tokens`, and those of them that were cached, are 0 as
    long as not all prompts are counted. An event without a token, such as the role's, counts none.
    """

    chunks: list[bytes]
    completion_tokens: int
    token_ids: list[int]
    prompt_tokens: int = 0
    cached_tokens: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """How a request ended: always the last thing that `generate` yields, exactly once.

    `body` is the whole answer's JSON for a request that did not stream and completed. `usage`
    holds what the engine really counted, also after an abort. `first_token_ns` is the time
    of the first token by `time.monotonic_ns`, where no `Output` shows it, that is, without
    streaming; `token_ids`
    are then what an aborted request with one choice has generated. `wasted_tokens` were generated
    besides, and are the worker's to say: an engine counts everything in `usage`.
    """

    outcome: Outcome
    usage: TokenUsage
    finish_reason: str | None = None
    body: bytes | None = None
    error: WireError | None = None
    first_token_ns: int | None = None
    token_ids: list[int] = field(default_factory=list)
    wasted_tokens: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineLoad:
    """The engine's own queue, in sequences. `waiting` are those it has had no room for in a while,
    not those that the next step will take. `generated_tokens` counts since its start; tokens that
    requests resume from are not among them. `held` are all it was given and has not ended, `steps`
    the steps it has reported since its start: one that holds some and makes none hangs.
    `loading_seconds` is for how long loads of adapters have kept it from steps since its start."""

    running: int
    waiting: int
    generated_tokens: int = 0
    held: int = 0
    steps: int = 0
    loading_seconds: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineStats:
    """How the engine does; None is what it does not tell. `kv_used` is the share (0 to 1) of its KV
    cache in use; of the steps of the last seconds, `batch_used` is the mean share of the batch's
    sequences and `step_us` the median in microseconds, None where there were none. The others count
    since its start: prompt tokens looked up in the prefix cache and found there, sequences
    preempted, tokens drafted by speculation and accepted."""

    kv_used: float | None = None
    batch_used: float | None = None
    step_us: int | None = None
    prefix_asked_tokens: int | None = None
    prefix_hit_tokens: int | None = None
    preemptions: int | None = None
    drafted_tokens: int | None = None
    accepted_tokens: int | None = None


class EngineDied(RuntimeError):
    """The engine cannot serve any more; the worker fails its requests and exits. `usage` is what it
    had counted for the request that it is raised from, if there is one."""

    def __init__(self, message: str, usage: TokenUsage | None = None) -> None:
        super().__init__(message)
        self.usage = usage


class EngineHung(EngineDied):
    """The engine lives, holds requests and makes no step."""


ADAPTER_NOT_LOADED: Final = WireError(
    status=503,
    message="The worker that took this request does not have its adapter loaded; ask again.",
    type="server_error",
    code="adapter_not_loaded",
    retry_after_seconds=1,
    should_retry=True,
)


class AdapterRefused(RuntimeError):
    """The engine cannot load this adapter, and serves on. The message is for operators."""


class ProbeFailed(RuntimeError):
    """The engine could not find out what an adapter does, and serves on. The message is for
    operators."""


# A text, the completion tokens so far, the new token ids: an output of one event.
EmitText = Callable[[str, int, list[int]], None]
# What precedes and what follows the JSON of the text in each such event.
BeginTexts = Callable[[tuple[bytes, bytes]], EmitText]


class Engine(Protocol):
    """Start and warm up once, generate many, stop once. All methods run on the worker's loop."""

    async def start(self) -> EngineDescription:
        """Load the model; raises an exception that names the problem if it cannot."""
        ...

    async def warm_up(self) -> None:
        """Do once, before anybody is served, whatever takes long when it is first done: a request
        of each kind, of nobody's. What they generate is not in `load().generated_tokens`. Raises
        `EngineDied` if the engine dies of it."""
        ...

    def generate(
        self, envelope: Envelope, begin_texts: BeginTexts | None = None
    ) -> AsyncIterator[Output | Result]:
        """Run one request: `Output`s while it streams, then one `Result`, never an exception
        except `EngineDied`. Neither bad input nor an abort raises: both are a `Result`.

        A request whose `envelope.adapter` is not loaded ends FAILED, with `ADAPTER_NOT_LOADED`.

        With `envelope.resumed_token_ids` it resumes after these: they come as the first output,
        which holds no other token, and count as if they had been generated here.

        From some `Output` on, where all events differ in their text alone, the engine may call
        `begin_texts` and give texts to what it returns, each in its place in the order, rather than
        yield them: that wakes no task for them.
        """
        ...

    async def abort(self, request_id: str) -> None:
        """End a request; its `generate` yields a CANCELLED `Result` with the tokens generated.
        An unknown id is no error."""
        ...

    async def load_adapter(self, adapter: LoadableAdapter) -> None:
        """Load an adapter to memory; return once requests may name it. One that is loaded is left
        as it is. Never makes room by itself: unload another before. Raises `AdapterRefused` if the
        engine cannot load it, or has no room; `EngineDied` if it cannot serve any more."""
        ...

    async def probe_adapter(self, name: str) -> AdapterEffect:
        """Ask a few short prompts by a loaded adapter, beside whoever is served, and tell what it
        makes of the base's log-probabilities. Nobody's requests: what they generate is not in
        `load().generated_tokens`. Raises `ProbeFailed`, within seconds, where it cannot tell;
        `EngineDied` if it cannot serve any more."""
        ...

    async def unload_adapter(self, name: str) -> None:
        """Free an adapter's memory and slot; one that is not loaded is no error. Never called while
        a request uses it. Raises `EngineDied` if the engine cannot serve any more."""
        ...

    def load(self) -> EngineLoad:
        """Return the engine's own queue; cheap enough to call before every claim."""
        ...

    def stats(self) -> EngineStats:
        """Return how the engine does; called about once a second."""
        ...

    async def check_health(self) -> None:
        """Check that the engine can still serve. Raises `EngineDied` if it cannot."""
        ...

    async def stop(self) -> None:
        """Free everything, child processes included; safe twice and after a failed start."""
        ...
