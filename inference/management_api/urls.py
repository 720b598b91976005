"""The addresses of the management API, below /api/v1/. The same without and with what is not there:
whatever is no address answers as an id that does not exist."""

from django.urls import path, re_path
from rest_framework.routers import SimpleRouter

from inference.management_api.resources.api_keys import (
    ApiKeysView,
    OneApiKeyView,
    RevokeView,
    RotateView,
)
from inference.management_api.resources.audit_events import AuditEventsView
from inference.management_api.resources.balance_alert import BalanceAlertView
from inference.management_api.resources.invoices import (
    InvoiceCsvView,
    InvoicePdfView,
    InvoicesView,
    LineUsageCsvView,
    LineUsageView,
    OneInvoiceView,
)
from inference.management_api.resources.ledger import (
    BalanceView,
    OneTransactionView,
    TransactionsView,
)
from inference.management_api.resources.me import MeView
from inference.management_api.resources.members import MembersView, OneMemberView
from inference.management_api.resources.payment_events import StripeEventsView
from inference.management_api.resources.projects import ProjectViewSet
from inference.management_api.resources.quotas import OneQuotaView, QuotaAlertsView, QuotasView
from inference.management_api.resources.served_models import ModelsView
from inference.management_api.resources.session import SessionView
from inference.management_api.resources.tenants import OneTenantView, TenantsView
from inference.management_api.resources.tier import TierView
from inference.management_api.resources.usage import (
    AnyTenantsCostsView,
    AnyTenantsUsageView,
    CostsView,
    UsageView,
)
from inference.management_api.resources.webhooks import (
    DeliveriesView,
    EndpointsView,
    OneDeliveryView,
    OneEndpointView,
    RedeliverView,
    RotateSecretView,
    SendTestView,
)
from inference.management_api.view import Unknown

_TENANT = "tenants/<uuid:tenant_id>"
_ENDPOINT = f"{_TENANT}/webhooks/<uuid:endpoint_id>"
_DELIVERY = f"{_ENDPOINT}/deliveries/<uuid:delivery_id>"
_INVOICE = f"{_TENANT}/invoices/<uuid:invoice_id>"

router = SimpleRouter(trailing_slash=False, use_regex_path=False)
router.register(f"{_TENANT}/projects", ProjectViewSet, basename="project")

urlpatterns = [
    *router.urls,
    path("session", SessionView.as_view()),
    path("me", MeView.as_view()),
    path("usage", AnyTenantsUsageView.as_view()),
    path("costs", AnyTenantsCostsView.as_view()),
    path("tenants", TenantsView.as_view()),
    path(_TENANT, OneTenantView.as_view()),
    path(f"{_TENANT}/keys", ApiKeysView.as_view()),
    path(f"{_TENANT}/keys/<uuid:key_id>", OneApiKeyView.as_view()),
    path(f"{_TENANT}/keys/<uuid:key_id>/rotate", RotateView.as_view()),
    path(f"{_TENANT}/keys/<uuid:key_id>/revoke", RevokeView.as_view()),
    path(f"{_TENANT}/members", MembersView.as_view()),
    path(f"{_TENANT}/members/<uuid:member_id>", OneMemberView.as_view()),
    path(f"{_TENANT}/quotas", QuotasView.as_view()),
    path(f"{_TENANT}/quotas/<uuid:quota_id>", OneQuotaView.as_view()),
    path(f"{_TENANT}/quota-alerts", QuotaAlertsView.as_view()),
    path(f"{_TENANT}/usage", UsageView.as_view()),
    path(f"{_TENANT}/costs", CostsView.as_view()),
    path(f"{_TENANT}/balance", BalanceView.as_view()),
    path(f"{_TENANT}/transactions", TransactionsView.as_view()),
    path(f"{_TENANT}/transactions/<uuid:transaction_id>", OneTransactionView.as_view()),
    path(f"{_TENANT}/invoices", InvoicesView.as_view()),
    path(_INVOICE, OneInvoiceView.as_view()),
    path(f"{_INVOICE}.pdf", InvoicePdfView.as_view()),
    path(f"{_INVOICE}.csv", InvoiceCsvView.as_view()),
    path(f"{_INVOICE}/lines/<uuid:line_id>/usage", LineUsageView.as_view()),
    path(f"{_INVOICE}/lines/<uuid:line_id>/usage.csv", LineUsageCsvView.as_view()),
    path(f"{_TENANT}/tier", TierView.as_view()),
    path(f"{_TENANT}/models", ModelsView.as_view()),
    path(f"{_TENANT}/audit", AuditEventsView.as_view()),
    path(f"{_TENANT}/balance-alert", BalanceAlertView.as_view()),
    path(f"{_TENANT}/webhooks", EndpointsView.as_view()),
    path(_ENDPOINT, OneEndpointView.as_view()),
    path(f"{_ENDPOINT}/rotate", RotateSecretView.as_view()),
    path(f"{_ENDPOINT}/test", SendTestView.as_view()),
    path(f"{_ENDPOINT}/deliveries", DeliveriesView.as_view()),
    path(_DELIVERY, OneDeliveryView.as_view()),
    path(f"{_DELIVERY}/redeliver", RedeliverView.as_view()),
    path("payments/stripe", StripeEventsView.as_view()),
    re_path(r"", Unknown.as_view()),
]
