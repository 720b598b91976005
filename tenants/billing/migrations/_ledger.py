"""The ledger: transactions, their entries, and what each account of a tenant comes to."""

from django.db import migrations, models
from django.db.models import Q

from tenants.migrations._schema import SERIAL_KEY, UUID_KEY, columns, titled

# The first four hold what is left or owed, which is never below zero.
ACCOUNTS = [
    "promotional_credit",
    "sla_credit",
    "prepaid_credit",
    "receivable",
    "revenue",
    "cash",
    "promotion_expense",
    "sla_expense",
    "bad_debt",
    "adjustments",
]

LEDGER_HEAD = migrations.CreateModel(
    "LedgerHead",
    columns(
        tenant=models.OneToOneField(
            "tenants.tenant",
            models.PROTECT,
            primary_key=True,
            related_name="ledger_head",
            serialize=False,
        ),
        sequence=models.PositiveBigIntegerField(),
        hash=models.BinaryField(max_length=32),
        usage_nanos=models.BigIntegerField(default=0),
    ),
)

LEDGER_ACCOUNT = migrations.CreateModel(
    "LedgerAccount",
    columns(
        id=SERIAL_KEY,
        name=models.CharField(max_length=30, choices=titled(*ACCOUNTS)),
        balance_nanos=models.BigIntegerField(),
        tenant=models.ForeignKey(
            "tenants.tenant", models.PROTECT, db_index=False, related_name="ledger_accounts"
        ),
    ),
    options={
        "ordering": ["tenant", "name"],
        "constraints": [
            models.UniqueConstraint(fields=["tenant", "name"], name="ledger_account_once"),
            models.CheckConstraint(
                condition=Q(balance_nanos__gte=0) | ~Q(name__in=ACCOUNTS[:4]),
                name="ledger_account_not_negative",
            ),
        ],
    },
)

LEDGER_TRANSACTION = migrations.CreateModel(
    "LedgerTransaction",
    columns(
        id=UUID_KEY,
        sequence=models.PositiveBigIntegerField(),
        at=models.DateTimeField("time"),
        kind=models.CharField(
            max_length=20,
            choices=titled(
                "usage",
                "top_up",
                "promotion",
                "sla_credit",
                "payment",
                "refund",
                "expiry",
                "adjustment",
                "re_rating",
                "write_off",
            ),
        ),
        reference=models.CharField(max_length=200),
        memo=models.CharField(blank=True, max_length=500),
        expires_at=models.DateTimeField(null=True, blank=True),
        actor_kind=models.CharField(max_length=20),
        actor_id=models.CharField(blank=True, max_length=200),
        previous_hash=models.BinaryField(max_length=32),
        hash=models.BinaryField(max_length=32),
        tenant=models.ForeignKey(
            "tenants.tenant", models.PROTECT, db_index=False, related_name="ledger_transactions"
        ),
    ),
    options={
        "ordering": ["-at", "-sequence"],
        "indexes": [models.Index(fields=["tenant", "-at"], name="ledger_of_tenant")],
        "constraints": [
            models.UniqueConstraint(fields=["tenant", "sequence"], name="ledger_sequence_once"),
            models.UniqueConstraint(fields=["tenant", "reference"], name="ledger_reference_once"),
        ],
    },
)

LEDGER_ENTRY = migrations.CreateModel(
    "LedgerEntry",
    columns(
        id=SERIAL_KEY,
        position=models.PositiveSmallIntegerField(),
        account=models.CharField(max_length=30, choices=titled(*ACCOUNTS)),
        nanos=models.BigIntegerField(),
        model=models.CharField(null=True, blank=True, max_length=200),
        day=models.DateField(null=True, blank=True),
        requests=models.PositiveIntegerField(null=True, blank=True),
        tenant=models.ForeignKey(
            "tenants.tenant", models.PROTECT, db_index=False, related_name="+"
        ),
        transaction=models.ForeignKey(
            "billing.ledgertransaction", models.PROTECT, db_index=False, related_name="entries"
        ),
    ),
    options={
        "verbose_name_plural": "ledger entries",
        "ordering": ["transaction", "position"],
        "indexes": [models.Index(fields=["tenant", "day", "model"], name="ledger_entry_of_day")],
        "constraints": [
            models.UniqueConstraint(fields=["transaction", "position"], name="ledger_entry_once"),
            models.CheckConstraint(condition=~Q(nanos=0), name="ledger_entry_not_zero"),
        ],
    },
)
