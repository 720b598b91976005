"""Whether an API key works, now and from this address, against the policy snapshot alone.

A key that has proved itself is remembered under the SHA-256 of the whole key until the snapshot's
version changes; what changes without a version (time, the caller's address) is checked each time.
"""

import hashlib
import hmac
import ipaddress
import time
from collections.abc import Callable
from functools import lru_cache
from typing import Final

from gpu_workers.protocol.policy import ApiKeyPolicy, Caller, KeyDigest, Scope
from inference.errors import Forbidden, InferenceError, Unauthenticated, Unavailable
from inference.policy_snapshot import PolicySnapshot
from tenants import api_keys

_CALLERS_KEPT: Final = 50_000
_WRONG_KEY: Final = "This API key does not work; check that it was copied whole."
_NO_DIGESTS: Final = (KeyDigest(digest=bytes(32)),)

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class ApiKeyCheck:
    """The check of one gateway process. `on_use` hears the public id of each key that was used,
    `on_earlier_pepper` of one that proved itself under an earlier pepper, with its digest under
    that one followed by that under the current one."""

    def __init__(
        self,
        snapshot: PolicySnapshot,
        *,
        pepper: bytes,
        previous_peppers: tuple[bytes, ...] = (),
        on_use: Callable[[str], None],
        on_earlier_pepper: Callable[[str, bytes], None],
    ) -> None:
        self._snapshot = snapshot
        self._pepper = pepper
        self._previous_peppers = previous_peppers
        self._on_use = on_use
        self._on_earlier_pepper = on_earlier_pepper
        self._callers: dict[bytes, Caller] = {}  # by the whole SHA-256 of the presented key
        self._callers_version: bytes | None = None

    async def authenticate(
        self, authorization: str | None, address: str | None, scope: Scope | None
    ) -> Caller:
        """Who an Authorization header speaks for, if its key works from this address and has the
        scope (None: any will do). Raises `Unauthenticated`, `Forbidden`, and `Unavailable` while
        there is no snapshot to tell."""
        key = _bearer_token(authorization)
        fingerprint = hashlib.sha256(key.encode()).digest()
        if self._callers_version != self._snapshot.version:
            self._callers.clear()
            self._callers_version = self._snapshot.version
        caller = self._callers.get(fingerprint)
        if caller is None:
            caller = await self._prove(key)
            if (
                self._callers_version == self._snapshot.version
                and len(self._callers) < _CALLERS_KEPT
            ):
                self._callers[fingerprint] = caller
        _check_standing(caller)
        _check_address(caller, address)
        _check_scope(caller, scope)
        self._on_use(caller.public_key_id)
        return caller

    async def still(self, caller: Caller, address: str | None, scope: Scope | None) -> Caller:
        """The same caller under today's policy, for connections that outlive one request."""
        caller = await self._today(caller)
        _check_standing(caller)
        _check_address(caller, address)
        _check_scope(caller, scope)
        return caller

    async def refusal_of(self, caller: Caller) -> InferenceError | None:
        """Why what this caller has open has to end, if it has. A snapshot that is gone ends
        nothing."""
        try:
            _check_standing(await self._today(caller))
        except (Unauthenticated, Forbidden) as error:
            return error
        except Unavailable:
            return None
        return None

    async def _today(self, caller: Caller) -> Caller:
        self._snapshot.require()
        row = await self._snapshot.api_key(caller.public_key_id)
        if row is None:
            raise Unauthenticated(_WRONG_KEY)
        if row is caller.key and await self._snapshot.tenant(row.tenant_id) is caller.tenant:
            return caller
        return await self._caller(caller.public_key_id, row, caller.proofs)

    async def _prove(self, key: str) -> Caller:
        try:
            public_id = api_keys.parse(key).public_id
        except api_keys.MalformedApiKey as error:
            raise Unauthenticated(f"This is no API key of ours: {error}.") from None
        self._snapshot.require()
        row = await self._snapshot.api_key(public_id)
        proofs = self._proofs(key, public_id, row)
        # Unknown and wrong keys cost the same and are told the same.
        if row is None or not proofs:
            raise Unauthenticated(_WRONG_KEY)
        return await self._caller(public_id, row, proofs)

    def _proofs(self, key: str, public_id: str, row: ApiKeyPolicy | None) -> list[bytes]:
        """Digests of the key, if one of them is on its row; else nothing."""
        digests = row.digests if row is not None else _NO_DIGESTS
        current = api_keys.digest(key, self._pepper)
        if _matching(digests, [current]) is not None:
            return [current]
        for pepper in self._previous_peppers:
            earlier = api_keys.digest(key, pepper)
            match = _matching(digests, [earlier])
            if match is not None:
                if match.expires_at_ms is None:
                    self._on_earlier_pepper(public_id, earlier + current)
                return [current, earlier]
        return []

    async def _caller(self, public_id: str, row: ApiKeyPolicy, proofs: list[bytes]) -> Caller:
        tenant = await self._snapshot.tenant(row.tenant_id)
        if tenant is None:
            raise Unavailable(
                "The service is reading a change of its policy; ask again.",
                code="policy_unavailable",
                retry_after_seconds=1,
            )
        return Caller(public_key_id=public_id, key=row, tenant=tenant, proofs=proofs)


def _check_standing(caller: Caller) -> None:
    """What can end at any moment: the key, its secret, the tenant's good standing."""
    key = caller.key
    if key.refusal is not None:
        raise Unauthenticated(key.refusal, code="api_key_revoked")
    now_ms = time.time_ns() // 1_000_000
    if key.expires_at_ms is not None and now_ms >= key.expires_at_ms:
        raise Unauthenticated(
            f"This API key expired at {_moment(key.expires_at_ms)}; make a new one.",
            code="api_key_expired",
        )
    digest = _matching(key.digests, caller.proofs)
    if digest is None:
        raise Unauthenticated(_WRONG_KEY)
    if digest.expires_at_ms is not None and now_ms >= digest.expires_at_ms:
        raise Unauthenticated(
            "This API key was replaced by a newer one, and worked beside it until "
            f"{_moment(digest.expires_at_ms)}; use the newer one.",
            code="api_key_rotated",
        )
    if caller.tenant.refusal is not None:
        raise Forbidden(caller.tenant.refusal, code="tenant_suspended")


def _check_address(caller: Caller, address: str | None) -> None:
    networks = caller.key.networks
    if networks is None:
        return
    if address is None or not _is_inside(address, tuple(networks)):
        raise Forbidden(
            f"This API key may not be used from the address {address or 'of this connection'}; "
            "its allow-list does not have it.",
            code="address_not_allowed",
        )


def _check_scope(caller: Caller, needed: Scope | None) -> None:
    scopes = caller.key.scopes
    if needed is None or needed in scopes or Scope.ADMIN in scopes:
        return
    has = ", ".join(f"`{scope.value}`" for scope in scopes) or "none"
    raise Forbidden(
        f"This needs an API key with the scope `{needed.value}`; this one has {has}.",
        code="missing_scope",
    )


def _matching(
    digests: list[KeyDigest] | tuple[KeyDigest, ...], proofs: list[bytes]
) -> KeyDigest | None:
    """The digest that a proof equals, of several the one that works longest. Compares all of them,
    each in constant time."""
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


def _bearer_token(authorization: str | None) -> str:
    scheme, _, token = (authorization or "").partition(" ")
    if not authorization or not token.strip():
        raise Unauthenticated(
            "An API key is needed: send the header `Authorization: Bearer <key>`."
        )
    if scheme.lower() != "bearer":
        raise Unauthenticated("The Authorization header must be of the form `Bearer <key>`.")
    return token.strip()
