"""Every pair of keys: which is wider, by the rule and by what each may do; and every verb."""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

import pytest
from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import prefetch_related_objects
from django.utils import timezone

from gpu_workers.protocol.policy import LimitName, Scope
from inference.models import Pool, ServedModel
from tenants.access.api_keys import change_api_key, issue_api_key, revoke_api_key, rotate_api_key
from tenants.access.quotas import add_quota, change_quota, remove_quota
from tenants.access.widths.rule import WIDTHS, check_width
from tenants.errors import NotPermitted
from tenants.models import ApiKey, Project, Quota

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("operators_eye")]

FAMILY: Final = 100
# What a key has of its own, whether it counts into the first key's quota of `FAMILY`.
BUDGETS: Final = {
    "unbounded": (None, False),
    "bounded": (50, False),
    "of the family": (None, True),
    "less of the family": (20, True),
}
SCOPES: Final = (["inference"], ["inference", "keys:write"], ["admin"])
MODELS: Final = (None, ["open-a"])
NETWORKS: Final = (None, ["10.0.0.0/8"])
BASE: Final[dict[str, Any]] = {"scopes": ["inference", "keys:write"]}


@dataclass
class House:
    acme: Project
    web: Project
    first: ApiKey
    soon: datetime = field(default_factory=lambda: timezone.now() + timedelta(days=7))

    def key(
        self, *, budget: str = "unbounded", project: Project | None = None, **fields: Any
    ) -> ApiKey:
        own, is_of_family = BUDGETS[budget]
        key = issue_api_key(project or self.acme, **{**BASE, **fields}).record
        if is_of_family:
            ApiKey.objects.filter(pk=key.pk).update(budget_key=self.first)
        if own is not None:
            limited(key, own)
        return ApiKey.objects.get(pk=key.pk)


def limited(key: ApiKey, value: int) -> Quota:
    return Quota.objects.create(
        tenant_id=key.tenant_id, api_key=key, limit="tokens_per_day", value=value
    )


@pytest.fixture
def house(acme: Project) -> House:
    pool = Pool.objects.create(name="pool")
    ServedModel.objects.create(name="open-a", pool=pool, context_tokens=100)
    web = Project.objects.create(tenant=acme.tenant, name="web")
    first = issue_api_key(acme, **BASE).record
    limited(first, FAMILY)
    return House(acme=acme, web=web, first=ApiKey.objects.get(pk=first.pk))


# The rule ----------------------------------------------------------------------------------------


def powers(key: ApiKey) -> set[tuple[object, ...]]:
    """All that a key may do, as single deeds: in which project, as what, with which model, from
    where and when."""
    is_admin = Scope.ADMIN in key.scopes
    return set(
        itertools.product(
            ["default", "web"] if is_admin else [key.project.name],
            list(Scope) if is_admin else key.scopes,
            ["open-a", "another"] if key.allowed_models is None else key.allowed_models,
            ["10.0.0.1", "192.0.2.1"] if key.allowed_networks is None else ["10.0.0.1"],
            ["today", "next year"] if key.expires_at is None else ["today"],
        )
    )


def spends_beyond(key: ApiKey, by: ApiKey) -> bool:
    """Whether `by` could use more than its quotas allow if it had the other key, too."""

    def most(each: ApiKey) -> float:
        own = [quota.value for quota in each.quotas.all()]
        return min([*own, *([FAMILY] if each.budget_key_id else [])], default=math.inf)

    def account(each: ApiKey) -> object:
        return each.budget_key_id or each.pk

    return most(by) < math.inf and (account(key) != account(by) or most(key) > most(by))


def test_a_key_is_wider_exactly_if_with_it_more_could_be_done(house: House) -> None:
    places = [None, house.web]
    ends = [None, house.soon]
    keys = [
        house.key(
            budget=budget,
            project=project,
            scopes=scopes,
            allowed_models=models,
            allowed_networks=networks,
            expires_at=expires_at,
        )
        for scopes, project, models, networks, expires_at, budget in itertools.product(
            SCOPES, places, MODELS, NETWORKS, ends, BUDGETS
        )
    ]
    keys.append(house.first)
    prefetch_related_objects(keys, "quotas", "project")
    can = [powers(key) for key in keys]
    pairs = list(itertools.product(range(len(keys)), repeat=2))
    assert len(pairs) == 193**2
    for one, other in pairs:
        key, by = keys[one], keys[other]
        is_wider = not can[one] <= can[other] or spends_beyond(key, by)
        assert _is_refused(partial(check_width, key, by)) is is_wider, (key, by)


def test_the_rule_names_every_field_in_which_a_key_can_be_wider() -> None:
    assert [name for name, _ in WIDTHS] == [
        "project", "scopes", "expires_at", "allowed_models", "allowed_adapters",
        "allowed_networks", "quotas",
    ]  # fmt: skip


# The verbs ---------------------------------------------------------------------------------------


def _change(key: ApiKey, by: ApiKey) -> None:
    change_api_key(key, by=by, name="another")


def _widen(key: ApiKey, by: ApiKey) -> None:
    change_api_key(key, by=by, scopes=["admin"])


def _rotate(key: ApiKey, by: ApiKey) -> None:
    rotate_api_key(key, overlap=timedelta(0), by=by)


def _revoke(key: ApiKey, by: ApiKey) -> None:
    revoke_api_key(key, by=by)


def _limit(key: ApiKey, by: ApiKey) -> None:
    add_quota(
        key.tenant, limit=LimitName.REQUESTS_PER_MINUTE, value=1, is_hard=True, api_key_id=key.pk,
        by=by,
    )  # fmt: skip


def _raise_limit(key: ApiKey, by: ApiKey) -> None:
    quota = Quota.objects.filter(api_key=key).first() or limited(key, 5)
    change_quota(quota, value=quota.value + 1, by=by)


def _drop_limit(key: ApiKey, by: ApiKey) -> None:
    remove_quota(Quota.objects.filter(api_key=key).first() or limited(key, 5), by=by)


VERBS: Final = (_change, _widen, _rotate, _revoke, _limit, _raise_limit, _drop_limit)
LOOSENING: Final = (_raise_limit, _drop_limit)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_is_refused_on_every_wider_key_and_leaves_it_as_it_was(
    house: House, verb: Callable[[ApiKey, ApiKey], None]
) -> None:
    differing: list[dict[str, Any]] = [
        {},
        {"scopes": ["inference"]},
        {"scopes": ["admin"]},
        {"project": house.web},
        {"allowed_models": ["open-a"]},
        {"allowed_networks": ["10.0.0.0/8"]},
        {"expires_at": house.soon},
        *({"budget": budget} for budget in BUDGETS if budget != "unbounded"),
        {"scopes": ["admin"], "budget": "bounded"},
        {"scopes": ["admin"], "budget": "of the family"},
    ]
    keys = [house.key(**fields) for fields in differing]
    for key, by in itertools.product(keys, repeat=2):
        is_wider = not powers(key) <= powers(by) or spends_beyond(key, by)
        is_bounded = by.budget_key_id is not None or bool(by.quotas.all())
        is_refused = (
            is_wider
            or (verb is _widen and Scope.ADMIN not in by.scopes)
            # One that raises or drops a quota of its own has that quota.
            or (verb in LOOSENING and (is_bounded or key.pk == by.pk))
        )
        with transaction.atomic():
            key, by = ApiKey.objects.get(pk=key.pk), ApiKey.objects.get(pk=by.pk)
            before = _row(key)
            found = _is_refused(partial(verb, key, by))
            assert found is is_refused, (verb.__name__, _told(key), _told(by))
            assert not found or _row(key) == before
            transaction.set_rollback(True)


def test_what_a_bounded_key_makes_counts_into_its_quotas_however_deep(house: House) -> None:
    child = issue_api_key(house.acme, by=house.first, **BASE).record
    grandchild = issue_api_key(house.acme, by=child, **BASE).record
    assert (child.budget_key, grandchild.budget_key) == (house.first, house.first)
    limited(child, 30)
    of_less = issue_api_key(house.acme, by=ApiKey.objects.get(pk=child.pk), **BASE).record
    assert [quota.value for quota in of_less.quotas.all()] == [30]
    free = house.key()
    assert issue_api_key(house.acme, by=free).record.budget_key is None


def _row(key: ApiKey) -> dict[str, object]:
    return dict(ApiKey.objects.filter(pk=key.pk).values().get())


def _told(key: ApiKey) -> dict[str, object]:
    row = _row(key)
    return {name: row[name] for name in ("scopes", "project_id", "budget_key_id", "expires_at")}


def _is_refused(work: Callable[[], object]) -> bool:
    try:
        work()
    except (ValidationError, NotPermitted):
        return True
    return False
