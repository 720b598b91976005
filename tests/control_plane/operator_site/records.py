"""What operators find: Acme, a record of every model, colleagues with fewer rights; and what their
pages refuse."""

import uuid
from datetime import UTC, datetime
from typing import Any

from django.contrib import messages
from django.contrib.auth.models import Permission
from django.test import Client

from gpu_workers.protocol.request_id import new_request_id
from inference.models import (
    DeadLetter,
    Pool,
    PoolTenant,
    ServedModel,
    UsageQuarantine,
    UsageRecord,
    WastedAttempt,
    Worker,
)
from tenants.access.api_keys import issue_api_key
from tenants.access.default_tiers import ensure_default_tiers
from tenants.billing.invoicing.sla_credits import ensure_default_steps
from tenants.billing.ledger import credit
from tenants.billing.models import Payment, PaymentReversal, Price, ProviderEvent
from tenants.isolation.scoping import operator_scope
from tenants.models import (
    Invitation,
    MailDomain,
    Membership,
    PolicyVersion,
    Project,
    Quota,
    QuotaAlert,
    Tenant,
    Tier,
    User,
)
from tests.support.adapters.records import a_ready_version, an_adapter
from tests.support.two_tenants import issued_line

NOW = datetime(2026, 1, 2, tzinfo=UTC)


def make_acme() -> Project:
    with operator_scope("test"):
        ensure_default_tiers()
        tenant = Tenant.objects.create(name="Acme", tier=Tier.objects.get(name="premium"))
        return Project.objects.create(tenant=tenant)


def make_one_of_each(acme: Project) -> None:
    with operator_scope("test"):
        key = issue_api_key(acme, name="staging").record
        # Made by a commit otherwise, which this test never does.
        PolicyVersion.objects.get_or_create(id=1)
        pool = Pool.objects.create(name="demo")
        model = ServedModel.objects.create(name="demo", pool=pool, context_tokens=1)
        model.tenants.add(acme.tenant)
        PoolTenant.objects.create(pool=pool, tenant=acme.tenant)
        a_ready_version(an_adapter(acme.tenant, model="demo"))
        alice = User.objects.create_user("alice@acme.example", "correct horse battery")
        Membership.objects.create(tenant=acme.tenant, user=alice, role="owner")
        Invitation.objects.create(
            tenant=acme.tenant, email="new@acme.example", role="viewer", digest=b"1", expires_at=NOW
        )
        MailDomain.objects.create(tenant=acme.tenant, domain="acme.example")
        quota = Quota.objects.create(tenant=acme.tenant, limit="tokens_per_day", value=1)
        QuotaAlert.objects.create(
            tenant=acme.tenant, quota=quota, period="2026-01", percent=50, used=1
        )
        Price.objects.create(
            model="demo",
            prompt_micros_per_million_tokens=1,
            cached_micros_per_million_tokens=1,
            completion_micros_per_million_tokens=1,
        )
        credit.top_up(acme.tenant_id, 10**9, reference="payment 1")
        UsageQuarantine.objects.create(pool="demo", stream_id="1-1", entry=b"\xff", reason="bytes")
        UsageRecord.objects.create(
            request_id=new_request_id(), tenant=acme.tenant, project=acme, api_key=key,
            tier="premium", pool="demo", model="demo", api="completions", stream=True, attempt=1,
            outcome="completed", prompt_tokens=1, cached_tokens=0, completion_tokens=2,
            arrived_at=NOW, finished_at=NOW,
        )  # fmt: skip
        WastedAttempt.objects.create(
            request_id=new_request_id(), attempt=1, tenant=acme.tenant, project=acme, api_key=key,
            tier="premium", pool="demo", model="demo", completion_tokens=5, reason="preempted",
            ended_at=NOW,
        )  # fmt: skip
        DeadLetter.objects.create(
            request_id=uuid.uuid4(), pool="demo", model="demo", api="completions", attempts=3,
            died_at=NOW, is_kept=True,
        )  # fmt: skip
        line = issued_line(acme, "demo", "premium")
        payment = Payment.objects.create(
            tenant=acme.tenant, invoice=line.invoice, amount_nanos=1, provider="manual",
            reference="BANK-1", received_at=NOW,
        )  # fmt: skip
        PaymentReversal.objects.create(
            tenant=acme.tenant,
            payment=payment,
            amount_nanos=1,
            reference="re_1",
            status="succeeded",
        )
        ProviderEvent.objects.create(provider="stripe", event_id="evt_1", verdict="forged", body="")
        ensure_default_steps()
        Worker.objects.create(
            worker_id="w#1", name="w", pool="demo", model="demo", engine="sim", engine_version="1",
            state="ready", slots=1, running=0, waiting_in_engine=0, context_tokens=1,
            kv_cache_tokens=1, host="h", pid=1, started_at=NOW, last_seen_at=NOW,
        )  # fmt: skip


def somebody_who_may(*codenames: str) -> User:
    user = User.objects.create_user("aide@example.org", "correct horse battery", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=codenames))
    return user


def wrong_fields(client: Client, page: str, form: dict[str, Any]) -> set[str]:
    """The fields that the page complains of; none where it took the form."""
    answer = client.post(page, form)
    if answer.context is None or "adminform" not in answer.context:
        return set()
    return set(answer.context["adminform"].form.errors)


def refusals(answer: Any) -> list[str]:
    """What the page that follows a refused action says on its red lines."""
    return [str(each) for each in answer.context["messages"] if each.level == messages.ERROR]
