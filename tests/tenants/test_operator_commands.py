"""The operators' verbs, each as the one JSON object that it prints and what it leaves."""

import io
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from django.core.management import call_command
from django.utils import timezone

from inference.models import Pool, ServedModel
from tenants.access.api_keys import issue_api_key
from tenants.billing.models import Price
from tenants.models import ApiKey, Invitation, Membership, Project, Quota, Tier, User
from tests.support.commands import attempt, refused, run
from tests.support.refusals import raises_invalid

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("operators_eye")]


def test_a_tenant_is_suspended_and_resumed(acme: Project) -> None:
    assert run("suspend_tenant", "acme")["is_suspended"] is True
    acme.tenant.refresh_from_db()
    assert acme.tenant.is_suspended
    assert run("resume_tenant", str(acme.tenant_id))["is_suspended"] is False
    assert "'Nobody'" in refused("suspend_tenant", "Nobody")


def test_a_tenant_moves_to_another_tier(acme: Project) -> None:
    facts = run("set_tier", "Acme", "free")
    assert (facts["tier_before"], facts["tier"]) == ("premium", "free")
    acme.tenant.refresh_from_db()
    assert acme.tenant.tier.name == "free"
    assert "'gold'" in refused("set_tier", "Acme", "gold")


def test_a_project_is_made_once(acme: Project) -> None:
    facts = run("create_project", "Acme", "web")
    assert Project.objects.get(id=facts["project_id"]).tenant == acme.tenant
    with raises_invalid("unique_together"):
        attempt("create_project", "Acme", "web")
    with raises_invalid("blank", "name"):
        attempt("create_project", "Acme", " ")


def test_a_key_is_made_with_all_its_bounds(acme: Project) -> None:
    ServedModel.objects.create(name="m", pool=Pool.objects.create(name="p"), context_tokens=1)
    facts = run(
        *("create_api_key", "Acme", "--scope", "inference", "--scope", "usage:read"),
        *("--expires", "30d", "--network", "10.0.0.0/8", "--model", "m", "--adapter", "a"),
    )
    record = ApiKey.objects.get(id=facts["api_key_id"])
    assert record.scopes == ["inference", "usage:read"]
    assert record.expires_at is not None
    assert timedelta(days=29) < record.expires_at - timezone.now() < timedelta(days=31)
    assert (record.allowed_networks, record.allowed_models) == (["10.0.0.0/8"], ["m"])
    assert record.allowed_adapters == ["a"]


@pytest.mark.parametrize(
    ("option", "value", "code", "field"),
    [
        ("--scope", "root", "unknown_scope", "scopes"),
        ("--expires", "2020-01-31", "in_the_past", "expires_at"),
        ("--network", "10.0.0.1/8", "invalid_network", "allowed_networks"),
        ("--model", "nonesuch", "unknown_model", "allowed_models"),
        ("--name", "x" * 201, "max_length", "name"),
    ],
)
def test_a_bad_bound_is_told_in_one_sentence(
    acme: Project, option: str, value: str, code: str, field: str
) -> None:
    with raises_invalid(code, field):
        attempt("create_api_key", "Acme", option, value)
    assert "'soon'" in refused("create_api_key", "Acme", "--expires", "soon")
    assert not ApiKey.objects.exists()


def test_keys_are_listed_without_what_must_not_be_shown(acme: Project) -> None:
    issued = issue_api_key(acme, name="staging", expires_at=datetime(2100, 1, 31, tzinfo=UTC))
    (row,) = run("list_api_keys", "Acme", "--project", "default")
    assert row["public_id"] == issued.record.public_id
    assert row["expires_at"] == "2100-01-31T00:00:00+00:00"
    out = io.StringIO()
    call_command("list_api_keys", "Acme", stdout=out)
    assert "staging" in out.getvalue() and issued.key not in out.getvalue()
    Project.objects.create(tenant=acme.tenant, name="web")
    assert run("list_api_keys", "Acme", "--project", "web") == []


def test_a_key_is_rotated_with_an_overlap(acme: Project) -> None:
    issued = issue_api_key(acme)
    facts = run("rotate_api_key", issued.key, "--overlap", "1h")
    assert ApiKey.objects.find(facts["key"]) == issued.record
    assert ApiKey.objects.find(issued.key) == issued.record
    run("revoke_api_key", facts["public_id"])
    with raises_invalid("revoked"):
        attempt("rotate_api_key", facts["public_id"])


def test_a_quota_is_set_changed_and_cleared_at_each_place(acme: Project) -> None:
    key = issue_api_key(acme).record
    for place, scope in (
        ([], "tenant"),
        (["--project", "default"], "project"),
        (["--api-key", key.public_id], "key"),
    ):
        first = run("set_quota", "Acme", "spend_per_month", "12.50", *place)
        assert (first["scope"], first["value"], first["is_hard"]) == (scope, 12_500_000_000, True)
        second = run("set_quota", "Acme", "spend_per_month", "$7", "--soft", *place)
        assert second["quota_id"] == first["quota_id"] and second["is_hard"] is False
        run("clear_quota", "Acme", "spend_per_month", *place)
        assert not Quota.objects.exists()
        assert "spend_per_month" in refused("clear_quota", "Acme", "spend_per_month", *place)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["tokens_per_day", "1.5"], "'1.5'"),
        (["spend_per_month", "much"], "'much'"),
        (["words_per_day", "1"], "'words_per_day'"),
        (["tokens_per_day", "1", "--api-key", "0" * 16], "API key"),
    ],
)
def test_a_bad_quota_is_told_in_one_sentence(
    acme: Project, arguments: list[str], named: str
) -> None:
    assert named in refused("set_quota", "Acme", *arguments)
    assert not Quota.objects.exists()


@pytest.mark.parametrize(("value", "code"), [("0", "min_value"), ("9" * 25, "max_value")])
def test_a_quota_is_a_number_that_can_be_counted(acme: Project, value: str, code: str) -> None:
    with raises_invalid(code, "value"):
        attempt("set_quota", "Acme", "tokens_per_day", value)
    assert not Quota.objects.exists()


def test_a_quota_is_not_set_at_another_tenants_key(acme: Project, globex: Project) -> None:
    theirs = issue_api_key(globex).record
    told = refused("set_quota", "Acme", "tokens_per_day", "1", "--api-key", theirs.public_id)
    assert "API key" in told


@pytest.mark.parametrize(
    ("preset", "ttft_ms"),
    [("interactive", 300), ("code", 500), ("documents", 800), ("batch", 5000)],
)
def test_a_tier_is_made_from_a_preset(preset: str, ttft_ms: int) -> None:
    facts = run("create_tier", f"our-{preset}", "--preset", preset)
    tier = Tier.objects.get(id=facts["tier_id"])
    tier.full_clean()
    assert (tier.service_class, tier.ttft_target_ms) == (preset, ttft_ms)
    assert tier.tokens_per_minute is not None and tier.max_context_tokens is not None
    with raises_invalid("unique", "name"):
        attempt("create_tier", f"our-{preset}", "--preset", preset)


def test_a_member_gets_an_account_a_role_and_loses_it(acme: Project, tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("correct horse battery\n")
    facts = run(
        *("set_member", "Acme", "Alice@Acme.example", "--role", "admin"),
        *("--password-file", str(password)),
    )
    assert facts["is_new_account"] and facts["is_new_member"]
    alice = User.objects.get(email="alice@acme.example")
    assert alice.check_password("correct horse battery") and not alice.is_staff
    assert run("set_member", "Acme", "alice@acme.example", "--role", "viewer")["role"] == "viewer"
    assert Membership.objects.get(user=alice).role == "viewer"
    assert alice.check_password("correct horse battery")
    run("remove_member", "Acme", "alice@acme.example")
    assert not Membership.objects.exists() and User.objects.filter(id=alice.id).exists()
    assert "alice@acme.example" in refused("remove_member", "Acme", "alice@acme.example")
    assert "bob@globex.example" in refused("remove_member", "Acme", "bob@globex.example")
    with raises_invalid("invalid", "email"):
        attempt("set_member", "Acme", "nobody", "--role", "viewer")


def test_no_command_takes_the_last_owner(acme: Project) -> None:
    run("set_member", "Acme", "alice@acme.example", "--role", "owner")
    for command in (["set_member", "--role", "admin"], ["remove_member"]):
        name, *options = command
        assert "only owner" in refused(name, "Acme", "alice@acme.example", *options)
    assert Membership.objects.get().role == "owner"
    run("set_member", "Acme", "bob@acme.example", "--role", "owner")
    run("remove_member", "Acme", "alice@acme.example")
    assert Membership.objects.get().user.email == "bob@acme.example"


def test_keys_of_whoever_is_removed_are_revoked_if_asked(acme: Project) -> None:
    for name in ("alice", "bob"):
        run("set_member", "Acme", f"{name}@acme.example", "--role", "developer")
    keys = [
        issue_api_key(acme, created_by=User.objects.get(email=f"{name}@acme.example")).record
        for name in ("alice", "bob")
    ]
    run("remove_member", "Acme", "alice@acme.example")
    run("remove_member", "Acme", "bob@acme.example", "--revoke-keys")
    for key in keys:
        key.refresh_from_db()
    assert [key.is_revoked for key in keys] == [False, True]


def test_somebody_is_invited_instead_and_is_no_member_yet(acme: Project) -> None:
    invitation = ("set_member", "Acme", "Alice@Acme.example", "--role", "owner", "--invite")
    facts = run(*invitation)
    sent = Invitation.objects.get(id=facts["invitation_id"])
    assert (sent.email, sent.role, sent.invited_by) == ("alice@acme.example", "owner", None)
    assert not Membership.objects.exists() and not User.objects.exists()
    assert "alice@acme.example" in refused(*invitation)


def test_a_model_comes_into_the_catalogue_is_hidden_and_shown(
    acme: Project, globex: Project
) -> None:
    facts = run(
        *("create_served_model", "org/m", "--pool", "gpu-a", "--context", "4096"),
        *("--capability", "chat", "--visible-to", "Acme"),
    )
    model = ServedModel.objects.get(id=facts["model_id"])
    assert (model.pool_id, model.context_tokens, model.capabilities) == ("gpu-a", 4096, ["chat"])
    assert model.to_policy().tenant_ids == [str(acme.tenant_id)]
    assert run("change_served_model", "org/m", "--disable")["is_enabled"] is False
    facts = run("change_served_model", "org/m", "--enable", "--visible-to-everybody")
    assert (facts["is_enabled"], facts["visible_to"]) == (True, "everybody")
    assert "org/m" in refused("change_served_model", "m")
    with raises_invalid("unique", "name"):
        attempt("create_served_model", "org/m", "--context", "1")
    with raises_invalid("invalid", "name"):
        attempt("create_served_model", "{bad}", "--pool", "gpu-a", "--context", "1")


def test_a_model_is_declared_capable_of_more_and_of_less(acme: Project) -> None:
    pool = Pool.objects.create(name="p")
    model = ServedModel.objects.create(name="m", pool=pool, context_tokens=1)
    for capabilities in (["chat", "tools"], ["completions"]):
        options = [word for each in capabilities for word in ("--capability", each)]
        facts = run("change_served_model", "m", *options)
        assert facts["capabilities"] == " ".join(capabilities)
        model.refresh_from_db()
        assert model.to_policy().capabilities == capabilities
    assert run("change_served_model", "m", "--disable")["capabilities"] == "completions"
    assert "'smell'" in refused("change_served_model", "m", "--capability", "smell")
    model.refresh_from_db()
    assert model.capabilities == ["completions"]


def test_a_pool_is_dedicated_and_given_back(acme: Project, globex: Project) -> None:
    pool = Pool.objects.create(name="gpu-a")
    model = ServedModel.objects.create(name="m", pool=pool, context_tokens=1)
    assert run("dedicate_pool", "gpu-a", "Globex")["serves"] == "Globex"
    assert model.to_policy().tenant_ids == [str(globex.tenant_id)]
    assert "--everybody" in refused("dedicate_pool", "gpu-a")
    assert run("dedicate_pool", "gpu-a", "--everybody")["serves"] == "everybody"
    assert ServedModel.objects.get(id=model.id).to_policy().tenant_ids is None
    assert "'gpu-b'" in refused("dedicate_pool", "gpu-b", "--everybody")


def test_a_price_takes_the_place_of_the_one_before(acme: Project) -> None:
    ServedModel.objects.create(name="m", pool=Pool.objects.create(name="p"), context_tokens=1)
    run("set_price", "m", "--prompt", "0.15", "--completion", "0.60")
    run("set_price", "m", "--prompt", "0.2", "--completion", "0.8", "--cached", "0.02")
    first, second = Price.objects.in_policy()["m"]
    assert (second.prompt, second.cached, second.completion) == (200_000, 20_000, 800_000)
    assert first.until_ms == second.from_ms
    for amount in ("1E-7", "-1"):
        assert amount in refused("set_price", "m", f"--prompt={amount}", "--completion", "1")
    assert "'x'" in refused("set_price", "x", "--prompt", "1", "--completion", "1")


def test_a_price_of_one_tier_is_planned_and_ended(acme: Project) -> None:
    ServedModel.objects.create(name="m", pool=Pool.objects.create(name="p"), context_tokens=1)
    price = ("m", "--prompt", "1", "--completion", "1", "--tier", "premium")
    planned = run("set_price", *price, "--from", "1h", "--batch-discount", "50%")
    assert (planned["tier"], planned["batch_discount_permille"]) == ("premium", 500)
    with raises_invalid("period_overlap"):
        attempt("set_price", *price, "--from", "30m", "--until", "2h")
    assert "price" in refused("end_price", "m")
    ending = ("end_price", "m", "--tier", "premium", "--at", "2h")
    assert "makes m for tier premium free on" in refused(*ending)
    run("set_price", "m", "--prompt", "2", "--completion", "2")
    assert "its general price applies then" in refused(*ending)
    assert run(*ending, "--yes")["effective_until"]
    with raises_invalid("in_past", "effective_from"):
        attempt("set_price", *price, "--from", "2026-01-01")
    corrected = run("correct_price", *price, "--from", "2026-01-01", "--until", "2026-01-02",
        "--reason", "late")  # fmt: skip
    assert corrected["tier"] == "premium"


def test_what_a_gpu_costs_is_entered(acme: Project) -> None:
    cost = run("set_gpu_cost", "gpu-a", "--per-gpu-hour", "2.50", "--gpus-per-worker", "2")
    assert (cost["micros_per_gpu_hour"], cost["gpus_per_worker"]) == (2_500_000, 2)


def test_what_storage_costs_is_entered(acme: Project) -> None:
    assert run("set_storage_price", "--per-gib-month", "0.10")["micros_per_gib_month"] == 100_000
    assert "micro-dollar" in refused("set_storage_price", "--per-gib-month", "0.0000001")
