"""fsck finds what invoices do not agree with."""

from datetime import timedelta

import psycopg
import pytest
from django.conf import settings as django_settings
from django.db import connection

from inference.models import DailyUsage
from tenants.billing.invoicing.check import invoice_problems
from tenants.billing.invoicing.drafts import draft_invoice
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
    problems = list(invoice_problems())
    assert any("until its newest invoice" in problem for problem in problems), problems
    assert any("of revenue" in problem for problem in problems)


def test_fsck_finds_a_gap_and_a_posting_that_is_not_there(acme: Project, globex: Project) -> None:
    use(acme, prices=DEAR)
    invoice = issued(acme)
    InvoiceCounter.objects.get().take()
    Invoice.objects.filter(id=invoice.id).update(state="paid", paid_at=NOON)
    problems = list(invoice_problems())
    assert any("have the numbers 1 to 1; expected 1 to 2" in problem for problem in problems)
    assert f"Invoice {invoice.number} is paid and has no payment." in problems


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            ["UPDATE billing_invoiceline SET amount_nanos = amount_nanos"
             " + CASE model WHEN 'other' THEN 1 ELSE -1 END WHERE period = '2026-10-01'"],
            "used other in 2026-10",
        ),
        (
            ["UPDATE billing_invoiceline SET amount_nanos = amount_nanos"
             " + CASE adapter WHEN '' THEN 1 ELSE -1 END WHERE period = '2026-09-01'"],
            "adapter poems) for 18 nano-dollars until its newest invoice; its invoices charge 17",
        ),
        (
            ["DELETE FROM billing_invoiceline WHERE period = '2026-09-01'",
             "UPDATE billing_invoice SET charges_nanos = charges_nanos - 36,"
             " due_nanos = due_nanos - 36, carried_nanos = carried_nanos - 36"],
            "used penstock-demo in 2026-09",
        ),
        (
            ["UPDATE billing_ledgerentry SET model = 'third' WHERE model = 'other'"],
            "used other in 2026-10 for 36 nano-dollars; its ledger has 0 of revenue",
        ),
    ],
)  # fmt: skip
def test_fsck_finds_a_line_that_is_not_what_was_used(
    acme: Project, changes: list[str], sentence: str
) -> None:
    use(acme, NOON - timedelta(days=30))
    use(acme, NOON - timedelta(days=30), adapter="poems")
    use(acme)
    use(acme, model="other")
    issued(acme)
    use(acme, model="other")  # which is late, and no problem
    assert list(invoice_problems()) == []
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
    found = list(invoice_problems())
    assert any(sentence in problem for problem in found), found


def test_a_draft_that_nobody_came_to_is_found(acme: Project, seller: Seller) -> None:
    use(acme, prices=DEAR)
    draft = draft_invoice(acme.tenant, OCTOBER)
    assert draft is not None and list(invoice_problems()) == []
    Invoice.objects.update(drafted_at=draft.drafted_at - timedelta(days=3))
    assert "should have been issued by itself" in next(iter(invoice_problems()))
    Seller.objects.update(review_days=None)
    assert list(invoice_problems()) == []
