"""Usage, invoices, payments, adjustments and write-offs as they come: the books agree."""

import itertools
import random
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, date, datetime

import pytest

from tenants.billing.invoicing import invoices
from tenants.billing.invoicing.drafts import draft_invoice
from tenants.billing.ledger import credit
from tenants.billing.models import (
    AccountName,
    Invoice,
    InvoiceState,
    LedgerTransaction,
)
from tenants.errors import Conflict
from tenants.models import Project, Tier
from tests.support.billing.billed_usage import DEAR, sum_up_slowly, use
from tests.tenants.billing.payments.test_invoice_payments import (
    DECEMBER,
    DOLLAR,
    balance,
    check_books,
)

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("seller", "policy")]


class Story:
    """What may happen to a tenant whose promises are never kept, one step after the other."""

    def __init__(self, customer: Project, seed: int) -> None:
        self._customer, self._tenant_id = customer, customer.tenant.id
        self._random, self._numbers = random.Random(seed), itertools.count()
        self.month = date(2026, 5, 1)
        self._slow: set[date] = set()
        self.steps: dict[Callable[[], object], int] = {
            self.use: 3,
            self.draft_or_issue: 3,
            self.pay: 2,
            self.pay_from_account: 2,
            self.pay_on_account: 1,
            self.top_up: 1,
            self.adjust: 2,
            self.write_off: 1,
            self.void: 1,
        }

    def go_on(self, steps: int) -> None:
        for step in self._random.choices(list(self.steps), list(self.steps.values()), k=steps):
            step()

    def use(self) -> None:
        at = datetime(self.month.year, self.month.month, 5, tzinfo=UTC)
        if self.month not in self._slow:
            self._slow.add(self.month)
            sum_up_slowly(self._customer, self.month)
        use(self._customer, at, prices=DEAR)

    def draft_or_issue(self) -> None:
        draft = Invoice.objects.filter(state=InvoiceState.DRAFT).first()
        if draft is not None:
            invoices.issue(draft.id)
            return
        newest = Invoice.objects.newest_of(self._tenant_id)
        if newest is None or newest.period < self.month:
            draft_invoice(self._customer.tenant, self.month, now=DECEMBER)

    def pay(self) -> None:
        if (invoice := self._waiting()) is not None:
            invoices.pay(invoice.id, reference=self._reference("bank"))

    def pay_from_account(self) -> None:
        invoice, booked = self._waiting(), list(self._on_account())
        if invoice is not None and booked:
            with suppress(Conflict):
                invoices.pay(invoice.id, reference=self._random.choice(booked))

    def pay_on_account(self) -> None:
        reference = self._reference("account")
        credit.pay(self._tenant_id, self._amount(), reference=reference, is_on_account=True)

    def top_up(self) -> None:
        credit.top_up(self._tenant_id, self._amount(), reference=self._reference("wire"))

    def adjust(self) -> None:
        nanos = self._random.choice([-1, 1]) * self._amount()
        credit.adjust(self._tenant_id, nanos, reference=self._reference("ticket"), memo="Goodwill")

    def write_off(self) -> None:
        owed = balance(self._customer, AccountName.RECEIVABLE)
        if owed:
            part, reference = self._random.randint(1, owed), self._reference("case")
            credit.write_off(self._tenant_id, part, reference=reference, memo="insolvent")

    def void(self) -> None:
        newest = Invoice.objects.newest_of(self._tenant_id)
        if newest is not None and newest.state == InvoiceState.ISSUED:
            # Its credit may be spent.
            with suppress(Conflict):
                invoices.void(newest.id, reason="wrong")

    def _amount(self) -> int:
        return self._random.randint(1, 20 * DOLLAR)

    def _reference(self, what: str) -> str:
        return f"{what} {next(self._numbers)}"

    def _waiting(self) -> Invoice | None:
        waiting = list(Invoice.objects.filter(state=InvoiceState.ISSUED).order_by("period"))
        return self._random.choice(waiting) if waiting else None

    def _on_account(self) -> list[str]:
        booked = LedgerTransaction.objects.filter(reference__startswith="account ")
        return list(booked.order_by("sequence").values_list("reference", flat=True))


@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.rare) for seed in range(2, 6))]
)
def test_what_is_owed_is_what_invoices_ask_for(acme: Project, seed: int) -> None:
    Tier.objects.filter(name="premium").update(ttft_target_ms=500)
    story = Story(acme, seed)
    for month in range(5, 11):
        story.month = date(2026, month, 1)
        story.go_on(8)
    # One more takes in whatever is left.
    story.month = date(2026, 11, 1)
    for draft in Invoice.objects.filter(state=InvoiceState.DRAFT):
        invoices.issue(draft.id)
    story.use()
    story.draft_or_issue()
    story.draft_or_issue()
    check_books(acme)
