"""Whether an API key works, by the database: the gateway's rules and words, for a door that changes
what the gateway's snapshot is made from and so must not wait for it."""

import ipaddress
import time

from gpu_workers.protocol.policy import ApiKeyPolicy
from inference.errors import Forbidden, Unauthenticated
from tenants import api_keys
from tenants.models import ApiKey
from tenants.scoping import operator_scope

_WRONG_KEY = "This API key does not work; check that it was copied whole."


def check_key(key: str, address: str | None) -> ApiKey:
    """The record of a key that works now and from this address. Raises `Unauthenticated` and
    `Forbidden`."""
    try:
        api_keys.parse(key)
    except api_keys.MalformedApiKey as error:
        raise Unauthenticated(f"This is no API key of ours: {error}.") from None
    # Whose it is can be known only once it is found.
    with operator_scope("key check"):
        record = ApiKey.objects.select_related("tenant__tier").find(key)
        if record is None:
            raise Unauthenticated(_WRONG_KEY)
        policy, refusal = record.to_policy(), record.tenant.to_policy().refusal
    _check_standing(policy)
    if refusal is not None:
        raise Forbidden(refusal, code="tenant_suspended")
    _check_address(policy, address)
    return record


def _check_standing(key: ApiKeyPolicy) -> None:
    if key.refusal is not None:
        raise Unauthenticated(key.refusal, code="api_key_revoked")
    if key.expires_at_ms is not None and time.time_ns() // 1_000_000 >= key.expires_at_ms:
        moment = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(key.expires_at_ms / 1000))
        raise Unauthenticated(
            f"This API key expired at {moment}; make a new one.", code="api_key_expired"
        )


def _check_address(key: ApiKeyPolicy, address: str | None) -> None:
    if key.networks is None or (address is not None and _is_inside(address, key.networks)):
        return
    raise Forbidden(
        f"This API key may not be used from the address {address or 'of this connection'}; "
        "its allow-list does not have it.",
        code="address_not_allowed",
    )


def _is_inside(address: str, networks: list[str]) -> bool:
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:  # a Unix socket's peer, or none
        return False
    mapped = ip.ipv4_mapped if isinstance(ip, ipaddress.IPv6Address) else None
    blocks = [ipaddress.ip_network(network, strict=False) for network in networks]
    return any(ip in block or (mapped is not None and mapped in block) for block in blocks)
