"""The hash-chained audit log that PostgreSQL writes: its SQL, its arithmetic, what is told to it."""
