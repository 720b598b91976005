"""Whom the pictures show: organisations as they might be, with people, projects and cares."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from allauth.mfa.models import Authenticator

from inference.models import Pool, ServedModel, UsageRecord
from tenants.access.api_keys import issue_api_key
from tenants.access.default_tiers import ensure_default_tiers
from tenants.access.invitations.links import digest_of, new_token
from tenants.access.projects import add_project
from tenants.access.sign_on.domains import add_domain, prove_domain
from tenants.isolation.scoping import operator_scope
from tenants.models import (
    ApiKey,
    Invitation,
    Membership,
    Project,
    Quota,
    QuotaAlert,
    SignOnConfiguration,
    Tenant,
    Tier,
    User,
)
from tenants.permissions import Role
from tenants.webhooks.endpoints import add_endpoint
from tenants.webhooks.models import DisabledReason, Endpoint
from tests.screenshots.adapters import Adapters, have_adapters
from tests.screenshots.affairs import Affairs, have_affairs
from tests.screenshots.fleet import have_fleet
from tests.screenshots.growth import let_grow
from tests.screenshots.operations import have_operations
from tests.screenshots.playground import have_models
from tests.screenshots.refusals import have_refusals
from tests.screenshots.requests import have_requests
from tests.screenshots.usage import have_labels_and_views

_PROJECTS: tuple[tuple[str, dict[str, str]], ...] = (
    ("web", {}),
    ("mobile", {"on_saturation": "refuse"}),
    ("nightly-jobs", {"on_saturation": "smaller_model", "smaller_model": "llama-3.1-8b"}),
    ("support-assistant", {}),
    ("document-search and summaries for the legal department", {}),
)
_PEOPLE = {
    "alice@acme.example": Role.OWNER,
    "olga.brandt@acme.example": Role.ADMIN,
    "dev-team@acme.example": Role.DEVELOPER,
    "accounting@acme.example": Role.BILLING,
    "a.very.long.address.of.an.auditor@external-auditors.example": Role.VIEWER,
}


@dataclass(frozen=True, kw_only=True)
class Cast:
    """`viewer` and `developer` belong to Acme, `alice` to all of them, `nobody` to none; `ops` is
    an operator, `support` one who may act as a member. `new` has a project and a key and has had
    no answer yet."""

    acme: Tenant
    new: Tenant
    suspended: Tenant
    long_list: Tenant
    project: Project
    key: ApiKey
    quota: Quota
    # That took two attempts.
    request: UsageRecord
    affairs: Affairs
    adapters: Adapters
    developer: Membership
    # Addresses of links: for `nobody`, and for somebody without an account.
    invitation: str
    invitation_of_stranger: str
    alice: User
    viewer: User
    nobody: User
    ops: User
    support: User
    strict: Tenant


def make_cast() -> Cast:
    """Write it to the database of Django's settings."""
    with operator_scope("screenshots"):
        ensure_default_tiers()
        for name in ("llama-3.1-8b", "llama-3.1-70b"):
            pool = Pool.objects.create(name=name)
            ServedModel.objects.create(name=name, pool=pool, context_tokens=131_072)
        acme, suspended, long_list, new, strict = (
            Tenant.objects.create(name=name, tier=Tier.objects.get(name=tier))
            for name, tier in (
                ("Acme", "premium"),
                ("Initech", "free"),
                ("Globex International Research Cooperative", "standard"),
                ("Hooli", "free"),
                ("Umbrella", "standard"),
            )
        )
        projects = [add_project(acme, name=name, **fields) for name, fields in _PROJECTS]
        for number in range(40):
            add_project(long_list, name=f"experiment-{number + 1}")
        people = {email: User.objects.create_user(email) for email in _PEOPLE}
        alice, *_, viewer = people.values()
        for email, role in _PEOPLE.items():
            Membership.objects.create(tenant=acme, user=people[email], role=role)
        for tenant in (suspended, long_list, new, strict):
            Membership.objects.create(tenant=tenant, user=alice, role=Role.OWNER)
        suspended.suspend()
        Tenant.objects.filter(id=strict.id).update(demands_sign_on=True)
        _sign_on(acme, issuer="https://93.184.216.34/realms/acme")
        _sign_on(strict, issuer="https://127.0.0.1")  # which is never connected to
        add_domain(acme, domain="acme-research.example")
        prove_domain(add_domain(acme, domain="acme.example"))
        _keep_passkeys(viewer)
        _age(acme)
        _trouble(acme, projects[0])
        members = Membership.objects.filter(tenant=acme).order_by("created_at")
        keys = let_grow(acme, projects, list(members.filter(role__in=(Role.OWNER, Role.ADMIN))))
        issue_api_key(add_project(new, name="web"), name="first try")
        Tenant.objects.filter(id=long_list.id).update(billing_mode="prepaid")
        affairs = have_affairs(acme, projects, long_list, alice)
        have_refusals(keys)
        developer = Membership.objects.get(tenant=acme, role=Role.DEVELOPER)
        issue_api_key(projects[0], name="ci of the team", by=developer)
        nobody = User.objects.create_user("new@example.org")
        owner = Membership.objects.get(tenant=acme, user=alice)
        have_labels_and_views(keys, owner)
        have_fleet(acme, long_list, new)
        have_operations()
        have_models()
        return Cast(
            acme=acme,
            developer=developer,
            invitation=_invited(acme, nobody.email, Role.DEVELOPER, owner),
            invitation_of_stranger=_invited(acme, "carol@initech.example", Role.VIEWER, owner),
            suspended=suspended,
            long_list=long_list,
            new=new,
            strict=strict,
            project=projects[2],
            key=keys[0],
            quota=Quota.objects.get(project=projects[1], limit="spend_per_month"),
            request=have_requests(keys),
            affairs=affairs,
            adapters=have_adapters(acme),
            alice=alice,
            viewer=viewer,
            nobody=nobody,
            support=User.objects.create_superuser("support@example.org"),
            ops=User.objects.create_user("ops@example.org", is_staff=True),
        )


def _invited(tenant: Tenant, email: str, role: Role, by: Membership) -> str:
    """Invite somebody without an e-mail; return the address that the link would have."""
    token = new_token(tenant.id)
    invitation = Invitation(tenant=tenant, email=email, role=role, invited_by=by.user)
    invitation.renew(digest_of(token))
    invitation.save()
    return f"/account/invitation/{token}/"


def _sign_on(tenant: Tenant, *, issuer: str) -> None:
    configuration = SignOnConfiguration(
        tenant=tenant,
        issuer=issuer,
        client_id="penstock",
        role_claim="groups",
        roles={"platform-team": "admin", "engineering": "developer"},
        default_role="viewer",
    )
    configuration.client_secret = "of a picture"
    configuration.save()


def _age(tenant: Tenant) -> None:
    """Let it have grown over months."""
    now = datetime.now(UTC)
    Tenant.objects.filter(id=tenant.id).update(created_at=now - timedelta(days=310))
    ages = (200, 90, 12, 2, 0.1)
    for rows in (Project.objects, Membership.objects):
        for row, days in zip(rows.filter(tenant=tenant).order_by("created_at"), ages, strict=True):
            rows.filter(pk=row.pk).update(created_at=now - timedelta(days=days))


def _keep_passkeys(user: User) -> None:
    now = datetime.now(UTC)
    for name, used in (("laptop", now - timedelta(hours=2)), ("phone of the office", None)):
        Authenticator.objects.create(
            user=user,
            type=Authenticator.Type.WEBAUTHN,
            data={"name": name},
            created_at=now - timedelta(days=9),
            last_used_at=used,
        )


def _trouble(tenant: Tenant, project: Project) -> None:
    now = datetime.now(UTC)
    quota = Quota.objects.create(
        tenant=tenant, project=project, limit="tokens_per_month", value=10**9
    )
    QuotaAlert.objects.create(
        tenant=tenant, quota=quota, period=f"{now:%Y-%m}", percent=100, used=10**9
    )
    key = issue_api_key(project, name="ci").record
    ApiKey.objects.filter(id=key.id).update(expires_at=now + timedelta(days=3, hours=1))
    hook = add_endpoint(tenant, url="https://93.184.216.34/hooks/penstock").endpoint
    Endpoint.objects.filter(id=hook.id).update(
        is_enabled=False,
        disabled_reason=DisabledReason.FAILING,
        disabled_at=now - timedelta(hours=7),
    )
