"""Whether an API key works, now and from this address, against the policy snapshot alone.

A key that has proved itself is remembered under the SHA-256 of the whole key until its row or its
tenant's changes; what changes without a version (time, the caller's address) is checked each time.
"""

import hashlib
from collections.abc import Callable
from typing import Final

from gpu_workers.protocol.policy import ApiKeyPolicy, Caller, KeyDigest, Scope
from inference.admission.caller_check import (
    WRONG_KEY,
    bearer_token,
    check_active,
    check_address,
    check_scope,
    matching,
)
from inference.admission.policy_snapshot import PolicySnapshot
from inference.errors import Forbidden, InferenceError, Unauthenticated, Unavailable
from tenants import key_format

_CALLERS_KEPT: Final = 50_000
_NO_DIGESTS: Final = (KeyDigest(digest=bytes(32)),)


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

    async def authenticate(
        self, authorization: str | None, address: str | None, scope: Scope | None
    ) -> Caller:
        """Return who an Authorization header speaks for, if its key works from this address and has
        the scope (None: any will do). Raises `Unauthenticated`, `Forbidden`, and `Unavailable`
        while there is no snapshot to tell. Where the key proved itself the error has its caller."""
        key = bearer_token(authorization)
        fingerprint = hashlib.sha256(key.encode()).digest()
        caller = self._callers.get(fingerprint)
        if caller is None or not self._snapshot.holds(caller):
            self._callers.pop(fingerprint, None)
            caller = await self._prove(key)
            if len(self._callers) >= _CALLERS_KEPT:
                self._callers.clear()
            self._callers[fingerprint] = caller
        _check(caller, address, scope)
        self._on_use(caller.public_key_id)
        return caller

    async def revalidate(self, caller: Caller, address: str | None, scope: Scope | None) -> Caller:
        """Return the same caller under the current policy, for connections that outlive one
        request. Raises as `authenticate`."""
        caller = await self._current(caller)
        _check(caller, address, scope)
        return caller

    async def refusal_of(self, caller: Caller) -> InferenceError | None:
        """Return why the caller's open requests must end, or None. A snapshot that is gone ends
        nothing."""
        try:
            check_active(await self._current(caller))
        except (Unauthenticated, Forbidden) as error:
            return error
        except Unavailable:
            return None
        return None

    async def _current(self, caller: Caller) -> Caller:
        self._snapshot.require()
        row = await self._snapshot.api_key(caller.public_key_id)
        if row is None:
            raise Unauthenticated(WRONG_KEY)
        if row is caller.key and await self._snapshot.tenant(row.tenant_id) is caller.tenant:
            return caller
        return await self._caller(caller.public_key_id, row, caller.proofs)

    async def _prove(self, key: str) -> Caller:
        try:
            public_id = key_format.parse(key).public_id
        except key_format.MalformedApiKey as error:
            raise Unauthenticated(f"Invalid API key: {error}.") from None
        self._snapshot.require()
        row = await self._snapshot.api_key(public_id)
        proofs = self._proofs(key, public_id, row)
        # Unknown and wrong keys cost the same and are told the same.
        if row is None or not proofs:
            raise Unauthenticated(WRONG_KEY)
        return await self._caller(public_id, row, proofs)

    def _proofs(self, key: str, public_id: str, row: ApiKeyPolicy | None) -> list[bytes]:
        """Return the key's digests if one of them is on its row, else none."""
        digests = row.digests if row is not None and row.has_secret else _NO_DIGESTS
        current = key_format.digest(key, self._pepper)
        if matching(digests, [current]) is not None:
            return [current]
        for pepper in self._previous_peppers:
            earlier = key_format.digest(key, pepper)
            match = matching(digests, [earlier])
            if match is not None:
                if match.expires_at_ms is None:
                    self._on_earlier_pepper(public_id, earlier + current)
                return [current, earlier]
        return []

    async def _caller(self, public_id: str, row: ApiKeyPolicy, proofs: list[bytes]) -> Caller:
        tenant = await self._snapshot.tenant(row.tenant_id)
        if tenant is None:
            raise Unavailable(
                "The service is loading a policy change; try again.",
                code="policy_unavailable",
                retry_after_seconds=1,
            )
        return Caller(public_key_id=public_id, key=row, tenant=tenant, proofs=proofs)


def _check(caller: Caller, address: str | None, scope: Scope | None) -> None:
    try:
        check_active(caller)
        check_address(caller, address)
        check_scope(caller, scope)
    except InferenceError as error:
        error.caller = caller
        raise
