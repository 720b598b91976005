"""What `make up` starts with: an operator, two tenants with an owner and a key each, and the
catalogue."""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Self

from django.db import IntegrityError, transaction

from gpu_workers.protocol.policy import Capability, Scope
from inference.models import Pool, ServedModel
from tenants.access.api_keys import issue_api_key
from tenants.access.default_tiers import ensure_default_tiers
from tenants.billing.models import Price
from tenants.billing.pricing.price_book import enter
from tenants.key_format import MalformedApiKey
from tenants.models import ApiKey, Membership, Project, Tenant, Tier, User
from tenants.permissions import Role

DEFAULT_OPERATOR_EMAIL = "operator@penstock.local"
DEFAULT_ACME_EMAIL, DEFAULT_GLOBEX_EMAIL = "owner@acme.local", "owner@globex.local"
SIMULATED = "sim"
DEMO_MODELS = ("penstock-demo", SIMULATED)
# Of the demo model and the simulated one. For another model it is what the catalogue shows until
# an operator corrects it; workers hold requests to their engine's real bound.
DEMO_CONTEXT_TOKENS = 2048
# Of the same engines, as `make up` starts them; of another model until an operator corrects it.
SIMULATED_CAPABILITIES = [Capability.CHAT.value, Capability.COMPLETIONS.value]
DEMO_CAPABILITIES = [
    *SIMULATED_CAPABILITIES,
    Capability.TOOLS.value,
    Capability.JSON_SCHEMA.value,
]
# $0.10, $0.05 and $0.40 a million tokens, so that there are costs to look at.
DEMO_PRICE = {
    "prompt_micros_per_million_tokens": 100_000,
    "cached_micros_per_million_tokens": 50_000,
    "completion_micros_per_million_tokens": 400_000,
}

_SCOPES = [Scope.INFERENCE, Scope.ADAPTERS_WRITE]


@dataclass(frozen=True, kw_only=True, repr=False)
class DemoSecrets:
    """What an earlier run may have left, and what the next one needs. Holds secrets: no repr.

    A password is None if the account already has one that we do not know.
    """

    operator_email: str | None = None
    operator_password: str | None = None
    acme_key: str | None = None
    acme_email: str | None = None
    acme_password: str | None = None
    globex_key: str | None = None
    globex_email: str | None = None
    globex_password: str | None = None

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> Self:
        """Read the variables of var/demo.env; an empty or missing one is None."""
        return cls(
            **{
                field.name: environ.get(f"PENSTOCK_{field.name.upper()}") or None
                for field in fields(cls)
            }
        )


@transaction.atomic
def seed_demo(existing: DemoSecrets, *, models: tuple[str, ...] = ()) -> DemoSecrets:
    """Make what is missing and keep what is there; keys that still work stay as they are.

    `models` are added to the catalogue beside the demo's own, each with a pool of its name.
    """
    ensure_default_tiers()
    for name in (*DEMO_MODELS, *models):
        _seed_model(name)
    operator = _email(existing.operator_email, DEFAULT_OPERATOR_EMAIL)
    acme, acme_key = _seed_tenant("Acme", "premium", existing.acme_key)
    globex, globex_key = _seed_tenant("Globex", "standard", existing.globex_key)
    acme_email = _email(existing.acme_email, DEFAULT_ACME_EMAIL)
    globex_email = _email(existing.globex_email, DEFAULT_GLOBEX_EMAIL)
    return DemoSecrets(
        operator_email=operator,
        operator_password=_seed_account(operator, existing.operator_password, is_operator=True),
        acme_key=acme_key,
        acme_email=acme_email,
        acme_password=_seed_owner(acme, acme_email, existing.acme_password),
        globex_key=globex_key,
        globex_email=globex_email,
        globex_password=_seed_owner(globex, globex_email, existing.globex_password),
    )


def _email(given: str | None, default: str) -> str:
    return (given or default).strip().lower()


def _seed_model(name: str) -> None:
    if not ServedModel.objects.filter(name=name).exists():
        pool = Pool(name=name)
        pool.full_clean(validate_unique=False)
        pool.save()
        model = ServedModel(
            name=name,
            pool=pool,
            context_tokens=DEMO_CONTEXT_TOKENS,
            capabilities=SIMULATED_CAPABILITIES if name == SIMULATED else DEMO_CAPABILITIES,
        )
        model.full_clean()
        model.save()
        if not Price.objects.filter(model=name).exists():
            enter(Price(model=name, **DEMO_PRICE))


def _seed_owner(tenant: Tenant, email: str, password: str | None) -> str | None:
    """Return as `_seed_account` does. Who belongs to the tenant already keeps their role."""
    password = _seed_account(email, password)
    user = User.objects.get(email=email)
    Membership.objects.get_or_create(tenant=tenant, user=user, defaults={"role": Role.OWNER})
    return password


def _seed_account(email: str, password: str | None, *, is_operator: bool = False) -> str | None:
    """Return the password if it was set just now: the account is new, or nobody knows it."""
    user = User.objects.filter(email=email).first()
    if user is not None and password is not None:
        return None
    password = password or secrets.token_urlsafe(15)
    if user is None:
        user = User(email=email, is_staff=is_operator, is_superuser=is_operator)
    user.set_password(password)
    user.full_clean()
    user.save()
    return password


def _seed_tenant(name: str, tier: str, key: str | None) -> tuple[Tenant, str]:
    tenant, _ = Tenant.objects.get_or_create(
        name=name, defaults={"tier": Tier.objects.get(name=tier)}
    )
    project = tenant.projects.order_by("created_at").first()
    if project is None:
        project = Project.objects.create(tenant=tenant, name="default")
    record = ApiKey.objects.find(key) if key else None
    if key and record and not record.is_revoked and record.tenant_id == tenant.id:
        return tenant, key
    return tenant, _bring_back(project, key) or issue_api_key(
        project, name="demo", scopes=_SCOPES
    ).key


def _bring_back(project: Project, key: str | None) -> str | None:
    """Restore a key of an earlier database, so that clients configured with it keep working."""
    if key is None:
        return None
    try:
        with transaction.atomic():
            return issue_api_key(project, name="demo", key=key, scopes=_SCOPES).key
    except (MalformedApiKey, IntegrityError):
        return None  # mistyped, or its public id is taken: by a revoked key or another tenant's
