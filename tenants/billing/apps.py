"""Django application configuration."""

from django.apps import AppConfig


class BillingConfig(AppConfig):
    name = "tenants.billing"
    label = "billing"

    def ready(self) -> None:
        from tenants.billing.invoicing.check import invoice_problems
        from tenants.billing.invoicing.last_invoice import settle
        from tenants.billing.invoicing.storage import storage_problems
        from tenants.billing.ledger.chain import LedgerChains
        from tenants.billing.ledger.spend import spend_problems
        from tenants.billing.ledger.waiting import waiting_problems
        from tenants.billing.models import Invoice, InvoiceLine
        from tenants.billing.payments.check import payment_problems
        from tenants.fsck import register_check, register_log
        from tenants.offboarding.closing import register_settlement
        from tenants.offboarding.export import register_export
        from tenants.permissions import Permission

        register_check("invoices", invoice_problems, needs_snapshot=True)
        register_log(LedgerChains())
        register_check("storage charges", storage_problems, needs_snapshot=True)
        register_check("payments", payment_problems, needs_snapshot=True)
        register_check("prepaid spend", spend_problems)
        register_check("usage to be posted", waiting_problems)
        register_settlement(settle)
        register_export(
            "invoice",
            lambda tenant_id: Invoice.objects.for_tenants().filter(tenant=tenant_id),
            Permission.VIEW_INVOICES,
        )
        register_export(
            "invoice_line",
            lambda tenant_id: InvoiceLine.objects.filter(
                tenant=tenant_id, invoice__issued_at__isnull=False
            ),
            Permission.VIEW_INVOICES,
        )
