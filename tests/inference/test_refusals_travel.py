"""A refusal's whole way: from a gateway's answer to the tenant's page and API, also where the
gateway is killed after it."""

from datetime import UTC, datetime

import httpx
import pytest
from asgiref.sync import sync_to_async
from django.conf import settings as django_settings
from django.test import Client
from redis.asyncio import Redis

from gpu_workers.protocol import keys
from inference.models import Pool, ServedModel
from inference.tasks import collect_refusals
from tenants.access.api_keys import issue_api_key
from tenants.isolation.scoping import operator_scope
from tenants.models import ApiKey, Membership, User
from tests.support.gateways.cast import MODEL, POOL
from tests.support.gateways.processes import a_gateway_process
from tests.support.gateways.refused import told
from tests.support.polling import eventually
from tests.support.projects import make_project

pytestmark = [pytest.mark.stack, pytest.mark.django_db(transaction=True)]


def _set_up() -> tuple[ApiKey, str]:
    with operator_scope("test"):
        project = make_project("Acme", "premium")
        pool = Pool.objects.create(name=POOL)
        ServedModel.objects.create(name=MODEL, pool=pool, context_tokens=2048)
        alice = User.objects.create_user("alice@acme.example", "correct horse battery")
        Membership.objects.create(tenant=project.tenant, user=alice, role="viewer")
        issued = issue_api_key(project, name="laptop")
    return issued.record, issued.key


def _page_and_sums(key: ApiKey) -> tuple[str, list[dict[str, object]]]:
    client = Client()
    client.force_login(User.objects.get())
    page = client.get(f"/t/{key.tenant_id}/refusals").content.decode()
    today = str(datetime.now(UTC).date())
    sums = client.get(
        f"/api/v1/tenants/{key.tenant_id}/refusals",
        {"from": today, "group_by": "api_key,model,code"},
    )
    return page, sums.json()["data"]


async def test_what_a_gateway_refused_is_on_the_page_though_it_was_killed(
    dispatch_redis: Redis, gateway_redis_url: str
) -> None:
    key, secret = await sync_to_async(_set_up)()
    pepper = django_settings.PENSTOCK_API_KEY_PEPPER
    headers = {"Authorization": f"Bearer {secret}"}
    async with a_gateway_process(gateway_redis_url, pepper=pepper) as (url, process):
        async with httpx.AsyncClient(base_url=url, headers=headers, timeout=30) as client:
            for _ in range(3):
                body = {"model": MODEL, "prompt": "Talk.", "max_tokens": 10**6}
                refused = await client.post("/v1/completions", json=body)
                assert refused.status_code == 400
        await eventually(lambda: _told(dispatch_redis, 3))
        process.kill()
        await process.wait()
    assert await sync_to_async(collect_refusals)() == 3
    assert await dispatch_redis.xlen(keys.refusals()) == 0
    page, sums = await sync_to_async(_page_and_sums)(key)
    [row] = sums
    assert row == {
        "object": "refusal.total",
        "api_key_id": str(key.id),
        "model": MODEL,
        "code": refused.json()["error"]["code"],
        "refusals": 3,
    }
    assert refused.headers["x-request-id"][:8] in page and "laptop" in page
    assert "allows at most" in page


async def _told(redis: Redis, refusals: int) -> bool:
    return sum(each.count for batch in await told(redis) for each in batch.counts) == refusals
