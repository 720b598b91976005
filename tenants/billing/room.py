"""Money as it leaves with a tenant, and what fsck asks of it."""

from typing import Final

from tenants.billing.invoicing.check import invoice_problems
from tenants.billing.invoicing.last_invoice import settle
from tenants.billing.invoicing.storage import storage_problems
from tenants.billing.ledger.chain import LedgerChains
from tenants.billing.ledger.spend import spend_problems
from tenants.billing.ledger.waiting import waiting_problems
from tenants.billing.models import Invoice, InvoiceLine
from tenants.billing.payments.check import payment_problems
from tenants.fsck import of_log, whole
from tenants.permissions import Permission
from tenants.rooms import Room

_LOG: Final = LedgerChains()

ROOM: Final = Room(
    exports={
        "invoice": (
            lambda tenant_id: Invoice.objects.for_tenants().filter(tenant=tenant_id),
            Permission.VIEW_INVOICES,
        ),
        "invoice_line": (
            lambda tenant_id: InvoiceLine.objects.filter(
                tenant=tenant_id, invoice__issued_at__isnull=False
            ),
            Permission.VIEW_INVOICES,
        ),
    },
    settlements=(settle,),
    checks={
        _LOG.name: of_log(_LOG),
        "invoices": whole(invoice_problems, needs_snapshot=True),
        "storage charges": whole(storage_problems, needs_snapshot=True),
        "payments": whole(payment_problems, needs_snapshot=True),
        "prepaid spend": whole(spend_problems),
        "usage to be posted": whole(waiting_problems),
    },
)
