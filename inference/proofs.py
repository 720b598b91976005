"""Proofs of what gateways have admitted: what they carry home is believed of nobody else.

A worker writes the usage record of a request that it ran, and is the least trusted part there is.
So the gateway that admits a request adds a MAC over all that the record is to say of it, under a
key that gateways and the control plane have and workers do not (docs/adr/0041). The intake compares
it with what came back. A proof has two halves, HMAC-SHA-256 cut to 128 bits each (RFC 2104, section
5): one over whose request it is, which the entry of a wasted attempt carries too, one over its
terms, which the queue's verdict on what is owed is a part of.
"""

import hmac
from collections.abc import Sequence
from typing import Final

import msgspec

from gpu_workers.protocol.messages import Envelope
from gpu_workers.protocol.usage import UsageEntry, WasteEntry

HALF_BYTES: Final = 16
_PURPOSE: Final = b"penstock usage proof"
_encode: Final = msgspec.msgpack.Encoder().encode


class Prover:
    """Makes proofs under the first of some secrets, and knows those of all of them: the pepper of
    API keys, and those before it."""

    def __init__(self, secret: bytes, previous: Sequence[bytes] = ()) -> None:
        keys = [hmac.digest(each, _PURPOSE, "sha256") for each in (secret, *previous)]
        self._key, self._keys = keys[0], keys

    def prove(self, envelope: Envelope, *, owed: bool) -> bytes:
        """Return the proof of a request, as it is where the queue judges so."""
        owner = _owner(envelope, envelope.adapter_name, is_billed=envelope.is_billed)
        terms = _terms(envelope, owed=owed)
        return _mac(self._key, owner) + _mac(self._key, terms)

    def is_proven(self, entry: UsageEntry) -> bool:
        """Return whether a gateway has admitted just the request that the entry is of."""
        owner = _owner(entry, entry.adapter, is_billed=entry.is_billed)
        terms = _terms(entry, owed=entry.owed)
        return any(
            hmac.compare_digest(_mac(key, owner) + _mac(key, terms), entry.proof)
            for key in self._keys
        )

    def is_owner_proven(self, entry: WasteEntry) -> bool:
        """Return whether a gateway has admitted a request of this owner, model and bound, to be
        billed: of others there is no waste."""
        owner = _owner(entry, entry.adapter, is_billed=True)
        claimed = entry.proof[:HALF_BYTES]
        return any(hmac.compare_digest(_mac(key, owner), claimed) for key in self._keys)


def _owner(of: Envelope | UsageEntry | WasteEntry, adapter: str, *, is_billed: bool) -> bytes:
    return _encode(
        (
            "owner-1",
            of.request_id,
            of.tenant_id,
            of.project_id,
            of.api_key_id,
            of.tier,
            of.pool,
            of.model,
            adapter,
            sorted(of.labels.items()),
            of.output_bound,
            is_billed,
        )
    )


def _terms(of: Envelope | UsageEntry, *, owed: bool) -> bytes:
    return _encode(
        (
            "terms-1",
            of.request_id,
            of.api,
            of.stream,
            of.arrived_at_ms,
            of.service_class,
            of.adapter_version,
            of.prices,
            of.prompt_bound,
            owed,
        )
    )


def _mac(key: bytes, facts: bytes) -> bytes:
    return hmac.digest(key, facts, "sha256")[:HALF_BYTES]
