import pytest
from django.core.management import CommandError, call_command
from redis import Redis

from gpu_workers.protocol import keys
from tenants.access.load_seed import load_key, seed_load
from tenants.fsck import run_checks
from tenants.models import ApiKey, Membership, Tenant

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("operators_session", "policy_redis"),
]


def test_seeded_keys_work_and_are_in_the_snapshot(policy_redis: Redis) -> None:
    first = seed_load(tenants=3, keys=7)
    assert (first.tenants, first.api_keys) == (3, 7)
    assert policy_redis.hlen(keys.policy_api_keys()) == 7
    assert list(run_checks()) == []
    record = ApiKey.objects.find(load_key(6))
    assert record is not None and record.tenant.name == "Load 000000"
    assert Membership.objects.count() == 3


def test_seeding_again_adds_only_what_is_missing() -> None:
    seed_load(tenants=2, keys=3)
    again = seed_load(tenants=3, keys=5)
    assert (again.tenants, again.api_keys) == (1, 2)
    assert (Tenant.objects.count(), ApiKey.objects.count()) == (3, 5)
    nothing = seed_load(tenants=3, keys=5)
    assert (nothing.tenants, nothing.api_keys) == (0, 0)


def test_no_database_is_filled_by_mistake() -> None:
    with pytest.raises(CommandError, match="--into-this-database"):
        call_command("seed_load", "--tenants", "1", "--keys", "1")
    assert not Tenant.objects.exists()
