"""Refuses a prompt that has more tokens than its gateway has reserved for, before it is run.

The gateway bounds the count by the text's bytes and by what workers report that their templates
add; only the worker knows the exact count. So nothing is charged above what was reserved, whatever
a template does.
"""

from gpu_workers.protocol.messages import Envelope, WireError
from gpu_workers.requests.refusal import invalid_request


def prompt_refusal(envelope: Envelope, prompt_tokens: int) -> WireError | None:
    """Return the error if all prompts together exceed the envelope's bound in tokens, output that
    the attempt resumes from aside; None if they do not. A bound of 0 is none."""
    if not envelope.prompt_bound or prompt_tokens <= envelope.prompt_bound:
        return None
    return invalid_request(
        f"The prompt has {prompt_tokens} tokens, but only {envelope.prompt_bound} were reserved "
        "for it: the model's template adds more than its workers had reported. Nothing was "
        "generated or charged. Ask again in a moment; if that does not help, send fewer messages "
        "or tools, and tell the operator.",
        code="prompt_beyond_reservation",
    )
