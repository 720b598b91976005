"""manage.py invoices draft | issue | pay | void | discard | hold | release | refuse | ..."""

import uuid
from argparse import ArgumentTypeError
from datetime import date
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser
from django.db.models import Q

from tenants.billing.invoicing import invoices
from tenants.billing.invoicing.csv_file import csv_text
from tenants.billing.invoicing.drafts import draft_invoice, draft_invoices, last_month
from tenants.billing.invoicing.month_end import issue_drafts
from tenants.billing.invoicing.pdf import pdf_bytes
from tenants.billing.invoicing.sla_holds import hold_credit, refuse_credit, release_credit
from tenants.billing.models import Invoice, InvoiceState
from tenants.billing.periods import BadPeriod, parse_month
from tenants.isolation.scoping import operator_scope
from tenants.management.look_up import tenant_named
from tenants.management.reporting import Fact, ReportingCommand
from tenants.money import dollars, dollars_and_cents

_OF_CREDIT = {"hold": hold_credit, "release": release_credit, "refuse": refuse_credit}
_OF_ONE = ("pay", "void", "discard", "show", *_OF_CREDIT)


def _month(text: str) -> date:
    try:
        return parse_month(text)
    except BadPeriod as error:
        raise ArgumentTypeError(str(error)) from None


class Command(ReportingCommand):
    # Drafts and issues are many transactions, so that a run that is cut short loses nothing.
    is_one_transaction = False
    help = (
        "Invoices: draft a month's (of all tenants or one), issue drafts, mark one as paid, "
        "void an issued one, discard a draft, hold, release or refuse the SLA credit of a draft, "
        "list them or show one."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("action", choices=["draft", "issue", "list", *_OF_ONE])
        parser.add_argument("invoice", nargs="?", help="number or id, for one invoice")
        parser.add_argument("--month", type=_month)
        parser.add_argument("--tenant", help="name or id; default: all")
        parser.add_argument("--state", choices=InvoiceState.values, help="list only these")
        parser.add_argument("--reference", default="")
        parser.add_argument(
            "--reason",
            default="",
            help="why it is voided; why its SLA credit is held, released or refused",
        )
        parser.add_argument(
            "--pdf", type=Path, help="show: write it to this file, which must not exist yet"
        )
        parser.add_argument(
            "--csv", type=Path, help="show: write it to this file, which must not exist yet"
        )

    def handle(self, *_: Any, **options: Any) -> None:
        action, named = options["action"], options["invoice"]
        if action in _OF_ONE and not named:
            raise CommandError(f"invoices {action} takes the number or id of an invoice.")
        if action in {"draft", "list"} and named:
            raise CommandError(f"invoices {action} takes no invoice; see --month and --tenant.")
        if action in _OF_CREDIT:
            self._decide(options)
        else:
            getattr(self, f"_{action}")(options)

    def _draft(self, options: dict[str, Any]) -> None:
        period = options["month"] or last_month()
        if options["tenant"] is None:
            drafted = draft_invoices(period)
            self.report(options, month=f"{period:%Y-%m}", drafted=drafted)
            return
        with operator_scope("command invoices"):
            tenant = tenant_named(options["tenant"])
            invoice = draft_invoice(tenant, period)
            if invoice is None:
                raise CommandError(f"{tenant.name} has nothing to invoice for {period:%Y-%m}.")
            self.report(options, **_facts(invoice))

    def _issue(self, options: dict[str, Any]) -> None:
        if options["invoice"]:
            with operator_scope("command invoices"):
                issued = invoices.issue(_named(options["invoice"]).id)
                self.report(options, **_facts(issued))
            return
        with operator_scope("command invoices"):
            found = _chosen(options).filter(state=InvoiceState.DRAFT)
            ids = list(found.order_by("period", "buyer_name", "id").values_list("id", flat=True))
        count = issue_drafts(ids)
        self.report(options, drafts=len(ids), issued=count)
        if count < len(ids):
            raise CommandError(
                f"{len(ids) - count} drafts could not be issued; "
                "`invoices list --state draft` says why."
            )

    def _pay(self, options: dict[str, Any]) -> None:
        with operator_scope("command invoices"):
            invoice = _named(options["invoice"])
            invoices.pay(invoice.id, reference=options["reference"])
            invoice.refresh_from_db()
            self.report(options, **_facts(invoice))

    def _void(self, options: dict[str, Any]) -> None:
        with operator_scope("command invoices"):
            voided = invoices.void(_named(options["invoice"]).id, reason=options["reason"])
            self.report(options, **_facts(voided))

    def _decide(self, options: dict[str, Any]) -> None:
        with operator_scope("command invoices"):
            invoice = _named(options["invoice"])
            review = _OF_CREDIT[options["action"]](invoice.id, reason=options["reason"])
            invoice.refresh_from_db()
            self.report(options, **_facts(invoice), sla_credit=review.decision)

    def _discard(self, options: dict[str, Any]) -> None:
        with operator_scope("command invoices"):
            invoice = _named(options["invoice"])
            facts = _facts(invoice)
            invoices.discard(invoice.id)
            self.report(options, **facts | {"state": "discarded"})

    def _list(self, options: dict[str, Any]) -> None:
        with operator_scope("command invoices"):
            found = _chosen(options).select_related("tenant")
            if options["state"]:
                found = found.filter(state=options["state"])
            self.report_rows(options, [_facts(invoice) for invoice in found], of="invoices")

    def _show(self, options: dict[str, Any]) -> None:
        with operator_scope("command invoices"):
            invoice = _named(options["invoice"])
            for path, made in ((options["pdf"], pdf_bytes), (options["csv"], _csv_bytes)):
                if path is not None:
                    _write(path, made(invoice))
            self.report(
                options,
                **_facts(invoice),
                charges=dollars(invoice.charges_nanos),
                credits=dollars(invoice.credits_nanos),
                brought_forward=dollars(invoice.brought_forward_nanos),
                carried=dollars(invoice.carried_nanos),
                due_on=f"{invoice.due_on:%Y-%m-%d}" if invoice.due_on else None,
                void_reason=invoice.void_reason or None,
                lines=invoice.lines.count(),
            )


def _csv_bytes(invoice: Invoice) -> bytes:
    return csv_text(invoice).encode()


def _chosen(options: dict[str, Any]) -> Any:
    found = Invoice.objects.all()
    if options["month"]:
        found = found.filter(period=options["month"])
    if options["tenant"]:
        found = found.filter(tenant=tenant_named(options["tenant"]))
    return found


def _named(text: str) -> Invoice:
    try:
        query = Q(id=uuid.UUID(text))
    except ValueError:
        query = Q(number__iexact=text.strip())
    invoice = Invoice.objects.select_related("tenant", "seller").filter(query).first()
    if invoice is None:
        raise CommandError(f"No invoice {text!r}; `invoices list` shows them.")
    return invoice


def _facts(invoice: Invoice) -> dict[str, Fact]:
    return {
        "invoice_id": str(invoice.id),
        "number": invoice.number,
        "tenant": invoice.buyer_name,
        "month": invoice.month,
        "state": str(invoice.state),
        "amount_due": dollars_and_cents(invoice.payable_nanos),
        "payable_nanos": invoice.payable_nanos,
        "blocked_reason": invoice.blocked_reason or None,
    }


def _write(path: Path, content: bytes) -> None:
    try:
        with path.open("xb") as file:
            file.write(content)
    except OSError as error:
        raise CommandError(f"{path} cannot be written: {error.strerror}.") from None
