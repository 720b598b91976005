"""Whether the policy snapshot in Redis is what PostgreSQL says, row by row."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, cast

import msgspec

from gpu_workers.protocol import codec, keys
from tenants.models import ApiKey, PolicyChange, PolicyVersion, Tenant
from tenants.policy.rows import (
    adapter_rows,
    api_key_rows,
    model_rows,
    pool_names,
    tenant_rows,
)
from tenants.policy.writer import written_version
from tenants.policy_redis import policy_redis

_LAG_SECONDS: Final = 2.0
_PAUSE_SECONDS: Final = 0.02
_CHUNK: Final = 2000

_Decode = Callable[[bytes], msgspec.Struct]


def policy_problems() -> Iterator[str]:
    """Report each row that differs from the snapshot. Looks at all rows first while changes go on,
    then once more at those that seemed to differ, while nothing can commit."""
    suspects = set(_api_key_differences(None)), set(_tenant_differences(None))
    version = str(PolicyVersion.locked())
    written = _written_in_time(version)
    if written is None:
        yield "The policy snapshot is missing in Redis: run manage.py rebuild_policy."
        return
    if written != version:
        yield (
            f"The policy snapshot in Redis is of version {written}, the database is at {version}: "
            "see that Celery runs, or run manage.py rebuild_policy."
        )
        return
    for public_id, what in _api_key_differences(suspects[0]).items():
        yield f"Policy snapshot, API key pk-{public_id}: {what}."
    for tenant_id, what in _tenant_differences(suspects[1]).items():
        yield f"Policy snapshot, tenant {tenant_id}: {what}."
    for name, what in _model_differences().items():
        yield f"Policy snapshot, model {name}: {what}."
    known = cast("set[bytes]", policy_redis().smembers(keys.known_pools()))
    for name in pool_names():
        if name.encode() not in known:
            yield f"Policy snapshot, pool {name}: missing in Redis."
    for name, what in _adapter_differences().items():
        yield f"Policy snapshot, adapter {name}: {what}."


def version_problems() -> Iterator[str]:
    """Report a version row that is not that of the newest change."""
    version = PolicyVersion.locked()
    newest = PolicyChange.objects.filter(version__isnull=False).order_by("-version").first()
    if newest is not None and str(version) != str(newest):
        yield (
            f"The policy's version row is {version}, but its newest change is {newest}: one of "
            "them was written by hand; set the row to the change."
        )


def _written_in_time(version: str) -> str | None:
    """Return the version in Redis, after waiting a moment for a change that committed just now."""
    deadline = time.monotonic() + _LAG_SECONDS
    while (written := written_version()) != version and time.monotonic() < deadline:
        time.sleep(_PAUSE_SECONDS)
    return written


def _api_key_differences(only: set[str] | None) -> dict[str, str]:
    records = ApiKey.objects.all() if only is None else ApiKey.objects.filter(public_id__in=only)
    return _differences(
        keys.policy_api_keys(), api_key_rows(records), codec.decode_api_key, only=only
    )


def _tenant_differences(only: set[str] | None) -> dict[str, str]:
    records = Tenant.objects.all() if only is None else Tenant.objects.filter(id__in=only)
    return _differences(keys.policy_tenants(), tenant_rows(records), codec.decode_tenant, only=only)


def _model_differences() -> dict[str, str]:
    return _differences(keys.policy_models(), model_rows(), codec.decode_model, only=None)


def _adapter_differences() -> dict[str, str]:
    return _differences(keys.policy_adapters(), adapter_rows(), _decode_adapter, only=None)


def _decode_adapter(data: bytes) -> msgspec.Struct:
    try:
        return codec.decode_adapter(data)
    except codec.WireFormatError:
        return codec.decode_adapter_list(data)


def _differences(
    key: str, rows: Iterable[tuple[str, bytes]], decode: _Decode, *, only: set[str] | None
) -> dict[str, str]:
    """Return what is wrong with a row, by its field of the hash."""
    written = _written_rows(key, only)
    differences: dict[str, str] = {}
    for field, expected in rows:
        row = written.pop(field, None)
        if row is None:
            differences[field] = "missing in Redis"
        elif row != expected:
            differences[field] = _difference(decode, row, expected)
    for field in written:
        differences[field] = "in Redis, but not in the database"
    return differences


def _written_rows(key: str, only: set[str] | None) -> dict[str, bytes]:
    redis = policy_redis()
    if only is None:
        found = redis.hscan_iter(key, count=_CHUNK)
        return {cast(bytes, field).decode(): cast(bytes, row) for field, row in found}
    fields = sorted(only)
    rows = cast(list[bytes | None], redis.hmget(key, fields)) if fields else []
    return {field: row for field, row in zip(fields, rows, strict=True) if row is not None}


def _difference(decode: _Decode, row: bytes, expected: bytes) -> str:
    try:
        found = _facts(decode(row))
    except codec.WireFormatError:
        return "its row in Redis cannot be read"
    wanted = _facts(decode(expected))
    names = sorted(name for name in wanted if wanted[name] != found.get(name))
    return f"Redis has another {', '.join(names) or 'encoding'} than the database"


def _facts(message: msgspec.Struct) -> Mapping[str, Any]:
    return msgspec.structs.asdict(message)
