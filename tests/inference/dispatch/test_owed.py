"""Which requests the service owes what their tier promises: those of a tenant within its share, and
never what waits behind the tenant's own excess."""

from typing import Any, cast

import pytest

from gpu_workers.protocol import keys
from gpu_workers.protocol.adapters import AdapterLevel
from tests.support.dispatch.virtual_pool import Ask, VirtualPool

WORKER = "worker#1"
END = b"#owed"
# Behind one other in a pool that needs a second for each: longer than half a second.
HURRIED = 0.5


class Judged:
    """A pool with so many slots, and what is asked there."""

    def __init__(self, pool: VirtualPool, slots: int) -> None:
        self.pool = pool
        self._number = 0
        pool.register(WORKER)
        pool.claim(WORKER, slots)

    def ask(self, tenant: str, **changes: Any) -> bool:
        """Whether one more request of the tenant is owed its promises."""
        self._number += 1
        name = f"{tenant}-{self._number}"
        answer = self.pool.ask(Ask(request_id=name, tenant=tenant, owed_end=END, **changes))
        is_owed = bool(answer[-1])
        stored = self.stored(name)
        assert (stored[b"owed"] == b"1") == is_owed == stored[b"envelope"].endswith(END)
        assert len(stored[b"envelope"]) == 8, "its end is replaced, nothing is added"
        return is_owed

    def stored(self, request_id: str) -> dict[bytes, bytes]:
        key = keys.pool_request(self.pool.name, request_id)
        return cast("dict[bytes, bytes]", self.pool.redis.hgetall(key))


@pytest.fixture
def judged(pool: VirtualPool) -> Judged:
    return Judged(pool, slots=8)


def test_a_tenant_alone_is_owed_as_much_as_there_are_slots(judged: Judged) -> None:
    assert [judged.ask("acme") for _ in range(10)] == 8 * [True] + 2 * [False]


def test_who_floods_its_own_queue_is_owed_nothing_for_what_waits_there(judged: Judged) -> None:
    for _ in range(40):
        judged.ask("acme")
    assert not any(judged.ask("acme") for _ in range(40))
    assert judged.ask("globex"), "who is within its share is owed it, whatever others do"


def test_beside_others_what_is_above_the_share_is_not_owed_though_it_starts_at_once(
    judged: Judged,
) -> None:
    judged.ask("globex")
    owed = [judged.ask("acme") for _ in range(7)]
    # Half of the slots, and a quarter of the others' half.
    assert owed == 5 * [True] + 2 * [False]


def test_a_wide_request_counts_as_what_it_takes(judged: Judged) -> None:
    judged.ask("globex")
    judged.ask("acme")
    assert not judged.ask("acme", sequences=5)


def test_many_keys_and_projects_are_one_tenant(judged: Judged) -> None:
    judged.ask("globex")
    owed = [judged.ask("acme", project=f"p{n}", key=f"k{n}") for n in range(10)]
    assert owed.count(True) == 5


def test_who_is_told_of_a_longer_wait_is_not_owed_the_promise(pool: VirtualPool) -> None:
    judged = Judged(pool, slots=1)
    assert judged.ask("globex")
    [started] = pool.inbox(WORKER)
    pool.now_ms += 1000
    pool.finish(started.request_id, started.attempt, 10, 10)
    assert judged.ask("globex")
    relaxed = pool.ask(Ask(request_id="relaxed", tenant="acme", owed_end=END, seconds=HURRIED))
    assert relaxed[0] == b"queued"
    assert relaxed[3:] == [1, 0]
    assert judged.ask("initech", seconds=60), "it is promised no sooner than that"


def test_while_no_worker_is_left_a_share_of_the_slots_that_were_there_is_owed(
    judged: Judged,
) -> None:
    pool = judged.pool
    judged.ask("acme")
    [started] = pool.inbox(WORKER)
    pool.finish(started.request_id, started.attempt, 10, 10)
    pool.claim(WORKER, 8, ready=False)
    pool.now_ms += 60_000
    pool.claim(WORKER, 8, ready=False)
    assert pool.scheduler()["slots"] == 0
    assert [judged.ask("acme") for _ in range(40)].count(True) == 8, "a flood is owed no more"
    assert [judged.ask("globex") for _ in range(40)].count(True) == 4


def test_a_pool_that_never_had_a_worker_owes_one_request_at_a_time(
    pool: VirtualPool,
) -> None:
    for expected in (1, 0):
        answer = pool.ask(Ask(request_id=f"a{expected}", tenant="acme", owed_end=END))
        assert answer[-1] == expected


def test_the_load_of_a_tenants_own_adapter_is_owed_to_nobody(judged: Judged) -> None:
    judged.pool.claim(WORKER, 8, adapter_slots=2)
    assert not judged.ask("acme", adapter="acme-a")
    judged.pool.post(WORKER, **{"acme-a": AdapterLevel.MEMORY})
    assert not judged.ask("acme", adapter="acme-a"), "it is near, and not loaded"
    judged.pool.post(WORKER, **{"acme-a": AdapterLevel.SLOT})
    assert judged.ask("acme", adapter="acme-a")
    assert not judged.ask("acme", adapter="acme-b")


def test_who_uses_adapters_alone_is_owed_them_while_no_worker_is_left(judged: Judged) -> None:
    pool = judged.pool
    pool.claim(WORKER, 8, ready=False)
    pool.now_ms += 60_000
    pool.claim(WORKER, 8, ready=False)
    assert pool.scheduler()["slots"] == 0
    assert judged.ask("acme", adapter="acme-a")


def test_what_was_judged_once_stays_so(judged: Judged) -> None:
    judged.ask("acme")
    again = judged.pool.ask(Ask(request_id="acme-1", tenant="acme", owed_end=END))
    assert again == [b"known", b"running", 1]


def test_who_asks_for_no_judgement_gets_none(pool: VirtualPool) -> None:
    Judged(pool, slots=1)
    assert pool.ask(Ask(request_id="a", tenant="acme")) == [b"assigned", WORKER.encode()]
    assert len(pool.ask(Ask(request_id="b", tenant="acme"))) == 4
