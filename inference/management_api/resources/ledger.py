"""The tenant's money: what it has and owes, and the transactions behind it."""

import uuid
from typing import Any, ClassVar, Final

from rest_framework.response import Response

from inference.management_api.lists import ListQuery, listed
from inference.management_api.view import TenantView
from tenants.billing.ledger.balances import balance_of
from tenants.billing.models import LedgerTransaction
from tenants.pagination import NEWEST_SEQUENCE_FIRST, Order, page
from tenants.permissions import Permission

_ORDER: Final = Order(name="transactions", fields=NEWEST_SEQUENCE_FIRST, is_descending=True)


class BalanceView(TenantView):
    permissions: ClassVar = {"GET": Permission.VIEW_BALANCE}

    def get(self) -> Response:
        held = balance_of(self.tenant.id)
        return Response(
            {
                "object": "balance",
                "billing_mode": self.tenant.billing_mode,
                "credit_nanos": held.credit_nanos,
                "promotional_credit_nanos": held.promotional_nanos,
                "sla_credit_nanos": held.sla_nanos,
                "prepaid_credit_nanos": held.prepaid_nanos,
                "owed_nanos": held.owed_nanos,
            }
        )


class TransactionsView(TenantView):
    permissions: ClassVar = {"GET": Permission.VIEW_BALANCE}
    parameters: ClassVar = {"GET": ListQuery}

    def get(self) -> Response:
        rows = LedgerTransaction.objects.prefetch_related("entries")
        found = page(rows, _ORDER, limit=self.query.limit, cursor=self.query.cursor)
        return listed(found, _rendered)


class OneTransactionView(TenantView):
    permissions: ClassVar = {"GET": Permission.VIEW_BALANCE}

    def get(self, transaction_id: uuid.UUID) -> Response:
        rows = LedgerTransaction.objects.prefetch_related("entries")
        return Response(_rendered(rows.get(id=transaction_id)))


def _rendered(transaction: LedgerTransaction) -> dict[str, Any]:
    """Render a transaction; who booked it is left out."""
    return {
        "object": "transaction",
        "id": transaction.id,
        "sequence": transaction.sequence,
        "at": transaction.at,
        "kind": transaction.kind,
        "reference": transaction.reference,
        "memo": transaction.memo,
        "expires_at": transaction.expires_at,
        "hash": bytes(transaction.hash).hex(),
        "entries": [
            {
                "account": entry.account,
                "debit_nanos": max(entry.nanos, 0),
                "credit_nanos": max(-entry.nanos, 0),
                "model": entry.model,
                "day": entry.day,
                "requests": entry.requests,
            }
            for entry in sorted(transaction.entries.all(), key=lambda each: each.position)
        ],
    }
