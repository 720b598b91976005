"""Operators' pages, by the doors that a browser uses: each page opens its own way across the walls,
so only what these tests set up and look at stands in an `operator_scope`."""

import re
import uuid
from datetime import UTC, datetime, timedelta

import pytest
from control_plane.operator_site.sidebar import linked_models
from django.apps import apps
from django.contrib import admin
from django.contrib.auth.models import Permission
from django.forms import model_to_dict
from django.template.response import TemplateResponse
from django.test import Client
from django.urls import reverse
from redis import Redis

from gpu_workers.protocol import keys
from gpu_workers.protocol.request_id import new_request_id
from inference import tasks
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
from tenants import key_format
from tenants.access.api_keys import issue_api_key
from tenants.access.default_tiers import ensure_default_tiers
from tenants.audit.log import seal_now
from tenants.billing.invoicing.sla_credits import ensure_default_steps
from tenants.billing.ledger import credit
from tenants.billing.models import Payment, Price, ProviderEvent
from tenants.isolation.scoping import operator_scope
from tenants.models import (
    ApiKey,
    AuditEvent,
    Membership,
    PersonalDetail,
    PolicyVersion,
    Project,
    Quota,
    QuotaAlert,
    Tenant,
    Tier,
    User,
)
from tests.support.two_tenants import issued_line

pytestmark = pytest.mark.django_db
MODELS = [model for model in admin.site._registry if model._meta.app_label != "auth"]
NEW_KEY = {"name": "web", "scopes": "inference"}
NOW = datetime(2026, 1, 2, tzinfo=UTC)


@pytest.fixture
def operator(client: Client) -> Client:
    client.force_login(User.objects.create_superuser("ops@example.org", "correct horse battery"))
    return client


@pytest.fixture
def acme() -> Project:
    with operator_scope("test"):
        ensure_default_tiers()
        tenant = Tenant.objects.create(name="Acme", tier=Tier.objects.get(name="premium"))
        return Project.objects.create(tenant=tenant)


@pytest.fixture
def _one_of_each(acme: Project) -> None:
    with operator_scope("test"):
        key = issue_api_key(acme, name="staging").record
        # Made by a commit otherwise, which this test never does.
        PolicyVersion.objects.get_or_create(id=1)
        pool = Pool.objects.create(name="demo")
        model = ServedModel.objects.create(name="demo", pool=pool, context_tokens=1)
        model.tenants.add(acme.tenant)
        PoolTenant.objects.create(pool=pool, tenant=acme.tenant)
        alice = User.objects.create_user("alice@acme.example", "correct horse battery")
        Membership.objects.create(tenant=acme.tenant, user=alice, role="owner")
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
        Payment.objects.create(
            tenant=acme.tenant, invoice=line.invoice, amount_nanos=1, provider="manual",
            reference="BANK-1", received_at=NOW,
        )  # fmt: skip
        ProviderEvent.objects.create(provider="stripe", event_id="evt_1", verdict="forged", body="")
        ensure_default_steps()
        Worker.objects.create(
            worker_id="w#1", name="w", pool="demo", model="demo", engine="sim", engine_version="1",
            state="ready", slots=1, running=0, waiting_in_engine=0, context_tokens=1,
            kv_cache_tokens=1, host="h", pid=1, started_at=NOW, last_seen_at=NOW,
        )  # fmt: skip


@pytest.mark.usefixtures("_one_of_each")
@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_every_list_search_and_record_can_be_seen(operator: Client, model: type) -> None:
    options = model._meta  # type: ignore[attr-defined]
    listing = reverse(f"admin:{options.app_label}_{options.model_name}_changelist")
    assert operator.get(listing).status_code == 200
    assert operator.get(listing, {"q": "acme"}).status_code == 200
    with operator_scope("test"):
        records = list(model._default_manager.all())  # type: ignore[attr-defined]
    for record in records:
        page = reverse(f"admin:{options.app_label}_{options.model_name}_change", args=[record.pk])
        assert operator.get(page).status_code == 200


def test_somebody_who_is_no_operator_sees_nothing(client: Client) -> None:
    client.force_login(User.objects.create_user("alice@acme.example", "correct horse battery"))
    answer = client.get(reverse("admin:tenants_apikey_changelist"))
    assert answer.status_code == 302 and "/admin/login/" in answer["Location"]


def test_an_operator_signs_in_by_email_in_any_case(client: Client) -> None:
    User.objects.create_superuser("ops@example.org", "correct horse battery")
    answer = client.post(
        reverse("admin:login"), {"username": "Ops@Example.org", "password": "correct horse battery"}
    )
    assert answer.status_code == 302


def test_a_new_key_is_shown_once_and_never_again(operator: Client, acme: Project) -> None:
    answer = operator.post(reverse("admin:tenants_apikey_add"), NEW_KEY | {"project": str(acme.id)})
    assert answer.status_code == 200 and "no-store" in answer["Cache-Control"]
    match = re.search(r"pk-[a-z0-9]{16}-[a-z2-7]{32}[0-9a-f]{6}", answer.content.decode())
    assert match is not None
    with operator_scope("test"):
        record = ApiKey.objects.find(match[0])
        assert record is not None and (record.project, record.name) == (acme, "web")
    for page in (
        reverse("admin:tenants_apikey_changelist"),
        reverse("admin:tenants_apikey_change", args=[record.id]),
        reverse("admin:tenants_apikey_history", args=[record.id]),
        reverse("admin:index"),
    ):
        assert match[0] not in operator.get(page).content.decode()


def test_a_keys_secret_parts_cannot_be_set_by_hand(operator: Client, acme: Project) -> None:
    with operator_scope("test"):
        record = issue_api_key(acme, name="web").record
        other = Project.objects.create(tenant=acme.tenant, name="other")
    operator.post(
        reverse("admin:tenants_apikey_change", args=[record.id]),
        {
            "name": "renamed",
            "scopes": "inference",
            "public_id": "0" * 16,
            "revoked_at": "",
            "project": str(other.id),
        },
    )
    with operator_scope("test"):
        changed = ApiKey.objects.get(id=record.id)
        assert changed.name == "renamed"
        assert (changed.public_id, changed.project) == (record.public_id, acme)
    assert bytes(changed.secret_digest) == bytes(record.secret_digest)


def test_keys_are_revoked_from_the_list_and_cannot_be_deleted(
    operator: Client, acme: Project
) -> None:
    with operator_scope("test"):
        record = issue_api_key(acme).record
    listing = reverse("admin:tenants_apikey_changelist")
    operator.post(listing, {"action": "revoke", "_selected_action": [str(record.id)]})
    with operator_scope("test"):
        record.refresh_from_db()
    assert record.is_revoked
    assert (
        operator.post(reverse("admin:tenants_apikey_delete", args=[record.id])).status_code == 403
    )


@pytest.mark.parametrize(("action", "is_suspended"), [("suspend", True), ("resume", False)])
def test_tenants_are_suspended_and_resumed_from_the_list(
    operator: Client, acme: Project, action: str, is_suspended: bool
) -> None:
    with operator_scope("test"):
        Tenant.objects.update(is_suspended=not is_suspended)
    listing = reverse("admin:tenants_tenant_changelist")
    operator.post(listing, {"action": action, "_selected_action": [str(acme.tenant_id)]})
    with operator_scope("test"):
        assert Tenant.objects.get().is_suspended is is_suspended


def test_a_key_is_made_with_all_its_bounds(operator: Client, acme: Project) -> None:
    form = {
        "project": str(acme.id),
        "name": "web",
        "scopes": ["inference", "usage:read"],
        "expires_at_0": "2999-01-31",
        "expires_at_1": "12:00",
        "allowed_networks": "192.0.2.0/24\r\n\r\n 2001:db8::/32 ",
        "allowed_models": "",
    }
    assert operator.post(reverse("admin:tenants_apikey_add"), form).status_code == 200
    with operator_scope("test"):
        key = ApiKey.objects.get()
    assert key.scopes == ["inference", "usage:read"]
    assert key.expires_at == datetime(2999, 1, 31, 12, tzinfo=UTC)
    assert key.allowed_networks == ["192.0.2.0/24", "2001:db8::/32"]
    assert key.allowed_models is None
    page = operator.get(reverse("admin:tenants_apikey_change", args=[key.pk])).content.decode()
    assert "192.0.2.0/24\n2001:db8::/32" in page


@pytest.mark.parametrize(
    ("field", "value", "complaint"),
    [("allowed_networks", "192.0.2.1/24", "host bits"), ("scopes", "everything", "valid choice")],
)
def test_a_key_with_bad_bounds_is_not_made(
    operator: Client, acme: Project, field: str, value: str, complaint: str
) -> None:
    form = NEW_KEY | {"project": str(acme.id), field: value}
    page = operator.post(reverse("admin:tenants_apikey_add"), form).content.decode()
    assert complaint in page
    with operator_scope("test"):
        assert not ApiKey.objects.exists()


def test_a_rotated_key_is_shown_once_and_the_old_one_for_a_while(
    operator: Client, acme: Project
) -> None:
    with operator_scope("test"):
        issued = issue_api_key(acme, name="web")
    page = reverse("admin:tenants_apikey_rotate_one", args=[issued.record.pk])
    assert "overlap_hours" in operator.get(page).content.decode()
    answer = operator.post(page, {"sure": "yes", "overlap_hours": "24"})
    match = re.search(key_format.PATTERN, answer.content.decode())
    assert match is not None and match[0] != issued.key
    with operator_scope("test"):
        seal_now()
        record = ApiKey.objects.get()
        assert record.is_genuine(match[0])
        assert record.previous_expires_at is not None and record.rotated_at is not None
        assert record.previous_expires_at - record.rotated_at == timedelta(hours=24)
        assert AuditEvent.objects.filter(verb="rotated").count() == 1
    history = operator.get(reverse("admin:tenants_apikey_history", args=[record.pk]))
    assert match[0] not in history.content.decode()


def test_a_key_is_revoked_from_its_page_and_cannot_be_changed_any_more(
    operator: Client, acme: Project
) -> None:
    with operator_scope("test"):
        record = issue_api_key(acme, name="web").record
    page = reverse("admin:tenants_apikey_revoke_one", args=[record.pk])
    assert operator.get(page).status_code == 200
    with operator_scope("test"):
        assert not ApiKey.objects.get().is_revoked
    operator.post(page, {"sure": "yes"})
    with operator_scope("test"):
        assert ApiKey.objects.get().is_revoked
    change = reverse("admin:tenants_apikey_change", args=[record.pk])
    assert operator.post(change, NEW_KEY | {"name": "renamed"}).status_code == 403
    rotate = reverse("admin:tenants_apikey_rotate_one", args=[record.pk])
    operator.post(rotate, {"sure": "yes", "overlap_hours": "24"})
    with operator_scope("test"):
        assert ApiKey.objects.get().rotated_at is None


def test_tenants_move_to_a_tier_that_is_asked_for_on_the_way(
    operator: Client, acme: Project
) -> None:
    listing = reverse("admin:tenants_tenant_changelist")
    chosen = {"action": "move_to_tier", "_selected_action": [str(acme.tenant_id)]}
    question = operator.post(listing, chosen).content.decode()
    assert "batch" in question and str(acme.tenant_id) in question
    with operator_scope("test"):
        batch = Tier.objects.get(name="batch")
    operator.post(listing, chosen | {"sure": "yes", "tier": str(batch.pk)})
    with operator_scope("test"):
        seal_now()
        assert Tenant.objects.get().tier == batch
        assert AuditEvent.objects.filter(verb="moved").count() == 1


@pytest.mark.parametrize(
    ("action", "form", "verb"),
    [
        ("suspend_one", {}, "suspended"),
        ("resume_one", {}, "resumed"),
        ("move_one", {"tier": "batch"}, "moved"),
        ("close_one", {"name": "Acme"}, "closed"),
    ],
)
def test_a_tenants_page_asks_before_it_does_something(
    operator: Client, acme: Project, action: str, form: dict[str, str], verb: str
) -> None:
    with operator_scope("test"):
        Tenant.objects.update(is_suspended=action == "resume_one")
        tiers = {tier.name: str(tier.pk) for tier in Tier.objects.all()}
    page = reverse(f"admin:tenants_tenant_{action}", args=[acme.tenant_id])
    form = {name: tiers.get(value, value) for name, value in form.items()}
    assert operator.get(page).status_code == 200
    operator.post(page, form)
    with operator_scope("test"):
        seal_now()
        assert not AuditEvent.objects.filter(verb=verb).exists()
    operator.post(page, form | {"sure": "yes"})
    with operator_scope("test"):
        seal_now()
        assert AuditEvent.objects.filter(verb=verb, record_kind="tenants.Tenant").exists()


def test_a_tenant_is_not_closed_under_another_name_and_never_deleted(
    operator: Client, acme: Project
) -> None:
    page = reverse("admin:tenants_tenant_close_one", args=[acme.tenant_id])
    answer = operator.post(page, {"sure": "yes", "name": "Globex"}).content.decode()
    assert "not the tenant&#x27;s name" in answer
    delete = reverse("admin:tenants_tenant_delete", args=[acme.tenant_id])
    assert operator.post(delete, {"post": "yes"}).status_code == 403
    with operator_scope("test"):
        assert Tenant.objects.get().closed_at is None


def test_the_policy_snapshot_is_rebuilt_from_its_page(
    operator: Client, acme: Project, empty_redis: Redis
) -> None:
    page = reverse("admin:tenants_policyversion_rebuild")
    operator.get(page)
    assert empty_redis.get(keys.policy_version()) is None
    operator.post(page, {"sure": "yes"})
    assert empty_redis.get(keys.policy_version()) is not None


@pytest.mark.usefixtures("_one_of_each")
def test_no_page_offers_a_choice_of_all_tenants_keys_or_people(
    operator: Client, acme: Project
) -> None:
    with operator_scope("test"):
        ensure_default_tiers()
        for number in range(30):
            tenant = Tenant.objects.create(name=f"canary {number}", tier=acme.tenant.tier)
            project = Project.objects.create(tenant=tenant, name=f"canary {number}")
            issue_api_key(project, name=f"canary {number}")
            User.objects.create_user(f"canary{number}@example.org")
    for model in MODELS:
        options = model._meta
        name = f"admin:{options.app_label}_{options.model_name}"
        with operator_scope("test"):
            records = model._default_manager.order_by()[:1]
            pages = [reverse(f"{name}_change", args=[record.pk]) for record in records]
        pages += [reverse(f"{name}_add"), reverse(f"{name}_changelist")]
        for page in pages:
            answer = operator.get(page)
            if answer.status_code == 200:
                offered = re.findall(r"<option[^>]*>\s*canary", answer.content.decode())
                assert len(offered) < 3, page


def test_every_page_is_in_the_sidebar(operator: Client) -> None:
    assert linked_models() == {model._meta.label for model in MODELS}
    page = operator.get(reverse("admin:index")).content.decode()
    for model in MODELS:
        options = model._meta
        assert reverse(f"admin:{options.app_label}_{options.model_name}_changelist") in page


def test_the_sidebar_shows_what_its_reader_may_see(client: Client) -> None:
    client.force_login(_somebody_who_may("view_tenant"))
    page = client.get(reverse("admin:index")).content.decode()
    assert reverse("admin:tenants_tenant_changelist") in page
    assert reverse("admin:tenants_apikey_changelist") not in page


@pytest.mark.usefixtures("_one_of_each")
def test_a_price_is_added_and_never_changed(operator: Client) -> None:
    with operator_scope("test"):
        price = Price.objects.get()
    change = reverse("admin:billing_price_change", args=[price.pk])
    assert operator.post(change, {"model": "other"}).status_code == 403
    delete = reverse("admin:billing_price_delete", args=[price.pk])
    assert operator.post(delete, {"post": "yes"}).status_code == 403
    fields = ("prompt", "cached", "completion")
    form = {f"{field}_micros_per_million_tokens": "7" for field in fields}
    form |= {"model": "demo", "batch_discount_permille": "0"}
    refused = operator.post(reverse("admin:billing_price_add"), form | {"tier": "nonesuch"})
    assert "There is no tier" in refused.content.decode()
    assert operator.post(reverse("admin:billing_price_add"), form).status_code == 302
    with operator_scope("test"):
        assert [each.prompt for each in Price.objects.in_policy()["demo"]] == [1, 7]


@pytest.mark.usefixtures("acme")
def test_a_tier_that_a_price_names_cannot_be_renamed_or_deleted(operator: Client) -> None:
    tier = Tier.objects.get(name="batch")
    micros = [f"{kind}_micros_per_million_tokens" for kind in ("prompt", "cached", "completion")]
    with operator_scope("test"):
        Price.objects.create(model="demo", tier="batch", **dict.fromkeys(micros, 7))
    change = reverse("admin:tenants_tier_change", args=[tier.pk])
    form = {name: value for name, value in model_to_dict(tier).items() if value is not None}
    renamed = operator.post(change, form | {"name": "cheap"})
    assert "Prices name the tier batch: demo, tier batch from" in renamed.content.decode()
    listing = reverse("admin:tenants_tier_changelist")
    selected = {"action": "delete_selected", "_selected_action": [str(tier.pk)], "post": "yes"}
    for page, answers in (
        (reverse("admin:tenants_tier_delete", args=[tier.pk]), {"post": "yes"}),
        (listing, selected),
    ):
        refused = operator.post(page, answers)
        assert "Price: demo, tier batch from" in refused.content.decode()
    assert operator.post(change, form | {"weight": "9"}).status_code == 302
    tier.refresh_from_db()
    assert (tier.name, tier.weight) == ("batch", 9)


def test_an_operator_names_the_model_that_answers_instead(operator: Client, acme: Project) -> None:
    with operator_scope("test"):
        pool = Pool.objects.create(name="demo")
        ServedModel.objects.create(name="small", pool=pool, context_tokens=1)
    page = reverse("admin:tenants_project_change", args=[acme.id])
    form = {"name": "default", "on_saturation": "smaller_model"}
    refused = operator.post(page, form | {"smaller_model": "nonesuch"})
    assert "There is no model &#x27;nonesuch&#x27; for this tenant." in refused.content.decode()
    operator.post(page, form | {"smaller_model": "small"})
    with operator_scope("test"):
        acme.refresh_from_db()
        assert (acme.on_saturation, acme.smaller_model) == ("smaller_model", "small")
    listing = operator.get(reverse("admin:tenants_project_changelist"))
    assert "small" in listing.content.decode()


def test_an_audit_event_shows_before_and_after_until_the_names_are_erased(
    operator: Client, acme: Project
) -> None:
    form = {"name": "renamed", "on_saturation": "wait"}
    operator.post(reverse("admin:tenants_project_change", args=[acme.id]), form)
    with operator_scope("test"):
        seal_now()
        event = AuditEvent.objects.get(record_kind="tenants.Project", verb="changed")
    page = reverse("admin:tenants_auditevent_change", args=[event.pk])
    shown = operator.get(page).content.decode()
    assert "renamed" in shown and "default" in shown and "ops@example.org" in shown
    with operator_scope("test"):
        seal_now()
        PersonalDetail.objects.all().delete()
    shown = operator.get(page).content.decode()
    assert "renamed" not in shown and "(erased)" in shown
    listing = reverse("admin:tenants_auditevent_changelist")
    assert operator.get(listing, {"verb": "changed", "actor_kind": "user"}).status_code == 200


@pytest.mark.usefixtures("_one_of_each")
@pytest.mark.parametrize("name", ["usagerecord", "worker", "usagequarantine", "deadletter"])
def test_what_machines_wrote_is_not_for_people_to_change(operator: Client, name: str) -> None:
    assert operator.get(reverse(f"admin:inference_{name}_add")).status_code == 403
    model = apps.get_model(f"inference.{name}")
    with operator_scope("test"):
        record = model._default_manager.get()
    change = reverse(f"admin:inference_{name}_change", args=[record.pk])
    assert operator.post(change, {"pool": "mine"}).status_code == 403
    delete = reverse(f"admin:inference_{name}_delete", args=[record.pk])
    assert operator.post(delete, {"post": "yes"}).status_code == 403


@pytest.mark.usefixtures("_one_of_each")
def test_a_dead_letter_is_retried_and_discarded_after_a_question(
    operator: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    with operator_scope("test"):
        letter = DeadLetter.objects.get()
    asked: list[str] = []
    monkeypatch.setattr(tasks.retry_dead_letter, "delay", asked.append)
    page = reverse("admin:inference_deadletter_retry_one", args=[letter.pk])
    assert "The response is discarded" in operator.get(page).content.decode()
    assert asked == []
    operator.post(page, {"sure": "yes"})
    assert asked == [letter.request_id.hex]
    page = reverse("admin:inference_deadletter_discard_one", args=[letter.pk])
    operator.post(page, {"sure": "yes"})
    with operator_scope("test"):
        assert not DeadLetter.objects.get().is_kept


@pytest.mark.usefixtures("_one_of_each")
def test_who_may_only_look_at_a_dead_letter_may_not_retry_it(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.force_login(_somebody_who_may("view_deadletter"))
    with operator_scope("test"):
        letter = DeadLetter.objects.get()
    monkeypatch.setattr(tasks.retry_dead_letter, "delay", pytest.fail)
    page = reverse("admin:inference_deadletter_retry_one", args=[letter.pk])
    assert client.post(page, {"sure": "yes"}).status_code in (302, 403)


@pytest.mark.usefixtures("_one_of_each")
@pytest.mark.parametrize(
    ("model", "action"), [("tenant", "suspend"), ("tenant", "resume"), ("apikey", "revoke")]
)
def test_who_may_only_look_may_not_act(client: Client, model: str, action: str) -> None:
    client.force_login(_somebody_who_may("view_tenant", "view_apikey"))
    with operator_scope("test"):
        Tenant.objects.update(is_suspended=action == "resume")
        record = (Tenant.objects if model == "tenant" else ApiKey.objects).get()
    listing = reverse(f"admin:tenants_{model}_changelist")
    assert client.get(listing).status_code == 200
    client.post(listing, {"action": action, "_selected_action": [str(record.pk)]})
    with operator_scope("test"):
        assert Tenant.objects.get().is_suspended is (action == "resume")
        assert not ApiKey.objects.get().is_revoked


def test_nobody_but_a_superuser_changes_accounts(client: Client) -> None:
    user = _somebody_who_may("view_user", "add_user", "change_user", "delete_user")
    client.force_login(user)
    page = reverse("admin:tenants_user_change", args=[user.pk])
    assert client.get(page).status_code == 200
    promoted = {"email": user.email, "is_active": "on", "is_staff": "on", "is_superuser": "on"}
    assert client.post(page, promoted).status_code == 403
    assert client.get(reverse("admin:tenants_user_add")).status_code == 403
    password = reverse("admin:auth_user_password_change", args=[user.pk])
    assert client.get(password).status_code == 403
    assert not User.objects.get().is_superuser


def _somebody_who_may(*codenames: str) -> User:
    user = User.objects.create_user("aide@example.org", "correct horse battery", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=codenames))
    return user


def test_what_an_operator_changes_is_recorded_with_who_and_from_where(
    operator: Client, acme: Project
) -> None:
    page = reverse("admin:tenants_project_change", args=[acme.id])
    form = {"name": "renamed", "on_saturation": "wait"}
    operator.post(page, form, REMOTE_ADDR="192.0.2.7")
    with operator_scope("test"):
        seal_now()
        event = AuditEvent.objects.select_related("personal").get(
            record_kind="tenants.Project", verb="changed"
        )
        assert event.changed_fields == {"name": ["default", "renamed"]}
        assert event.personal.actor_name == "ops@example.org"
        assert (event.actor_kind, event.personal.address) == ("user", "192.0.2.7")


def test_a_page_that_fails_changes_nothing(
    operator: Client, acme: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TemplateResponse, "render", _fail)
    operator.raise_request_exception = False
    listing = reverse("admin:tenants_apikey_add")
    assert operator.post(listing, NEW_KEY | {"project": str(acme.id)}).status_code == 500
    with operator_scope("test"):
        assert not ApiKey.objects.exists()


def _fail(_: TemplateResponse) -> None:
    raise RuntimeError("on purpose")


def test_signing_in_and_failing_to_is_recorded(client: Client) -> None:
    User.objects.create_superuser("ops@example.org", "correct horse battery")
    for password in ("wrong", "correct horse battery"):
        client.post("/admin/login/", {"username": "Ops@example.org", "password": password})
    client.post("/admin/login/", {"username": "a password by mistake", "password": "x"})
    client.post(reverse("admin:logout"))
    with operator_scope("test"):
        seal_now()
        events = AuditEvent.objects.exclude(verb="created").order_by("sequence")
        assert [event.verb for event in events] == ["sign_in_failed", "signed_in", "signed_out"]
        assert {event.personal.address for event in events} == {"127.0.0.1"}


@pytest.mark.usefixtures("one_window")
def test_guessing_an_operators_password_is_stopped_with_a_page_that_says_when_to_return(
    client: Client,
) -> None:
    User.objects.create_superuser("ops@example.org", "correct horse battery")
    form = {"username": "ops@example.org", "password": "wrong"}
    answers = [client.post("/admin/login/", form) for _ in range(11)]
    assert {answer.status_code for answer in answers[:10]} == {200}
    assert answers[10].status_code == 429
    assert answers[10]["Retry-After"] == "60"
    assert b"try again" in answers[10].content
    assert client.get("/admin/login/").status_code == 200
