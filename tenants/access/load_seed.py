"""Tenants and keys in bulk, to measure with. A key follows from its number and the deployment's
pepper, so that a load client can make it again and nothing has to be kept."""

import hashlib
import hmac
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from django.conf import settings

from tenants import key_format
from tenants.access.default_tiers import ensure_default_tiers
from tenants.isolation.scoping import operator_scope
from tenants.models import ApiKey, Membership, Project, Tenant, Tier, User
from tenants.permissions import Role

_TIERS: Final = ("free", "standard", "standard", "premium")
_CHUNK: Final = 2000


@dataclass(frozen=True, kw_only=True)
class LoadSeed:
    """How many were added, and how long that took, policy snapshot included."""

    tenants: int
    api_keys: int
    seconds: float


def seed_load(*, tenants: int, keys: int) -> LoadSeed:
    """Add what is missing of the first `tenants` tenants, each with a project and a member, and of
    the first `keys` keys, dealt out to them in turn."""
    started = time.monotonic()
    with operator_scope("seed load"):
        ensure_default_tiers()
        added_tenants = _add_tenants(tenants)
        added_keys = _add_keys(keys)
    return LoadSeed(
        tenants=added_tenants,
        api_keys=added_keys,
        seconds=time.monotonic() - started,
    )


def load_key(number: int) -> str:
    """Return the key with a number, from 0 on."""
    name = f"load key {number}".encode()
    secret = hmac.new(settings.PENSTOCK_API_KEY_PEPPER, name, hashlib.sha256).digest()
    return key_format.assemble(_public_id(number), secret[: key_format.SECRET_BYTES])


def _add_tenants(count: int) -> int:
    tiers = {tier.name: tier for tier in Tier.objects.all()}
    present = set(Tenant.objects.filter(name__startswith="Load ").values_list("name", flat=True))
    missing = [number for number in range(count) if _tenant_name(number) not in present]
    for chunk in _chunks(missing):
        tenants = [
            Tenant(name=_tenant_name(number), tier=tiers[_TIERS[number % len(_TIERS)]])
            for number in chunk
        ]
        users = [User(email=f"load-{number:06d}@load.invalid") for number in chunk]
        for user in users:
            user.set_unusable_password()
        Tenant.objects.bulk_create(tenants)
        Project.objects.bulk_create([Project(tenant=tenant) for tenant in tenants])
        User.objects.bulk_create(users)
        Membership.objects.bulk_create(
            Membership(tenant=tenant, user=user, role=Role.OWNER)
            for tenant, user in zip(tenants, users, strict=True)
        )
    return len(missing)


def _add_keys(count: int) -> int:
    ids = [_public_id(number) for number in range(count)]
    present = set(ApiKey.objects.filter(public_id__in=ids).values_list("public_id", flat=True))
    missing = [number for number, public_id in enumerate(ids) if public_id not in present]
    named = Project.objects.filter(tenant__name__startswith="Load ", name="default")
    projects = list(named.order_by("tenant__name"))
    for chunk in _chunks(missing):
        records = []
        for number in chunk:
            project = projects[number % len(projects)]
            record = ApiKey(project=project, tenant_id=project.tenant_id, name=f"load {number}")
            record.set_key(load_key(number))
            records.append(record)
        ApiKey.objects.bulk_create(records)
    return len(missing)


def _tenant_name(number: int) -> str:
    return f"Load {number:06d}"


def _public_id(number: int) -> str:
    return f"load{number:012d}"


def _chunks(numbers: Sequence[int]) -> Iterator[Sequence[int]]:
    for start in range(0, len(numbers), _CHUNK):
        yield numbers[start : start + _CHUNK]
