"""An admission over a real Redis whose time is ours, and callers that ask it."""

from typing import Any

import pytest
from redis.asyncio import Redis

from gpu_workers.protocol import keys
from gpu_workers.protocol.policy import Caller
from inference.admission.gate import Admission
from inference.charges import Charge
from tests.support.gateways.callers import FREE, PRICES
from tests.support.gateways.cast import POOL
from tests.support.gateways.reservations import Ask, Time
from tests.support.gateways.service import PEPPER


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
async def admission(dispatch_redis: Redis, time: Time) -> Admission:
    await dispatch_redis.set(keys.policy_version(), "1")
    return Admission(dispatch_redis, pepper=PEPPER, clock=time)


@pytest.fixture
def ask(admission: Admission) -> Ask:
    """Reserves, or raises."""

    async def reserve(
        request_id: str,
        caller: Caller,
        charge: Charge = FREE,
        *,
        sequences: int = 1,
        is_retry: bool = False,
    ) -> Any:
        return await admission.reserve(
            request_id, caller, POOL, charge, PRICES, sequences=sequences, is_retry=is_retry
        )

    return reserve
