"""The addresses of the management API, below /api/v1/. The same without and with what is not there:
whatever is no address answers as an id that does not exist."""

from typing import Any

from django.urls import path, re_path
from rest_framework.routers import SimpleRouter

from control_plane.management_api.adapters.viewsets import AdapterVersionViewSet, AdapterViewSet
from control_plane.management_api.errors import nothing_here
from control_plane.management_api.openapi.viewset import SchemaViewSet
from control_plane.management_api.renderers import CsvRenderer, PdfRenderer
from control_plane.management_api.resources.api_keys import ApiKeyViewSet
from control_plane.management_api.resources.audit_events import AuditEventViewSet
from control_plane.management_api.resources.balance_alert import BalanceAlertViewSet
from control_plane.management_api.resources.invitations import AcceptanceViewSet, InvitationViewSet
from control_plane.management_api.resources.invoices import InvoiceViewSet, LineUsageViewSet
from control_plane.management_api.resources.ledger import BalanceViewSet, TransactionViewSet
from control_plane.management_api.resources.me import MeViewSet
from control_plane.management_api.resources.members import (
    MemberViewSet,
    OwnMembershipViewSet,
    TransferViewSet,
)
from control_plane.management_api.resources.offboarding import ClosingViewSet, ExportViewSet
from control_plane.management_api.resources.own_sessions import OwnSessionViewSet
from control_plane.management_api.resources.payment_events import StripeEventViewSet
from control_plane.management_api.resources.projects import ProjectViewSet
from control_plane.management_api.resources.quotas import QuotaAlertViewSet, QuotaViewSet
from control_plane.management_api.resources.served_models import ServedModelViewSet
from control_plane.management_api.resources.session import SessionViewSet
from control_plane.management_api.resources.sign_on import MailDomainViewSet, SignOnViewSet
from control_plane.management_api.resources.tenants import OneTenantViewSet, TenantsViewSet
from control_plane.management_api.resources.tier import TierViewSet
from control_plane.management_api.resources.webhooks import DeliveryViewSet, EndpointViewSet
from control_plane.management_api.usage.labels import LabelUsageViewSet
from control_plane.management_api.usage.metrics import TenantMetricsViewSet
from control_plane.management_api.usage.refusals import NewestRefusalsViewSet, RefusalsViewSet
from control_plane.management_api.usage.reports import (
    AnyTenantsCostsViewSet,
    AnyTenantsErrorsViewSet,
    AnyTenantsUsageViewSet,
    CostsViewSet,
    ErrorsViewSet,
    UsageViewSet,
)
from control_plane.management_api.usage.requests import RequestViewSet

_TENANT = "tenants/<uuid:tenant_id>"
_DELIVERIES = f"{_TENANT}/webhooks/<uuid:endpoint_id>/deliveries"
_VERSIONS = f"{_TENANT}/adapters/<uuid:adapter_id>/versions"
_INVOICE = f"{_TENANT}/invoices/<uuid:invoice_id>"
_LINE_USAGE = f"{_INVOICE}/lines/<uuid:line_id>/usage"

# Things of which there are many.
router = SimpleRouter(trailing_slash=False, use_regex_path=False)
router.register("tenants", TenantsViewSet, basename="tenant")
router.register(f"{_TENANT}/projects", ProjectViewSet, basename="project")
router.register(f"{_TENANT}/keys", ApiKeyViewSet, basename="key")
router.register(f"{_TENANT}/members", MemberViewSet, basename="member")
router.register(f"{_TENANT}/invitations", InvitationViewSet, basename="invitation")
router.register(f"{_TENANT}/quotas", QuotaViewSet, basename="quota")
router.register(f"{_TENANT}/quota-alerts", QuotaAlertViewSet, basename="quota-alert")
router.register(f"{_TENANT}/usage", UsageViewSet, basename="tenant-usage")
router.register(f"{_TENANT}/usage/labels", LabelUsageViewSet, basename="tenant-label-usage")
router.register(f"{_TENANT}/costs", CostsViewSet, basename="tenant-cost")
router.register(f"{_TENANT}/refusals", RefusalsViewSet, basename="refusal")
router.register(f"{_TENANT}/refusals/newest", NewestRefusalsViewSet, basename="newest-refusal")
router.register(f"{_TENANT}/requests", RequestViewSet, basename="request")
router.register(f"{_TENANT}/errors", ErrorsViewSet, basename="tenant-error")
router.register("usage", AnyTenantsUsageViewSet, basename="usage")
router.register("costs", AnyTenantsCostsViewSet, basename="cost")
router.register("errors", AnyTenantsErrorsViewSet, basename="error")
router.register(f"{_TENANT}/transactions", TransactionViewSet, basename="transaction")
router.register(f"{_TENANT}/invoices", InvoiceViewSet, basename="invoice")
router.register(_LINE_USAGE, LineUsageViewSet, basename="line-usage")
router.register(f"{_TENANT}/models", ServedModelViewSet, basename="model")
router.register(f"{_TENANT}/adapters", AdapterViewSet, basename="adapter")
router.register(_VERSIONS, AdapterVersionViewSet, basename="adapter-version")
router.register(f"{_TENANT}/audit", AuditEventViewSet, basename="audit-event")
router.register(f"{_TENANT}/mail-domains", MailDomainViewSet, basename="mail-domain")
router.register(f"{_TENANT}/webhooks", EndpointViewSet, basename="webhook")
router.register(_DELIVERIES, DeliveryViewSet, basename="delivery")

# Things of which there is one.
_Actions = dict[str, Any]
_one: _Actions = {"get": "retrieve"}
_one_to_change: _Actions = {"get": "retrieve", "patch": "partial_update"}
_one_to_remove: _Actions = {**_one_to_change, "delete": "destroy"}
_session: _Actions = {"get": "retrieve", "post": "create", "delete": "destroy"}
_sessions: _Actions = {"get": "list", "delete": "destroy_others"}
_pdf = InvoiceViewSet.as_view({"get": "pdf"}, renderer_classes=[PdfRenderer])
_csv = InvoiceViewSet.as_view({"get": "csv"}, renderer_classes=[CsvRenderer])
_schema = SchemaViewSet.as_view(_one)
_usage_csv = LineUsageViewSet.as_view({"get": "csv"}, renderer_classes=[CsvRenderer])

urlpatterns = [
    path("session", SessionViewSet.as_view(_session)),
    path("me", MeViewSet.as_view(_one)),
    path("me/sessions", OwnSessionViewSet.as_view(_sessions)),
    path("me/sessions/<int:session_id>", OwnSessionViewSet.as_view({"delete": "destroy"})),
    path(_TENANT, OneTenantViewSet.as_view(_one_to_change)),
    path(f"{_TENANT}/export", ExportViewSet.as_view({"post": "create"})),
    path(f"{_TENANT}/close", ClosingViewSet.as_view({"post": "create"})),
    path(f"{_TENANT}/membership", OwnMembershipViewSet.as_view({"delete": "destroy"})),
    path(f"{_TENANT}/transfer", TransferViewSet.as_view({"post": "create"})),
    path("invitations/accept", AcceptanceViewSet.as_view({"post": "create"})),
    path(f"{_TENANT}/sign-on", SignOnViewSet.as_view(_one_to_remove)),
    path(f"{_TENANT}/tier", TierViewSet.as_view(_one)),
    path(f"{_TENANT}/balance", BalanceViewSet.as_view(_one)),
    path(f"{_TENANT}/balance-alert", BalanceAlertViewSet.as_view(_one_to_change)),
    path(f"{_TENANT}/metrics", TenantMetricsViewSet.as_view({"get": "scrape"})),
    path(f"{_INVOICE}.pdf", _pdf),
    path(f"{_INVOICE}.csv", _csv),
    path(f"{_LINE_USAGE}.csv", _usage_csv),
    path("schema/", _schema, name="schema"),
    # The same address as people type it: described once.
    path("schema", SchemaViewSet.as_view(_one, schema=None)),
    path("payments/stripe", StripeEventViewSet.as_view({"post": "create"})),
    *router.urls,
    re_path(r"", nothing_here),
]
