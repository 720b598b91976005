"""The ledger, read-only: commands and background jobs post to it."""

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from unfold.admin import TabularInline
from unfold.contrib.filters.admin import AutocompleteSelectFilter, ChoicesDropdownFilter

from tenants.billing.models import LedgerAccount, LedgerEntry, LedgerTransaction
from tenants.money import dollars
from tenants.operator_admin import LogAdmin, ReadOnlyAdmin


class _Entries(TabularInline):  # type: ignore[misc]
    model = LedgerEntry
    extra = 0
    can_delete = False
    fields = ["account", "debit", "credit", "model", "day", "requests"]
    readonly_fields = fields

    def has_add_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return False

    @admin.display
    def debit(self, entry: LedgerEntry) -> str:
        return dollars(entry.nanos) if entry.nanos > 0 else ""

    @admin.display
    def credit(self, entry: LedgerEntry) -> str:
        return dollars(-entry.nanos) if entry.nanos < 0 else ""


@admin.register(LedgerTransaction)
class LedgerTransactionAdmin(LogAdmin):
    list_display = ["at", "tenant", "kind", "amount", "reference", "memo"]
    list_filter = [("tenant", AutocompleteSelectFilter), ("kind", ChoicesDropdownFilter)]
    search_fields = ["reference__startswith", "tenant__name"]
    list_select_related = ["tenant"]
    inlines = [_Entries]
    fields = [
        ("tenant", "sequence"), ("at", "kind"), "reference", "memo", "expires_at",
        ("actor_kind", "actor_id"),
    ]  # fmt: skip

    def get_queryset(self, request: HttpRequest) -> "QuerySet[LedgerTransaction]":
        rows: QuerySet[LedgerTransaction] = super().get_queryset(request)
        return rows.prefetch_related("entries")

    @admin.display
    def amount(self, transaction: LedgerTransaction) -> str:
        return dollars(transaction.size_nanos)


@admin.register(LedgerAccount)
class LedgerAccountAdmin(ReadOnlyAdmin):
    list_display = ["tenant", "name", "balance"]
    list_filter = [("tenant", AutocompleteSelectFilter), ("name", ChoicesDropdownFilter)]
    search_fields = ["tenant__name"]
    list_select_related = ["tenant"]
    fields = ["tenant", "name", "balance"]

    @admin.display(ordering="balance_nanos")
    def balance(self, account: LedgerAccount) -> str:
        return dollars(account.balance_nanos)
