"""Operators hold, release and refuse the SLA credit of a draft; its tenant hears of none of it."""

from datetime import timedelta

import pytest
from django.core.exceptions import ValidationError

from tenants.audit.log import seal_now
from tenants.billing.invoicing import invoices
from tenants.billing.invoicing.check import invoice_problems
from tenants.billing.invoicing.csv_file import csv_text
from tenants.billing.invoicing.drafts import draft_invoice
from tenants.billing.invoicing.month_end import issue_drafts, run_month_end
from tenants.billing.invoicing.sla_holds import hold_credit, refuse_credit, release_credit
from tenants.billing.models import (
    AccountName,
    Invoice,
    InvoiceState,
    LedgerAccount,
    LineKind,
    Seller,
    SlaReview,
)
from tenants.models import AuditEvent, Project, Tier
from tests.support.billing.billed_usage import AFTER_OCTOBER, DEAR, OCTOBER, use, use_slowly
from tests.support.commands import refused, run
from tests.support.refusals import raises_conflict

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("seller")]
COST = 13 * 10**9
WHY = "Bursts in one hour."


@pytest.fixture
def draft(acme: Project) -> Invoice:
    Tier.objects.filter(name="premium").update(ttft_target_ms=500)
    use_slowly(acme)
    use(acme, prices=DEAR)
    made = draft_invoice(acme.tenant, OCTOBER)
    assert made is not None and made.credits_nanos == -COST // 4
    return made


def test_a_draft_is_not_issued_while_its_credit_is_held(draft: Invoice) -> None:
    hold_credit(draft.id, reason=WHY)
    with raises_conflict("sla_credit_held"):
        invoices.issue(draft.id)
    assert run_month_end(AFTER_OCTOBER + timedelta(days=30)).issued == 0
    assert issue_drafts([draft.id]) == 0
    draft.refresh_from_db()
    assert (draft.state, draft.blocked_reason) == (InvoiceState.DRAFT, "")
    (problem,) = invoice_problems()
    assert "its SLA credit is held" in problem and WHY in problem


def test_a_credit_that_is_released_is_given(draft: Invoice) -> None:
    hold_credit(draft.id, reason=WHY)
    release_credit(draft.id, reason="An outage it was.")
    issued = invoices.issue(draft.id)
    assert issued.due_nanos == COST - COST // 4
    assert list(invoice_problems()) == []


def test_a_credit_that_is_refused_is_off_the_invoice(draft: Invoice) -> None:
    hold_credit(draft.id, reason=WHY)
    refuse_credit(draft.id, reason="Its own flood.")
    issued = invoices.issue(draft.id)
    assert issued.due_nanos == COST
    assert not issued.lines.filter(kind=LineKind.SLA_CREDIT).exists()
    assert not LedgerAccount.objects.filter(name=AccountName.SLA_CREDIT, balance_nanos__gt=0)
    assert list(invoice_problems()) == []
    with raises_conflict("invoice_state", state="issued"):
        hold_credit(draft.id, reason="too late")


def test_what_cannot_be_decided_says_why(draft: Invoice, acme: Project) -> None:
    with raises_conflict("no_sla_credit_held"):
        release_credit(draft.id, reason="Nothing is held.")
    with pytest.raises(ValidationError, match="Say why"):
        hold_credit(draft.id, reason="  ")
    refuse_credit(draft.id, reason="Its own flood.")
    with raises_conflict("no_sla_credit"):
        hold_credit(draft.id, reason="There is none any more.")


def test_decisions_are_audited_among_operators_and_never_for_the_tenant(draft: Invoice) -> None:
    hold_credit(draft.id, reason=WHY)
    assert WHY not in csv_text(draft) and "held" not in csv_text(draft)
    seal_now()
    (event,) = AuditEvent.objects.filter(record_kind="billing.SlaReview")
    assert (event.tenant_id, event.verb) == (None, "created")
    assert WHY in event.changes
    assert not AuditEvent.objects.exclude(tenant=None).filter(changes__contains=WHY).exists()


def test_a_draft_that_is_discarded_leaves_no_decision_behind(draft: Invoice) -> None:
    hold_credit(draft.id, reason=WHY)
    invoices.discard(draft.id)
    assert not SlaReview.objects.exists()


def test_commands_decide_too(draft: Invoice) -> None:
    assert run("invoices", "hold", str(draft.id), "--reason", WHY)["sla_credit"] == "held"
    assert (
        run("invoices", "release", str(draft.id), "--reason", "Fine.")["sla_credit"] == "released"
    )
    facts = run("invoices", "refuse", str(draft.id), "--reason", "Not fine.")
    assert facts["payable_nanos"] == COST
    assert "no SLA credit" in refused("invoices", "hold", str(draft.id), "--reason", WHY)


def test_a_new_seller_reviews_for_three_days() -> None:
    assert Seller(name="New", address="Leeds").review_days == 3
