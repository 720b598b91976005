"""The users of the dispatch Redis: who may do what there. The one source of these rules.

A GPU node is the least trusted of the three, as it runs engines and models of others: its user can
do what its own pool needs, and leave frames for gateways. It reads no other pool's prompts, no
tenant's reservations and nobody's policy, and of adapters it has the keys of those that its pool
serves, one by one. The gateway reads policy and cannot write it, and has no key of an adapter.
Functions are loaded by the control plane alone, since they run with the rights of whoever calls
them: what a gateway could load, the control plane would run.

Syntax of Redis 7.0: `~` a key pattern, `%R~` for reading and `%W~` for writing only, and in
brackets a selector, which allows its few commands on its own keys.
"""

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote

from gpu_workers.protocol import keys

CONTROL_PLANE: Final = "control-plane"
GATEWAY: Final = "gateway"

_POLICY: Final = "{policy}:*"
# When keys were used, and what was refused: the gateway notes it, the control plane copies it.
_USES: Final = ("{uses}:keys", "{uses}:digests", "{uses}:refusals")

# Commands on keys, which the patterns bound, and those that touch none. Functions count: Redis
# checks each call in them against the rights of the user who called the function.
_COMMANDS: Final = (
    *("+@connection", "+@transaction", "+@string", "+@hash", "+@list", "+@set", "+@sortedset"),
    *("+@stream", "+del", "+unlink", "+exists", "+type", "+ttl", "+pttl", "+persist", "+expire"),
    *("+expireat", "+pexpire", "+pexpireat", "+time", "+fcall", "+fcall_ro"),
    # Last, since rules are read in order. Tracking would tell the names of others' keys.
    *("-@dangerous", "-client|tracking"),
)
_POOL_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+-]*")


@dataclass(frozen=True, kw_only=True)
class RedisUser:
    """A user of the dispatch Redis, by its rules in the syntax of ACL SETUSER."""

    name: str
    password: str = field(repr=False)
    permissions: tuple[str, ...]

    @property
    def rules(self) -> tuple[str, ...]:
        """Return what follows the name in ACL SETUSER; it holds only the password's digest."""
        digest = hashlib.sha256(self.password.encode()).hexdigest()
        return ("reset", "on", f"#{digest}", *self.permissions)

    def url(self, host: str, port: int) -> str:
        user, password = quote(self.name, safe=""), quote(self.password, safe="")
        return f"redis://{user}:{password}@{host}:{port}/0"


def control_plane(password: str) -> RedisUser:
    """Return the user that writes policy, loads functions, collects usage and sweeps. It is not the
    server's administrator, but may reload its ACL file, which is how a pool is added."""
    rules = ("~*", "&*", "+@all", "-@admin", "-@dangerous", "+info", "+acl|load")
    return RedisUser(name=CONTROL_PLANE, password=password, permissions=rules)


def gateway(password: str) -> RedisUser:
    """Return the user that admits, queues and reads frames, and cannot write policy."""
    owned = (
        *_family(keys.tenant_prefix("*")),
        *_family(keys.pool_prefix("*")),
        keys.gateway_frames("*", "*"),
        keys.gateway_wake("*"),
        keys.gateway_heartbeat("*"),
        keys.stream_ticket("*"),
        keys.known_gateways(),
        keys.gateways_resynced(),
        *_USES,
    )
    rules = (
        *(f"~{pattern}" for pattern in owned),
        f"%R~{_POLICY}",
        *_COMMANDS,
        "+function|list",
        f"(%W~{keys.tenants_with_reservations()} +sadd)",
    )
    return RedisUser(name=GATEWAY, password=password, permissions=rules)


def worker(pool: str, password: str) -> RedisUser:
    """Return the user of one pool's workers: it adds frames to its pool's list of any gateway, sees
    how long and large that is, and neither reads, removes nor expires what is there. Raises
    `ValueError` for a pool name that would widen its key pattern."""
    rules = (
        *(f"~{pattern}" for pattern in _family(keys.pool_prefix(_checked(pool)))),
        f"%R~{keys.pool_adapter_sources(pool)}",
        *_COMMANDS,
        f"(%W~{keys.gateway_frames('*', pool)} +rpush)",
        f"(%R~{keys.gateway_frames('*', pool)} +memory|usage)",
        f"(%R~{keys.gateway_heartbeat('*')} +exists)",
    )
    return RedisUser(name=worker_name(pool), password=password, permissions=rules)


def worker_name(pool: str) -> str:
    return f"worker-{pool}"


def acl_file(users: Iterable[RedisUser]) -> str:
    """Render the file that `aclfile` names. The default user is off: nobody gets in without one."""
    lines = ["user default reset off"]
    lines += [" ".join(("user", user.name, *user.rules)) for user in users]
    return "\n".join(lines) + "\n"


def _family(prefix: str) -> tuple[str, str]:
    """Match the key that functions are called with, and all keys that they derive from it."""
    return prefix, f"{prefix}:*"


def _checked(pool: str) -> str:
    """Return the pool name. Raises `ValueError` if it would widen the key pattern it goes into."""
    if not _POOL_NAME.fullmatch(pool):
        raise ValueError(f"expected a pool's name (letters, digits and ._:/@+-), got: {pool!r}")
    return pool
