"""The edges of the stack as its processes really run."""

from pathlib import Path

import httpx
import pytest
import redis
from redis.exceptions import NoPermissionError

from gpu_workers.protocol import keys
from tests.support.stack_addresses import LiveStack

pytestmark = [pytest.mark.engine, pytest.mark.stack]


def test_forwarded_headers_of_a_stranger_change_nothing_at_the_real_server(
    live_stack: LiveStack,
) -> None:
    """uvicorn by itself would believe loopback, and the edge then see a caller from elsewhere."""
    spoofed = {
        "x-forwarded-for": "198.51.100.9",
        "x-forwarded-proto": "http",
        "host": "evil.example",
    }
    answer = httpx.get(
        f"{live_stack.url}/v1/models",
        headers={"authorization": f"Bearer {live_stack.acme_key}"} | spoofed,
    )
    assert answer.status_code == 200
    assert "evil" not in answer.text
    assert httpx.get(f"{live_stack.url}/", headers=spoofed).status_code == 400


def test_who_keeps_a_connection_is_told_for_how_long_it_stays_open(live_stack: LiveStack) -> None:
    """Load balancers keep one for a minute; a server that closes first answers them nothing."""
    for path in ("/v1/models", "/account/login/", "/healthz"):
        assert httpx.get(f"{live_stack.url}{path}").headers.get_list("keep-alive") == ["timeout=75"]


def test_the_gpu_worker_serves_with_its_pools_user_and_is_told_no_other_secret(
    live_stack: LiveStack,
) -> None:
    lines = Path(f"/proc/{live_stack.worker().pid}/environ").read_text().split("\0")
    environ = dict(line.split("=", 1) for line in lines if line.startswith("PENSTOCK_"))
    secrets = ("SECRET_KEY", "API_KEY_PEPPER", "DATABASE_URL", "REDIS_URL", "GATEWAY_REDIS_URL")
    assert not [name for name in secrets if environ.get(f"PENSTOCK_{name}")]
    assert not environ["PENSTOCK_DISPATCH_REDIS_URL"]
    url = Path(environ["PENSTOCK_DISPATCH_REDIS_URL_FILE"]).read_text()
    assert f"//worker-{live_stack.model}:" in url
    with redis.Redis.from_url(url) as client:
        assert client.hgetall(keys.pool_workers(live_stack.model))
        with pytest.raises(NoPermissionError):
            client.hgetall(keys.policy_api_keys())
        with pytest.raises(NoPermissionError):
            client.hset(keys.policy_api_keys(), "id", "forged")
