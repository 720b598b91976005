"""The database between two tests with real transactions."""

import psycopg
from django.conf import settings
from django.test import TransactionTestCase

AUDIT_LOCKS = (
    ("tenants_auditevent", "append_only"),
    ("tenants_personaldetail", "erase_only"),
    ("tenants_auditchain", "heads_stay"),
)
LOCKS = (
    *AUDIT_LOCKS,
    ("billing_ledgertransaction", "append_only"),
    ("billing_ledgerentry", "append_only"),
    ("billing_ledgerhead", "heads_stay"),
    ("billing_ledgeraccount", "accounts_stay"),
    ("billing_price", "append_only"),
    ("billing_pricecorrection", "append_only"),
    ("billing_tiermultiplier", "append_only"),
    ("billing_poolcost", "append_only"),
)


def empty_tables(_test: TransactionTestCase) -> None:
    """As their owner: the web role may not truncate."""
    with psycopg.connect(settings.ENV.owner_database_url, autocommit=True) as owner:
        rows = owner.execute(
            "SELECT quote_ident(tablename) FROM pg_tables WHERE schemaname = 'public'"
            " AND tablename <> ALL(%s)",
            [["django_migrations", "django_content_type", "auth_permission"]],
        )
        tables = ", ".join(name for (name,) in rows.fetchall())
        # Audit log and ledger refuse, until their triggers are off: the owner of a table may do
        # that.
        with owner.transaction():
            for table, trigger in LOCKS:
                owner.execute(f"ALTER TABLE {table} DISABLE TRIGGER {trigger}")
            owner.execute(f"TRUNCATE {tables} CASCADE")
            for table, trigger in LOCKS:
                owner.execute(f"ALTER TABLE {table} ENABLE ALWAYS TRIGGER {trigger}")
