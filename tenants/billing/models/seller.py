"""Who invoices: the operator's legal entity, and the numbers that it has given out."""

import uuid
from typing import Final

from django.core.validators import MaxValueValidator, RegexValidator
from django.db import models
from django.db.models import Q

# Time to look at SLA credits before they are given.
DEFAULT_REVIEW_DAYS: Final = 3


class Seller(models.Model):
    """What stands at the head of an invoice. Each invoice keeps a copy of its own from the moment
    it is issued: a change here is for those to come."""

    is_audited = True

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    name = models.CharField(max_length=200)
    address = models.TextField(help_text="Postal address as printed on invoices, one line per row.")
    tax_id = models.CharField("tax ID", max_length=60, blank=True)
    email = models.EmailField("contact email", blank=True)
    payment_terms_days = models.PositiveSmallIntegerField(
        "payment terms (days)",
        default=30,
        help_text="Invoices are due this many days after the issue date.",
    )
    payment_instructions = models.TextField(
        blank=True,
        help_text="Printed at the foot of each invoice: bank, account, payment reference.",
    )
    number_prefix = models.CharField(
        max_length=12,
        default="INV",
        unique=True,
        validators=[RegexValidator(r"^[A-Z0-9]+\Z", "Capital letters and digits only.")],
        help_text="Invoice numbers are PREFIX-YEAR-000001 and up.",
    )
    review_days = models.PositiveSmallIntegerField(
        "review period (days)",
        null=True,
        blank=True,
        default=DEFAULT_REVIEW_DAYS,
        help_text="Days that drafts are held for review before they are issued. 0 issues them "
        "immediately; leave blank to issue them by hand.",
    )
    sla_credit_cap_percent = models.PositiveSmallIntegerField(
        "SLA credit cap (%)",
        default=100,
        db_default=100,
        validators=[MaxValueValidator(100)],
        help_text="Most of a month's charges that its SLA credits may come to; 0 credits nothing.",
    )
    is_current = models.BooleanField(
        "current", default=True, help_text="New invoices use this seller (only one can be current)."
    )

    class Meta:
        ordering = ["name"]
        constraints = [
            models.UniqueConstraint(
                fields=["is_current"],
                condition=Q(is_current=True),
                name="one_current_seller",
                violation_error_message="Another seller is already current.",
            )
        ]

    def __str__(self) -> str:
        return self.name

    def details(self) -> dict[str, str]:
        """Return what an invoice keeps of it."""
        return {
            "name": self.name,
            "address": self.address,
            "tax_id": self.tax_id,
            "email": self.email,
            "payment_instructions": self.payment_instructions,
        }


class InvoiceCounter(models.Model):
    """The last number that a seller gave out in a year. The row is locked until the invoice with
    the next one is committed: so no number is left out, and none given twice."""

    seller = models.ForeignKey(Seller, on_delete=models.PROTECT, related_name="+")
    year = models.PositiveSmallIntegerField()
    last = models.PositiveIntegerField(default=0)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["seller", "year"], name="invoice_counter_of_year")
        ]

    def __str__(self) -> str:
        return f"{self.year}: {self.last}"

    @staticmethod
    def locked(seller: Seller, year: int) -> "InvoiceCounter":
        """Lock the seller's counter of a year for the rest of the transaction; make it if there is
        none."""
        first = InvoiceCounter(seller=seller, year=year)
        InvoiceCounter.objects.bulk_create([first], ignore_conflicts=True)
        return InvoiceCounter.objects.select_for_update().get(seller=seller, year=year)

    def take(self) -> int:
        self.last += 1
        self.save(update_fields=["last"])
        return self.last
