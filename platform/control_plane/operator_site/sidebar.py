"""The sidebar of the operators' admin: its pages, grouped by topic."""

from typing import Any, Final

from django.apps import apps
from django.http import HttpRequest
from django.urls import reverse

from control_plane.operator_site.dashboards.registry import DASHBOARDS
from tenants.operator_admin import list_address

# Each model with its icon from Material Symbols.
_GROUPS: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = (
    (
        "Tenants",
        (
            ("tenants.Tenant", "apartment"),
            ("tenants.Project", "folder"),
            ("tenants.Tier", "workspace_premium"),
            ("tenants.Quota", "speed"),
            ("tenants.QuotaAlert", "notifications"),
        ),
    ),
    (
        "Access",
        (
            ("tenants.ApiKey", "key"),
            ("tenants.User", "person"),
            ("tenants.Membership", "group"),
            ("tenants.Invitation", "mail"),
            ("tenants.MailDomain", "alternate_email"),
        ),
    ),
    (
        "Models & fleet",
        (
            ("inference.ServedModel", "neurology"),
            ("inference.Adapter", "layers"),
            ("inference.AdapterVersion", "difference"),
            ("inference.Pool", "stacks"),
            ("inference.Worker", "dns"),
            ("inference.DeadLetter", "mail_off"),
            ("tenants.PolicyVersion", "sync"),
        ),
    ),
    (
        "Usage",
        (
            ("inference.UsageRecord", "receipt_long"),
            ("inference.WastedAttempt", "delete_sweep"),
            ("inference.UsageQuarantine", "report"),
        ),
    ),
    (
        "Billing",
        (
            ("billing.Invoice", "request_quote"),
            ("billing.Payment", "payments"),
            ("billing.PaymentReversal", "undo"),
            ("billing.LedgerAccount", "account_balance"),
            ("billing.LedgerTransaction", "receipt"),
            ("billing.Price", "sell"),
            ("billing.PriceCorrection", "price_change"),
            ("billing.StoragePrice", "hard_drive"),
            ("billing.PoolCost", "memory"),
            ("billing.SlaCreditStep", "percent"),
            ("billing.Seller", "storefront"),
            ("billing.ProviderEvent", "cloud_download"),
        ),
    ),
    (
        "Alerts",
        (
            ("webhooks.Endpoint", "webhook"),
            ("webhooks.BalanceAlert", "account_balance_wallet"),
            ("webhooks.Event", "campaign"),
            ("webhooks.Delivery", "outbox"),
            ("webhooks.EmailNotice", "mail"),
        ),
    ),
    ("Audit", (("tenants.AuditEvent", "history"),)),
)
_ALL_PAGES: Final = {"title": "All pages", "icon": "list"}


def navigation(request: HttpRequest) -> list[dict[str, Any]]:
    """Return the pages that the operator may see, in groups."""
    groups = [("Dashboards", _dashboards(request))]
    groups += [(title, _links(request, models)) for title, models in _GROUPS]
    groups.append(("", [_ALL_PAGES | {"link": reverse("admin:all-pages")}]))
    return [{"title": title, "separator": True, "items": links} for title, links in groups if links]


def linked_models() -> set[str]:
    """Return the labels of all models in the sidebar, e.g. `tenants.Tenant`."""
    return {label for _, models in _GROUPS for label, _ in models}


def _dashboards(request: HttpRequest) -> list[dict[str, Any]]:
    return [
        {"title": each.title, "icon": each.icon, "link": each.address}
        for each in DASHBOARDS
        if each.is_open_to(request)
    ]


def _links(request: HttpRequest, models: tuple[tuple[str, str], ...]) -> list[dict[str, Any]]:
    links = []
    for label, icon in models:
        model = apps.get_model(label)
        options = model._meta
        may = (f"{options.app_label}.{verb}_{options.model_name}" for verb in ("view", "change"))
        if any(map(request.user.has_perm, may)):
            title = str(options.verbose_name_plural)
            links.append(
                {
                    "title": title[0].upper() + title[1:],
                    "icon": icon,
                    "link": list_address(model),
                }
            )
    return links
