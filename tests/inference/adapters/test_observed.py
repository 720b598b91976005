"""What workers say of adapters, on record: what a version does to answers, and that one has it."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest
from django.core.cache import cache
from django.db import transaction
from redis import Redis

from gpu_workers.protocol import codec, keys
from gpu_workers.protocol.adapters import AdapterEffect, AdapterLevel
from inference.adapters import lifecycle, versions
from inference.adapters.observed import note_what_workers_say
from inference.adapters.sources import sync_sources
from inference.adapters.validation.verdicts import WarningCode
from inference.models import Adapter, AdapterState, AdapterVersion, Pool
from inference.models.adapter import VersionEffect
from tenants.models import PolicyChange, Project
from tenants.webhooks.models import Event
from tests.support.adapters.a_worker import a_worker, prefetches
from tests.support.adapters.records import a_ready_version, an_adapter, an_upload
from tests.support.projects import make_project
from tests.support.refusals import database_refuses

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("operators_eye")]
POOL = "pool-a"


@pytest.fixture(autouse=True)
def _nothing_prefetched() -> None:
    cache.clear()


@pytest.fixture
def acme() -> Project:
    return make_project("Acme", "premium")


def say(redis: Redis, effects: Mapping[str, object], pool: str = POOL) -> None:
    """As a worker does."""
    for name, effect in effects.items():
        redis.hset(keys.pool_adapter_effects(pool), name, cast(Any, effect))
    redis.expire(keys.pool_adapter_effects(pool), 60)


def hold(
    redis: Redis, version: AdapterVersion, level: AdapterLevel, worker: str = "w1", pool: str = POOL
) -> None:
    redis.zadd(keys.pool_slots(pool), {worker: 8})
    redis.zadd(keys.pool_adapter_workers(pool, version.opaque_name), {worker: int(level)})


def events(kind: str) -> list[dict[str, Any]]:
    return [event.data for event in Event.objects.filter(type=kind).order_by("occurred_at")]


def again(version: AdapterVersion) -> AdapterVersion:
    return AdapterVersion.objects.select_related("adapter__tenant").get(pk=version.pk)


def a_second(adapter: Adapter, first: AdapterVersion) -> AdapterVersion:
    """A version of the same bytes."""
    return a_ready_version(
        adapter, opaque_name=first.opaque_name, digest=first.digest, path=f"{first.path}-2"
    )


def test_a_version_that_changes_answers_is_on_record_and_not_tried_out_again(
    redis: Redis, acme: Project
) -> None:
    version = a_ready_version(an_adapter(acme.tenant))
    assert needs_probe(redis, version)
    changes = PolicyChange.objects.count()
    say(redis, {version.opaque_name: int(AdapterEffect.CHANGES)})
    assert note_what_workers_say(redis) == 1
    version = again(version)
    assert (version.effect, version.state, version.warnings) == ("changes", "ready", [])
    assert not redis.exists(keys.pool_adapter_effects(POOL))
    assert not needs_probe(redis, version)
    assert note_what_workers_say(redis) == 0
    assert PolicyChange.objects.count() == changes, "gateways need not know"


def needs_probe(redis: Redis, version: AdapterVersion) -> bool:
    """As workers find it in its source."""
    sync_sources(
        redis, sign=lambda path, seconds: path, key_of=lambda version: version.id.bytes * 2
    )
    row: Any = redis.hget(keys.pool_adapter_sources(POOL), version.opaque_name)
    return codec.decode_adapter_source(row).needs_probe


def test_a_version_that_changes_nothing_is_ready_with_a_warning(
    redis: Redis, acme: Project
) -> None:
    version = a_ready_version(an_adapter(acme.tenant))
    say(redis, {version.opaque_name: int(AdapterEffect.NONE)})
    note_what_workers_say(redis)
    version = again(version)
    assert (version.state, version.warnings) == ("ready", [WarningCode.NO_EFFECT])
    assert events("adapter.refused") == []


def test_one_whose_weights_alone_change_nothing_is_known_and_warned_of_once(
    redis: Redis, acme: Project
) -> None:
    version = a_ready_version(an_adapter(acme.tenant), warnings=(WarningCode.NO_EFFECT,))
    assert (version.effect, version.needs_probe) == (VersionEffect.NONE, False)
    say(redis, {version.opaque_name: int(AdapterEffect.NONE)})
    note_what_workers_say(redis)
    assert again(version).warnings == [WarningCode.NO_EFFECT]


def test_a_version_that_gives_no_numbers_is_refused_by_name_and_told_once(
    redis: Redis, acme: Project
) -> None:
    version = a_ready_version(an_adapter(acme.tenant))
    for _ in range(2):
        say(redis, {version.opaque_name: int(AdapterEffect.NOT_FINITE)})
        note_what_workers_say(redis)
    version = again(version)
    assert (version.state, version.refusal_code) == ("refused", "answers_not_finite")
    assert version.refusal
    assert version.path == "", "what was stored of it is nobody's, and swept"
    assert lifecycle.delete_version(version).delete_at is not None
    (told,) = events("adapter.refused")
    assert (told["adapter"], told["version"], told["code"]) == (
        "acme/support",
        1,
        "answers_not_finite",
    )
    assert told["message"] == version.refusal


def test_one_that_is_refused_leaves_the_traffic_to_the_other_or_to_none(
    redis: Redis, acme: Project
) -> None:
    adapter = an_adapter(acme.tenant)
    first, second, third = (a_ready_version(adapter) for _ in range(3))
    lifecycle.set_traffic_split(adapter, {1: 900, 2: 100})
    for refused, shares in (
        (third, [(1, 900), (2, 100)]),
        (first, [(2, 1000)]),
        (second, []),
    ):
        say(redis, {refused.opaque_name: int(AdapterEffect.NOT_FINITE)})
        note_what_workers_say(redis)
        adapter.refresh_from_db()
        assert [(each["version"], each["permille"]) for each in adapter.shares] == shares
    assert a_ready_version(adapter).number == 4
    adapter.refresh_from_db()
    assert adapter.main == 4, "the next that is ready answers"


def test_a_canary_that_is_refused_gives_its_share_back(redis: Redis, acme: Project) -> None:
    adapter = an_adapter(acme.tenant)
    _, canary = (a_ready_version(adapter) for _ in range(2))
    lifecycle.set_traffic_split(adapter, {1: 900, 2: 100})
    say(redis, {canary.opaque_name: int(AdapterEffect.NOT_FINITE)})
    note_what_workers_say(redis)
    adapter.refresh_from_db()
    assert adapter.shares == [{"version": 1, "permille": 1000}]


def test_the_same_bytes_once_more_are_what_they_were_found_to_be(
    redis: Redis, acme: Project
) -> None:
    adapter = an_adapter(acme.tenant)
    good = a_ready_version(adapter)
    say(redis, {good.opaque_name: int(AdapterEffect.CHANGES)})
    note_what_workers_say(redis)
    assert a_second(adapter, good).effect == VersionEffect.CHANGES
    bad = a_ready_version(adapter)
    say(redis, {bad.opaque_name: int(AdapterEffect.NOT_FINITE)})
    note_what_workers_say(redis)
    refused = a_second(adapter, bad)
    assert (refused.state, refused.refusal_code) == ("refused", "answers_not_finite")
    assert len(events("adapter.refused")) == 2


def test_a_worker_is_believed_of_its_own_pool_alone(redis: Redis, acme: Project) -> None:
    """One that lies can spoil what it serves, which it could anyway; nothing else."""
    Pool.objects.create(name="pool-b")
    version = a_ready_version(an_adapter(acme.tenant))
    hold(redis, version, AdapterLevel.SLOT, pool="pool-b")
    say(redis, {version.opaque_name: int(AdapterEffect.NOT_FINITE)}, pool="pool-b")
    assert note_what_workers_say(redis) == 0
    version = again(version)
    assert (version.state, version.effect, version.live_at) == ("ready", "unknown", None)
    assert not redis.exists(keys.pool_adapter_effects("pool-b"))


def test_what_means_nothing_is_forgotten_and_hides_nothing(redis: Redis, acme: Project) -> None:
    version = a_ready_version(an_adapter(acme.tenant))
    nonsense: dict[Any, Any] = {
        "0" * 64: 1,
        b"\xff\xfe": 3,
        "../../etc/passwd": b"3",
        "": b"",
        version.opaque_name[:-1]: 3,
        "huge": b"9" * 10_000,
        "text": b"NaN",
        "none": 0,
        "more": 17,
    }
    say(redis, nonsense | {version.opaque_name: int(AdapterEffect.CHANGES)})
    assert note_what_workers_say(redis) == 1
    assert not redis.exists(keys.pool_adapter_effects(POOL))
    assert again(version).effect == VersionEffect.CHANGES


def test_a_finding_of_what_is_not_ready_any_more_refuses_nothing(
    redis: Redis, acme: Project
) -> None:
    adapter = an_adapter(acme.tenant)
    a_ready_version(adapter)
    archived = lifecycle.archive_version(a_ready_version(adapter))
    waiting = an_upload(adapter)
    say(redis, {archived.opaque_name: int(AdapterEffect.NOT_FINITE), waiting.opaque_name: 1})
    note_what_workers_say(redis)
    assert again(archived).state == AdapterState.ARCHIVED
    assert events("adapter.refused") == []


def test_a_version_is_live_once_a_worker_has_it_in_its_engine_and_that_is_told_once(
    redis: Redis, acme: Project
) -> None:
    adapter = an_adapter(acme.tenant)
    version, other = a_ready_version(adapter), a_ready_version(adapter)
    hold(redis, version, AdapterLevel.DISK)
    assert note_what_workers_say(redis) == 0
    now = datetime.now(UTC)
    hold(redis, version, AdapterLevel.MEMORY)
    assert note_what_workers_say(redis, now) == 1
    assert again(version).live_at == now
    hold(redis, version, AdapterLevel.SLOT, worker="w2")
    assert note_what_workers_say(redis) == 0
    hold(redis, other, AdapterLevel.SLOT)
    assert note_what_workers_say(redis) == 1
    told = events("adapter.live")
    assert [(each["adapter"], each["version"], each["permille"]) for each in told] == [
        ("acme/support", 1, 1000),
        ("acme/support", 2, 0),
    ]


def test_one_that_gives_no_numbers_is_never_told_to_be_live(redis: Redis, acme: Project) -> None:
    version = a_ready_version(an_adapter(acme.tenant))
    hold(redis, version, AdapterLevel.MEMORY)
    say(redis, {version.opaque_name: int(AdapterEffect.NOT_FINITE)})
    note_what_workers_say(redis)
    assert events("adapter.live") == []


def test_an_upload_that_is_refused_is_told_with_its_reason(redis: Redis, acme: Project) -> None:
    version = versions.begin_validation(an_upload(an_adapter(acme.tenant)))
    for _ in range(2):
        versions.mark_refused(version, "wrong_base", "It is of another base.")
    (told,) = events("adapter.refused")
    assert (told["code"], told["message"]) == ("wrong_base", "It is of another base.")
    assert told["version_id"] == str(version.pk)


def test_what_is_undone_was_told_to_nobody(redis: Redis, acme: Project) -> None:
    version = versions.begin_validation(an_upload(an_adapter(acme.tenant)))
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        versions.mark_refused(version, "wrong_base", "It is of another base.")
        raise ZeroDivisionError
    assert events("adapter.refused") == []
    assert again(version).state == AdapterState.VALIDATING


@pytest.mark.parametrize(
    "changes",
    [
        {"effect": "unknown"},
        {"effect": "none"},
        {"warnings": ["no_effect"]},
        {"live_at": None},
        {"live_at": datetime(2026, 1, 1, tzinfo=UTC)},
    ],
    ids=str,
)
def test_nobody_changes_what_was_found(
    redis: Redis, acme: Project, changes: dict[str, Any]
) -> None:
    version = a_ready_version(an_adapter(acme.tenant))
    hold(redis, version, AdapterLevel.MEMORY)
    say(redis, {version.opaque_name: int(AdapterEffect.CHANGES)})
    note_what_workers_say(redis)
    with (
        database_refuses(constraint="adapter_version_never_changes"),
        transaction.atomic(),
    ):
        AdapterVersion.objects.filter(pk=version.pk).update(**changes)


def test_what_is_ready_is_refused_for_its_answers_alone(redis: Redis, acme: Project) -> None:
    version = a_ready_version(an_adapter(acme.tenant))
    with database_refuses(constraint="adapter_version_state"), transaction.atomic():
        AdapterVersion.objects.filter(pk=version.pk).update(state="refused")


def test_a_thousand_versions_that_nobody_has_cost_a_look_a_few_queries(
    redis: Redis, acme: Project, django_assert_max_num_queries: Any
) -> None:
    adapter = an_adapter(acme.tenant)
    AdapterVersion.objects.bulk_create(
        AdapterVersion(
            tenant=acme.tenant,
            adapter=adapter,
            number=number,
            state=AdapterState.READY,
            opaque_name=f"{number:064x}",
            digest=f"{number:064x}",
            path=f"adapters/{number}",
            rank=1,
        )
        for number in range(1, 1_001)
    )
    hold(redis, adapter.versions.get(number=1), AdapterLevel.DISK)
    with django_assert_max_num_queries(20):
        assert note_what_workers_say(redis) == 0


def test_a_thousand_that_become_ready_are_got_one_by_one(redis: Redis, acme: Project) -> None:
    """Whoever uploads many does not drive out at once what others have in memory."""
    adapter = an_adapter(acme.tenant)
    for _ in range(20):
        a_ready_version(adapter)
    a_worker(redis, POOL)
    for _ in range(5):
        note_what_workers_say(redis)
    assert len(prefetches(redis, POOL)) == 1
    cache.clear()
    note_what_workers_say(redis)
    assert len(prefetches(redis, POOL)) == 2


def test_what_is_known_or_old_is_not_got_ahead(redis: Redis, acme: Project) -> None:
    adapter = an_adapter(acme.tenant)
    a_ready_version(adapter, warnings=(WarningCode.NO_EFFECT,))
    a_ready_version(adapter)
    a_worker(redis, POOL)
    note_what_workers_say(redis, datetime.now(UTC) + timedelta(days=1))
    assert prefetches(redis, POOL) == []
