from tenants.billing.models.ledger import (
    CREDITS,
    AccountName,
    LedgerAccount,
    LedgerEntry,
    LedgerHead,
    LedgerTransaction,
    TransactionKind,
)
from tenants.billing.models.price import (
    PoolCost,
    PoolHour,
    Price,
    PriceCorrection,
    TierMultiplier,
)

__all__ = [
    "CREDITS",
    "AccountName",
    "LedgerAccount",
    "LedgerEntry",
    "LedgerHead",
    "LedgerTransaction",
    "PoolCost",
    "PoolHour",
    "Price",
    "PriceCorrection",
    "TierMultiplier",
    "TransactionKind",
]
