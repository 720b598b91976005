"""What it cost: the price book, the ledger and invoices."""
