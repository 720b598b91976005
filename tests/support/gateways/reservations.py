"""What reservations are asked for and come to, with a clock that stands still."""

import calendar
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from gpu_workers.protocol.policy import Caller
from inference.admission.gate import Admission
from inference.admission.reservations import Correction
from inference.charges import Charge
from inference.errors import LimitReached

MINUTE_MS = 60_000
HOUR_MS = 3_600_000
# Half past eleven in the evening of the last day of a month.
START_MS = calendar.timegm((2026, 11, 30, 23, 30, 0)) * 1000

Ask = Callable[..., Awaitable[Any]]


class Time:
    """Unix ms; stands still unless a test moves it."""

    def __init__(self) -> None:
        self.now_ms = START_MS

    def __call__(self) -> int:
        return self.now_ms


async def refusing(asked: Awaitable[Any]) -> tuple[str, str, int]:
    """Scope, name and value of the limit that refuses."""
    with pytest.raises(LimitReached) as refused:
        await asked
    limit = refused.value.limit
    assert limit is not None
    return limit.scope, limit.limit, limit.limit_value


def settled(request_id: str, charge: Charge, tenant_id: str = "acme") -> list[Correction]:
    return [Correction(tenant_id=tenant_id, request_id=request_id, charge=charge)]


async def used(admission: Admission, caller: Caller) -> dict[str, int]:
    """What is used, by `scope limit`."""
    return {
        f"{each.limit.scope.value} {each.limit.name.value}": each.used
        for each in await admission.limit_statuses(caller)
    }
