"""One request in vLLM: what its engine has generated for it so far."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

from vllm.outputs import RequestOutput
from vllm.v1.engine.output_processor import RequestOutputCollector

from gpu_workers.engine import BeginTexts
from gpu_workers.protocol.messages import Envelope, TokenUsage, WireError
from gpu_workers.requests.refusal import invalid_request
from gpu_workers.vllm.parts import Part

_ABORT: Final = "abort"
_ERROR: Final = "error"

_NO_TOKEN_LEFT: Final = invalid_request(
    "The answer cannot go on: its schema, pattern or grammar allows no next token, or none that "
    "allowed_token_ids, bad_words and stop_token_ids leave. What was generated is charged. Send a "
    "structure that can be fulfilled, and allow the tokens that it needs.",
    code="structure_impossible",
)


class Generation:
    """What the engine has done for one request so far. Times are of `time.monotonic_ns`."""

    __slots__ = (
        "_render_turn",
        "begin_texts",
        "cached_tokens",
        "checking",
        "choices",
        "completion_tokens",
        "ended_choices",
        "ended_for",
        "ending",
        "engine_ids",
        "envelope",
        "error",
        "finish_reason",
        "first_token_ns",
        "follows_structure",
        "has_one_prompt",
        "hides_usage",
        "is_aborted",
        "logprobs",
        "lora_request",
        "new_token_ids",
        "prompt_tokens",
        "queues",
        "reasoning_tokens",
        "rendered_finish_reason",
        "rendered_tokens",
        "replay",
        "unheard_ids",
        "without",
    )

    def __init__(
        self,
        envelope: Envelope,
        begin_texts: BeginTexts | None = None,
        without: frozenset[Part] = frozenset(),
    ) -> None:
        """`without`: the parts of vLLM that are not to be relied on for it."""
        self.envelope = envelope
        self.begin_texts = None if Part.OUTPUT_DIVERSION in without else begin_texts
        self.without = without
        self.lora_request: Any = None  # vLLM's own, of the adapter that it names
        self.queues: dict[str, RequestOutputCollector] = {}  # of each id that the engine has
        self.replay: RequestOutput | None = None  # what the next output comes after
        self.engine_ids: list[str] = []
        self.unheard_ids: set[str] = set()  # of these, without any output yet
        self.rendered_tokens = 0  # of all prompts, before any is run
        self.prompt_tokens = 0
        self.cached_tokens = 0
        self.completion_tokens = 0
        self.reasoning_tokens = 0  # known at the end, where there is a reasoning parser
        self.new_token_ids: list[int] = []
        self.first_token_ns: int | None = None
        self.finish_reason: str | None = None  # the engine's
        self.rendered_finish_reason: str | None = None  # in a stream, where it is another one
        # Renders those of a whole answer, where they are left to us
        self.logprobs: Callable[[], Awaitable[list[bytes]]] | None = None
        self.checking: asyncio.Task[None] | None = None  # what the answer has to follow
        self.ending: asyncio.Task[None] | None = None  # the abort, if not by its client
        self._render_turn: asyncio.Semaphore | None = None
        self.error: Exception | None = None
        self.is_aborted = False
        self.ended_for: WireError | None = None  # why it has ended early, if not by its client
        self.follows_structure = False
        self.choices = 1  # over all prompts
        self.ended_choices = 0  # by a finish reason of their own
        self.has_one_prompt = True
        self.hides_usage = False  # from its client, at the end of a stream

    @property
    def has_one_choice(self) -> bool:
        return self.choices == 1

    @property
    def is_whole(self) -> bool:
        """Return whether every choice of every prompt has ended by itself."""
        return self.ended_choices == self.choices

    def begin_rendering(self, turn: asyncio.Semaphore) -> None:
        self._render_turn = turn

    def end_rendering(self) -> None:
        """Let the next prompt of this tenant be rendered; a repeated call does nothing."""
        turn, self._render_turn = self._render_turn, None
        if turn is not None:
            turn.release()

    def usage(self) -> TokenUsage:
        return TokenUsage(
            prompt_tokens=self.prompt_tokens,
            cached_tokens=self.cached_tokens,
            completion_tokens=self.completion_tokens,
            reasoning_tokens=min(self.reasoning_tokens, self.completion_tokens),
        )

    @property
    def generated_tokens(self) -> int:
        """Return what the engine has generated for it, without what it resumed from."""
        return max(0, self.completion_tokens - len(self.envelope.resumed_token_ids))

    def take_token_ids(self) -> list[int]:
        """Return the ids generated since the last call."""
        taken, self.new_token_ids = self.new_token_ids, []
        return taken

    def divert(self, form: tuple[bytes, bytes], *, skips_empty: bool) -> bool:
        """Send the engine's texts out as they are made, without waking the task that asked for
        them; `form` as of `BeginTexts`.

        The last output still goes through the queue, as does every output that finds the queue
        filled, so that the order stays. Return False while an output that would be overtaken is
        under way: call again.
        """
        begin_texts = self.begin_texts
        if self.replay is not None:
            return False
        if not self.queues or begin_texts is None:
            return True
        (queue,) = self.queues.values()
        enqueue, emit = queue.put, begin_texts(form)

        def put(output: Any) -> None:
            if queue.output is not None or type(output) is not RequestOutput or output.finished:
                enqueue(output)
                return
            try:
                (choice,) = output.outputs
                token_ids = choice.token_ids
                self.completion_tokens += len(token_ids)
                if self.new_token_ids:
                    token_ids = [*self.take_token_ids(), *token_ids]
                if self.is_aborted or (skips_empty and not choice.text):
                    self.new_token_ids = token_ids
                else:
                    emit(choice.text, self.completion_tokens, token_ids)
            except Exception as error:  # noqa: BLE001 - it must not end the engine's own task
                enqueue(error)

        queue.put = put
        return True

    def record(self, output: RequestOutput) -> None:
        """Count one output; with several choices it may hold several of them."""
        for choice in output.outputs:
            token_ids = choice.token_ids
            self.completion_tokens += len(token_ids)
            if self.choices == 1:
                self.new_token_ids.extend(token_ids)
            if choice.finish_reason is not None:
                self._ended(choice.finish_reason, output)

    def record_rest(self) -> None:
        """Count the outputs that nobody has taken, and will."""
        for engine_id, queue in self.queues.items():
            with suppress(Exception):  # of the engine; `error` has it where it was taken
                while (output := queue.get_nowait()) is not None:
                    if engine_id in self.unheard_ids:
                        self.started(engine_id, output)
                    self.record(output)

    def started(self, engine_id: str, output: RequestOutput) -> None:
        """Count the prompt of a first output."""
        self.unheard_ids.discard(engine_id)
        prompt_tokens = len(output.prompt_token_ids or ())
        self.prompt_tokens += prompt_tokens
        # The engine counts what it resumes from as prompt, and may have that in its cache too.
        self.cached_tokens += min(output.num_cached_tokens or 0, prompt_tokens)

    def _ended(self, finish_reason: str, output: RequestOutput) -> None:
        if finish_reason == _ERROR and self.follows_structure:
            self.ended_for = _NO_TOKEN_LEFT  # whatever was sampled did not follow the structure
        elif finish_reason != _ABORT:
            self.ended_choices += 1
            self.finish_reason = finish_reason
        metrics: Any = output.metrics
        if self.first_token_ns is None and metrics and metrics.first_token_ts:
            # The engine's process reads the same monotonic clock, as it is on the same machine.
            self.first_token_ns = int(metrics.first_token_ts * 1e9)
