"""Why a request does not get its adapter on this worker, in the terms of its client."""

from gpu_workers.protocol.messages import WireError


class AdapterUnavailable(RuntimeError):
    """It is not to be had now; asking again may help. The message is for operators. `is_any`: this
    worker can get no other either, since its disk refuses or the store is away."""

    def __init__(self, message: str, *, is_any: bool = False) -> None:
        super().__init__(message)
        self.is_any = is_any


def unavailable(adapter: str) -> WireError:
    """Return the error of an adapter, by its public name, that may be there in a moment."""
    return WireError(
        status=503,
        message=f"The adapter{_named(adapter)} could not be loaded by the worker that took this "
        "request. Send the request again.",
        type="server_error",
        code="adapter_unavailable",
        retry_after_seconds=1,
        should_retry=True,
    )


def refused(adapter: str) -> WireError:
    """Return the error of an adapter that the engine cannot load, today or tomorrow."""
    return WireError(
        status=500,
        message=f"The engine of this model cannot load the adapter{_named(adapter)}. Ask for "
        "another version of it, or upload it anew.",
        type="server_error",
        code="adapter_refused",
        should_retry=False,
    )


def _named(adapter: str) -> str:
    return f" '{adapter}'" if adapter else ""
