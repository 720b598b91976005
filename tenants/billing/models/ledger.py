"""The ledger's tables. Nobody may write them: `ledger.posting` posts through the functions
of ledger.sql, and triggers refuse every other change."""

import uuid
from typing import Final

from django.db import models
from django.db.models import Q

from tenants.isolation.scoping import ScopedManager
from tenants.models.tenant import Tenant


class AccountName(models.TextChoices):
    """The accounts of each tenant."""

    # What the tenant has left to spend, in the order in which it is spent.
    PROMOTIONAL_CREDIT = "promotional_credit"
    SLA_CREDIT = "sla_credit"
    PREPAID_CREDIT = "prepaid_credit"
    RECEIVABLE = "receivable"  # what it owes
    REVENUE = "revenue"  # what it was charged for usage, by model and day
    # The operator's side of what was paid, given away and given up.
    CASH = "cash"
    PROMOTION_EXPENSE = "promotion_expense"
    SLA_EXPENSE = "sla_expense"
    BAD_DEBT = "bad_debt"
    ADJUSTMENTS = "adjustments"


CREDITS: Final = (
    AccountName.PROMOTIONAL_CREDIT,
    AccountName.SLA_CREDIT,
    AccountName.PREPAID_CREDIT,
)
# No balance of these goes below zero; a constraint of the table holds it.
FLOORED: Final = (*CREDITS, AccountName.RECEIVABLE)
# Of one amount: sums must hold a great many.
MAX_NANOS: Final = 10**17


class TransactionKind(models.TextChoices):
    USAGE = "usage"
    TOP_UP = "top_up"
    PROMOTION = "promotion"
    SLA_CREDIT = "sla_credit"
    PAYMENT = "payment"
    REFUND = "refund"
    EXPIRY = "expiry"
    ADJUSTMENT = "adjustment"
    RE_RATING = "re_rating"
    WRITE_OFF = "write_off"
    REVERSAL = "reversal"  # of a payment, by its provider
    STORAGE = "storage"  # of adapters, by the month


class LedgerHead(models.Model):
    """The end of a tenant's chain of transactions; who holds this row may post to it.

    `usage_nanos` is all usage that was ever posted, whatever has paid for it.
    """

    is_audited = False

    tenant = models.OneToOneField(
        Tenant, on_delete=models.PROTECT, primary_key=True, related_name="ledger_head"
    )
    sequence = models.PositiveBigIntegerField()
    hash = models.BinaryField(max_length=32)
    usage_nanos = models.BigIntegerField(default=0)

    objects = ScopedManager["LedgerHead"]()

    def __str__(self) -> str:
        return f"{self.tenant_id} at {self.sequence}"


class LedgerAccount(models.Model):
    """What the entries of one account of a tenant come to, in the account's own sense: of credit
    what is left, of the receivable what is owed, of revenue what was charged."""

    is_audited = False

    id = models.BigAutoField(primary_key=True)
    tenant = models.ForeignKey(
        Tenant, on_delete=models.PROTECT, db_index=False, related_name="ledger_accounts"
    )
    name = models.CharField(max_length=30, choices=AccountName)
    balance_nanos = models.BigIntegerField()

    objects = ScopedManager["LedgerAccount"]()

    class Meta:
        ordering = ["tenant", "name"]
        constraints = [
            models.UniqueConstraint(fields=["tenant", "name"], name="ledger_account_once"),
            models.CheckConstraint(
                condition=Q(balance_nanos__gte=0) | ~Q(name__in=[each.value for each in FLOORED]),
                name="ledger_account_not_negative",
            ),
        ]

    def __str__(self) -> str:
        return self.name


class WaitingCharge(models.Model):
    """Usage of one model and day of arrival (UTC) that is on record and not yet posted: `since`
    when the first of it came. It is paid for when it is posted, within minutes, and before anything
    else moves in the tenant's ledger (`ledger.waiting`)."""

    is_audited = False

    id = models.BigAutoField(primary_key=True)
    tenant = models.ForeignKey(
        Tenant, on_delete=models.PROTECT, db_index=False, related_name="waiting_charges"
    )
    model = models.CharField(max_length=200)
    day = models.DateField()
    nanos = models.BigIntegerField()
    requests = models.PositiveIntegerField()
    since = models.DateTimeField()

    objects = ScopedManager["WaitingCharge"]()

    class Meta:
        ordering = ["tenant", "model", "day"]
        constraints = [
            models.UniqueConstraint(fields=["tenant", "model", "day"], name="waiting_charge_once"),
            models.CheckConstraint(
                condition=Q(nanos__gt=0, nanos__lte=MAX_NANOS), name="waiting_charge_fits"
            ),
        ]
        indexes = [models.Index(fields=["since"], name="waiting_charge_since")]

    def __str__(self) -> str:
        return f"{self.model} {self.day} {self.nanos}"


class LedgerTransaction(models.Model):
    """Entries that balance, posted once: no two of a tenant have the same `reference`.

    `hash` covers the transaction, its entries and the hash before it (`ledger_chain`). Credit that
    is given away may end at `expires_at`. The memo is kept for ever: no names in it.
    """

    is_audited = False

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(
        Tenant, on_delete=models.PROTECT, db_index=False, related_name="ledger_transactions"
    )
    sequence = models.PositiveBigIntegerField()
    at = models.DateTimeField("time")
    kind = models.CharField(max_length=20, choices=TransactionKind)
    reference = models.CharField(max_length=200)
    memo = models.CharField(max_length=500, blank=True)
    expires_at = models.DateTimeField(null=True, blank=True)
    actor_kind = models.CharField(max_length=20)
    actor_id = models.CharField(max_length=200, blank=True)
    previous_hash = models.BinaryField(max_length=32)
    hash = models.BinaryField(max_length=32)

    objects = ScopedManager["LedgerTransaction"]()

    class Meta:
        ordering = ["-at", "-sequence"]
        constraints = [
            models.UniqueConstraint(fields=["tenant", "sequence"], name="ledger_sequence_once"),
            models.UniqueConstraint(fields=["tenant", "reference"], name="ledger_reference_once"),
        ]
        indexes = [
            models.Index(fields=["tenant", "-at"], name="ledger_of_tenant"),
            models.Index(fields=["tenant", "kind", "-sequence"], name="ledger_by_kind"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.reference}"

    @property
    def size_nanos(self) -> int:
        """Return what it moves: the sum of its debits."""
        return sum(entry.nanos for entry in self.entries.all() if entry.nanos > 0)

    @property
    def credit_change_nanos(self) -> int:
        """Return by what it raises the tenant's credit; below zero it takes of it."""
        return -sum(entry.nanos for entry in self.entries.all() if entry.account in CREDITS)

    @property
    def owed_change_nanos(self) -> int:
        """Return by what it raises what the tenant owes; below zero it pays of it."""
        owed = AccountName.RECEIVABLE
        return sum(entry.nanos for entry in self.entries.all() if entry.account == owed)

    @property
    def requests(self) -> int:
        """Return the number of requests that it charges for."""
        return sum(entry.requests or 0 for entry in self.entries.all())


class LedgerEntry(models.Model):
    """One line of a transaction: `nanos` above zero debit the account, below zero credit it; those
    of a transaction come to zero. Revenue names the model and the UTC day of arrival."""

    is_audited = False

    id = models.BigAutoField(primary_key=True)
    transaction = models.ForeignKey(
        LedgerTransaction, on_delete=models.PROTECT, db_index=False, related_name="entries"
    )
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, db_index=False, related_name="+")
    position = models.PositiveSmallIntegerField()
    account = models.CharField(max_length=30, choices=AccountName)
    nanos = models.BigIntegerField()
    model = models.CharField(max_length=200, null=True, blank=True)
    day = models.DateField(null=True, blank=True)
    requests = models.PositiveIntegerField(null=True, blank=True)

    objects = ScopedManager["LedgerEntry"]()

    class Meta:
        ordering = ["transaction", "position"]
        verbose_name_plural = "ledger entries"
        constraints = [
            models.UniqueConstraint(fields=["transaction", "position"], name="ledger_entry_once"),
            models.CheckConstraint(condition=~Q(nanos=0), name="ledger_entry_not_zero"),
        ]
        indexes = [models.Index(fields=["tenant", "day", "model"], name="ledger_entry_of_day")]

    def __str__(self) -> str:
        return f"{self.account} {self.nanos}"

    @property
    def credit_nanos(self) -> int:
        """Return what it credits; 0 for a debit."""
        return max(-self.nanos, 0)
