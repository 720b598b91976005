"""An API key's whole life: what it may be, who may make it, its rotation and its peppers."""

import uuid
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.utils import timezone
from pytest_django import Settings

from gpu_workers.protocol.policy import Scope
from inference.models import Pool, ServedModel, ServedModelTenant
from tenants.access.api_keys import change_api_key, issue_api_key, revoke_api_key, rotate_api_key
from tenants.isolation.scoping import tenant_scope
from tenants.models import ApiKey, Membership, Project, Quota, User
from tenants.permissions import Role
from tests.support.refusals import raises_invalid

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("operators_eye")]
SOON = timedelta(days=7)


@pytest.fixture
def catalogue(acme: Project, globex: Project) -> None:
    pool = Pool.objects.create(name="pool")
    for name in ("open-a", "open-b", "globex-only"):
        ServedModel.objects.create(name=name, pool=pool, context_tokens=100)
    ServedModel.objects.create(name="off", pool=pool, context_tokens=100, is_enabled=False)
    private = ServedModel.objects.get(name="globex-only")
    ServedModelTenant.objects.create(model=private, tenant=globex.tenant)


def refused(work: Callable[[], object]) -> dict[str, list[str]]:
    with pytest.raises(ValidationError) as caught:
        work()
    return caught.value.message_dict


@pytest.mark.parametrize(
    ("fields", "field", "code"),
    [
        ({"scopes": []}, "scopes", "no_scope"),
        ({"scopes": ["root"]}, "scopes", "unknown_scope"),
        ({"allowed_networks": ["10.0.0.1/8"]}, "allowed_networks", "invalid_network"),
        ({"allowed_networks": ["here"]}, "allowed_networks", "invalid_network"),
        ({"expires_at": timezone.now() - SOON}, "expires_at", "in_the_past"),
        ({"allowed_adapters": [" "]}, "allowed_adapters", "empty_name"),
        ({"name": "x" * 201}, "name", "max_length"),
    ],
)
def test_a_bad_field_is_refused_by_name(
    acme: Project, fields: dict[str, Any], field: str, code: str
) -> None:
    with tenant_scope(acme.tenant_id), raises_invalid(code, field):
        issue_api_key(acme, **fields)
    assert not ApiKey.objects.exists()


@pytest.mark.parametrize("name", ["nonesuch", "off", "globex-only"])
def test_a_model_that_the_tenant_may_not_call_is_refused_by_name(
    acme: Project, catalogue: None, name: str
) -> None:
    refused = raises_invalid("unknown_model", "allowed_models", models=repr(name))
    with tenant_scope(acme.tenant_id), refused:
        issue_api_key(acme, allowed_models=["open-a", name])
    assert not ApiKey.objects.exists()


def test_good_fields_are_kept_in_one_form(acme: Project, catalogue: None) -> None:
    expires_at = timezone.now() + SOON
    record = issue_api_key(
        acme,
        scopes=["inference", "usage:read", "inference"],
        allowed_networks=["192.0.2.7", " 2001:DB8::/32 "],
        allowed_models=["open-a"],
        allowed_adapters=[],
        expires_at=expires_at,
    ).record
    record.refresh_from_db()
    assert record.scopes == ["inference", "usage:read"]
    assert record.allowed_networks == ["192.0.2.7/32", "2001:db8::/32"]
    assert record.allowed_adapters is None
    assert record.tenant_id == acme.tenant_id


@pytest.fixture
def maker(acme: Project, catalogue: None) -> ApiKey:
    """A key that may make keys, and is bounded in everything."""
    return issue_api_key(
        acme,
        scopes=["inference", "keys:write"],
        allowed_networks=["10.0.0.0/8", "2001:db8::/32"],
        allowed_models=["open-a"],
        allowed_adapters=["ours"],
        expires_at=timezone.now() + SOON,
    ).record


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"scopes": ["admin"]}, "scopes"),
        ({"scopes": ["inference", "usage:read"]}, "scopes"),
        ({"allowed_networks": None}, "allowed_networks"),
        ({"allowed_networks": []}, "allowed_networks"),
        ({"allowed_networks": ["10.0.0.0/7"]}, "allowed_networks"),
        ({"allowed_networks": ["10.1.0.0/16", "192.0.2.0/24"]}, "allowed_networks"),
        ({"allowed_networks": ["::/0"]}, "allowed_networks"),
        ({"allowed_models": None}, "allowed_models"),
        ({"allowed_models": ["open-b"]}, "allowed_models"),
        ({"allowed_adapters": None}, "allowed_adapters"),
        ({"allowed_adapters": ["ours", "theirs"]}, "allowed_adapters"),
        ({"expires_at": None}, "expires_at"),
        ({"expires_at": timezone.now() + 2 * SOON}, "expires_at"),
    ],
)
def test_a_key_never_makes_a_wider_one(
    acme: Project, maker: ApiKey, fields: dict[str, Any], field: str
) -> None:
    assert list(refused(lambda: issue_api_key(acme, by=maker, **fields))) == [field]


def test_a_key_makes_a_narrower_one_that_inherits_its_bounds(acme: Project, maker: ApiKey) -> None:
    Quota.objects.create(tenant=acme.tenant, api_key=maker, limit="tokens_per_day", value=5)
    made = issue_api_key(acme, by=maker, allowed_networks=["10.9.0.0/16"]).record
    assert made.expires_at == maker.expires_at
    assert (made.allowed_models, made.allowed_adapters) == (["open-a"], ["ours"])
    assert made.budget_key == maker


def test_a_key_makes_no_key_for_another_project_unless_it_is_an_admin(
    acme: Project, globex: Project, maker: ApiKey
) -> None:
    web = Project.objects.create(tenant=acme.tenant, name="web")
    assert "project" in refused(lambda: issue_api_key(web, by=maker))
    admin = issue_api_key(acme, scopes=["admin"]).record
    assert issue_api_key(web, by=admin, scopes=["keys:write"]).record.project == web
    assert "project" in refused(lambda: issue_api_key(globex, by=admin))


@pytest.mark.parametrize(
    ("role", "allowed"),
    [
        (Role.OWNER, set(Scope)),
        (Role.ADMIN, set(Scope)),
        (Role.DEVELOPER, set(Scope) - {Scope.ADMIN}),
    ],
)
def test_a_member_gives_a_key_no_more_than_the_role_may(
    acme: Project, role: Role, allowed: set[Scope]
) -> None:
    alice = User.objects.create_user("alice@acme.example")
    member = Membership.objects.create(tenant=acme.tenant, user=alice, role=role)
    for scope in Scope:
        if scope in allowed:
            record = issue_api_key(acme, by=member, scopes=[scope.value]).record
            assert record.created_by == alice
        else:
            issue = partial(issue_api_key, acme, by=member, scopes=[scope.value])
            errors = refused(issue)
            assert f"The role {role} may not" in errors["scopes"][0]


def test_a_key_is_changed_within_the_same_rules(acme: Project, maker: ApiKey) -> None:
    record = issue_api_key(acme, by=maker).record
    change_api_key(record, by=maker, name="renamed", allowed_networks=["10.0.0.0/24"])
    assert "scopes" in refused(lambda: change_api_key(record, by=maker, scopes=["admin"]))
    assert "allowed_models" in refused(lambda: change_api_key(record, allowed_models=["off"]))
    assert "allowed_models" in refused(lambda: change_api_key(record, allowed_models=["off"]))
    record.refresh_from_db()
    assert (record.name, record.allowed_networks) == ("renamed", ["10.0.0.0/24"])
    wide = issue_api_key(acme).record
    assert "allowed_models" in refused(lambda: change_api_key(wide, by=maker, name="mine"))


def test_what_was_good_when_it_was_set_does_not_stop_a_later_change(
    acme: Project, maker: ApiKey
) -> None:
    ServedModel.objects.filter(name="open-a").delete()
    ApiKey.objects.filter(id=maker.id).update(expires_at=timezone.now() - SOON)
    maker.refresh_from_db()
    change_api_key(maker, name="of the days of open-a")


def test_a_rotated_key_works_beside_the_one_before_for_the_overlap(acme: Project) -> None:
    issued = issue_api_key(acme)
    new = rotate_api_key(issued.record, overlap=timedelta(hours=1))
    assert new.split("-")[1] == issued.record.public_id
    assert ApiKey.objects.find(new) == ApiKey.objects.find(issued.key) == issued.record
    newest = rotate_api_key(issued.record, overlap=timedelta(0))
    assert ApiKey.objects.find(new) is None
    assert ApiKey.objects.find(newest) == issued.record


def test_a_key_that_does_not_work_is_not_rotated(acme: Project) -> None:
    hour = timedelta(hours=1)
    revoked = issue_api_key(acme).record
    revoked.revoke()
    with raises_invalid("revoked"):
        rotate_api_key(revoked, overlap=hour)
    expired = issue_api_key(acme).record
    ApiKey.objects.filter(id=expired.id).update(expires_at=timezone.now() - hour)
    with raises_invalid("expired"):
        rotate_api_key(expired, overlap=hour)
    with raises_invalid("out_of_range", "overlap"):
        rotate_api_key(issue_api_key(acme).record, overlap=timedelta(days=31))


def test_nobody_gets_the_secret_of_a_wider_key_by_rotating_it(acme: Project, maker: ApiKey) -> None:
    wide = issue_api_key(acme, scopes=["admin"]).record
    assert "scopes" in refused(lambda: rotate_api_key(wide, overlap=timedelta(0), by=maker))
    alice = User.objects.create_user("alice@acme.example")
    developer = Membership.objects.create(tenant=acme.tenant, user=alice, role=Role.DEVELOPER)
    assert "scopes" in refused(lambda: rotate_api_key(wide, overlap=timedelta(0), by=developer))


def test_nobody_revokes_a_key_that_may_do_what_they_may_not(
    acme: Project, globex: Project, maker: ApiKey
) -> None:
    alice = User.objects.create_user("alice@acme.example")
    developer = Membership.objects.create(tenant=acme.tenant, user=alice, role=Role.DEVELOPER)
    web = Project.objects.create(tenant=acme.tenant, name="web")
    wide = issue_api_key(acme, scopes=["admin"]).record
    beside = issue_api_key(web).record
    theirs = issue_api_key(globex).record
    for key, by in (
        (wide, maker),
        (wide, developer),
        (beside, maker),
        (theirs, maker),
        (theirs, wide),
        (theirs, developer),
    ):
        with raises_invalid("wider_key"):
            revoke_api_key(key, by=by)
        key.refresh_from_db()
        assert not key.is_revoked


def test_keys_members_and_operators_revoke_what_is_no_wider(acme: Project, maker: ApiKey) -> None:
    alice = User.objects.create_user("alice@acme.example")
    developer = Membership.objects.create(tenant=acme.tenant, user=alice, role=Role.DEVELOPER)
    web = Project.objects.create(tenant=acme.tenant, name="web")
    wide = issue_api_key(acme, scopes=["admin"]).record
    for key, by in (
        (issue_api_key(acme, by=maker).record, maker),
        (maker, maker),  # its own, when it has leaked
        (issue_api_key(web).record, wide),
        (issue_api_key(web).record, developer),
        (wide, None),
    ):
        assert revoke_api_key(key, by=by) == revoke_api_key(key, by=by) == key.revoked_at


def test_a_key_is_genuine_under_the_pepper_before(acme: Project, settings: Settings) -> None:
    issued = issue_api_key(acme)
    before = settings.PENSTOCK_API_KEY_PEPPER
    settings.PENSTOCK_API_KEY_PEPPER = b"the pepper of another year" + uuid.uuid4().bytes
    assert ApiKey.objects.find(issued.key) is None
    settings.PENSTOCK_PREVIOUS_API_KEY_PEPPERS = (b"x" * 32, before)
    assert ApiKey.objects.find(issued.key) == issued.record
