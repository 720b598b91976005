from tenants.billing.models.closing import ClosingAddress
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
    MAX_NANOS,
    AccountName,
    LedgerAccount,
    LedgerEntry,
    LedgerHead,
    LedgerTransaction,
    TransactionKind,
    WaitingCharge,
)
from tenants.billing.models.payment import (
    EventResolution,
    Payment,
    PaymentReversal,
    ProviderCustomer,
    ProviderEvent,
    Verdict,
)
from tenants.billing.models.price import (
    PoolCost,
    PoolHour,
    Price,
    PriceCorrection,
    TierMultiplier,
)
from tenants.billing.models.seller import InvoiceCounter, Seller
from tenants.billing.models.sla import Promise, SlaCreditStep, SlaDecision, SlaReview

__all__ = [
    "CREDITS",
    "CREDIT_LINE_KINDS",
    "MAX_NANOS",
    "AccountName",
    "ClosingAddress",
    "EventResolution",
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
    "PaymentReversal",
    "PoolCost",
    "PoolHour",
    "Price",
    "PriceCorrection",
    "Promise",
    "ProviderCustomer",
    "ProviderEvent",
    "Seller",
    "SlaCreditStep",
    "SlaDecision",
    "SlaReview",
    "TierMultiplier",
    "TransactionKind",
    "UsageFilter",
    "Verdict",
    "WaitingCharge",
]
