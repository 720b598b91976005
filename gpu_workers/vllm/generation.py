"""One request in vLLM: what its engine has generated for it so far."""

from typing import Any

from vllm.outputs import RequestOutput
from vllm.v1.engine.output_processor import RequestOutputCollector

from gpu_workers.engine import BeginTexts
from gpu_workers.protocol.messages import Envelope, TokenUsage
from gpu_workers.vllm.parts import Part


class Generation:
    """What the engine has done for one request so far. Times are Unix milliseconds."""

    __slots__ = (
        "begin_texts",
        "cached_tokens",
        "completion_tokens",
        "engine_ids",
        "envelope",
        "error",
        "finish_reason",
        "first_token_at_ms",
        "has_one_choice",
        "has_one_prompt",
        "hides_usage",
        "is_aborted",
        "new_token_ids",
        "prompt_tokens",
        "queue",
        "reasoning_tokens",
        "rendered_finish_reason",
        "rendered_tokens",
        "replay",
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
        self.queue: RequestOutputCollector | None = None
        self.replay: RequestOutput | None = None  # what the next output comes after
        self.engine_ids: list[str] = []
        self.rendered_tokens = 0  # of all prompts, before any is run
        self.prompt_tokens = 0
        self.cached_tokens = 0
        self.completion_tokens = 0
        self.reasoning_tokens = 0  # known at the end, where there is a reasoning parser
        self.new_token_ids: list[int] = []
        self.first_token_at_ms: int | None = None
        self.finish_reason: str | None = None  # the engine's
        self.rendered_finish_reason: str | None = None  # in a stream, where it is another one
        self.error: Exception | None = None
        self.is_aborted = False
        self.has_one_choice = True
        self.has_one_prompt = True
        self.hides_usage = False  # from its client, at the end of a stream

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
        queue, begin_texts = self.queue, self.begin_texts
        if self.replay is not None:
            return False
        if queue is None or begin_texts is None:
            return True
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
            if self.has_one_choice:
                self.new_token_ids.extend(token_ids)
            if choice.finish_reason is not None:
                self._ended(output)

    def started(self, output: RequestOutput) -> None:
        """Count the prompt of a first output."""
        self.prompt_tokens += len(output.prompt_token_ids or ())
        self.cached_tokens += output.num_cached_tokens or 0

    def _ended(self, output: RequestOutput) -> None:
        self.finish_reason = output.outputs[0].finish_reason
        metrics: Any = output.metrics
        if self.first_token_at_ms is None and metrics and metrics.first_token_latency:
            first_token_at = metrics.arrival_time + metrics.first_token_latency
            self.first_token_at_ms = int(first_token_at * 1000)
