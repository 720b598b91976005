"""fsck finds what invoices do not agree with."""

from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from django.conf import settings as django_settings
from django.db import connection

from inference.models import DailyUsage
from tenants.billing.invoicing.check import (
    draft_problems,
    invoice_problems,
    number_problems,
    posting_problems,
    usage_problems,
)
from tenants.billing.invoicing.drafts import draft_invoice
from tenants.billing.ledger.waiting import LONGEST_WAIT, post_due
from tenants.billing.models import Invoice, InvoiceCounter, Seller
from tenants.models import Project
from tests.support.billing.billed_usage import DEAR, NOON, OCTOBER, use
from tests.support.billing.issued_invoices import issued

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("seller")]


def test_late_usage_that_is_not_invoiced_yet_is_no_problem_and_other_differences_are(
    acme: Project,
) -> None:
    use(acme)
    issued(acme)
    use(acme, times=2)
    assert list(invoice_problems()) == []
    DailyUsage.objects.update(cost_nanos=1)
    of_charges, of_revenue = usage_problems()
    assert str(acme.id) in of_charges and str(acme.id) not in of_revenue
    assert list(invoice_problems()) == [of_charges, of_revenue]


def test_fsck_finds_a_gap_and_a_posting_that_is_not_there(acme: Project, globex: Project) -> None:
    use(acme, prices=DEAR)
    invoice = issued(acme)
    InvoiceCounter.objects.get().take()
    Invoice.objects.filter(id=invoice.id).update(state="paid", paid_at=NOON)
    [gap], [unpaid] = number_problems(), posting_problems()
    assert str(invoice.seller_id) in gap and str(invoice) in unpaid
    assert list(invoice_problems()) == [gap, unpaid]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("changes", "facts"),
    [
        (
            ["UPDATE billing_invoiceline SET amount_nanos = amount_nanos"
             " + CASE model WHEN 'other' THEN 1 ELSE -1 END WHERE period = '2026-10-01'"],
            ("other", "2026-10"),
        ),
        (
            ["UPDATE billing_invoiceline SET amount_nanos = amount_nanos"
             " + CASE adapter WHEN '' THEN 1 ELSE -1 END WHERE period = '2026-09-01'"],
            ("2026-09", "poems", " 18 ", " 17."),
        ),
        (
            ["DELETE FROM billing_invoiceline WHERE period = '2026-09-01'",
             "UPDATE billing_invoice SET charges_nanos = charges_nanos - 36,"
             " due_nanos = due_nanos - 36, carried_nanos = carried_nanos - 36"],
            ("penstock-demo", "2026-09"),
        ),
        (
            ["UPDATE billing_ledgerentry SET model = 'third' WHERE model = 'other'"],
            ("other", "2026-10", " 36 ", " 0 "),
        ),
    ],
)  # fmt: skip
def test_fsck_finds_a_line_that_is_not_what_was_used(
    acme: Project, changes: list[str], facts: tuple[str, ...]
) -> None:
    use(acme, NOON - timedelta(days=30))
    use(acme, NOON - timedelta(days=30), adapter="poems")
    use(acme)
    use(acme, model="other")
    issued(acme)
    use(acme, model="other")  # which is late, and no problem
    assert list(invoice_problems()) == []
    post_due(datetime.now(UTC) + LONGEST_WAIT)
    tables = ("billing_invoice", "billing_invoiceline", "billing_ledgerentry")
    with psycopg.connect(django_settings.ENV.owner_database_url, autocommit=True) as owner:
        for table in tables:
            owner.execute(f"ALTER TABLE {table} DISABLE TRIGGER USER")
        for change in changes:
            # The owner sees the rows of the ledger's tables, but none of the invoices'.
            if "ledger" in change:
                owner.execute(change)
                continue
            with connection.cursor() as cursor:
                cursor.execute(change)
                assert cursor.rowcount > 0
        for table in tables:
            owner.execute(f"ALTER TABLE {table} ENABLE TRIGGER USER")
        owner.execute("ALTER TABLE billing_ledgerentry ENABLE ALWAYS TRIGGER append_only")
    found = list(usage_problems())
    assert any(all(fact in problem for fact in facts) for problem in found), found
    assert set(found) <= set(invoice_problems())


def test_a_draft_that_nobody_came_to_is_found(acme: Project, seller: Seller) -> None:
    use(acme, prices=DEAR)
    draft = draft_invoice(acme.tenant, OCTOBER)
    assert draft is not None and list(invoice_problems()) == []
    Invoice.objects.update(drafted_at=draft.drafted_at - timedelta(days=3))
    [overdue] = draft_problems()
    assert str(draft.id) in overdue
    assert list(invoice_problems()) == [overdue]
    Seller.objects.update(review_days=None)
    assert list(invoice_problems()) == []
