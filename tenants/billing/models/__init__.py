from tenants.billing.models.invoice import (
    CREDIT_LINE_KINDS,
    Invoice,
    InvoiceLine,
    InvoiceState,
    LineKind,
    UsageFilter,
)
from tenants.billing.models.ledger import (
    CREDITS,
    AccountName,
    LedgerAccount,
    LedgerEntry,
    LedgerHead,
    LedgerTransaction,
    TransactionKind,
)
from tenants.billing.models.payment import Payment, ProviderCustomer, ProviderEvent, Verdict
from tenants.billing.models.price import (
    PoolCost,
    PoolHour,
    Price,
    PriceCorrection,
    TierMultiplier,
)
from tenants.billing.models.seller import InvoiceCounter, Seller
from tenants.billing.models.sla import Promise, SlaCreditStep

__all__ = [
    "CREDITS",
    "CREDIT_LINE_KINDS",
    "AccountName",
    "Invoice",
    "InvoiceCounter",
    "InvoiceLine",
    "InvoiceState",
    "LedgerAccount",
    "LedgerEntry",
    "LedgerHead",
    "LedgerTransaction",
    "LineKind",
    "Payment",
    "PoolCost",
    "PoolHour",
    "Price",
    "PriceCorrection",
    "Promise",
    "ProviderCustomer",
    "ProviderEvent",
    "Seller",
    "SlaCreditStep",
    "TierMultiplier",
    "TransactionKind",
    "UsageFilter",
    "Verdict",
]
