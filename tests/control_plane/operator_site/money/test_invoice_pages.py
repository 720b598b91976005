"""Operators' pages of invoices, by the doors that a browser uses."""

import re
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from django.contrib.auth.models import Permission
from django.test import Client
from django.urls import reverse

from tenants.audit.log import seal_now
from tenants.billing.invoicing import invoices
from tenants.billing.invoicing.drafts import draft_invoice
from tenants.billing.invoicing.sla_credits import ensure_default_steps
from tenants.billing.models import Invoice, InvoiceState, Seller
from tenants.isolation.scoping import operator_scope
from tenants.models import AuditEvent, Project, Tier, User
from tests.control_plane.operator_site.records import refusals
from tests.support.billing.billed_usage import DEAR, OCTOBER, SEPTEMBER, use, use_slowly
from tests.support.projects import make_project

pytestmark = pytest.mark.django_db
LIST = "admin:billing_invoice_changelist"
IN_SEPTEMBER = datetime(2026, 9, 15, tzinfo=UTC)


@pytest.fixture
def acme() -> Project:
    with operator_scope("test"):
        Seller.objects.create(name="Penstock Ltd", address="Leeds")
        ensure_default_steps()
        project = make_project("Acme", "premium")
        use(project, times=2, prices=DEAR)
        return project


@pytest.fixture
def draft(acme: Project) -> Iterator[Invoice]:
    with operator_scope("test"):
        made = draft_invoice(acme.tenant, OCTOBER)
        assert made is not None
    yield made


def page(action: str, invoice: Invoice) -> str:
    return reverse(f"admin:billing_invoice_{action}", args=[invoice.pk])


def now(invoice: Invoice) -> Invoice:
    with operator_scope("test"):
        return Invoice.objects.get(pk=invoice.pk)


def test_an_invoice_is_issued_and_paid_after_a_question_each(
    operator: Client, draft: Invoice
) -> None:
    assert "$26.00" in operator.get(page("issue_one", draft)).content.decode()
    assert now(draft).is_draft
    operator.post(page("issue_one", draft), {"sure": "yes"})
    assert re.fullmatch(r"INV-20\d\d-000001", str(now(draft).number))
    assert now(draft).state == InvoiceState.ISSUED
    operator.post(page("pay_one", draft), {"sure": "yes", "reference": ""})
    assert now(draft).state == InvoiceState.ISSUED
    operator.post(page("pay_one", draft), {"sure": "yes", "reference": "BANK-1"})
    assert now(draft).state == InvoiceState.PAID
    shown = operator.get(page("change", draft)).content.decode()
    assert "manual: BANK-1" in shown and "penstock-demo · premium" in shown
    with operator_scope("test"):
        seal_now()
        verbs = AuditEvent.objects.filter(record_kind="billing.Invoice")
        assert {"issued", "paid"} <= set(verbs.values_list("verb", flat=True))


def test_an_issued_invoice_is_void_with_a_reason(operator: Client, draft: Invoice) -> None:
    with operator_scope("test"):
        invoices.issue(draft.id)
    operator.post(page("void_one", draft), {"sure": "yes", "reason": ""})
    assert now(draft).state == InvoiceState.ISSUED
    operator.post(page("void_one", draft), {"sure": "yes", "reason": "wrong address"})
    assert (now(draft).state, now(draft).void_reason) == (InvoiceState.VOID, "wrong address")


def test_a_drafts_sla_credit_is_held_released_and_refused(operator: Client, acme: Project) -> None:
    with operator_scope("test"):
        Tier.objects.filter(name="premium").update(ttft_target_ms=500)
        use_slowly(acme)
        draft = draft_invoice(acme.tenant, OCTOBER)
        assert draft is not None
    credited = now(draft).payable_nanos
    assert credited < 26 * 10**9
    operator.post(page("hold_one", draft), {"sure": "yes", "reason": ""})
    assert page("release_one", draft) not in operator.get(page("change", draft)).content.decode()
    operator.post(page("hold_one", draft), {"sure": "yes", "reason": "Bursts in one hour."})
    shown = operator.get(page("change", draft)).content.decode()
    assert "held: Bursts in one hour." in shown and page("release_one", draft) in shown
    attention = operator.get(reverse("admin:index")).content.decode()
    assert "The SLA credit of Acme for October 2026 is held" in attention
    operator.post(page("issue_one", draft), {"sure": "yes"})
    assert now(draft).is_draft
    operator.post(page("release_one", draft), {"sure": "yes", "reason": "An outage it was."})
    shown = operator.get(page("change", draft)).content.decode()
    assert "released: An outage it was." in shown and page("release_one", draft) not in shown
    operator.post(page("refuse_one", draft), {"sure": "yes", "reason": "Its own flood."})
    assert now(draft).payable_nanos == 26 * 10**9
    operator.post(page("issue_one", draft), {"sure": "yes"})
    assert now(draft).state == InvoiceState.ISSUED


def test_a_draft_is_discarded(operator: Client, draft: Invoice) -> None:
    operator.get(page("discard_one", draft))
    assert now(draft).is_draft
    operator.post(page("discard_one", draft), {"sure": "yes"})
    with operator_scope("test"):
        assert not Invoice.objects.exists()


def test_what_is_refused_is_told_and_nothing_changes(operator: Client, acme: Project) -> None:
    with operator_scope("test"):
        use(acme, IN_SEPTEMBER, prices=DEAR)
        first = draft_invoice(acme.tenant, SEPTEMBER)
        second = draft_invoice(acme.tenant, OCTOBER)
        assert first is not None and second is not None
    answer = operator.post(page("issue_one", second), {"sure": "yes"}, follow=True)
    (refusal,) = refusals(answer)
    assert "2026-09" in refusal and "Acme" in refusal
    answer = operator.post(page("discard_one", first), {"sure": "yes"}, follow=True)
    assert len(refusals(answer)) == 1
    assert now(first).is_draft and now(second).is_draft


def test_drafts_are_issued_from_the_list_in_their_order(operator: Client, acme: Project) -> None:
    with operator_scope("test"):
        use(acme, IN_SEPTEMBER, prices=DEAR)
        made = [draft_invoice(acme.tenant, month) for month in (SEPTEMBER, OCTOBER)]
    chosen = [str(each.pk) for each in reversed(made) if each is not None]
    asked = {"action": "issue_selected", "_selected_action": chosen}
    assert "2 drafts" in operator.post(reverse(LIST), asked).content.decode()
    with operator_scope("test"):
        assert not Invoice.objects.exclude(number=None).exists()
    operator.post(reverse(LIST), asked | {"sure": "yes"})
    with operator_scope("test"):
        numbers = Invoice.objects.order_by("period").values_list("number", flat=True)
        assert [str(number).rpartition("-")[2] for number in numbers] == ["000001", "000002"]


def test_a_draft_that_could_not_be_issued_says_why(operator: Client, draft: Invoice) -> None:
    with operator_scope("test"):
        Invoice.objects.update(blocked_reason="The counter was gone.")
    assert "blocked" in operator.get(reverse(LIST)).content.decode()
    shown = operator.get(page("change", draft)).content.decode()
    assert shown.index("The counter was gone.") < shown.index("Lines and totals"), "at the top"
    assert "Void reason" not in shown and "Drafted at" in shown


def test_the_list_shows_totals_of_what_it_shows(operator: Client, draft: Invoice) -> None:
    shown = operator.get(reverse(LIST)).content.decode()
    assert "Drafts" in shown and "$26.00" in shown
    other = operator.get(reverse(LIST), {"month": "2026-09-01"}).content.decode()
    assert "$26.00" not in other


def test_the_files_are_downloaded_from_the_invoices_page(operator: Client, draft: Invoice) -> None:
    pdf = operator.get(page("pdf_one", draft))
    assert pdf["Content-Type"] == "application/pdf" and pdf.content.startswith(b"%PDF-")
    table = operator.get(page("csv_one", draft))
    assert f"draft-2026-10-{draft.tenant_id}.csv" in table["Content-Disposition"]


@pytest.mark.parametrize(
    "action", ["issue_one", "pay_one", "void_one", "discard_one", "hold_one", "refuse_one"]
)
def test_who_may_only_look_settles_nothing(client: Client, draft: Invoice, action: str) -> None:
    reader = User.objects.create_user(f"{uuid.uuid4()}@example.org", is_staff=True)
    reader.user_permissions.add(Permission.objects.get(codename="view_invoice"))
    client.force_login(reader)
    assert client.get(page("pdf_one", draft)).status_code == 200
    answer = client.post(page(action, draft), {"sure": "yes", "reference": "x", "reason": "x"})
    assert answer.status_code == 403
    assert now(draft).is_draft
