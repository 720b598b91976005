"""What serving needs from an API of vLLM's server, and all that it knows of it."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from starlette.datastructures import State

from gpu_workers.vllm.endpoints.logprobs import put_in_place
from gpu_workers.vllm.generation import Generation
from gpu_workers.vllm.parts import Part

_FRAMING_BEFORE: Final = len("data: ")
_FRAMING_AFTER: Final = -len("\n\n")


@dataclass(frozen=True, kw_only=True, slots=True)
class ParsedRequest:
    """A request as vLLM's own type. `sequences` counts all choices of all its prompts: what the
    engine holds at once. `hides_usage`: its client did not ask for the usage in its stream."""

    vllm_request: Any
    prompts: int
    sequences: int
    hides_usage: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class RenderedAnswer:
    """A whole answer: its JSON, and what nothing else says of the request's end."""

    body: bytes
    finish_reason: str
    reasoning_tokens: int = 0


class FastPath:
    """What a class has that answers as vLLM's serving object does, byte for byte, with less work at
    a time. The engine contract compares the answers of both, and switches `is_enabled` for that."""

    is_enabled: ClassVar[bool] = True
    _part: Part
    engine_client: Any  # vLLM's serving object sets it

    @classmethod
    def over(cls, serving_object: Any, part: Part) -> Any:
        """Return the same object, set up by vLLM, under this class; without `part` it is passed
        by."""
        shorter = cls.__new__(cls)
        shorter.__dict__.update(serving_object.__dict__)
        shorter._part = part
        return shorter

    def is_relied_on(self, generation: Generation) -> bool:
        return self.is_enabled and self._part not in generation.without

    def generation_of(self, request_id: str) -> Generation:
        generation: Generation = self.engine_client.generation_of(request_id)
        return generation


class Endpoint(ABC):
    """One API, made once of what vLLM's server keeps in its app's state. To serve another one is a
    class like this in a file of its own, and a line in `registry`."""

    # Whether a stream with one choice begins with an event without a token
    begins_with_role: ClassVar[bool] = False
    needs_template: ClassVar[bool] = False
    fast_path: ClassVar[type[FastPath] | None] = None
    fast_path_part: ClassVar[Part]  # what is reported where it is not relied on
    # The least that makes a request, and what it renders in its own way: for probes and warm-up
    question: ClassVar[dict[str, Any]]
    kinds: ClassVar[dict[str, dict[str, Any]]] = {}
    # What its fast path streams in a way of its own: for probes
    streams: ClassVar[tuple[dict[str, Any], ...]] = ()

    def __init__(self, state: State) -> None:
        own = self.serving_object(state)
        path = self.fast_path
        self._serving_object = path.over(own, self.fast_path_part) if path else own

    @abstractmethod
    def serving_object(self, state: State) -> Any:
        """Return the object that answers this API in vLLM's own server."""

    @abstractmethod
    def parse(self, body: dict[str, Any]) -> ParsedRequest:
        """Parse the JSON of a request. Raises `pydantic.ValidationError`, or anything else that
        vLLM's own server would turn into an error response."""

    @abstractmethod
    async def ask(self, vllm_request: Any) -> Any:
        """Call the serving object: an `AsyncGenerator` of a stream's events as text, a whole
        answer, or vLLM's `ErrorResponse`."""

    @abstractmethod
    async def prompt_overhead(self) -> int:
        """Measure the most tokens that a prompt may have beyond those of its text."""

    def render_event(self, generation: Generation, event: str) -> bytes | None:
        """Return the JSON of a stream's event, None for one that its client did not ask for, and
        note in `generation` what nothing else says. Runs for each token off the fast path."""
        return event_json(event)

    async def render_answer(self, generation: Generation, answer: Any) -> RenderedAnswer:
        """Return the JSON of a whole answer, by default as both completions APIs have it."""
        body = answer.model_dump_json().encode()
        if generation.logprobs is not None:
            body = put_in_place(body, await generation.logprobs())
        return RenderedAnswer(body=body, finish_reason=answer.choices[0].finish_reason)


def event_json(event: str) -> bytes:
    """Return a server-sent event without its framing."""
    return event[_FRAMING_BEFORE:_FRAMING_AFTER].encode()
