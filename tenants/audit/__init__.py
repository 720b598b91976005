"""The hash-chained audit log that PostgreSQL writes: its SQL, its arithmetic, its check."""
