"""Mail domains of tenants, which an operator may prove where the DNS cannot."""

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest
from unfold.contrib.filters.admin import AutocompleteSelectFilter, ChoicesDropdownFilter
from unfold.decorators import display

from tenants.access.sign_on.domains import prove_domain
from tenants.errors import Conflict
from tenants.models import MailDomain
from tenants.operator_admin import OperatorAdmin


@admin.register(MailDomain)
class MailDomainAdmin(OperatorAdmin):
    list_display = ["domain", "tenant", "state", "proven_by", "proven_at", "created_at"]
    list_filter = [
        ("tenant", AutocompleteSelectFilter),
        ("proven_by", ChoicesDropdownFilter),
    ]
    search_fields = ["domain", "tenant__name"]
    list_select_related = ["tenant"]
    readonly_fields = ["tenant", "domain", "proven_by", "proven_at", "created_at"]
    fields = readonly_fields
    ordering = ["domain"]
    actions = ["prove"]

    def has_add_permission(self, request: HttpRequest) -> bool:
        # Its tenant claims it; an operator says that it is right.
        return False

    @display(
        description="state", ordering="proven_at", label={"proven": "success", "claimed": "warning"}
    )
    def state(self, domain: MailDomain) -> str:
        return "proven" if domain.is_proven else "claimed"

    @admin.action(permissions=["change"], description="Prove the selected domains")
    def prove(self, request: HttpRequest, domains: QuerySet[MailDomain]) -> None:
        for domain in domains:
            try:
                prove_domain(domain)
            except Conflict as error:
                messages.error(request, error.message)
            else:
                messages.success(request, f"{domain.domain} is proven for {domain.tenant}.")
