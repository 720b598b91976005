"""Whether an API key works, by the database: the gateway's rules, for a door that changes what the
gateway's snapshot is made from and so must not wait for it."""

from dataclasses import dataclass

from gpu_workers.protocol.policy import Caller
from inference.admission.caller_check import WRONG_KEY, check_active, check_address, matching
from inference.errors import Unauthenticated
from tenants import key_format
from tenants.isolation.scoping import operator_scope
from tenants.models import ApiKey
from tenants.policy.wire import api_key_policy, tenant_policy


@dataclass(frozen=True, kw_only=True)
class _Known:
    """A key's record, and what the gateways would know of it."""

    record: ApiKey
    caller: Caller


def check_key(key: str, address: str | None) -> ApiKey:
    """Return the record of a key that works now and from this address. Raises `Unauthenticated`
    and `Forbidden`."""
    try:
        public_id = key_format.parse(key).public_id
    except key_format.MalformedApiKey as error:
        raise Unauthenticated(f"Invalid API key: {error}.") from None
    known = _look_up(public_id, ApiKey.possible_digests(key))
    # Unknown and wrong keys are told the same.
    if known is None or matching(known.caller.key.digests, known.caller.proofs) is None:
        raise Unauthenticated(WRONG_KEY)
    check_active(known.caller)
    check_address(known.caller, address)
    return known.record


def _look_up(public_id: str, proofs: list[bytes]) -> _Known | None:
    # Whose it is can be known only once it is found.
    with operator_scope("key check"):
        record = ApiKey.objects.with_tenant(public_id)
        if record is None:
            return None
        caller = Caller(
            public_key_id=public_id,
            key=api_key_policy(record),
            tenant=tenant_policy(record.tenant),
            proofs=proofs,
        )
    return _Known(record=record, caller=caller)
