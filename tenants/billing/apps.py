"""Django application configuration."""

from django.apps import AppConfig


class BillingConfig(AppConfig):
    name = "tenants.billing"
    label = "billing"

    def ready(self) -> None:
        from tenants.billing.invoicing.check import invoice_problems
        from tenants.billing.ledger.chain import ledger_problems
        from tenants.billing.ledger.spend import spend_problems
        from tenants.billing.models import Invoice, InvoiceLine
        from tenants.fsck import register_check
        from tenants.offboarding.export import register_export

        register_check("invoices", invoice_problems, needs_snapshot=True)
        register_check("ledger", ledger_problems, needs_snapshot=True)
        register_check("prepaid spend", spend_problems)
        register_export(
            "invoice", lambda tenant_id: Invoice.objects.for_tenants().filter(tenant=tenant_id)
        )
        register_export(
            "invoice_line",
            lambda tenant_id: InvoiceLine.objects.filter(
                tenant=tenant_id, invoice__issued_at__isnull=False
            ),
        )
