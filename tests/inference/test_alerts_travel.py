"""An alert's whole way: a request through gateway and worker uses up half a quota, the control
plane notices, a Celery worker of its own queue delivers, and the tenant's server verifies it."""

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from asgiref.sync import sync_to_async
from django.conf import settings as django_settings
from pytest_django import Settings
from redis.asyncio import Redis
from standardwebhooks import Webhook

from inference.models import Pool, ServedModel
from tenants.access.api_keys import issue_api_key
from tenants.isolation.scoping import operator_scope
from tenants.models import Project, Quota
from tenants.tasks import raise_quota_alerts
from tenants.webhooks.endpoints import add_endpoint
from tenants.webhooks.models import Delivery, DeliveryAttempt
from tests.support.gateways.cast import MODEL, POOL
from tests.support.gateways.processes import a_gateway, a_sim_worker
from tests.support.places import ROOT
from tests.support.polling import eventually
from tests.support.projects import make_project
from tests.support.webhooks.receiver import Receiver, a_receiver

pytestmark = [pytest.mark.stack, pytest.mark.django_db(transaction=True)]
QUOTA_TOKENS = 400


@dataclass(frozen=True, kw_only=True)
class Acme:
    project: Project
    key: str
    secret: str


@pytest.fixture
def receiver(settings: Settings) -> Iterator[Receiver]:
    settings.PENSTOCK_WEBHOOK_ALLOW_LOOPBACK = True
    with a_receiver() as receiver:
        yield receiver


@contextlib.asynccontextmanager
async def a_webhook_worker(folder: Path) -> AsyncIterator[None]:
    """Celery's, as `make up` starts it, with a clock in it."""
    command = [sys.executable, "-m", "celery", "--app", "control_plane.celery", "worker", "--beat"]
    command += ["--queues", "webhooks", "--pool", "threads", "--concurrency", "2"]
    command += ["--without-gossip", "--without-mingle", "--loglevel", "ERROR"]
    command += ["--schedule", str(folder / "beat")]
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=ROOT,
        env={
            **os.environ,
            "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'platform'}",
            "PENSTOCK_WEBHOOK_ALLOW_LOOPBACK": "1",
        },
    )
    try:
        yield
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


def _set_up(receiver_url: str) -> Acme:
    with operator_scope("test"):
        project = make_project("Acme", "premium")
        ServedModel.objects.create(
            name=MODEL, pool=Pool.objects.create(name=POOL), context_tokens=2048
        )
        Quota.objects.create(tenant=project.tenant, limit="tokens_per_day", value=QUOTA_TOKENS)
        new = add_endpoint(
            project.tenant, url=receiver_url, event_types=["quota.threshold_reached"]
        )
        key = issue_api_key(project).key
    return Acme(project=project, key=key, secret=new.secret.text)


def _log() -> list[tuple[str, int | None]]:
    with operator_scope("test"):
        state = Delivery.objects.get().state
        return [(state, attempt.status_code) for attempt in DeliveryAttempt.objects.all()]


async def test_half_a_quota_used_is_a_webhook_that_verifies(
    receiver: Receiver,
    dispatch_redis: Redis,
    gateway_redis_url: str,
    worker_redis_url: Callable[[str], str],
    tmp_path: Path,
) -> None:
    acme = await sync_to_async(_set_up)(receiver.url)
    body = {"model": MODEL, "prompt": "Talk.", "max_tokens": 250, "ignore_eos": True}
    async with (
        a_gateway(gateway_redis_url, pepper=django_settings.PENSTOCK_API_KEY_PEPPER) as url,
        a_sim_worker(worker_redis_url(POOL), PENSTOCK_SIM_STEP_MS="1"),
        httpx.AsyncClient(base_url=url, timeout=60) as client,
        a_webhook_worker(tmp_path),
    ):
        headers = {"Authorization": f"Bearer {acme.key}"}
        answer = await client.post("/v1/completions", json=body, headers=headers)
        assert answer.status_code == 200, answer.text
        used = answer.json()["usage"]["total_tokens"]
        assert QUOTA_TOKENS / 2 <= used < QUOTA_TOKENS * 0.8
        assert await sync_to_async(raise_quota_alerts)() == 1
        assert await sync_to_async(raise_quota_alerts)() == 0
        await eventually(lambda: receiver.requests, timeout_seconds=60)
        await eventually(lambda: sync_to_async(_log)(), timeout_seconds=10)
    (request,) = receiver.requests
    told = Webhook(acme.secret).verify(request.body, request.headers)
    assert told["type"] == "quota.threshold_reached"
    assert told["data"]["percent"] == 50
    # What is not settled yet counts as it was reserved.
    assert used <= told["data"]["used_tokens"] < QUOTA_TOKENS * 0.8
    assert told["data"]["quota_tokens"] == QUOTA_TOKENS
    assert await sync_to_async(_log)() == [("delivered", 200)]
