"""manage.py invoices and set_seller: the one JSON object each prints, and what it leaves."""

import re
from argparse import ArgumentError
from pathlib import Path

import pytest

from tenants.billing.models import Invoice, Seller, SlaCreditStep
from tenants.models import Project
from tests.support.billing.billed_usage import DEAR, use
from tests.support.commands import attempt, refused, run
from tests.support.refusals import raises_conflict, raises_invalid

pytestmark = [pytest.mark.django_db]


@pytest.mark.usefixtures("operators_eye")
def test_who_invoices_is_said_once_and_changed_later() -> None:
    facts = run("set_seller", "Penstock Ltd", "--address", r"1 Mill Lane\nLeeds", "--tax-id", "GB1")
    assert (facts["number_prefix"], facts["review_days"]) == ("INV", 3)
    assert Seller.objects.get().address == "1 Mill Lane\nLeeds"
    assert SlaCreditStep.objects.count() == 9
    SlaCreditStep.objects.filter(promise="ttft").delete()
    facts = run("set_seller", "Penstock GmbH", "--issue-by-hand", "--payment-terms-days", "14")
    assert (facts["payment_terms_days"], facts["review_days"]) == (14, None)
    assert (Seller.objects.get().name, Seller.objects.get().tax_id) == ("Penstock GmbH", "GB1")
    assert SlaCreditStep.objects.count() == 6
    with raises_invalid("invalid", "number_prefix"):
        attempt("set_seller", "Penstock", "--number-prefix", "a b")


@pytest.mark.usefixtures("seller")
def test_a_month_is_drafted_issued_paid_and_shown(
    acme: Project, globex: Project, tmp_path: Path
) -> None:
    use(acme, prices=DEAR)
    use(globex, prices=DEAR)
    assert run("invoices", "draft", "--month", "2026-10") == {"month": "2026-10", "drafted": 2}
    assert run("invoices", "draft", "--month", "2026-10")["drafted"] == 0
    assert run("invoices", "issue", "--tenant", "acme") == {"drafts": 1, "issued": 1}
    listed = run("invoices", "list", "--state", "issued")
    assert [row["tenant"] for row in listed] == ["Acme"]
    number = listed[0]["number"]
    assert re.fullmatch(r"INV-20\d\d-000001", number)
    pdf, csv = tmp_path / "invoice.pdf", tmp_path / "invoice.csv"
    facts = run(
        *("invoices", "show", number.lower(), "--pdf", str(pdf), "--csv", str(csv)),
    )
    assert (facts["amount_due"], facts["lines"]) == ("$13.00", 1)
    assert pdf.read_bytes().startswith(b"%PDF-") and number in csv.read_text()
    paid = run("invoices", "pay", number, "--reference", "BANK-1")
    assert paid["state"] == "paid"
    with raises_conflict("invoice_state", state="paid"):
        attempt("invoices", "void", number, "--reason", "x")
    other = run("invoices", "issue", str(Invoice.objects.get(state="draft").id))
    assert re.fullmatch(r"INV-20\d\d-000002", other["number"])
    assert run("invoices", "void", other["invoice_id"], "--reason", "wrong")["state"] == "void"
    assert run("invoices", "draft", "--month", "2026-10", "--tenant", "Globex")["number"] is None
    draft = Invoice.objects.get(state="draft")
    assert run("invoices", "discard", str(draft.id))["state"] == "discarded"


@pytest.mark.parametrize(
    ("arguments", "fact"),
    [
        (["pay"], "invoices pay"),
        (["draft", "INV-2026-000001"], "invoices draft"),
        (["show", "INV-1"], "'INV-1'"),
        (["draft", "--month", "2026-10", "--tenant", "Acme"], "Acme"),
        (["draft", "--tenant", "Nobody"], "'Nobody'"),
    ],
)
@pytest.mark.usefixtures("seller", "acme")
def test_what_cannot_be_done_is_told_in_one_sentence(arguments: list[str], fact: str) -> None:
    said = refused("invoices", *arguments)
    assert fact in said and "\n" not in said


@pytest.mark.usefixtures("seller")
def test_only_a_month_that_is_one_and_over_is_drafted() -> None:
    with pytest.raises(ArgumentError) as caught:
        attempt("invoices", "draft", "--month", "2026-13")
    assert caught.value.argument_name == "--month"
    with raises_invalid("month_not_over"):
        attempt("invoices", "draft", "--month", "2999-01")


@pytest.mark.usefixtures("seller")
def test_a_payment_needs_its_reference_and_a_second_draft_is_refused(acme: Project) -> None:
    use(acme, prices=DEAR)
    run("invoices", "draft", "--month", "2026-10")
    with raises_conflict("draft_exists", month="2026-10"):
        attempt("invoices", "draft", "--month", "2026-10", "--tenant", "Acme")
    run("invoices", "issue")
    [issued] = run("invoices", "list", "--state", "issued")
    with raises_invalid("required", "reference"):
        attempt("invoices", "pay", issued["number"])
