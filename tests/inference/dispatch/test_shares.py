"""Who is served next: classes, tenants, projects, keys, deadlines and the headroom, with the real
functions in virtual time. A `Busy` worker ends its oldest request at each turn."""

from collections import Counter, deque

import pytest
from redis.exceptions import ResponseError

from gpu_workers.protocol import functions, keys
from inference.lua_constants import HEADROOM_MOST
from tests.support.dispatch.virtual_pool import Ask, VirtualPool

WORKER = "worker#1"


class Busy:
    """A worker that is always full. Each tenant that is in `asks` always has a request waiting."""

    def __init__(self, pool: VirtualPool, *asks: Ask, slots: int = 4, depth: int = 8) -> None:
        self.pool = pool
        self.asks: dict[str, Ask] = {}
        self.served: Counter[str] = Counter()
        self.tokens: Counter[str] = Counter()
        self._number = 0
        self._depth = depth
        for ask in asks:
            self.add(ask)
        pool.register(WORKER)
        self.running = deque(pool.claim(WORKER, slots))

    def add(self, ask: Ask) -> None:
        for _ in range(self._depth):
            self._ask(ask)

    def turn(self, *, output: int | None = None) -> str:
        """Ends the oldest request; the next one of its kind is asked. Answers its name."""
        ended = self.running.popleft()
        ask = self.asks[ended.request_id]
        self.pool.now_ms += 10
        if self._number % 100 == 0:
            self.pool.settle(WORKER, [])
        tokens = ask.output if output is None else output
        assert self.pool.finish(ended.request_id, ended.attempt, ask.prompt, tokens)
        self._ask(ask)
        self.running.extend(self.pool.inbox(WORKER))
        name = ask.request_id
        self.served[name] += 1
        self.tokens[name] += ask.prompt + 2 * tokens
        return name

    def turns(self, count: int) -> None:
        for _ in range(count):
            self.turn()

    def _ask(self, ask: Ask) -> None:
        self._number += 1
        made = Ask(
            **{field: getattr(ask, field) for field in Ask.__dataclass_fields__}
            | {"request_id": f"{self._number:08d}"}
        )
        self.asks[made.request_id] = ask
        self.pool.enqueue(made)


def ask(name: str, **changes: object) -> Ask:
    return Ask(**({"request_id": name, "tenant": name} | changes))  # type: ignore[arg-type]


def shares(counts: "Counter[str]") -> dict[str, float]:
    total = sum(counts.values())
    return {name: count / total for name, count in counts.items()}


def test_tenants_are_served_in_proportion_to_their_weights(pool: VirtualPool) -> None:
    busy = Busy(pool, ask("one"), ask("two", weight=2), ask("four", weight=4))
    busy.turns(700)
    assert shares(busy.served) == pytest.approx(
        {"one": 1 / 7, "two": 2 / 7, "four": 4 / 7}, abs=0.01
    )


def test_shares_are_of_tokens_and_not_of_requests(pool: VirtualPool) -> None:
    busy = Busy(pool, ask("short", prompt=10, output=45), ask("long", prompt=200, output=400))
    busy.turns(600)
    assert shares(busy.tokens)["long"] == pytest.approx(0.5, abs=0.02)
    assert busy.served["short"] > 8 * busy.served["long"]


def test_many_keys_and_projects_win_nothing(pool: VirtualPool) -> None:
    keys_of_acme = [
        ask(f"acme-{n}", tenant="acme", project=f"p{n % 3}", key=f"k{n}") for n in range(9)
    ]
    busy = Busy(pool, *keys_of_acme, ask("globex"), depth=3)
    busy.turns(400)
    assert shares(busy.served)["globex"] == pytest.approx(0.5, abs=0.01)


def test_projects_of_a_tenant_share_alike_and_keys_of_a_project(pool: VirtualPool) -> None:
    asks = [
        ask("web-1", tenant="acme", project="web", key="1"),
        ask("web-2", tenant="acme", project="web", key="2"),
        ask("app-1", tenant="acme", project="app", key="1"),
    ]
    busy = Busy(pool, *asks)
    busy.turns(400)
    assert shares(busy.served) == pytest.approx(
        {"web-1": 0.25, "web-2": 0.25, "app-1": 0.5}, abs=0.01
    )


def test_an_idle_tenant_earns_nothing_by_its_idleness(pool: VirtualPool) -> None:
    busy = Busy(pool, ask("acme"))
    busy.turns(300)
    busy.add(ask("globex"))
    busy.served.clear()
    busy.turns(100)
    assert shares(busy.served)["globex"] == pytest.approx(0.5, abs=0.04)


def test_what_was_taken_from_an_idle_pool_is_no_debt_later(pool: VirtualPool) -> None:
    pool.register(WORKER)
    pool.claim(WORKER, 4)
    for number in range(100):
        assert pool.enqueue(ask(f"early-{number:03d}", tenant="acme")) == "assigned"
        pool.finish(f"early-{number:03d}", 1, 100, 100)
    busy = Busy(pool, ask("acme"), ask("globex"))
    busy.running.extend(pool.inbox(WORKER))
    busy.running = deque(each for each in busy.running if each.request_id in busy.asks)
    busy.turns(100)
    assert shares(busy.served)["globex"] == pytest.approx(0.5, abs=0.04)


def test_a_prompt_is_charged_when_it_is_claimed_and_output_as_it_comes(pool: VirtualPool) -> None:
    pool.register(WORKER)
    pool.claim(WORKER, 4)
    pool.enqueue(ask("a", prompt=300, output=1000))
    estimated = 256
    assert pool.counter("a") == 300 + 2 * estimated
    pool.settle(WORKER, [("a", 1, 280, 100)])
    assert pool.counter("a") == 280 + 2 * estimated
    pool.settle(WORKER, [("a", 1, 280, 500)])
    assert pool.counter("a") == 280 + 2 * 500
    pool.finish("a", 1, 280, 700)
    assert pool.counter("a") == 280 + 2 * 700


def test_estimates_follow_a_tenants_own_history_and_never_pass_the_bounds(
    pool: VirtualPool,
) -> None:
    pool.register(WORKER)
    pool.claim(WORKER, 4)
    for name in ["a1", "a2"]:
        pool.enqueue(ask(name, tenant="acme", prompt=400, output=1000))
        pool.finish(name, 1, 100, 50)
    before = pool.counter("acme")
    pool.enqueue(ask("a3", tenant="acme", prompt=400, output=1000))
    assert pool.counter("acme") - before == 100 + 2 * 50
    pool.enqueue(ask("b", tenant="globex", prompt=40, output=3))
    assert pool.counter("globex") - before <= 40 + 2 * 3


def test_what_a_request_did_not_take_is_given_back_and_no_counter_falls_below_zero(
    pool: VirtualPool,
) -> None:
    pool.register(WORKER)
    pool.claim(WORKER, 4)
    pool.enqueue(ask("a", prompt=300, output=1000))
    pool.finish("a", 1, 0, 0)
    assert pool.counter("a") == 0
    assert pool.scheduler()["interactive:counter"] == 0


def test_inside_a_key_the_earliest_deadline_is_first(pool: VirtualPool) -> None:
    for name, seconds in [("a", 30), ("b", 10), ("c", 20)]:
        pool.enqueue(ask(name, tenant="acme", seconds=seconds))
    pool.register(WORKER)
    assert [each.request_id for each in pool.claim(WORKER, 3)] == ["b", "c", "a"]


def test_classes_share_by_their_weights(pool: VirtualPool) -> None:
    busy = Busy(pool, ask("chat"), ask("nightly", service_class="batch"))
    busy.turns(450)
    assert shares(busy.served)["chat"] == pytest.approx(8 / 9, abs=0.02)


def test_a_class_that_starves_is_served_next(pool: VirtualPool) -> None:
    busy = Busy(pool, ask("chat"), slots=1)
    busy.turns(20)
    busy.add(ask("nightly", service_class="batch"))
    busy.turns(2)  # both classes start level: the first turns may be batch's
    busy.served.clear()
    busy.turns(4)
    assert busy.served["nightly"] == 0
    pool.now_ms += 6_000
    pool.reap()
    pool.claim(WORKER, 1)
    busy.turns(2)
    assert busy.served["nightly"] == 1


def test_an_unknown_class_and_an_id_that_would_break_a_path_are_refused(pool: VirtualPool) -> None:
    with pytest.raises(ResponseError, match="vip"):
        pool.enqueue(ask("a", service_class="vip"))
    for id_of in ("tenant", "project", "key"):
        with pytest.raises(ResponseError, match="a:b"):
            pool.enqueue(ask("a", **{id_of: "a:b"}))


def test_a_full_queue_refuses_who_fills_it_and_nobody_else(pool: VirtualPool) -> None:
    for number in range(8):
        pool.enqueue(ask(f"a{number}", tenant="acme"), max_queue_length=8)
    assert pool.enqueue(ask("a9", tenant="acme"), max_queue_length=8) == "full"
    assert pool.enqueue(ask("g1", tenant="globex"), max_queue_length=8) == "queued"
    assert pool.enqueue(ask("a9", tenant="acme"), max_queue_length=8) == "full"


# headroom ----------------------------------------------------------------------------------------


def flood(pool: VirtualPool, count: int, slots: int = 64) -> list[str]:
    """Acme asks `count` times; answers what runs of it."""
    asks = [ask(f"f{number:05d}", tenant="acme") for number in range(count)]
    pool.call_all([pool.enqueue_call(each) for each in asks])
    taken = pool.claim(WORKER, slots) + pool.inbox(WORKER)
    return [each.request_id for each in taken]


def flood_beside_globex(pool: VirtualPool) -> list[str]:
    """A worker has Globex' request, g1; then Acme asks a hundred times. Answers what runs."""
    pool.register(WORKER)
    pool.claim(WORKER, 64)
    pool.enqueue(ask("g1", tenant="globex"))
    return flood(pool, 100)


def test_a_tenant_that_is_alone_has_every_slot(pool: VirtualPool) -> None:
    pool.register(WORKER)
    assert len(flood(pool, 100)) == 64


def test_headroom_is_kept_from_a_flood_and_given_to_a_newcomer_at_once(pool: VirtualPool) -> None:
    running = flood_beside_globex(pool)
    kept = 64 - len(running)
    assert 1 <= kept <= 8
    assert pool.waiting() > 0
    for number in range(kept):
        assert pool.enqueue(ask(f"n{number}", tenant="initech")) == "assigned"
    assert pool.enqueue(ask("n9", tenant="initech")) == "queued"


def test_a_flood_takes_the_slots_beyond_the_headroom(pool: VirtualPool) -> None:
    pool.redis.hset(keys.pool_scheduler(pool.name), "headroom", "4")
    running = [each for each in flood_beside_globex(pool) if each != "g1"]
    assert len(running) == 64 - 4 - 1
    pool.finish(running[0], 1, 100, 100)
    assert len(pool.inbox(WORKER)) == 1
    assert pool.scheduler()["free"] == 4


def test_the_headroom_goes_to_the_flood_when_the_others_have_long_been_gone(
    pool: VirtualPool,
) -> None:
    flood_beside_globex(pool)
    pool.finish("g1", 1, 100, 100)
    pool.now_ms += 31_000
    pool.reap()
    pool.claim(WORKER, 64)
    pool.claim(WORKER, 64)
    assert pool.scheduler()["free"] == 0


def test_headroom_shrinks_while_newcomers_find_it_and_grows_again_when_they_do_not(
    pool: VirtualPool,
) -> None:
    flood_beside_globex(pool)
    most = pool.scheduler()["free"]
    assert most == 64 * HEADROOM_MOST
    for number in range(int(most)):
        assert pool.enqueue(ask(f"n{number}", tenant=f"newcomer-{number}")) == "assigned"
    assert pool.scheduler()["kept"] == pytest.approx(most - most * 0.002)
    for number in range(2):
        assert pool.enqueue(ask(f"m{number}", tenant=f"late-{number}")) == "queued"
    assert pool.scheduler()["kept"] == most


def test_headroom_puts_nobody_further_ahead_than_its_quantum(pool: VirtualPool) -> None:
    pool.register(WORKER)
    pool.claim(WORKER, 64)
    pool.enqueue(ask("g1", tenant="globex", prompt=90_000))
    flood(pool, 100)
    assert pool.enqueue(ask("g2", tenant="globex", prompt=90_000)) == "queued"


def test_a_worker_that_posts_fewer_slots_than_it_holds_is_given_nothing_until_it_has_room(
    pool: VirtualPool,
) -> None:
    pool.register(WORKER)
    pool.claim(WORKER, 2)
    for name in ["a", "b"]:
        pool.enqueue(ask(name))
    pool.claim(WORKER, 1)
    assert pool.enqueue(ask("c")) == "queued"
    pool.finish("a", 1, 100, 100)
    assert pool.waiting() == 1
    pool.finish("b", 1, 100, 100)
    assert pool.waiting() == 0


def test_a_dead_workers_slots_count_for_nothing(pool: VirtualPool) -> None:
    pool.register(WORKER)
    pool.claim(WORKER, 64)
    pool.now_ms += 7_000
    assert pool.enqueue(ask("a")) == "queued"
    assert pool.scheduler()["slots"] == 0
    pool.claim(WORKER, 64)
    assert pool.scheduler()["slots"] == 64
    pool.call(functions.LEAVE, WORKER)
    assert pool.scheduler()["slots"] == pool.scheduler()["free"] == 0


def test_settle_renews_the_lease_and_counts_what_is_not_the_workers(pool: VirtualPool) -> None:
    with pytest.raises(ResponseError, match="UNKNOWN"):
        pool.settle(WORKER, [])
    pool.register(WORKER)
    pool.claim(WORKER, 4)
    pool.enqueue(ask("a"))
    pool.now_ms += 5_000
    progress = [("a", 1, 1, 1), ("a", 2, 1, 1), ("nobody", 1, 1, 1)]
    assert pool.settle(WORKER, progress) == 2
    pool.now_ms += 5_000
    assert pool.reap() == []
    assert pool.enqueue(ask("b")) == "assigned"
