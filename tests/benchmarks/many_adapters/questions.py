"""What everybody asks: the same questions, so that whatever is cached of one tenant's prompt, of
one adapter's or of one version's would do for another's."""

from typing import Any, Final

TOKENS: Final = 4

# Longer than a block of the KV cache, 128 tokens on a CPU: only whole blocks are cached.
_BEGINNING: Final = (
    "You answer questions about water power in one sentence. A penstock is the gated pipe that "
    "leads water to the turbines. The water comes from a reservoir, which a dam holds back, and "
    "the gate at the upper end of the pipe decides how much of it goes down. The higher the "
    "reservoir lies above the turbines, the more each litre of water can do. A valve in front of "
    "every turbine closes in seconds when the turbine has to stand still, and a surge tank takes "
    "up the water that then has nowhere to go. Behind the turbines it flows on. Now the question: "
)
_QUESTIONS: Final = (
    "What is a penstock?",
    "Why does a turbine need a valve of its own?",
    "What happens to the sand in the water of a river?",
)
COUNT: Final = len(_QUESTIONS)


def body(number: int, *, with_logprobs: bool) -> dict[str, Any]:
    """Return the body of a question, as a client sends it. An engine that has no log-probabilities
    refuses who asks for them."""
    logprobs = {"logprobs": True, "top_logprobs": 2} if with_logprobs else {}
    return {
        "messages": [{"role": "user", "content": _BEGINNING + _QUESTIONS[number]}],
        "temperature": 0,
        "max_tokens": TOKENS,
        "ignore_eos": True,
    } | logprobs
