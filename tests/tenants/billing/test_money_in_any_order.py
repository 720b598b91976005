"""Every verb that moves money or credit, in any order: nothing that was given is ever paid out, no
more is paid out than was paid in, and the books agree. Hypothesis plays with the real ledger, real
invoices, real usage and re-rating, and the holds of Redis."""

import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from django.db import transaction
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)
from redis import Redis

from inference.usage.rating.price_book import PriceBook
from inference.usage.rating.rerating import rerate
from tenants.billing.invoicing import invoices
from tenants.billing.invoicing.check import invoice_problems
from tenants.billing.invoicing.drafts import draft_invoice
from tenants.billing.invoicing.last_invoice import settle
from tenants.billing.ledger import credit
from tenants.billing.ledger.balances import balance_of
from tenants.billing.ledger.chain import ledger_problems
from tenants.billing.ledger.waiting import LONGEST_WAIT, post_due
from tenants.billing.models import (
    Invoice,
    InvoiceState,
    LedgerAccount,
    Payment,
    PriceCorrection,
)
from tenants.billing.payments.check import reversal_problems
from tenants.billing.payments.reversals import set_reversed
from tenants.billing.periods import next_month
from tenants.errors import Conflict
from tenants.models import Project, Tier
from tests.support.billing.billed_usage import DEAR, sum_up_slowly, use
from tests.support.projects import make_project

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("seller")]

DOLLAR = 10**9
AMOUNT = st.integers(1, 30).map(lambda dollars: dollars * DOLLAR)
# An invoice charges the twelve months before its own as well: so May is within that of the last.
MAY, LONG_AFTER = date(2026, 5, 1), datetime(2027, 1, 2, tzinfo=UTC)
# Usage cannot be of the future.
LAST_MONTH = 11
MONTHS = st.integers(0, 3)
# A dollar a token of any kind: a request, which costs 13 dollars as it comes, is of 15 tokens.
PRICE_MICROS = 10**12
FLOORED = {"promotional_credit", "sla_credit", "prepaid_credit", "receivable"}
CommitHooks = Callable[..., AbstractContextManager[Any]]


class Money(RuleBasedStateMachine):
    """One tenant. `paid_in`, `paid_out` and `reversed`, by a provider, are what the verbs said, not
    what the ledger says."""

    hooks: CommitHooks

    def __init__(self) -> None:
        super().__init__()
        self.point = transaction.atomic()
        self.point.__enter__()
        self.customer: Project = make_project(f"Acme {uuid.uuid4()}", "premium")
        self.tenant_id = self.customer.tenant_id
        self.month = MAY
        self.slow: set[date] = set()
        self.paid_in = self.paid_out = self.reversed = 0

    @initialize(is_slow=st.booleans())
    def promise(self, is_slow: bool) -> None:
        Tier.objects.filter(name="premium").update(ttft_target_ms=500 if is_slow else 5000)

    # what is given ------------------------------------------------------------------------------

    @rule(nanos=AMOUNT, days=st.none() | st.integers(1, 3))
    def promote(self, nanos: int, days: int | None) -> None:
        ends = None if days is None else datetime.now(UTC) + timedelta(days=days)
        self.book(credit.grant_promotion, nanos, expires_at=ends)

    @rule(days=st.integers(1, 4))
    def expire(self, days: int) -> None:
        with self.hooks(execute=True):
            credit.expire_promotions(datetime.now(UTC) + timedelta(days=days, hours=2))

    @rule(nanos=AMOUNT)
    def grant_sla_credit(self, nanos: int) -> None:
        self.book(credit.grant_sla_credit, nanos)

    @rule(nanos=AMOUNT, sign=st.sampled_from([-1, -1, 1]))
    def adjust(self, nanos: int, sign: int) -> None:
        self.book(credit.adjust, sign * nanos, memo="goodwill")

    @rule(nanos=AMOUNT)
    def write_off(self, nanos: int) -> None:
        if nanos <= balance_of(self.tenant_id).owed_nanos:
            self.book(credit.write_off, nanos, memo="insolvent")

    # what is paid -------------------------------------------------------------------------------

    @rule(nanos=AMOUNT)
    def top_up(self, nanos: int) -> None:
        self.book(credit.top_up, nanos)
        self.paid_in += nanos

    @rule(nanos=AMOUNT)
    def pay_on_account(self, nanos: int) -> None:
        self.book(credit.pay, nanos, is_on_account=True)
        self.paid_in += nanos

    @rule()
    def pay_invoice(self) -> None:
        invoice = self.newest_in(InvoiceState.ISSUED)
        if invoice is not None:
            invoices.pay(invoice.id, reference=str(uuid.uuid4()))
            self.paid_in += invoice.payable_nanos

    @rule(share=st.integers(1, 100))
    def refund(self, share: int) -> None:
        nanos = balance_of(self.tenant_id).prepaid_nanos * share // 100
        if not nanos:
            return
        try:
            self.book(credit.refund, nanos)
        except Conflict:
            assert nanos > self.paid_in - self.paid_out - self.reversed
        else:
            self.paid_out += nanos
            assert self.paid_out <= self.paid_in - self.reversed

    @rule(share=st.integers(0, 100), is_back=st.booleans())
    def reverse(self, share: int, is_back: bool) -> None:
        """A dispute of the newest payment, or its end."""
        payment = Payment.objects.filter(tenant=self.tenant_id).order_by("-recorded_at").first()
        if payment is not None:
            nanos = 0 if is_back else payment.amount_nanos * share // 100
            with self.hooks(execute=True):
                made = set_reversed(payment, nanos, reference="dp_1", status="lost")
            self.reversed += 0 if made is None else made.amount_nanos

    # usage and invoices -------------------------------------------------------------------------

    @rule(months_late=st.integers(0, 2))
    def use(self, months_late: int) -> None:
        month = max(MAY, date(2026, self.month.month - months_late, 1))
        at = datetime(month.year, month.month, 5, tzinfo=UTC)
        if month not in self.slow:
            self.slow.add(month)
            sum_up_slowly(self.customer, month)
        use(self.customer, at, prices=DEAR)

    @rule()
    def let_a_minute_pass(self) -> None:
        post_due(datetime.now(UTC) + LONGEST_WAIT)

    @rule(months=MONTHS, permille=st.sampled_from([0, 0, 500, 1500]))
    def rerate(self, months: int, permille: int) -> None:
        month = min(self.month, date(2026, MAY.month + months, 1))
        begin = datetime(month.year, month.month, 1, tzinfo=UTC)
        micros = PRICE_MICROS * permille // 1000
        PriceCorrection.objects.create(
            model="penstock-demo",
            effective_from=begin,
            effective_until=begin + timedelta(days=28),
            reason="entered late",
            prompt_micros_per_million_tokens=micros,
            cached_micros_per_million_tokens=micros,
            completion_micros_per_million_tokens=micros,
        )
        rerate(self.tenant_id, month, next_month(month) - timedelta(days=1), PriceBook())

    @rule()
    def draft_and_issue(self) -> None:
        newest = Invoice.objects.newest_of(self.tenant_id)
        if newest is None or newest.period < self.month:
            draft = draft_invoice(self.customer.tenant, self.month, now=LONG_AFTER)
            if draft is not None:
                invoices.issue(draft.id)

    @rule()
    def void(self) -> None:
        newest = Invoice.objects.newest_of(self.tenant_id)
        if newest is not None and newest.state == InvoiceState.ISSUED:
            # Its SLA credit may be spent.
            with suppress(Conflict), transaction.atomic(), self.hooks(execute=True):
                invoices.void(newest.id, reason="wrong")

    @rule()
    def go_on_a_month(self) -> None:
        if self.month.month < LAST_MONTH:
            self.month = next_month(self.month)

    # what holds ---------------------------------------------------------------------------------

    @invariant()
    def nothing_given_can_be_paid_out(self) -> None:
        held = dict(
            LedgerAccount.objects.filter(tenant=self.tenant_id).values_list("name", "balance_nanos")
        )
        assert [name for name in FLOORED if held.get(name, 0) < 0] == []
        assert self.paid_out <= self.paid_in
        assert held.get("cash", 0) == self.paid_in - self.paid_out - self.reversed
        assert held.get("prepaid_credit", 0) <= self.paid_in - self.paid_out, held

    def teardown(self) -> None:
        try:
            assert list(ledger_problems()) == [] == list(reversal_problems())
            assert list(invoice_problems()) == []
            with self.hooks(execute=True):
                settle(self.customer.tenant, now=LONG_AFTER)
            self.nothing_given_can_be_paid_out()
            self.invoices_ask_for_what_is_owed()
            assert list(ledger_problems()) == []
            assert list(invoice_problems()) == []
        finally:
            transaction.set_rollback(True)
            self.point.__exit__(None, None, None)

    def invoices_ask_for_what_is_owed(self) -> None:
        chain = Invoice.objects.not_void().filter(tenant=self.tenant_id).order_by("period")
        newest = chain.last()
        carried = 0 if newest is None else newest.carried_nanos
        asked = sum(each.unpaid_nanos for each in chain)
        assert asked + carried == self.held("receivable") + self.held("bad_debt")

    def book(self, verb: Callable[..., object], nanos: int, **more: Any) -> None:
        with self.hooks(execute=True):
            verb(self.tenant_id, nanos, reference=str(uuid.uuid4()), **more)

    def held(self, name: str) -> int:
        found = LedgerAccount.objects.filter(tenant=self.tenant_id, name=name).first()
        return 0 if found is None else found.balance_nanos

    def newest_in(self, state: InvoiceState) -> Invoice | None:
        found = Invoice.objects.filter(tenant=self.tenant_id, state=state)
        return found.order_by("-period").first()


@pytest.mark.parametrize(
    ("examples", "steps"), [(8, 25), pytest.param(60, 60, marks=pytest.mark.rare)]
)
def test_nothing_given_is_paid_out_whatever_happens(
    policy: Redis, django_capture_on_commit_callbacks: CommitHooks, examples: int, steps: int
) -> None:
    class Machine(Money):
        hooks = staticmethod(django_capture_on_commit_callbacks)

    run_state_machine_as_test(
        Machine,
        settings=settings(max_examples=examples, stateful_step_count=steps, deadline=None),
    )
