"""Who invoices: the operator's legal entity, and the numbers that it has given out."""

import uuid

from django.core.validators import RegexValidator
from django.db import models
from django.db.models import Q


class Seller(models.Model):
    """What stands at the head of an invoice. Each invoice keeps a copy of its own from the moment
    it is issued: a change here is for those to come."""

    is_audited = True

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    name = models.CharField(max_length=200)
    address = models.TextField(help_text="As on a letter, a line each.")
    tax_id = models.CharField("tax id", max_length=60, blank=True)
    email = models.EmailField("email for questions", blank=True)
    payment_terms_days = models.PositiveSmallIntegerField(
        default=30, help_text="Due so many days after the day of issue."
    )
    payment_instructions = models.TextField(
        blank=True, help_text="How to pay, at the foot: bank, account, what to quote."
    )
    number_prefix = models.CharField(
        max_length=12,
        default="INV",
        unique=True,
        validators=[RegexValidator(r"^[A-Z0-9]+\Z", "Capital letters and digits only.")],
        help_text="Numbers are <prefix>-<year>-<000001> and up.",
    )
    review_days = models.PositiveSmallIntegerField(
        null=True,
        blank=True,
        default=0,
        help_text="Days that a month's drafts wait for an operator's look before they are issued; "
        "0: issued at once; empty: issued by hand.",
    )
    is_current = models.BooleanField(
        default=True, help_text="Issues what is issued from now on; one does."
    )

    class Meta:
        ordering = ["name"]
        constraints = [
            models.UniqueConstraint(
                fields=["is_current"],
                condition=Q(is_current=True),
                name="one_current_seller",
                violation_error_message="There is a current seller already.",
            )
        ]

    def __str__(self) -> str:
        return self.name


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
        """For the rest of the transaction."""
        first = InvoiceCounter(seller=seller, year=year)
        InvoiceCounter.objects.bulk_create([first], ignore_conflicts=True)
        return InvoiceCounter.objects.select_for_update().get(seller=seller, year=year)

    def take(self) -> int:
        self.last += 1
        self.save(update_fields=["last"])
        return self.last
