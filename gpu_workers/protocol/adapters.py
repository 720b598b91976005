"""LoRA adapters on the wire: where a worker finds one, what the base is that they are made for.

An adapter's opaque name is the SHA-256, in hex, of its tenant's id and of what is stored: one
version of one tenant's adapter, never used for anything else. What is stored is one safetensors
file whose metadata has `adapter_config`, the JSON of PEFT's configuration.
"""

from enum import IntEnum

from gpu_workers.protocol.messages import Message


class AdapterLevel(IntEnum):
    """How near to the engine's step a worker has an adapter; each holds what the next one has."""

    DISK = 1
    MEMORY = 2
    SLOT = 3


class AdapterEffect(IntEnum):
    """What an adapter makes of its base's answers, as a worker found by probe prompts."""

    CHANGES = 1
    NONE = 2  # no more than the base's answers differ among themselves
    NOT_FINITE = 3  # NaN or infinity: it can answer nobody


class AdapterSource(Message, frozen=True, tag="source-2"):
    """Where a pool's workers get an adapter from until `expires_at_ms`: `size_bytes` at `url`,
    sealed, whose plain bytes have the digest `sha256`. `key` opens these bytes and nothing else
    (`sealed.stream_key`). Where it
    `needs_probe`, whoever loads it first finds its effect, and says so."""

    adapter: str
    url: str
    size_bytes: int
    sha256: bytes
    key: bytes
    expires_at_ms: int
    needs_probe: bool = False


class AdapterPins(Message, frozen=True, tag="pins-1"):
    """The versions that a pool's workers keep at hand though nobody asks for them, each with its
    place among its tenant's, from 1."""

    places: dict[str, int]


class BaseModule(Message, frozen=True):
    """A linear layer that adapters may change, by the name that PEFT gives it in a checkpoint, such
    as `model.layers.0.self_attn.q_proj`; `norm` is about the Frobenius norm of its weights, as the
    engine that loaded them finds it, None where it cannot."""

    name: str
    in_features: int
    out_features: int
    norm: float | None = None


class AdapterBase(Message, frozen=True, tag="base-1"):
    """What adapters of a pool are validated against, as its workers publish it. `digest` is of the
    base's configuration and of this table; `max_rank` the largest rank that they load."""

    model: str
    digest: str
    max_rank: int
    modules: list[BaseModule]
