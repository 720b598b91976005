"""Reserve, true down, settle, release, collect, top up, promote, refund and expire, in any order:
the ledger balances, no account goes below its floor, and a prepaid tenant never owes anything.
Hypothesis plays with the real functions of Redis and the real ledger."""

import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any, cast

import msgspec
import pytest
from django.core.exceptions import ValidationError
from django.db import transaction
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    invariant,
    rule,
    run_state_machine_as_test,
)
from redis import Redis

from gpu_workers.protocol import functions, keys
from inference.lua_constants import Owner, UseKind
from inference.redis_functions import ADMISSION, library_text
from tenants.access.default_tiers import ensure_default_tiers
from tenants.billing.ledger import balances, credit
from tenants.billing.ledger.chain import ledger_problems
from tenants.billing.ledger.posting import UsageCharge, post_usage
from tenants.billing.ledger.waiting import LONGEST_WAIT, charge_usage, post_due
from tenants.billing.models import LedgerAccount
from tenants.errors import Conflict
from tenants.models import BillingMode, Tenant, Tier
from tenants.policy.writer import rebuild_policy

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("operators_eye")]
DAY = date(2026, 11, 21)
NANOS = st.integers(1, 100)

CommitHooks = Callable[..., AbstractContextManager[Any]]


@dataclass
class Request:
    request_id: str
    nanos: int
    is_open: bool = True


class Money(RuleBasedStateMachine):
    """The machine. `given` is all credit that came, less all that was taken back."""

    requests = Bundle("requests")
    redis: Redis
    hooks: CommitHooks

    def __init__(self) -> None:
        super().__init__()
        self.point = transaction.atomic()
        self.point.__enter__()
        tier = Tier.objects.get(name="premium")
        tenant = Tenant.objects.create(
            name=f"Acme {uuid.uuid4()}", tier=tier, billing_mode=BillingMode.PREPAID
        )
        self.tenant_id, self.prefix = tenant.id, keys.tenant_prefix(str(tenant.id))
        self.now = datetime.now(UTC)
        self.given = self.spent = self.asked = 0
        self.uncollected: list[int] = []

    # credit -------------------------------------------------------------------------------------

    @rule(nanos=NANOS)
    def top_up(self, nanos: int) -> None:
        self.book(credit.top_up, nanos)
        self.given += nanos

    @rule(nanos=NANOS, hours=st.none() | st.integers(1, 5))
    def promote(self, nanos: int, hours: int | None) -> None:
        ends = None if hours is None else self.now + timedelta(hours=hours)
        self.book(credit.grant_promotion, nanos, expires_at=ends)
        self.given += nanos

    @rule(nanos=NANOS)
    def refund(self, nanos: int) -> None:
        prepaid = balances.balance_of(self.tenant_id).prepaid_nanos
        free = balances.spendable([self.tenant_id])[self.tenant_id] - self.counted()
        try:
            self.book(credit.refund, nanos)
        except Conflict:
            assert free < nanos
        except ValidationError:
            assert prepaid < nanos <= free
        else:
            assert nanos <= min(prepaid, free)
            self.given -= nanos

    @rule(hours=st.integers(1, 3))
    def let_promotions_end(self, hours: int) -> None:
        self.now += timedelta(hours=hours)
        before = balances.balance_of(self.tenant_id).promotional_nanos
        with self.hooks(execute=True):
            credit.expire_promotions(self.now + credit.EXPIRY_GRACE)
        self.given -= before - balances.balance_of(self.tenant_id).promotional_nanos

    # requests -----------------------------------------------------------------------------------

    @rule(target=requests, nanos=NANOS)
    def reserve(self, nanos: int) -> Request | None:
        self.asked += 1
        most = balances.spendable([self.tenant_id])[self.tenant_id]
        fits = self.counted() + nanos <= most
        request = Request(f"request-{self.asked}", nanos)
        assert self.ask(request, most) == fits
        return request if fits else None

    @rule(request=requests)
    def reserve_again(self, request: Request | None) -> None:
        if request is not None and request.is_open:
            assert self.ask(request, 0)

    @rule(request=requests, share=st.integers(0, 120))
    def true_down(self, request: Request | None, share: int) -> None:
        if request is not None:
            nanos = request.nanos * share // 100
            self.call(functions.TRUE_DOWN, request.request_id, nanos, nanos)
            if request.is_open:
                request.nanos = min(nanos, request.nanos)

    @rule(request=requests, share=st.integers(0, 100))
    def settle(self, request: Request | None, share: int) -> None:
        if request is not None:
            nanos = request.nanos * share // 100
            was_open = self.call(functions.SETTLE, request.request_id, nanos, nanos)
            assert bool(was_open) == request.is_open
            if request.is_open and nanos:
                self.uncollected.append(nanos)
            request.is_open = False

    @rule(request=requests)
    def release(self, request: Request | None) -> None:
        self.settle(request, 0)

    @rule(count=st.integers(1, 4), is_read_again=st.booleans())
    def collect(self, count: int, is_read_again: bool) -> None:
        batch, self.uncollected = self.uncollected[:count], self.uncollected[count:]
        nanos, batch_id = sum(batch), uuid.uuid4()
        charge = UsageCharge(
            tenant_id=self.tenant_id, model="m", day=DAY, nanos=nanos, requests=len(batch)
        )
        for _ in range(1 + is_read_again):
            with self.hooks(execute=True):
                post_usage([charge], batch_id=batch_id)
        self.spent += nanos

    @rule(count=st.integers(1, 4))
    def collect_to_wait(self, count: int) -> None:
        batch, self.uncollected = self.uncollected[:count], self.uncollected[count:]
        charge = UsageCharge(
            tenant_id=self.tenant_id, model="m", day=DAY, nanos=sum(batch), requests=len(batch)
        )
        with self.hooks(execute=True):
            charge_usage([charge])
        self.spent += sum(batch)

    @rule()
    def let_a_minute_pass(self) -> None:
        post_due(datetime.now(UTC) + LONGEST_WAIT)

    # what holds ---------------------------------------------------------------------------------

    @invariant()
    def nothing_is_overdrawn(self) -> None:
        held = balances.balance_of(self.tenant_id)
        assert held.owed_nanos == 0
        assert held.credit_nanos == self.given - self.spent >= 0
        assert self.counted() <= balances.spendable([self.tenant_id])[self.tenant_id]
        accounts = LedgerAccount.objects.filter(tenant=self.tenant_id)
        below = [each.name for each in accounts if each.balance_nanos < 0]
        assert set(below) <= {"cash", "promotion_expense"}, below

    def teardown(self) -> None:
        try:
            assert list(ledger_problems()) == []
            while self.uncollected:
                self.collect(4, False)
            counted = cast(dict[bytes, bytes], self.redis.hgetall(f"{self.prefix}:balance"))
            assert int(counted.get(b"settled", 0)) == self.spent
            assert not [name for name in counted if name.startswith(b"withdrawal")]
        finally:
            transaction.set_rollback(True)
            self.point.__exit__(None, None, None)

    def book(self, verb: Callable[..., object], nanos: int, **more: Any) -> None:
        with self.hooks(execute=True):
            verb(self.tenant_id, nanos, reference=str(uuid.uuid4()), **more)

    def counted(self) -> int:
        counted = self.redis.hmget(f"{self.prefix}:balance", ["settled", "reserved"])
        return sum(int(each or 0) for each in cast(list[bytes | None], counted))

    def ask(self, request: Request, most: int) -> bool:
        claim = msgspec.msgpack.encode(["k", "p", request.nanos, request.nanos, "pool", []])
        limits = msgspec.msgpack.encode([UseKind.BALANCE + Owner.TENANT, most, 1])
        given = (request.request_id, "k", "p", request.nanos, request.nanos, claim, limits)
        return bool(self.call(functions.RESERVE, *given)[1] == 0)

    def call(self, function: str, *arguments: Any) -> Any:
        return self.redis.fcall(function, 1, self.prefix, *arguments)


def test_in_any_order_the_ledger_balances_and_nothing_is_overdrawn(
    policy_redis: Redis, django_capture_on_commit_callbacks: CommitHooks
) -> None:
    ensure_default_tiers()
    policy_redis.function_load(library_text(ADMISSION), replace=True)
    rebuild_policy()

    class Machine(Money):
        redis = policy_redis
        hooks = staticmethod(django_capture_on_commit_callbacks)

    run_state_machine_as_test(Machine)
