"""Invoices of what a test has used, drafted and issued."""

from datetime import date

from tenants.billing.invoicing import invoices
from tenants.billing.invoicing.drafts import draft_invoice
from tenants.billing.models import (
    AccountName,
    Invoice,
    LedgerAccount,
)
from tenants.models import Project
from tests.support.billing.billed_usage import OCTOBER


def drafted(project: Project, month: date = OCTOBER) -> Invoice:
    invoice = draft_invoice(project.tenant, month)
    assert invoice is not None
    return Invoice.objects.get(id=invoice.id)


def issued(project: Project, month: date = OCTOBER) -> Invoice:
    return invoices.issue(drafted(project, month).id)


def balance(project: Project, account: AccountName) -> int:
    found = LedgerAccount.objects.filter(tenant=project.tenant, name=account).first()
    return 0 if found is None else found.balance_nanos
