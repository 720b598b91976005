"""What adapters that are kept cost, on invoices: each month once, whatever is drafted when."""

from datetime import UTC, date, datetime, timedelta

import pytest

from inference.models import AdapterStorage
from tenants.billing.invoicing import invoices
from tenants.billing.invoicing.check import invoice_problems
from tenants.billing.invoicing.drafts import draft_invoice, draft_invoices
from tenants.billing.invoicing.last_invoice import settle
from tenants.billing.invoicing.storage import storage_problems
from tenants.billing.ledger import credit
from tenants.billing.models import AccountName, LedgerTransaction, LineKind, TransactionKind
from tenants.billing.pricing.storage import GIB
from tenants.models import Project
from tests.support.billing.billed_usage import AFTER_OCTOBER, DEAR, OCTOBER, SEPTEMBER, use
from tests.support.billing.issued_invoices import balance, drafted, issued
from tests.support.refusals import raises_invalid

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("seller")]
DOLLAR = 10**9


def keep(
    project: Project, nanos: int, day: date = OCTOBER, byte_hours: int = 744 * GIB // 2
) -> None:
    """As it is put on record each hour."""
    row, _ = AdapterStorage.objects.get_or_create(
        tenant=project.tenant,
        day=day,
        defaults={
            "hours": 0,
            "last_hour": datetime(day.year, day.month, day.day, tzinfo=UTC),
            "byte_hours": 0,
            "cost_nanos": 0,
        },
    )
    row.hours += 1
    row.byte_hours += byte_hours
    row.cost_nanos += nanos
    row.save()


def problems() -> list[str]:
    return [*invoice_problems(), *storage_problems()]


def test_a_month_of_it_is_a_line_of_its_invoice(acme: Project, globex: Project) -> None:
    used = use(acme, prices=DEAR)
    keep(acme, 3 * DOLLAR)
    keep(acme, 2 * DOLLAR, OCTOBER + timedelta(days=30), byte_hours=0)
    keep(acme, 7 * DOLLAR, OCTOBER + timedelta(days=31))
    invoice = issued(acme)
    usage, storage = invoice.lines.order_by("position")
    assert (usage.kind, usage.amount_nanos) == (LineKind.USAGE, used)
    assert (storage.kind, storage.amount_nanos) == (LineKind.ADJUSTMENT, 5 * DOLLAR)
    assert storage.description == "Storage of adapters in 2026-10: 0.500 GiB over the month"
    assert invoice.due_nanos == used + 5 * DOLLAR == balance(acme, AccountName.RECEIVABLE)
    assert draft_invoice(globex.tenant, OCTOBER) is None
    assert problems() == []


def test_who_keeps_and_uses_nothing_is_invoiced_for_it(acme: Project) -> None:
    keep(acme, DOLLAR)
    assert draft_invoices(OCTOBER, now=AFTER_OCTOBER) == 1
    assert drafts_storage(acme) == [DOLLAR]


def drafts_storage(project: Project) -> list[int]:
    lines = project.tenant.invoices.get().lines.all()
    return [line.amount_nanos for line in lines if line.description.startswith("Storage")]


def test_it_is_booked_once_whatever_becomes_of_drafts_and_invoices(acme: Project) -> None:
    keep(acme, 5 * DOLLAR)
    invoices.discard(drafted(acme).id)
    first = issued(acme)
    invoices.void(first.id, reason="wrong address")
    again = issued(acme)
    assert again.due_nanos == 5 * DOLLAR == balance(acme, AccountName.RECEIVABLE)
    assert LedgerTransaction.objects.filter(kind=TransactionKind.STORAGE).count() == 1
    assert problems() == []


def test_what_is_put_on_record_late_comes_on_the_next_invoice(acme: Project) -> None:
    keep(acme, 5 * DOLLAR, SEPTEMBER)
    issued(acme, SEPTEMBER)
    keep(acme, DOLLAR, SEPTEMBER)
    keep(acme, 2 * DOLLAR, OCTOBER)
    invoice = issued(acme)
    assert sorted(line.amount_nanos for line in invoice.lines.all()) == [DOLLAR, 2 * DOLLAR]
    references = LedgerTransaction.objects.order_by("sequence").values_list("reference", flat=True)
    assert list(references) == ["storage:2026-09:1", "storage:2026-09:2", "storage:2026-10:1"]
    assert problems() == []


def test_credit_is_left_alone_until_the_tenant_is_closed(acme: Project) -> None:
    """It is for requests, which have reserved it."""
    credit.grant_promotion(acme.tenant_id, 9 * DOLLAR, reference="gift")
    keep(acme, 5 * DOLLAR)
    assert issued(acme).payable_nanos == 5 * DOLLAR
    assert balance(acme, AccountName.PROMOTIONAL_CREDIT) == 9 * DOLLAR


@pytest.mark.usefixtures("policy")
def test_closing_a_tenant_charges_the_running_month_and_credit_pays(acme: Project) -> None:
    credit.top_up(acme.tenant_id, 9 * DOLLAR, reference="paid")
    keep(acme, 5 * DOLLAR)
    settle(acme.tenant, now=datetime(2026, 10, 20, tzinfo=UTC))
    assert balance(acme, AccountName.RECEIVABLE) == 0
    assert balance(acme, AccountName.PREPAID_CREDIT) == 4 * DOLLAR
    assert problems() == []


def test_fsck_finds_more_charged_than_was_kept(acme: Project) -> None:
    keep(acme, 5 * DOLLAR)
    issued(acme)
    AdapterStorage.objects.update(cost_nanos=DOLLAR)
    (found,) = storage_problems()
    assert "2026-10" in found and str(acme.tenant_id) in found


def test_nobody_books_under_its_references_by_hand(acme: Project) -> None:
    with raises_invalid("reference_reserved"):
        credit.adjust(acme.tenant_id, 1, reference="storage:2026-10:1", memo="mine")
