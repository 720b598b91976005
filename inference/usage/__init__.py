"""Usage on record: from the streams in Redis to rows, charges and rollups, and what is read from
them: reports, margins, invoices."""
