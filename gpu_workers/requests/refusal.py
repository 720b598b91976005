"""Refuses a request at its worker, before its engine runs it: nothing is generated or charged."""

from typing import Final

from gpu_workers.protocol.messages import Api, WireError

# The field of a request that its prompt is in.
PROMPT_PARAM: Final = {Api.CHAT_COMPLETIONS: "messages", Api.COMPLETIONS: "prompt"}


class RequestRefused(Exception):
    """Raised where an engine's own code lies between the check and the result."""

    def __init__(self, error: WireError) -> None:
        super().__init__(error.message)
        self.error = error


def invalid_request(message: str, code: str, param: str | None = None) -> WireError:
    """Return the error of what the client can mend."""
    return WireError(
        status=400, message=message, type="invalid_request_error", code=code, param=param
    )
