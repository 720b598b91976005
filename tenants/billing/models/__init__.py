from tenants.billing.models.ledger import (
    CREDITS,
    AccountName,
    LedgerAccount,
    LedgerEntry,
    LedgerHead,
    LedgerTransaction,
    TransactionKind,
)

__all__ = [
    "CREDITS",
    "AccountName",
    "LedgerAccount",
    "LedgerEntry",
    "LedgerHead",
    "LedgerTransaction",
    "TransactionKind",
]
