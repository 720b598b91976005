"""What the short paths of both APIs build their streams from: an event prepared once, of which only
the text and its log probabilities are put in, and the usage.

vLLM itself writes the event, with a text that stands for any and a null that stands for any log
probabilities; these it writes too.
"""

from typing import Any, Final

from vllm.entrypoints.serve.engine.protocol import PromptTokenUsageInfo, UsageInfo

from gpu_workers.protocol.text_event import text_event

PLACE: Final = "\x00"
_TEXT: Final = b'"\\u0000"'
_LOGPROBS: Final = b'"logprobs":'


class PreparedEvent:
    """A stream's event about one text; `form` is what `BeginTexts` takes."""

    __slots__ = ("_after", "_with_logprobs", "form")

    def __init__(self, chunk: Any) -> None:
        """`chunk`: vLLM's, with `PLACE` for its text and no log probabilities. Raises `ValueError`
        if it is not written as we know it."""
        before, after = chunk.model_dump_json(exclude_unset=True).encode().split(_TEXT)
        between, rest = after.split(_LOGPROBS + b"null")
        self.form: tuple[bytes, bytes] = (before, after)
        self._with_logprobs = (before, between + _LOGPROBS)
        self._after = rest.decode()

    def event(self, text: str, logprobs: Any = None) -> str:
        """Return the server-sent event of a text; `logprobs` as vLLM's own type."""
        if logprobs is None:
            return f"data: {text_event(self.form, text).decode()}\n\n"
        begun = text_event(self._with_logprobs, text).decode()
        return f"data: {begun}{logprobs.model_dump_json(exclude_unset=True)}{self._after}\n\n"


def usage_info(
    prompt_tokens: int, completion_tokens: int, details: PromptTokenUsageInfo | None
) -> UsageInfo:
    """Return what a stream's last event says; `details` are the prompt's."""
    usage = UsageInfo(
        prompt_tokens=prompt_tokens,
        completion_tokens=completion_tokens,
        total_tokens=prompt_tokens + completion_tokens,
    )
    usage.prompt_tokens_details = details
    return usage
