"""Bytes of the wire: msgpack, decoded against the exact type that is expected."""

from typing import TypeVar

import msgspec

from gpu_workers.protocol.adapters import AdapterBase, AdapterPins, AdapterSource
from gpu_workers.protocol.messages import (
    Assignment,
    Cancellation,
    Confirmation,
    Drain,
    Envelope,
    FrameBatch,
    InboxMessage,
    Message,
    Preemption,
    Prefetch,
    Resend,
    Resume,
    WorkerInfo,
)
from gpu_workers.protocol.policy import (
    AdapterList,
    AdapterPolicy,
    ApiKeyPolicy,
    Caller,
    ModelPolicy,
    PolicyDelta,
    TenantPolicy,
)
from gpu_workers.protocol.refusals import RefusalBatch
from gpu_workers.protocol.usage import EngineTokenCounter, UsageEntry, WasteEntry

_T = TypeVar("_T")


class WireFormatError(ValueError):
    """Bytes that are not the message they should be: another version, or damage."""


_encoder = msgspec.msgpack.Encoder()
_envelope = msgspec.msgpack.Decoder(Envelope)
_frames = msgspec.msgpack.Decoder(FrameBatch)
_worker_info = msgspec.msgpack.Decoder(WorkerInfo)
_usage_entry = msgspec.msgpack.Decoder(UsageEntry)
_usage = msgspec.msgpack.Decoder(UsageEntry | WasteEntry | EngineTokenCounter)
_api_key = msgspec.msgpack.Decoder(ApiKeyPolicy)
_tenant = msgspec.msgpack.Decoder(TenantPolicy)
_model = msgspec.msgpack.Decoder(ModelPolicy)
_adapter = msgspec.msgpack.Decoder(AdapterPolicy)
_adapter_list = msgspec.msgpack.Decoder(AdapterList)
_adapter_source = msgspec.msgpack.Decoder(AdapterSource)
_adapter_pins = msgspec.msgpack.Decoder(AdapterPins)
_adapter_base = msgspec.msgpack.Decoder(AdapterBase)
_caller = msgspec.msgpack.Decoder(Caller)
_policy_delta = msgspec.msgpack.Decoder(PolicyDelta)
_refusal_batch = msgspec.msgpack.Decoder(RefusalBatch)


def encode(message: Message) -> bytes:
    """Return the bytes of any wire message."""
    return _encoder.encode(message)


def owed_end(proof: bytes) -> bytes:
    """Return the bytes that the last two fields of an envelope have where the request is owed."""
    return _encoder.encode(True) + _encoder.encode(proof)


def decode_envelope(data: bytes) -> Envelope:
    """Decode a request's envelope. Raises `WireFormatError`, as every `decode_` function does."""
    return _decode(_envelope, data, "a request envelope")


def decode_inbox(data: bytes) -> InboxMessage:
    """Decode an inbox message, which the dispatch functions compose in Lua as plain text.

    The forms are `assign <request id> <attempt>\\n<envelope>`, `cancel <request id> <attempt>\\n`,
    `preempt <request id> <attempt>\\n`, `prefetch <adapter>\\n`, `drain\\n`, `drain stay\\n`,
    `resume\\n` and, from a gateway, `resend <request id> <attempt> <from seq>\\n<gateway id>` and
    `confirm <gateway id> <number>\\n`. Raises `WireFormatError` on any other.
    """
    head, _, rest = data.partition(b"\n")
    match head.split(b" "):
        case [b"assign", request_id, attempt] if rest and attempt.isdigit():
            return Assignment(request_id=request_id.decode(), attempt=int(attempt), envelope=rest)
        case [b"cancel", request_id, attempt] if attempt.isdigit():
            return Cancellation(request_id=request_id.decode(), attempt=int(attempt))
        case [b"preempt", request_id, attempt] if attempt.isdigit():
            return Preemption(request_id=request_id.decode(), attempt=int(attempt))
        case [b"prefetch", adapter]:
            return Prefetch(adapter=adapter.decode())
        case [b"drain"]:
            return Drain()
        case [b"drain", b"stay"]:
            return Drain(stays=True)
        case [b"resume"]:
            return Resume()
        case [b"resend", request_id, attempt, seq] if attempt.isdigit() and seq.isdigit():
            return Resend(
                request_id=request_id.decode(),
                attempt=int(attempt),
                from_seq=int(seq),
                gateway_id=rest.decode(),
            )
        case [b"confirm", gateway_id, number] if number.isdigit():
            return Confirmation(gateway_id=gateway_id.decode(), number=int(number))
    raise WireFormatError(f"expected an inbox message of wire version 1, got: {head[:40]!r}")


def encode_resend(resend: Resend) -> bytes:
    """Return the inbox message of a resend, as `decode_inbox` reads it."""
    head = f"resend {resend.request_id} {resend.attempt} {resend.from_seq}"
    return f"{head}\n{resend.gateway_id}".encode()


def encode_confirmation(confirmation: Confirmation) -> bytes:
    """Return the inbox message of a confirmation, as `decode_inbox` reads it."""
    return f"confirm {confirmation.gateway_id} {confirmation.number}\n".encode()


def decode_frames(data: bytes) -> FrameBatch:
    return _decode(_frames, data, "a frame batch")


def decode_worker_info(data: bytes) -> WorkerInfo:
    return _decode(_worker_info, data, "a worker's description")


def decode_usage_entry(data: bytes) -> UsageEntry:
    return _decode(_usage_entry, data, "a usage entry")


def decode_usage(data: bytes) -> UsageEntry | WasteEntry | EngineTokenCounter:
    """Decode any entry of a usage stream. Raises `WireFormatError`."""
    expected = "a usage or waste entry, or an engine's token counter"
    entry: UsageEntry | WasteEntry | EngineTokenCounter = _decode(_usage, data, expected)
    return entry


def decode_api_key(data: bytes) -> ApiKeyPolicy:
    return _decode(_api_key, data, "an API key's policy")


def decode_tenant(data: bytes) -> TenantPolicy:
    return _decode(_tenant, data, "a tenant's policy")


def decode_model(data: bytes) -> ModelPolicy:
    return _decode(_model, data, "a model's policy")


def decode_adapter(data: bytes) -> AdapterPolicy:
    return _decode(_adapter, data, "an adapter's row")


def decode_adapter_list(data: bytes) -> AdapterList:
    return _decode(_adapter_list, data, "a list of adapters")


def decode_adapter_source(data: bytes) -> AdapterSource:
    return _decode(_adapter_source, data, "an adapter's source")


def decode_adapter_pins(data: bytes) -> AdapterPins:
    return _decode(_adapter_pins, data, "the pinned adapters of a pool")


def decode_adapter_base(data: bytes) -> AdapterBase:
    return _decode(_adapter_base, data, "a base of adapters")


def decode_caller(data: bytes) -> Caller:
    return _decode(_caller, data, "a caller")


def decode_policy_delta(data: bytes) -> PolicyDelta:
    return _decode(_policy_delta, data, "what a version of the policy changed")


def decode_refusal_batch(data: bytes) -> RefusalBatch:
    return _decode(_refusal_batch, data, "a batch of refusals")


def _decode(decoder: "msgspec.msgpack.Decoder[_T]", data: bytes, expected: str) -> _T:
    try:
        return decoder.decode(data)
    except msgspec.MsgspecError as error:
        raise WireFormatError(f"expected {expected} of wire version 1, got: {error}") from error
