"""What an API key and its tenant are refused for, in the words of every door. Pure functions."""

import hmac
import ipaddress
import time
from functools import lru_cache
from typing import Final

from gpu_workers.protocol.clock import now_ms
from gpu_workers.protocol.policy import Caller, KeyDigest, Scope
from inference.errors import Forbidden, Unauthenticated

WRONG_KEY: Final = "This API key does not work; check that it was copied whole."

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def bearer_token(authorization: str | None) -> str:
    """Return the key of an Authorization header."""
    scheme, _, token = (authorization or "").partition(" ")
    if not authorization or not token.strip():
        raise Unauthenticated(
            "An API key is needed: send the header `Authorization: Bearer <key>`."
        )
    if scheme.lower() != "bearer":
        raise Unauthenticated("The Authorization header must be of the form `Bearer <key>`.")
    return token.strip()


def check_active(caller: Caller) -> None:
    """Check what can end at any moment: raises `Unauthenticated` for a key that was revoked, has
    expired or was replaced, `Forbidden` for a tenant that is suspended."""
    key = caller.key
    if key.refusal is not None:
        raise Unauthenticated(key.refusal, code="api_key_revoked")
    at_ms = now_ms()
    if key.expires_at_ms is not None and at_ms >= key.expires_at_ms:
        raise Unauthenticated(
            f"This API key expired at {_moment(key.expires_at_ms)}; make a new one.",
            code="api_key_expired",
        )
    # Whoever stands for a key without a secret came by a playground's ticket: nothing else is
    # taken for a proof of it.
    if key.has_secret:
        _check_proof(caller, at_ms)
    if caller.tenant.refusal is not None:
        raise Forbidden(caller.tenant.refusal, code="tenant_suspended")


def _check_proof(caller: Caller, at_ms: int) -> None:
    digest = matching(caller.key.digests, caller.proofs)
    if digest is None:
        raise Unauthenticated(WRONG_KEY)
    if digest.expires_at_ms is not None and at_ms >= digest.expires_at_ms:
        raise Unauthenticated(
            "This API key was replaced by a newer one, and worked beside it until "
            f"{_moment(digest.expires_at_ms)}; use the newer one.",
            code="api_key_rotated",
        )


def check_address(caller: Caller, address: str | None) -> None:
    networks = caller.key.networks
    if networks is None:
        return
    if address is None or not _is_inside(address, tuple(networks)):
        raise Forbidden(
            f"This API key may not be used from the address {address or 'of this connection'}; "
            "its allow-list does not have it.",
            code="address_not_allowed",
        )


def check_scope(caller: Caller, needed: Scope | None) -> None:
    scopes = caller.key.scopes
    if needed is None or needed in scopes or Scope.ADMIN in scopes:
        return
    has = ", ".join(f"`{scope.value}`" for scope in scopes) or "none"
    raise Forbidden(
        f"This needs an API key with the scope `{needed.value}`; this one has {has}.",
        code="missing_scope",
    )


def matching(
    digests: list[KeyDigest] | tuple[KeyDigest, ...], proofs: list[bytes]
) -> KeyDigest | None:
    """Return the digest that a proof equals, of several the one that works longest. Compares all of
    them, each in constant time."""
    found = [
        digest
        for digest in digests
        for proof in proofs
        if hmac.compare_digest(digest.digest, proof)
    ]
    return max(found, key=lambda each: each.expires_at_ms or 2**63, default=None)


def _is_inside(address: str, networks: tuple[str, ...]) -> bool:
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:  # a Unix socket's peer, or none
        return False
    mapped = ip.ipv4_mapped if isinstance(ip, ipaddress.IPv6Address) else None
    return any(
        ip in network or (mapped is not None and mapped in network) for network in _parsed(networks)
    )


@lru_cache(maxsize=4096)
def _parsed(networks: tuple[str, ...]) -> list[Network]:
    return [ipaddress.ip_network(network, strict=False) for network in networks]


def _moment(unix_ms: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(unix_ms / 1000))
