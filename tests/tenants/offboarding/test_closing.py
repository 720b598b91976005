"""A tenant that is closed: its people's data is gone, what its usage refers to stays."""

from io import StringIO

import pytest
from allauth.usersessions.models import UserSession
from django.contrib.admin.models import CHANGE, LogEntry
from django.core.management import CommandError, call_command
from django.db import connection

from tenants.access.api_keys import issue_api_key
from tenants.access.invitations.inviting import invite
from tenants.audit.log import broken_chains, seal_now
from tenants.isolation.scoping import operator_scope
from tenants.models import (
    ApiKey,
    MailDomain,
    Membership,
    Project,
    SignOnConfiguration,
    SignOnIdentity,
    Tenant,
    User,
)
from tenants.offboarding.closing import close_tenant
from tenants.permissions import Role
from tests.support.commands import refused, run
from tests.support.projects import make_project
from tests.support.refusals import raises_invalid

pytestmark = pytest.mark.django_db
CANARIES = ["Acme", "alice", "Alice", "acme.example", "192.0.2.7", "skunkworks"]


@pytest.fixture
def acme() -> Tenant:
    with operator_scope("test"):
        globex = make_project("Globex", "standard")
        project = make_project("Acme", "premium")
        Project.objects.create(tenant=project.tenant, name="skunkworks")
        issue_api_key(project, name="Alice's laptop", allowed_networks=["192.0.2.7"])
        alice = User.objects.create_user("alice@acme.example", "correct horse battery")
        alice.name = "Alice"
        alice.save()
        bob = User.objects.create_user("bob@globex.example", "correct horse battery")
        ops = User.objects.create_superuser("ops@example.org", "correct horse battery")
        for user in (alice, bob, ops):
            Membership.objects.create(tenant=project.tenant, user=user)
        Membership.objects.create(tenant=globex.tenant, user=bob)
        invite(project.tenant, email="ada@acme.example", role=Role.VIEWER, by=None)
        UserSession.objects.create(
            user=alice, ip="192.0.2.7", user_agent="Alice's", session_key="a"
        )
        provider = SignOnConfiguration(
            tenant=project.tenant, issuer="https://acme.example", client_id="Acme"
        )
        provider.client_secret = "skunkworks"
        provider.roles = {"skunkworks": "admin"}
        provider.save()
        MailDomain.objects.create(tenant=project.tenant, domain="acme.example")
        SignOnIdentity.objects.create(
            tenant=project.tenant, user=alice, issuer="https://acme.example", subject="alice"
        )
        LogEntry.objects.log_actions(ops.pk, [alice], CHANGE, "Changed alice.")
        return project.tenant


def test_a_closed_tenants_people_keys_and_names_are_gone(acme: Tenant) -> None:
    with operator_scope("test"):
        closed = close_tenant(acme)
        assert (closed.revoked_api_keys, closed.removed_memberships) == (1, 3)
        assert closed.pseudonymised_users == 1
        alice = User.objects.get(email__endswith="@invalid")
        assert alice.email == f"deleted-{alice.id}@invalid"
        assert not alice.is_active and not alice.has_usable_password() and alice.name == ""
        assert ApiKey.objects.get(tenant=acme).is_revoked
        for kept in ("bob@globex.example", "ops@example.org"):
            assert User.objects.get(email=kept).is_active
        assert Tenant.objects.get(id=acme.id).closed_at is not None


def test_no_table_remembers_a_closed_tenants_names(acme: Tenant) -> None:
    with operator_scope("test"):
        close_tenant(acme)
        with connection.cursor() as cursor:
            # What partitions hold is read through their table, as everybody does.
            cursor.execute(
                "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace"
                " AND relkind IN ('r', 'p') AND NOT relispartition"
            )
            for (table,) in cursor.fetchall():
                if table in ("tenants_auditchain", "tenants_auditpending", "django_migrations"):
                    continue
                cursor.execute(f'SELECT row_to_json(t)::text FROM "{table}" t')  # noqa: S608
                for (row,) in cursor.fetchall():
                    assert not [canary for canary in CANARIES if canary in row], (table, row)


def test_the_audit_chain_of_a_closed_tenant_is_whole_and_says_who_closed_it(acme: Tenant) -> None:
    with operator_scope("command close_tenant"):
        close_tenant(acme)
        seal_now()
        assert list(broken_chains()) == []
        events = acme.audit_events.filter(verb="closed")
        assert {event.actor_id for event in events} == {"close_tenant"}
        assert {event.record_kind for event in events} >= {"tenants.Tenant", "tenants.ApiKey"}


def test_a_closed_tenant_is_neither_closed_again_nor_changed(acme: Tenant) -> None:
    with operator_scope("test"):
        close_tenant(acme)
        with raises_invalid("closed"):
            close_tenant(acme)
        with raises_invalid("closed"):
            acme.resume()


def test_closing_is_confirmed_by_the_name_or_by_yes(
    acme: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "--yes" in refused("close_tenant", "Acme")
    typed = StringIO("Globex\n")
    monkeypatch.setattr(typed, "isatty", lambda: True)
    monkeypatch.setattr("sys.stdin", typed)
    with pytest.raises(CommandError, match=r"'Globex' .*'Acme'"):
        call_command("close_tenant", "Acme")
    assert run("close_tenant", "Acme", "--yes")["name"] == f"closed-{acme.id}"


@pytest.mark.parametrize(
    ("verb", "told", "is_suspended"), [("suspend", "suspended", True), ("resume", "resumed", False)]
)
def test_a_tenant_is_suspended_and_resumed(
    acme: Tenant, verb: str, told: str, is_suspended: bool
) -> None:
    with operator_scope("test"):
        Tenant.objects.filter(id=acme.id).update(is_suspended=not is_suspended)
        acme.refresh_from_db()
        getattr(acme, verb)()
        assert Tenant.objects.get(id=acme.id).is_suspended is is_suspended
        seal_now()
        assert acme.audit_events.latest("sequence").verb == told
