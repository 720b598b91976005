"""manage.py set_seller "Penstock Ltd" --address "1 Mill Lane\\nLeeds" --tax-id GB123"""

from typing import Any

from django.core.management.base import CommandParser

from tenants.billing.invoicing.sla_credits import ensure_default_steps
from tenants.billing.models import Seller
from tenants.management.reporting import ReportingCommand


class Command(ReportingCommand):
    help = (
        "Set the seller: the name and details at the head of invoices issued from now "
        "on. Options not given stay unchanged."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("name")
        parser.add_argument("--address", help=r"lines separated by \n")
        parser.add_argument("--tax-id")
        parser.add_argument("--email")
        parser.add_argument("--payment-terms-days", type=int)
        parser.add_argument("--payment-instructions", help=r"lines separated by \n")
        parser.add_argument(
            "--sla-credit-cap-percent",
            type=int,
            help="most of a month's charges that its SLA credits may come to",
        )
        parser.add_argument(
            "--number-prefix", help="invoice numbers are <prefix>-2026-000001 and up"
        )
        review = parser.add_mutually_exclusive_group()
        review.add_argument(
            "--review-days", type=int, help="days that drafts wait before they are issued; 0: none"
        )
        review.add_argument(
            "--issue-by-hand", action="store_true", help="drafts wait to be issued by hand"
        )

    def handle(self, *_: Any, **options: Any) -> None:
        seller = Seller.objects.filter(is_current=True).first() or Seller()
        seller.name = options["name"]
        for name in ("address", "tax_id", "email", "payment_terms_days", "payment_instructions",
                     "number_prefix", "review_days", "sla_credit_cap_percent"):  # fmt: skip
            value = options[name]
            if value is not None:
                text = value.replace("\\n", "\n") if isinstance(value, str) else value
                setattr(seller, name, text)
        if options["issue_by_hand"]:
            seller.review_days = None
        seller.full_clean()
        seller.save()
        ensure_default_steps()
        self.report(
            options,
            seller_id=str(seller.id),
            name=seller.name,
            number_prefix=seller.number_prefix,
            payment_terms_days=seller.payment_terms_days,
            review_days=seller.review_days,
            sla_credit_cap_percent=seller.sla_credit_cap_percent,
        )
