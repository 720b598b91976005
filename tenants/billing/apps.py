"""Django application configuration."""

from django.apps import AppConfig


class BillingConfig(AppConfig):
    name = "tenants.billing"
    label = "billing"

    def ready(self) -> None:
        from tenants.billing.balances import spend_problems
        from tenants.billing.ledger_chain import ledger_problems
        from tenants.fsck import register_check

        register_check("ledger", ledger_problems)
        register_check("prepaid spend", spend_problems)
