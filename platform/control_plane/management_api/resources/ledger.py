"""The tenant's money: what it has and owes, and the transactions behind it."""

from typing import Any, ClassVar

from django.db.models import Prefetch, QuerySet
from rest_framework import mixins, serializers

from control_plane.management_api.viewsets import TenantScopedViewSet
from control_plane.records import fields
from control_plane.records.filters import TransactionFilter
from tenants.billing.ledger.balances import Balance, balance_of
from tenants.billing.ledger.statements import TRANSACTIONS_ORDER
from tenants.billing.models import LedgerEntry, LedgerTransaction
from tenants.models.tenant import BillingMode
from tenants.permissions import Permission


class BalanceSerializer(serializers.Serializer[Any]):
    object = fields.ConstantField("balance")
    billing_mode = serializers.ChoiceField(
        BillingMode.values, source="tenant.billing_mode", read_only=True
    )
    credit_nanos = fields.IntegerField(source="held.credit_nanos", read_only=True)
    promotional_credit_nanos = fields.IntegerField(source="held.promotional_nanos", read_only=True)
    sla_credit_nanos = fields.IntegerField(source="held.sla_nanos", read_only=True)
    prepaid_credit_nanos = fields.IntegerField(source="held.prepaid_nanos", read_only=True)
    owed_nanos = fields.IntegerField(source="held.owed_nanos", read_only=True)


class BalanceViewSet(mixins.RetrieveModelMixin, TenantScopedViewSet):
    summaries: ClassVar = {"retrieve": "Show the balance"}
    permission_map: ClassVar = {"retrieve": Permission.VIEW_BALANCE}
    serializer_class = BalanceSerializer

    def get_object(self) -> dict[str, Any]:
        held: Balance = balance_of(self.tenant.id)
        return {"tenant": self.tenant, "held": held}


class EntrySerializer(serializers.Serializer[Any]):
    account = fields.CharField(read_only=True)
    debit_nanos = serializers.SerializerMethodField()
    credit_nanos = serializers.SerializerMethodField()
    model = fields.CharField(read_only=True, allow_null=True)
    day = serializers.DateField(read_only=True, allow_null=True)
    requests = fields.IntegerField(read_only=True, allow_null=True)

    def get_debit_nanos(self, entry: LedgerEntry) -> int:
        return max(entry.nanos, 0)

    def get_credit_nanos(self, entry: LedgerEntry) -> int:
        return max(-entry.nanos, 0)


class TransactionSerializer(serializers.Serializer[Any]):
    """Who booked it is left out."""

    object = fields.ConstantField("transaction")
    id = fields.UUIDField(read_only=True)
    sequence = fields.IntegerField(read_only=True)
    at = fields.DateTimeField(read_only=True)
    kind = fields.CharField(read_only=True)
    reference = fields.CharField(read_only=True)
    memo = fields.CharField(read_only=True)
    expires_at = fields.DateTimeField(read_only=True, allow_null=True)
    hash = fields.HexField(read_only=True)
    entries = EntrySerializer(many=True, read_only=True)


class TransactionViewSet(mixins.ListModelMixin, mixins.RetrieveModelMixin, TenantScopedViewSet):
    summaries: ClassVar = {"list": "List transactions", "retrieve": "Show a transaction"}
    permission_map: ClassVar = {
        "list": Permission.VIEW_BALANCE,
        "retrieve": Permission.VIEW_BALANCE,
    }
    serializer_class = TransactionSerializer
    order = TRANSACTIONS_ORDER
    filterset_class = TransactionFilter
    lookup_url_kwarg = "transaction_id"

    def get_queryset(self) -> QuerySet[LedgerTransaction]:
        entries = Prefetch("entries", LedgerEntry.objects.order_by("position"))
        return LedgerTransaction.objects.prefetch_related(entries)
