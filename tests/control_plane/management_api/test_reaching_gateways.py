"""A change by the API is in the gateways' snapshot when its answer is."""

import pytest
from redis import Redis

from gpu_workers.protocol import keys
from gpu_workers.protocol.codec import decode_api_key
from gpu_workers.protocol.policy import ApiKeyPolicy
from tests.support.api_client import ApiClient
from tests.support.two_tenants import House, two_tenants

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def acme(db: None) -> House:
    return two_tenants().acme


def written(redis: Redis, masked: str) -> ApiKeyPolicy | None:
    data = redis.hget(keys.policy_api_keys(), masked.split("-")[1])
    return decode_api_key(data) if isinstance(data, bytes) else None


def test_a_key_is_known_once_it_is_made_and_refused_once_it_is_revoked(
    transactional_db: None, dispatch_redis_url: str, acme: House
) -> None:
    admin = ApiClient(acme.tenant.id, user=acme.people["admin"])
    with Redis.from_url(dispatch_redis_url) as redis:
        made = admin.post("keys", {"project_id": str(acme.project.id)}).json()
        known = written(redis, made["masked"])
        assert known is not None and known.refusal is None
        admin.post(
            "quotas",
            {"api_key_id": made["id"], "limit": "requests_per_minute", "value": 5},
        )
        limited = written(redis, made["masked"])
        assert limited is not None and [limit.value for limit in limited.limits] == [5]
        admin.post(f"keys/{made['id']}/revoke")
        revoked = written(redis, made["masked"])
        assert revoked is not None and revoked.refusal == "This API key has been revoked."
