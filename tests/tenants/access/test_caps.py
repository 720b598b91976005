"""What a tier caps: two at once do not overshoot, commands keep it, and what is there stays."""

import threading
from collections.abc import Callable

import pytest
from django.db import connection
from pytest_django import Settings

from gpu_workers.protocol.policy import LimitName
from tenants.access.api_keys import issue_api_key
from tenants.access.invitations.accepting import accept
from tenants.access.invitations.inviting import invite, resend
from tenants.access.projects import add_project, change_project
from tenants.access.quotas import add_quota
from tenants.isolation.scoping import operator_scope, tenant_scope
from tenants.models import ApiKey, CapReached, Invitation, Membership, Project, Quota, Tier, User
from tenants.permissions import Role
from tenants.webhooks.endpoints import add_endpoint
from tenants.webhooks.models import Endpoint
from tests.support.accounts.invitations import expire, invited, token_in_mail
from tests.support.commands import refused, run
from tests.support.projects import make_project

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def acme() -> Project:
    with operator_scope("test"):
        return make_project("Acme", "premium")


def cap(**caps: int) -> None:
    with operator_scope("test"):
        Tier.objects.update(**caps)


def project(acme: Project, name: str) -> None:
    add_project(acme.tenant, name=name)


def key(acme: Project, name: str) -> None:
    issue_api_key(acme, name=name)


def quota(acme: Project, name: str) -> None:
    limit = LimitName.TOKENS_PER_DAY if name == "first" else LimitName.TOKENS_PER_MONTH
    add_quota(acme.tenant, limit=limit, value=5, is_hard=True, project_id=acme.id)


def webhook(acme: Project, name: str) -> None:
    add_endpoint(acme.tenant, url=f"https://93.184.216.34/{name}")


def invitation(acme: Project, name: str) -> None:
    invite(acme.tenant, email=f"{name}@acme.example", role=Role.VIEWER, by=None)


@pytest.mark.parametrize(
    ("make", "caps", "model", "most"),
    [
        (project, {"max_projects": 2}, Project, 2),
        (key, {"max_api_keys": 1}, ApiKey, 1),
        (quota, {"max_quotas": 1}, Quota, 1),
        (webhook, {"max_webhooks": 1}, Endpoint, 1),
        (invitation, {"max_members": 1}, Invitation, 1),
    ],
    ids=["projects", "keys", "quotas", "webhooks", "invitations"],
)
def test_two_at_once_do_not_overshoot(
    acme: Project,
    settings: Settings,
    make: Callable[[Project, str], None],
    caps: dict[str, int],
    model: type[Project],
    most: int,
) -> None:
    settings.PENSTOCK_EMAIL_URL = "smtp://localhost"
    cap(**caps)
    start, refusals = threading.Barrier(2), list[CapReached]()

    def go(name: str) -> None:
        start.wait(timeout=10)
        try:
            with tenant_scope(acme.tenant_id):
                make(acme, name)
        except CapReached as refusal:
            refusals.append(refusal)
        finally:
            connection.close()

    threads = [threading.Thread(target=go, args=[name]) for name in ("first", "second")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    with tenant_scope(acme.tenant_id):
        assert model.objects.count() == most
    (refusal,) = refusals
    assert refusal.code.startswith("too_many_")
    assert f"Tier premium allows {most} " in refusal.message
    assert f"there are {most}." in refusal.message and "operator" in refusal.message


def test_a_lower_tier_takes_nothing_away(acme: Project) -> None:
    with tenant_scope(acme.tenant_id):
        add_project(acme.tenant, name="web")
        first = issue_api_key(acme).record
        issue_api_key(acme)
    cap(max_projects=1, max_api_keys=1)
    with tenant_scope(acme.tenant_id):
        change_project(acme, name="renamed")
        with pytest.raises(CapReached):
            add_project(acme.tenant, name="third")
        first.revoke()
        with pytest.raises(CapReached):
            issue_api_key(acme)  # one is left, which is as many as there may be
        assert (Project.objects.count(), ApiKey.objects.count()) == (2, 2)
        ApiKey.objects.get(revoked_at=None).revoke()
        issue_api_key(acme)


def test_another_tenants_are_not_counted(acme: Project) -> None:
    with operator_scope("test"):
        globex = make_project("Globex", "premium")
        issue_api_key(globex)
    cap(max_api_keys=1)
    with operator_scope("test"):
        issue_api_key(acme)
        with pytest.raises(CapReached):
            issue_api_key(acme)


def test_whoever_was_invited_in_time_gets_in_and_an_expired_one_counts_no_more(
    acme: Project, settings: Settings
) -> None:
    settings.PENSTOCK_EMAIL_URL = "smtp://localhost"
    cap(max_members=1)
    carol = User.objects.create_user("carol@acme.example", "correct horse battery")
    expired, _ = invited(acme.tenant, email=carol.email)
    with tenant_scope(acme.tenant_id), pytest.raises(CapReached):
        invite(acme.tenant, email="dave@acme.example", role=Role.VIEWER, by=None)
    expire(expired)
    with tenant_scope(acme.tenant_id):
        invite(acme.tenant, email="dave@acme.example", role=Role.VIEWER, by=None)
    with tenant_scope(acme.tenant_id), pytest.raises(CapReached):
        resend(expired, by=None)
    cap(max_members=2)
    with tenant_scope(acme.tenant_id):
        resend(expired, by=None)
    cap(max_members=1)
    assert accept(token_in_mail(), carol).role == "developer"


def test_commands_keep_the_caps_for_operators_too(acme: Project) -> None:
    cap(max_projects=1, max_api_keys=1, max_members=1, max_quotas=1)
    run("create_api_key", "Acme")
    run("set_member", "Acme", "alice@acme.example", "--role", "viewer")
    run("set_member", "Acme", "alice@acme.example", "--role", "admin")
    run("set_quota", "Acme", "tokens_per_day", "5")
    run("set_quota", "Acme", "tokens_per_day", "6")
    for arguments, what in (
        (["create_project", "Acme", "web"], "1 projects"),
        (["create_api_key", "Acme"], "1 API keys"),
        (["set_member", "Acme", "ada@acme.example", "--role", "viewer"], "1 members"),
        (["set_quota", "Acme", "tokens_per_month", "5"], "1 quotas"),
    ):
        assert what in refused(*arguments)
    with operator_scope("test"):
        assert Membership.objects.count() == Quota.objects.count() == 1
        assert not User.objects.filter(email="ada@acme.example").exists()
