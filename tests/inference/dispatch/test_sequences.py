"""A slot is a sequence: what requests with several choices or prompts take of slots, headroom and
shares, with the real functions in virtual time."""

import pytest

from gpu_workers.protocol import keys
from tests.support.dispatch.virtual_pool import Ask, VirtualPool

WORKER = "worker#1"


def ask(name: str, tenant: str = "acme", sequences: int = 1, **changes: object) -> Ask:
    fields = {"request_id": name, "tenant": tenant, "sequences": sequences, **changes}
    return Ask(**fields)  # type: ignore[arg-type]


def a_worker(pool: VirtualPool, slots: int, *, headroom: int | None = None) -> None:
    if headroom is not None:
        pool.redis.hset(keys.pool_scheduler(pool.name), "headroom", str(headroom))
    pool.register(WORKER)
    pool.claim(WORKER, slots)


def taken(pool: VirtualPool) -> list[str]:
    return [each.request_id for each in pool.inbox(WORKER)]


def free(pool: VirtualPool) -> float:
    return pool.scheduler()["free"]


def test_each_sequence_takes_a_slot_and_gives_it_back(pool: VirtualPool) -> None:
    a_worker(pool, 8)
    assert pool.enqueue(ask("a", sequences=5)) == "assigned"
    assert free(pool) == 3
    pool.claim(WORKER, 8)
    assert free(pool) == 3
    pool.finish("a", 1, 100, 100)
    assert free(pool) == 8


def test_one_free_slot_is_enough_for_a_wide_request_and_nothing_starts_until_it_is_made_up_for(
    pool: VirtualPool,
) -> None:
    a_worker(pool, 4)
    for name in ["a", "b", "c"]:
        pool.enqueue(ask(name))
    assert pool.enqueue(ask("wide", sequences=3)) == "assigned"
    assert pool.enqueue(ask("d")) == "queued"
    pool.inbox(WORKER)
    for name in ["a", "b"]:
        pool.finish(name, 1, 100, 100)
        pool.claim(WORKER, 4)
        assert (taken(pool), free(pool)) == ([], 0)
    pool.finish("c", 1, 100, 100)
    assert taken(pool) == ["d"]


def test_a_claim_takes_no_more_sequences_than_slots_beyond_those_of_the_last(
    pool: VirtualPool,
) -> None:
    for number in range(6):
        pool.enqueue(ask(f"r{number}", sequences=3))
    pool.register(WORKER)
    assert [each.request_id for each in pool.claim(WORKER, 8)] == ["r0", "r1", "r2"]
    assert pool.claim(WORKER, 8) == []
    assert [each.request_id for each in pool.claim(WORKER, 10)] == ["r3"]


def test_a_wide_request_goes_where_most_of_it_fits(pool: VirtualPool) -> None:
    a_worker(pool, 4)
    pool.register("other#1")
    pool.claim("other#1", 16)
    pool.enqueue(ask("wide", sequences=12))
    assert [each.request_id for each in pool.inbox("other#1")] == ["wide"]
    assert free(pool) == 8


def test_a_worker_takes_back_all_sequences_that_it_holds(pool: VirtualPool) -> None:
    pool.register(WORKER)
    assert pool.adopt(WORKER, [(ask("wide", sequences=6), 1)]) == []
    pool.claim(WORKER, 8)
    assert free(pool) == 2
    pool.finish("wide", 1, 100, 100)
    assert free(pool) == 8


def test_what_a_lost_worker_held_is_as_wide_again(pool: VirtualPool) -> None:
    a_worker(pool, 8)
    pool.enqueue(ask("wide", sequences=6))
    pool.requeue("wide", 1)
    pool.register("other#1")
    assert [each.request_id for each in pool.claim("other#1", 8)] == ["wide"]
    assert free(pool) == 2


def test_estimates_are_of_sequences(pool: VirtualPool) -> None:
    """Who asks for one choice for a while, and then for many, is charged for many."""
    a_worker(pool, 64)
    pool.enqueue(ask("a", prompt=100, output=10_000))
    pool.finish("a", 1, 100, 50)
    before = pool.counter("acme")
    pool.enqueue(ask("wide", sequences=16, prompt=100, output=10_000))
    assert pool.counter("acme") - before == 100 + 2 * 16 * 50
    pool.finish("wide", 1, 100, 16 * 50)
    before = pool.counter("acme")
    pool.enqueue(ask("b", prompt=100, output=10_000))
    assert pool.counter("acme") - before == pytest.approx(100 + 2 * 50)


def test_the_wait_of_others_grows_with_the_sequences_of_those_that_run(pool: VirtualPool) -> None:
    waits = []
    for sequences in (1, 4):
        pool.redis.flushdb()
        a_worker(pool, 4)
        for number in range(4):
            pool.enqueue(ask(f"a{number}", sequences=sequences))
        pool.inbox(WORKER)
        pool.now_ms += 1_000
        pool.finish("a0", 1, 100, 100)
        for number in range(8):
            pool.enqueue(ask(f"b{number}"))
        waits.append(pool.outlook("acme")[1] / pool.outlook("acme")[0])
    assert waits[1] == pytest.approx(4 * waits[0])


# the headroom -------------------------------------------------------------------------------------


def flood(pool: VirtualPool, sequences: int, *, headroom: int = 4, slots: int = 64) -> list[str]:
    """Acme asks for more than there is, while Globex has something running too."""
    a_worker(pool, slots, headroom=headroom)
    pool.enqueue(ask("g1", "globex"))
    for number in range(100):
        pool.enqueue(ask(f"f{number:05d}", sequences=sequences))
    return [each for each in taken(pool) if each != "g1"]


@pytest.mark.parametrize("sequences", [1, 4, 16])
def test_a_flood_of_wide_requests_leaves_the_headroom_whole(
    pool: VirtualPool, sequences: int
) -> None:
    running = flood(pool, sequences)
    assert 4 <= free(pool) < 4 + sequences
    for _number in range(3):
        pool.finish(running.pop(0), 1, 100, 100)
        running += taken(pool)
        assert 4 <= free(pool) < 4 + sequences
    assert pool.enqueue(ask("newcomer", "initech")) == "assigned"


def test_who_has_nothing_running_is_never_too_wide(pool: VirtualPool) -> None:
    """Also where its share is one slot: else small requests of others would go by for ever."""
    a_worker(pool, 8, headroom=1)
    for number in range(8):
        for name in range(4):
            pool.enqueue(ask(f"r{number}-{name}", f"tenant-{number}"))
    running = taken(pool)
    assert pool.enqueue(ask("wide", "acme", sequences=16)) == "queued"
    turns = 0
    while "wide" not in running:
        pool.finish(running.pop(0), 1, 100, 100)
        running += taken(pool)
        turns += 1
        assert turns < 24
    assert free(pool) == 0


def test_a_tenant_that_is_alone_has_every_slot_whatever_its_width(pool: VirtualPool) -> None:
    a_worker(pool, 60)
    for number in range(8):
        pool.enqueue(ask(f"f{number}", sequences=16))
    assert len(taken(pool)) == 4
    assert free(pool) == 0


def test_slots_are_left_to_a_wide_request_whose_turn_it_is(pool: VirtualPool) -> None:
    """By who is further ahead of it than the quantum; who was served less goes first."""
    a_worker(pool, 64, headroom=2)
    pool.enqueue(ask("g1", "globex"))
    for number in range(5):
        pool.enqueue(ask(f"wide-{number}", sequences=16, output=10))
    assert taken(pool) == ["g1", "wide-0", "wide-1", "wide-2"]
    large = {"prompt": 10_000, "output": 10}
    assert pool.enqueue(ask("i1", "initech", **large)) == "assigned"
    assert pool.enqueue(ask("i2", "initech", **large)) == "queued"
    assert pool.enqueue(ask("newcomer", "umbrella")) == "assigned"
    assert taken(pool) == ["i1", "newcomer"]
    pool.finish("wide-0", 1, 100, 10)
    assert taken(pool) == ["wide-3"]
