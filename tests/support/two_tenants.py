"""Acme and Globex with one of everything, by each other's side in one database.

All that is Globex's bears a canary in its name: no answer to Acme may hold it.
"""

import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from typing import Any

from django.contrib.auth.hashers import make_password

from gpu_workers.protocol.request_id import new_request_id
from inference.adapters.lifecycle import add_adapter
from inference.models import (
    AdapterVersion,
    Pool,
    PoolTenant,
    ServedModel,
    ServedModelTenant,
    Upload,
    UsageRecord,
)
from inference.models.upload import LIFETIME as UPLOAD_LIFETIME
from inference.models.upload import UploadPurpose
from inference.usage.rollups import Use, add_to_rollups
from tenants.access.api_keys import issue_api_key
from tenants.access.default_tiers import ensure_default_tiers
from tenants.access.invitations.links import digest_of
from tenants.billing.invoicing import invoices
from tenants.billing.ledger.credit import top_up
from tenants.billing.ledger.posting import UsageCharge, post_usage
from tenants.billing.models import Invoice, InvoiceLine, LedgerTransaction, LineKind, Price, Seller
from tenants.isolation.scoping import operator_scope
from tenants.models import (
    ApiKey,
    AuditEvent,
    Invitation,
    MailDomain,
    Membership,
    Project,
    Quota,
    QuotaAlert,
    SavedView,
    Tenant,
    Tier,
    User,
)
from tenants.models.invitation import LIFETIME
from tenants.money import whole_cents
from tenants.permissions import Role
from tenants.webhooks.endpoints import add_endpoint, send_test
from tenants.webhooks.models import Delivery, Endpoint
from tests.support.adapters.records import a_ready_version
from tests.support.refused.on_record import notice_of, of_key, refuse

CANARY = "zeppelin"
PASSWORD = "correct horse battery"
COST_NANOS = 1_234_567_891
DAY = datetime(2026, 1, 2, 12, tzinfo=UTC)


@dataclass(frozen=True, kw_only=True)
class House:
    """One tenant with its people, by role, and a project, a key, a model, a quota, a webhook, an
    upload, a request on record and somebody who is invited."""

    tenant: Tenant
    project: Project
    key: ApiKey
    people: dict[str, User] = field(repr=False)
    members: dict[str, Membership] = field(repr=False)
    invitation: Invitation
    quota: Quota
    model: ServedModel
    transaction: LedgerTransaction
    endpoint: Endpoint
    delivery: Delivery
    invoice: Invoice
    line: InvoiceLine
    mail_domain: MailDomain
    adapter_version: AdapterVersion
    upload: Upload
    usage: UsageRecord
    view: SavedView

    @property
    def ids(self) -> dict[str, uuid.UUID]:
        """What of it stands in addresses of pages."""
        with operator_scope("test"):
            event = AuditEvent.objects.filter(tenant=self.tenant).latest("sequence")
        return {
            "tenant_id": self.tenant.id,
            "project_id": self.project.id,
            "key_id": self.key.id,
            "quota_id": self.quota.id,
            "transaction_id": self.transaction.id,
            "invoice_id": self.invoice.id,
            "endpoint_id": self.endpoint.id,
            "delivery_id": self.delivery.id,
            "event_id": event.id,
            "member_id": self.members["developer"].id,
            "invitation_id": self.invitation.id,
            "mail_domain_id": self.mail_domain.id,
            "adapter_id": self.adapter_version.adapter_id,
            "version_id": self.adapter_version.id,
            "pending_id": self.upload.id,
            "request_id": self.usage.request_id,
            "view_id": self.view.id,
        }

    def issue(self, **fields: Any) -> str:
        """A key of its project."""
        with operator_scope("test"):
            return issue_api_key(self.project, **fields).key


@dataclass(frozen=True, kw_only=True)
class TwoTenants:
    acme: House
    globex: House


def two_tenants() -> TwoTenants:
    with operator_scope("test"):
        ensure_default_tiers()
        public = Pool.objects.create(name="public-pool")
        ServedModel.objects.create(name="public-model", pool=public, context_tokens=2048)
        return TwoTenants(
            acme=_house("Acme", "premium", "acme"),
            globex=_house(f"Globex {CANARY}", "free", CANARY),
        )


def _house(name: str, tier: str, word: str) -> House:
    tenant = Tenant.objects.create(name=name, tier=Tier.objects.get(name=tier))
    project = Project.objects.create(tenant=tenant, name=f"{word} project")
    key = issue_api_key(project, name=f"{word} key").record
    people, members = {}, {}
    for role in Role:
        user = User.objects.create(
            email=f"{role}@{word}.example", name=f"{word} {role}", password=_hashed()
        )
        people[role.value] = user
        members[role.value] = Membership.objects.create(tenant=tenant, user=user, role=role)
    invitation = Invitation.objects.create(
        tenant=tenant,
        email=f"invited@{word}.example",
        role=Role.VIEWER,
        invited_by=people["admin"],
        digest=digest_of(f"{word} invitation"),
        expires_at=datetime.now(UTC) + LIFETIME,
    )
    pool = Pool.objects.create(name=f"{word}-pool")
    PoolTenant.objects.create(pool=pool, tenant=tenant)
    model = ServedModel.objects.create(name=f"{word}-model", pool=pool, context_tokens=2048)
    ServedModelTenant.objects.create(model=model, tenant=tenant)
    Price.objects.create(
        model=model.name,
        prompt_micros_per_million_tokens=1,
        cached_micros_per_million_tokens=1,
        completion_micros_per_million_tokens=1,
    )
    quota = Quota.objects.create(tenant=tenant, project=project, limit="tokens_per_day", value=1000)
    Quota.objects.create(tenant=tenant, limit="spend_per_month", value=10**9)
    QuotaAlert.objects.create(tenant=tenant, quota=quota, period="2026-01-02", percent=50, used=501)
    usage = UsageRecord.objects.create(
        request_id=uuid.UUID(new_request_id(int(DAY.timestamp() * 1000))), tenant=tenant,
        project=project,
        api_key=key, tier=tier, pool=pool.name, model=model.name, api="completions", stream=True,
        attempt=1, outcome="completed", prompt_tokens=3, cached_tokens=1, completion_tokens=4,
        arrived_at=DAY, finished_at=DAY, adapter=f"{word}-adapter", cost_nanos=COST_NANOS,
    )  # fmt: skip
    endpoint = add_endpoint(
        tenant, url=f"https://93.184.216.34/{word}", description=f"{word} hook"
    ).endpoint
    add_to_rollups(
        [
            Use(
                tenant_id=str(tenant.id),
                project_id=str(project.id),
                api_key_id=str(key.id),
                model=model.name,
                adapter=f"{word}-adapter",
                tier=tier,
                pool=pool.name,
                service_class="interactive",
                arrived_ms=int(DAY.timestamp() * 1000),
                outcome="completed",
                prompt_tokens=3,
                cached_tokens=1,
                completion_tokens=4,
                cost_nanos=COST_NANOS,
                ttft_ms=20,
                duration_ms=400,
            )
        ]
    )
    charge = UsageCharge(
        tenant_id=tenant.id, model=model.name, day=DAY.date(), nanos=COST_NANOS, requests=1
    )
    post_usage([charge], batch_id=uuid.uuid4())
    told: dict[str, Any] = {"model": model.name, "code": f"{word}_code"}
    refuse(of_key(key, DAY, **told), notice_of(key, DAY, message=f"{word} sentence", **told))
    booked = top_up(tenant.id, 10**9, reference=f"{word} payment")
    line = issued_line(project, model.name, tier, f"{word}-adapter")
    return House(
        tenant=tenant,
        project=project,
        key=key,
        people=people,
        members=members,
        invitation=invitation,
        quota=quota,
        model=model,
        transaction=booked,
        endpoint=endpoint,
        delivery=send_test(endpoint),
        invoice=line.invoice,
        line=line,
        mail_domain=MailDomain.objects.create(tenant=tenant, domain=f"mail.{word}.example"),
        adapter_version=_second_version(tenant, f"{word}-adapter", model.name),
        upload=Upload.objects.create(
            tenant=tenant,
            filename=f"{word}.zip",
            mime_type="application/zip",
            purpose=UploadPurpose.ADAPTER,
            size_bytes=5,
            expires_at=datetime.now(UTC) + UPLOAD_LIFETIME,
        ),
        usage=usage,
        view=SavedView.objects.add(tenant, None, name=f"{word} view", query="by=model"),
    )


def _second_version(tenant: Tenant, slug: str, model: str) -> AdapterVersion:
    """Ready, beside the first, which has the traffic."""
    adapter = add_adapter(tenant, slug=slug, model=model)
    a_ready_version(adapter)
    return a_ready_version(adapter)


def issued_line(project: Project, model: str, tier: str, adapter: str = "") -> InvoiceLine:
    """The only one of an issued invoice of January: what the project used."""
    seller, _ = Seller.objects.get_or_create(name="Penstock Ltd", address="Leeds")
    invoice = Invoice.objects.create(
        tenant=project.tenant,
        seller=seller,
        period=DAY.date().replace(day=1),
        usage_until=datetime.now(UTC),
        buyer_name=project.tenant.name,
        charges_nanos=COST_NANOS,
        due_nanos=COST_NANOS,
        payable_nanos=whole_cents(COST_NANOS),
        carried_nanos=COST_NANOS - whole_cents(COST_NANOS),
    )
    line = InvoiceLine.objects.create(
        tenant=project.tenant,
        invoice=invoice,
        position=1,
        kind=LineKind.USAGE,
        period=invoice.period,
        project_id=project.id,
        project_name=project.name,
        model=model,
        tier=tier,
        adapter=adapter,
        requests=1,
        amount_nanos=COST_NANOS,
    )
    line.invoice = invoices.issue(invoice.id)
    return line


@cache
def _hashed() -> str:
    """Hashing takes a third of a second, and is the same for all."""
    return make_password(PASSWORD)
