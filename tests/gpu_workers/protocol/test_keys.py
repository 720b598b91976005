import inspect
import re

import pytest

from gpu_workers.protocol import keys
from tests.support.redis_servers.keys import end_of

ARGUMENTS = {
    "tenant_id": "T",
    "pool": "P",
    "request_id": "R",
    "worker_id": "W",
    "gateway_id": "G",
    "ticket_digest": "D",
    "owner": "O",
    "outbox_id": "X",
    "service_class": "C",
    "project_id": "J",
    "key_id": "K",
    "day": "1",
    "month": "202611",
    "adapter": "A",
    "is_plain": True,
    "part": "tenants",
}
KEY_FUNCTIONS = [function for _, function in inspect.getmembers(keys, inspect.isfunction)]
# Sets over many tags, written by single commands and never inside a function
WITHOUT_TAG = {"tenants_with_reservations"}


@pytest.mark.parametrize("function", KEY_FUNCTIONS, ids=lambda function: function.__name__)
def test_every_key_carries_exactly_one_hash_tag(function: object) -> None:
    assert inspect.isfunction(function)
    names = inspect.signature(function).parameters
    key = function(**{name: ARGUMENTS[name] for name in names})
    tags = re.findall(r"\{[^{}]+\}", key)
    assert len(tags) == (0 if function.__name__ in WITHOUT_TAG else 1)


@pytest.mark.parametrize("function", KEY_FUNCTIONS, ids=lambda function: function.__name__)
def test_every_key_has_a_time_to_live_or_a_bound(function: object) -> None:
    assert inspect.isfunction(function)
    key = function(**{name: ARGUMENTS[name] for name in inspect.signature(function).parameters})
    assert end_of(key) or function.__name__.endswith("_prefix")


def test_no_two_kinds_of_key_collide() -> None:
    made = [
        function(**{name: ARGUMENTS[name] for name in inspect.signature(function).parameters})
        for function in KEY_FUNCTIONS
    ]
    assert len(set(made)) == len(made)


def test_all_keys_of_a_pool_begin_with_its_prefix() -> None:
    prefix = keys.pool_prefix("sim")
    assert keys.pool_queue("sim").startswith(prefix)
    assert keys.pool_inbox("sim", "w#1") == "{m:sim}:inbox:w#1"
    assert keys.pool_request("sim", "r1") == "{m:sim}:request:r1"
