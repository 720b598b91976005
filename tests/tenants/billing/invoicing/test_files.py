"""An invoice as PDF and as CSV."""

import csv
import io
import re
from pathlib import Path

import pytest
from pytest_django import Settings

from tenants.billing.invoicing import invoices
from tenants.billing.invoicing.csv_file import csv_text
from tenants.billing.invoicing.drafts import draft_invoice
from tenants.billing.invoicing.pdf import pdf_bytes
from tenants.billing.models import Invoice, Seller
from tenants.models import Project, Tenant
from tenants.money import dollars, dollars_and_cents, whole_cents
from tests.support.billing.billed_usage import DEAR, OCTOBER, use

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("seller")]


@pytest.fixture
def invoice(acme: Project) -> Invoice:
    use(acme, times=2, prices=DEAR)
    use(acme, model="=cmd()", prices=DEAR)
    made = draft_invoice(acme.tenant, OCTOBER)
    assert made is not None
    return invoices.issue(made.id)


def test_the_same_invoice_gives_the_same_bytes(invoice: Invoice) -> None:
    first, second = pdf_bytes(invoice), pdf_bytes(Invoice.objects.get(id=invoice.id))
    assert first == second
    assert first.startswith(b"%PDF-") and len(first) < 20_000


def test_an_issued_pdf_stays_as_it_was_when_the_seller_moves(invoice: Invoice) -> None:
    before = pdf_bytes(invoice)
    Seller.objects.update(name="Sluice GmbH", address="Berlin", payment_instructions="")
    assert pdf_bytes(Invoice.objects.get(id=invoice.id)) == before
    invoices.pay(invoice.id, reference="BANK-1")
    assert pdf_bytes(Invoice.objects.get(id=invoice.id)) == before


def test_a_draft_and_a_void_invoice_say_so(invoice: Invoice) -> None:
    issued = pdf_bytes(invoice)
    invoices.void(invoice.id, reason="wrong address")
    assert pdf_bytes(Invoice.objects.get(id=invoice.id)) != issued


def test_names_in_other_scripts_are_set_in_the_font_of_the_settings(
    invoice: Invoice, settings: Settings
) -> None:
    font = Path("/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf")
    if not font.exists():
        pytest.skip("this machine has no DejaVu")
    plain = pdf_bytes(invoice)
    settings.PENSTOCK_INVOICE_FONT = str(font)
    embedded = pdf_bytes(invoice)
    assert b"DejaVuSans" in embedded and b"DejaVuSans" not in plain
    assert embedded == pdf_bytes(invoice)


def test_the_csv_has_every_line_and_sum_and_no_formula(invoice: Invoice) -> None:
    rows = list(csv.DictReader(io.StringIO(csv_text(invoice))))
    usage = [row for row in rows if row["kind"] == "usage"]
    assert [row["model"] for row in usage] == ["'=cmd()", "penstock-demo"]
    assert sum(int(row["amount_nanos"]) for row in usage) == invoice.charges_nanos
    assert {row["invoice"] for row in rows} == {invoice.number}
    due = next(row for row in rows if row["description"] == "Amount due")
    assert (due["amount_dollars"], int(due["amount_nanos"])) == ("39.00", invoice.payable_nanos)
    assert re.fullmatch(r"[0-9a-f-]{36}", usage[0]["line_id"])


@pytest.mark.parametrize(
    ("nanos", "cents", "exact"),
    [
        (0, "$0.00", "$0.00"),
        (1, "$0.00", "$0.000000001"),
        (1_234_567_890_123_456_789, "$1,234,567,890.12", "$1,234,567,890.123456789"),
        (-1_500_000_000, "-$1.50", "-$1.50"),
    ],
)
def test_amounts_are_told_to_the_cent_or_exactly(nanos: int, cents: str, exact: str) -> None:
    assert (dollars_and_cents(nanos), dollars(nanos)) == (cents, exact)


@pytest.mark.parametrize(
    ("nanos", "asked"), [(9_999_999, 0), (10_000_000, 10_000_000), (-5, 0), (19_999_999, 10**7)]
)
def test_only_whole_cents_are_asked_for(nanos: int, asked: int) -> None:
    assert whole_cents(nanos) == asked


@pytest.mark.parametrize(
    "name",
    [
        "<b>Acme</i> & <img src='http://127.0.0.1/x'/>",
        "W" * 200,
        "\N{RIGHT-TO-LEFT OVERRIDE}\u05d0\u05d1\u05d2 \N{PARAGRAPH SEPARATOR}\x07\x1b[31m",
        "\n" * 100,
        '=HYPERLINK("http://evil")',
    ],
)
def test_a_hostile_name_is_text_in_both_files(acme: Project, name: str) -> None:
    Tenant.objects.filter(id=acme.tenant.id).update(name=name)
    Project.objects.filter(id=acme.id).update(name=name[:100])
    use(acme, prices=DEAR)
    made = draft_invoice(acme.tenant, OCTOBER)
    assert made is not None
    invoice = invoices.issue(made.id)
    assert pdf_bytes(invoice).startswith(b"%PDF")
    rows = list(csv.DictReader(io.StringIO(csv_text(invoice), newline="")))
    project = rows[0]["project"]
    assert project.removeprefix("'") == name[:100] and project[0] not in "=+-@"
