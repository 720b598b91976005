from django.contrib.postgres.operations import BtreeGistExtension
from django.db import migrations

from tenants.audit.triggers import Audit
from tenants.billing.migrations import _invoices, _ledger, _prices
from tenants.isolation.row_security import BindToTenant, BuildTenantWall, LetWebOnly
from tenants.migrations._schema import sql_file


class Migration(migrations.Migration):
    initial = True
    dependencies = [("tenants", "0001_initial")]

    operations = [
        # The ledger, whose rights are in its SQL
        _ledger.LEDGER_HEAD,
        _ledger.LEDGER_ACCOUNT,
        _ledger.LEDGER_TRANSACTION,
        _ledger.LEDGER_ENTRY,
        *map(BuildTenantWall, ("LedgerHead", "LedgerAccount")),
        *map(BuildTenantWall, ("LedgerTransaction", "LedgerEntry")),
        sql_file("tenants/billing/ledger/ledger.sql"),
        # Prices
        BtreeGistExtension(),
        _prices.PRICE,
        _prices.PRICE_CORRECTION,
        _prices.TIER_MULTIPLIER,
        _prices.POOL_COST,
        _prices.POOL_HOUR,
        sql_file("tenants/billing/pricing/prices.sql"),
        *(LetWebOnly(model, "SELECT") for model in ("Price", "PriceCorrection", "TierMultiplier")),
        *map(LetWebOnly, ("PoolCost", "PoolHour")),
        Audit("Price", label=["model"]),
        Audit("PriceCorrection", label=["model"]),
        Audit("PoolCost", label=["pool"]),
        # Invoices and payments
        _invoices.SELLER,
        _invoices.INVOICE_COUNTER,
        _invoices.INVOICE,
        _invoices.INVOICE_LINE,
        _invoices.SLA_CREDIT_STEP,
        _invoices.PAYMENT,
        _invoices.PROVIDER_CUSTOMER,
        _invoices.PROVIDER_EVENT,
        *map(BuildTenantWall, ("Invoice", "InvoiceLine", "Payment", "ProviderCustomer")),
        BindToTenant("InvoiceLine", column="invoice_id", target="billing_invoice"),
        BindToTenant("Payment", column="invoice_id", target="billing_invoice"),
        *(
            LetWebOnly(model, "SELECT")
            for model in ("Invoice", "InvoiceLine", "Payment", "SlaCreditStep", "ProviderCustomer")
        ),
        *map(LetWebOnly, ("Seller", "InvoiceCounter", "ProviderEvent")),
        Audit("Seller", label=["name"]),
        Audit("SlaCreditStep", label=["promise"]),
        Audit("Invoice", label=["number"], personal=["buyer_name"]),
        Audit("Payment", label=["reference"]),
        sql_file("tenants/billing/invoicing/invoices.sql"),
    ]
