"""What an answer calls the model that gave it."""

from gpu_workers.protocol.messages import Envelope


def response_model(envelope: Envelope, asked: str) -> str:
    """Return the model's name, or the adapter's as the client asked for it: with its version where
    it named that. Never the opaque one."""
    if not envelope.adapter_name:
        return envelope.model
    exact = f"{envelope.adapter_name}@{envelope.adapter_version}"
    return exact if asked == exact else envelope.adapter_name
