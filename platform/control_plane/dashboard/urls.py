"""Addresses of the pages. A tenant's begin with its id, which every page checks first."""

from django.urls import path

from control_plane.dashboard.components import components
from control_plane.dashboard.impersonation import end_impersonation
from control_plane.dashboard.pages.adapters.adapters import (
    AdapterPage,
    AdaptersPage,
    AdapterVersionPage,
)
from control_plane.dashboard.pages.adapters.deletion import (
    ArchiveVersionPage,
    DeleteAdapterPage,
    DeleteVersionPage,
)
from control_plane.dashboard.pages.adapters.new import NewAdapterPage, NewVersionPage
from control_plane.dashboard.pages.adapters.pins import PinPage, UnpinPage
from control_plane.dashboard.pages.adapters.traffic import PromotePage, TrafficPage
from control_plane.dashboard.pages.adapters.uploading import (
    AddPartPage,
    BeginUploadPage,
    CompleteUploadPage,
)
from control_plane.dashboard.pages.billing.balance import (
    BillingOverviewPage,
    TransactionPage,
    TransactionsPage,
)
from control_plane.dashboard.pages.billing.invoices import (
    InvoiceCsv,
    InvoicePage,
    InvoicePdf,
    InvoicesPage,
)
from control_plane.dashboard.pages.invitations import InvitePage, ResendPage, WithdrawPage
from control_plane.dashboard.pages.key_revocation import RevokeKeyPage, RotateKeyPage
from control_plane.dashboard.pages.keys import KeyPage, KeysPage, NewKeyPage
from control_plane.dashboard.pages.limits import (
    BalanceAlertPage,
    LimitPage,
    LimitsPage,
    NewLimitPage,
    RemoveLimitPage,
)
from control_plane.dashboard.pages.members import MemberPage, MembersPage, RemoveMemberPage
from control_plane.dashboard.pages.membership import LeavePage, TransferPage
from control_plane.dashboard.pages.models import ModelsPage
from control_plane.dashboard.pages.organisation.audit_log import (
    AuditCsv,
    AuditEventPage,
    AuditPage,
)
from control_plane.dashboard.pages.organisation.closing import ClosePage
from control_plane.dashboard.pages.organisation.export import ExportPage
from control_plane.dashboard.pages.organisation.settings import SettingsPage
from control_plane.dashboard.pages.organisations import organisations
from control_plane.dashboard.pages.overview.now import NowPage
from control_plane.dashboard.pages.overview.page import OverviewPage
from control_plane.dashboard.pages.playground.page import PlaygroundPage, TicketPage
from control_plane.dashboard.pages.projects import NewProjectPage, ProjectPage, ProjectsPage
from control_plane.dashboard.pages.refusals.refusals import RefusalsCsv, RefusalsPage
from control_plane.dashboard.pages.requests import RequestPage, RequestsCsv, RequestsPage
from control_plane.dashboard.pages.sign_on import (
    DemandsPage,
    DomainsPage,
    RemoveDomainPage,
    RemoveProviderPage,
    SignOnPage,
    VerifyDomainPage,
)
from control_plane.dashboard.pages.usage.labels import LabelsCsv, LabelsPage
from control_plane.dashboard.pages.usage.page import UsageCsv, UsagePage
from control_plane.dashboard.pages.usage.views import DeleteViewPage
from control_plane.dashboard.pages.webhooks.deliveries import (
    DeliveryPage,
    RedeliverPage,
    WebhookPage,
)
from control_plane.dashboard.pages.webhooks.endpoints import (
    DeleteWebhookPage,
    NewWebhookPage,
    RotateWebhookPage,
    WebhookSettingsPage,
    WebhooksPage,
    WebhookSwitchPage,
    WebhookTestPage,
)

app_name = "dashboard"

_TENANT = "t/<uuid:tenant_id>/"
_ADAPTER = f"{_TENANT}adapters/<uuid:adapter_id>"
_VERSION = f"{_ADAPTER}/versions/<uuid:version_id>"
_PENDING = f"{_TENANT}adapters/uploads/<uuid:pending_id>"
_INVOICE = f"{_TENANT}billing/invoices/<uuid:invoice_id>"
_WEBHOOK = f"{_TENANT}webhooks/<uuid:endpoint_id>"
_DELIVERY = f"{_WEBHOOK}/deliveries/<uuid:delivery_id>"
_MEMBER = f"{_TENANT}members/<uuid:member_id>"
_INVITATION = f"{_TENANT}invitations/<uuid:invitation_id>"
_SIGN_ON = f"{_TENANT}sign-on"
_DOMAIN = f"{_SIGN_ON}/domains/<uuid:mail_domain_id>"

urlpatterns = [
    path("t/", organisations, name="organisations"),
    path(_TENANT, OverviewPage.as_view(), name="overview"),
    path(f"{_TENANT}now", NowPage.as_view(), name="now"),
    path(f"{_TENANT}projects", ProjectsPage.as_view(), name="projects"),
    path(f"{_TENANT}projects/new", NewProjectPage.as_view(), name="new-project"),
    path(f"{_TENANT}projects/<uuid:project_id>", ProjectPage.as_view(), name="project"),
    path(f"{_TENANT}keys", KeysPage.as_view(), name="keys"),
    path(f"{_TENANT}keys/new", NewKeyPage.as_view(), name="new-key"),
    path(f"{_TENANT}keys/<uuid:key_id>", KeyPage.as_view(), name="key"),
    path(f"{_TENANT}keys/<uuid:key_id>/rotate", RotateKeyPage.as_view(), name="rotate-key"),
    path(f"{_TENANT}keys/<uuid:key_id>/revoke", RevokeKeyPage.as_view(), name="revoke-key"),
    path(f"{_TENANT}playground", PlaygroundPage.as_view(), name="playground"),
    path(f"{_TENANT}playground/tickets", TicketPage.as_view(), name="playground-tickets"),
    path(f"{_TENANT}models", ModelsPage.as_view(), name="models"),
    path(f"{_TENANT}usage", UsagePage.as_view(), name="usage"),
    path(
        f"{_TENANT}usage/views/<uuid:view_id>/delete",
        DeleteViewPage.as_view(),
        name="delete-view",
    ),
    path(f"{_TENANT}usage/labels", LabelsPage.as_view(), name="labels"),
    path(f"{_TENANT}usage/labels.csv", LabelsCsv.as_view(), name="labels-csv"),
    path(f"{_TENANT}usage.csv", UsageCsv.as_view(), name="usage-csv"),
    path(f"{_TENANT}limits", LimitsPage.as_view(), name="limits"),
    path(f"{_TENANT}limits/new", NewLimitPage.as_view(), name="new-limit"),
    path(f"{_TENANT}limits/new-budget", NewLimitPage.as_view(is_budget=True), name="new-budget"),
    path(f"{_TENANT}limits/balance-alert", BalanceAlertPage.as_view(), name="balance-alert"),
    path(f"{_TENANT}limits/<uuid:quota_id>", LimitPage.as_view(), name="limit"),
    path(f"{_TENANT}limits/<uuid:quota_id>/remove", RemoveLimitPage.as_view(), name="remove-limit"),
    path(f"{_TENANT}refusals", RefusalsPage.as_view(), name="refusals"),
    path(f"{_TENANT}refusals/export.csv", RefusalsCsv.as_view(), name="refusals-csv"),
    path(f"{_TENANT}adapters", AdaptersPage.as_view(), name="adapters"),
    path(f"{_TENANT}adapters/new", NewAdapterPage.as_view(), name="new-adapter"),
    path(f"{_TENANT}adapters/uploads", BeginUploadPage.as_view(), name="begin-upload"),
    path(f"{_PENDING}/parts", AddPartPage.as_view(), name="upload-part"),
    path(f"{_PENDING}/complete", CompleteUploadPage.as_view(), name="complete-upload"),
    path(_ADAPTER, AdapterPage.as_view(), name="adapter"),
    path(f"{_ADAPTER}/traffic", TrafficPage.as_view(), name="adapter-traffic"),
    path(f"{_ADAPTER}/pin", PinPage.as_view(), name="pin-adapter"),
    path(f"{_ADAPTER}/unpin", UnpinPage.as_view(), name="unpin-adapter"),
    path(f"{_ADAPTER}/delete", DeleteAdapterPage.as_view(), name="delete-adapter"),
    path(f"{_ADAPTER}/versions/new", NewVersionPage.as_view(), name="new-version"),
    path(_VERSION, AdapterVersionPage.as_view(), name="adapter-version"),
    path(f"{_VERSION}/promote", PromotePage.as_view(), name="promote-version"),
    path(f"{_VERSION}/archive", ArchiveVersionPage.as_view(), name="archive-version"),
    path(f"{_VERSION}/delete", DeleteVersionPage.as_view(), name="delete-version"),
    path(f"{_TENANT}requests", RequestsPage.as_view(), name="requests"),
    path(f"{_TENANT}requests/export.csv", RequestsCsv.as_view(), name="requests-csv"),
    path(f"{_TENANT}requests/<uuid:request_id>", RequestPage.as_view(), name="request"),
    path(f"{_TENANT}members", MembersPage.as_view(), name="members"),
    path(f"{_TENANT}billing", BillingOverviewPage.as_view(), name="billing"),
    path(f"{_TENANT}billing/transactions", TransactionsPage.as_view(), name="transactions"),
    path(
        f"{_TENANT}billing/transactions/<uuid:transaction_id>",
        TransactionPage.as_view(),
        name="transaction",
    ),
    path(f"{_TENANT}billing/invoices", InvoicesPage.as_view(), name="invoices"),
    path(_INVOICE, InvoicePage.as_view(), name="invoice"),
    path(f"{_INVOICE}.pdf", InvoicePdf.as_view(), name="invoice-pdf"),
    path(f"{_INVOICE}.csv", InvoiceCsv.as_view(), name="invoice-csv"),
    path(f"{_TENANT}webhooks", WebhooksPage.as_view(), name="webhooks"),
    path(f"{_TENANT}webhooks/new", NewWebhookPage.as_view(), name="new-webhook"),
    path(_WEBHOOK, WebhookPage.as_view(), name="webhook"),
    path(f"{_WEBHOOK}/change", WebhookSettingsPage.as_view(), name="change-webhook"),
    path(f"{_WEBHOOK}/rotate", RotateWebhookPage.as_view(), name="rotate-webhook"),
    path(f"{_WEBHOOK}/enable", WebhookSwitchPage.as_view(enables=True), name="enable-webhook"),
    path(f"{_WEBHOOK}/disable", WebhookSwitchPage.as_view(), name="disable-webhook"),
    path(f"{_WEBHOOK}/test", WebhookTestPage.as_view(), name="test-webhook"),
    path(f"{_WEBHOOK}/delete", DeleteWebhookPage.as_view(), name="delete-webhook"),
    path(_DELIVERY, DeliveryPage.as_view(), name="delivery"),
    path(f"{_DELIVERY}/redeliver", RedeliverPage.as_view(), name="redeliver"),
    path(f"{_TENANT}audit", AuditPage.as_view(), name="audit"),
    path(f"{_TENANT}audit/export.csv", AuditCsv.as_view(), name="audit-csv"),
    path(f"{_TENANT}audit/<uuid:event_id>", AuditEventPage.as_view(), name="audit-event"),
    path(f"{_TENANT}settings", SettingsPage.as_view(), name="settings"),
    path(f"{_TENANT}settings/export", ExportPage.as_view(), name="export"),
    path(f"{_TENANT}settings/close", ClosePage.as_view(), name="close"),
    path(f"{_TENANT}members/invite", InvitePage.as_view(), name="invite"),
    path(_MEMBER, MemberPage.as_view(), name="member"),
    path(f"{_MEMBER}/remove", RemoveMemberPage.as_view(), name="remove-member"),
    path(f"{_MEMBER}/transfer", TransferPage.as_view(), name="transfer"),
    path(f"{_INVITATION}/resend", ResendPage.as_view(), name="resend-invitation"),
    path(f"{_INVITATION}/withdraw", WithdrawPage.as_view(), name="withdraw-invitation"),
    path(f"{_TENANT}leave", LeavePage.as_view(), name="leave"),
    path(_SIGN_ON, SignOnPage.as_view(), name="sign-on"),
    path(f"{_SIGN_ON}/demands", DemandsPage.as_view(), name="sign-on-demands"),
    path(f"{_SIGN_ON}/remove", RemoveProviderPage.as_view(), name="sign-on-remove"),
    path(f"{_SIGN_ON}/domains", DomainsPage.as_view(), name="sign-on-domains"),
    path(f"{_DOMAIN}/verify", VerifyDomainPage.as_view(), name="sign-on-domain-verify"),
    path(f"{_DOMAIN}/remove", RemoveDomainPage.as_view(), name="sign-on-domain-remove"),
    path("operators/end-acting", end_impersonation, name="end-acting"),
    path("operators/components", components, name="components"),
]
