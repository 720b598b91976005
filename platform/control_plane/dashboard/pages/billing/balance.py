"""Billing: what the tenant has and owes, its transactions, the month so far."""

import uuid
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any, ClassVar, Final

from django import forms
from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from control_plane.dashboard.forms import FilterForm
from control_plane.dashboard.lists import ROWS, page_of
from control_plane.dashboard.navigation import Tab
from control_plane.dashboard.page import TenantPage
from control_plane.dashboard.pages.billing.prices import price_rows
from inference.usage.month_to_date import month_to_date
from tenants.alerts.balances import threshold_of
from tenants.billing.invoicing.lists import unpaid_invoices
from tenants.billing.ledger.balances import balance_of
from tenants.billing.ledger.spend import reserved_nanos
from tenants.billing.ledger.statements import (
    DaySum,
    find_transaction,
    list_days,
    list_transactions,
    promotions_left,
)
from tenants.billing.models import AccountName, LedgerTransaction, TransactionKind
from tenants.models.tenant import BillingMode
from tenants.permissions import Permission

KINDS: Final[dict[TransactionKind, str]] = {
    TransactionKind.USAGE: "Usage",
    TransactionKind.TOP_UP: "Top-up",
    TransactionKind.PROMOTION: "Promotional credit",
    TransactionKind.SLA_CREDIT: "SLA credit",
    TransactionKind.PAYMENT: "Payment",
    TransactionKind.REFUND: "Refund",
    TransactionKind.EXPIRY: "Promotional credit expired",
    TransactionKind.ADJUSTMENT: "Adjustment",
    TransactionKind.RE_RATING: "Price correction",
    TransactionKind.WRITE_OFF: "Written off",
    TransactionKind.STORAGE: "Storage",
}
# Of a page that sums them up.
_DAYS: Final = 10
_ACCOUNTS: Final[dict[AccountName, str]] = {
    AccountName.PROMOTIONAL_CREDIT: "Promotional credit",
    AccountName.SLA_CREDIT: "SLA credit",
    AccountName.PREPAID_CREDIT: "Prepaid credit",
    AccountName.RECEIVABLE: "Owed",
    AccountName.REVENUE: "Usage",
    AccountName.CASH: "Paid",
    AccountName.PROMOTION_EXPENSE: "Given by the operator",
    AccountName.SLA_EXPENSE: "Given for a missed SLA target",
    AccountName.BAD_DEBT: "Written off",
    AccountName.ADJUSTMENTS: "Adjustments",
}


class BillingPage(TenantPage):
    """Base of the section's pages, which are tabs; `tab` is the page's own."""

    permissions: ClassVar = {"GET": Permission.VIEW_BALANCE}
    section = "billing"
    tab: ClassVar[str]

    def tabs(self) -> dict[str, Any]:
        words = {"billing": "Overview", "invoices": "Invoices", "transactions": "Transactions"}
        return {
            "tabs": [
                Tab(
                    address=reverse(f"dashboard:{name}", args=[self.tenant.id]),
                    word=word,
                    is_current=name == self.tab,
                )
                for name, word in words.items()
            ]
        }


class BillingOverviewPage(BillingPage):
    template_name = "dashboard/billing/overview.html"
    tab = "billing"

    def get(self, request: HttpRequest) -> HttpResponse:
        held = balance_of(self.tenant.id)
        is_prepaid = self.tenant.billing_mode == BillingMode.PREPAID
        reserved = reserved_nanos(self.tenant.id) if is_prepaid else None
        today = datetime.now(UTC).date()
        context = {
            "held": held,
            "is_prepaid": is_prepaid,
            "reserved_nanos": reserved,
            "available_nanos": max(0, held.credit_nanos - (reserved or 0)),
            "threshold_nanos": threshold_of(self.tenant).threshold_nanos,
            "may_set_alert": self.access.may_change(Permission.WRITE_WEBHOOKS),
            "promotions": promotions_left(),
            "unpaid": unpaid_invoices(),
            "month": month_to_date(today),
            "period": _days_until(today),
            "prices": price_rows(self.tenant),
        }
        return self.show(context | self.tabs())


def _days_until(today: date) -> str:
    first = "1" if today.day == 1 else f"1 to {today.day}"
    return f"{first} {today:%B}, UTC"


class TransactionFilters(FilterForm):
    kind = forms.TypedChoiceField(
        choices=[("", "All"), *((kind.value, word) for kind, word in KINDS.items())],
        coerce=TransactionKind,
    )
    day = forms.DateField(label="Day (UTC)", widget=forms.DateInput(attrs={"type": "date"}))


@dataclass(frozen=True, kw_only=True)
class Row:
    """A transaction in words."""

    transaction: LedgerTransaction
    word: str


@dataclass(frozen=True, kw_only=True)
class DayRow:
    """The transactions of a kind on a day in words; `only` is the one where there is no other."""

    sum: DaySum
    word: str
    only: Row | None


class TransactionsPage(BillingPage):
    template_name = "dashboard/billing/transactions.html"
    tab = "transactions"

    def get(self, request: HttpRequest) -> HttpResponse:
        filters = TransactionFilters(request.GET)
        chosen = filters.chosen()
        context: dict[str, Any] = {"filters": filters, "is_filtered": bool(chosen)}
        if chosen:
            single = page_of(
                request, lambda cursor: list_transactions(**chosen, limit=ROWS, cursor=cursor)
            )
            context |= {"page": single, "rows": [_row(each) for each in single.rows]}
        else:
            days = page_of(request, lambda cursor: list_days(limit=_DAYS, cursor=cursor))
            context |= {"page": days, "days": [_day_row(each) for each in days.rows]}
        return self.show(context | self.tabs(), fragment="list")


class TransactionPage(BillingPage):
    template_name = "dashboard/billing/transaction.html"
    tab = "transactions"

    def get(self, request: HttpRequest, transaction_id: uuid.UUID) -> HttpResponse:
        row = _row(find_transaction(transaction_id))
        entries = [
            (_ACCOUNTS[AccountName(entry.account)], entry)
            for entry in row.transaction.entries.all()
        ]
        return self.show({"row": row, "entries": entries})


def _day_row(each: DaySum) -> DayRow:
    only = None if each.only is None else _row(each.only)
    return DayRow(sum=each, word=KINDS[each.kind], only=only)


def _row(transaction: LedgerTransaction) -> Row:
    return Row(transaction=transaction, word=KINDS[TransactionKind(transaction.kind)])
