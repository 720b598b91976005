import re
from collections.abc import Iterator
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest
from control_plane.status import front_page
from control_plane.status.health import Health
from control_plane.status.viewers import Viewers
from django.contrib.staticfiles import finders
from django.test import AsyncClient
from pytest_django import Settings
from redis import Redis

from tests.support.fleet import model_policy, write_policy, write_worker


@pytest.fixture(autouse=True)
def _fresh_health(
    monkeypatch: pytest.MonkeyPatch, dispatch_redis_url: str, redis_url: str
) -> Iterator[None]:
    """Nothing remembered from the test before; no PostgreSQL, which the page does not need."""
    health = Health(dispatch_redis_url=dispatch_redis_url, redis_url=redis_url)
    monkeypatch.setattr(front_page, "health", health)
    yield


async def page() -> Any:
    answer = await AsyncClient().get("/")
    assert answer.status_code == 200
    return answer


def unwell(answer: Any) -> set[str]:
    """The parts that the page says are not well."""
    return {part.name for part in answer.context["unwell"]}


@pytest.mark.usefixtures("functions_loaded")
async def test_it_says_what_runs_and_how_to_call_it(empty_redis: Redis) -> None:
    write_policy(empty_redis, model_policy("cold"), model_policy("demo"))
    write_worker(empty_redis, "demo")
    answer = await page()
    text = answer.content.decode()
    assert unwell(answer) == set()
    assert "demo-worker" in text and "3 of 8" in text
    assert "curl -N http://testserver/v1/chat/completions" in text
    # The line uses a model that would answer now.
    assert "{&quot;model&quot;: &quot;demo&quot;" in text
    assert "Bearer $PENSTOCK_API_KEY" in text
    assert not re.search(r"pk-[a-z0-9]{16}-", text)


@pytest.mark.usefixtures("functions_loaded")
async def test_a_stranger_reads_how_to_call_it_and_no_figure(
    empty_redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(front_page, "viewers", Viewers(networks=[ip_network("10.0.0.0/8")]))
    write_policy(empty_redis, model_policy("demo"))
    write_worker(empty_redis, "demo")
    answer = await AsyncClient().get("/")
    text = answer.content.decode()
    assert "All systems operational" in text and "/v1/chat/completions" in text
    for figure in ("demo-worker", "3 of 8", "PostgreSQL", "Policy snapshot", "/metrics"):
        assert figure not in text


@pytest.mark.usefixtures("functions_loaded")
async def test_a_model_without_a_worker_is_no_system_that_is_operational(
    empty_redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_policy(empty_redis, model_policy("cold"), model_policy("demo"))
    write_worker(empty_redis, "demo")
    text = (await page()).content.decode()
    assert "1 of 2 models without a ready worker" in text
    assert "All systems operational" not in text
    monkeypatch.setattr(front_page, "viewers", Viewers(networks=[ip_network("10.0.0.0/8")]))
    text = (await page()).content.decode()
    assert "Some models are unavailable" in text and "1 of 2" not in text


async def test_it_says_what_is_not_well(empty_redis: Redis) -> None:
    answer = await page()
    assert unwell(answer) == {"Policy snapshot", "Redis functions", "Workers"}
    assert all(name in answer.content.decode() for name in unwell(answer))
    assert answer.context["workers"] == []


async def test_it_comes_also_while_everything_is_down(monkeypatch: pytest.MonkeyPatch) -> None:
    nowhere = "redis://127.0.0.1:1/0"
    monkeypatch.setattr(front_page, "health", Health(dispatch_redis_url=nowhere, redis_url=nowhere))
    assert unwell(await page()) == {"Dispatch Redis", "Redis"}


@pytest.mark.usefixtures("functions_loaded")
async def test_it_names_no_tenants_own_model_and_no_host(empty_redis: Redis) -> None:
    write_policy(empty_redis, model_policy("demo"), model_policy("acme-own", tenant_ids=["acme"]))
    write_worker(empty_redis, "demo")
    write_worker(empty_redis, "acme-own")
    text = (await page()).content.decode()
    assert "acme-own" not in text
    assert "node-of-the-operator" not in text and "4242" not in text


async def test_it_is_plain_and_its_own(empty_redis: Redis) -> None:
    answer = await AsyncClient().get("/")
    assert "default-src 'none'" in answer["Content-Security-Policy"]
    text = answer.content.decode()
    assert "<script" not in text
    # Nothing is loaded from elsewhere.
    loaded = re.findall(r"<(?:link|img|script)[^>]+(?:href|src)=\"([^\"]+)\"", text)
    assert loaded and all(address.startswith("/static/") for address in loaded)


def test_its_style_loads_nothing_from_elsewhere() -> None:
    css = finders.find("penstock/front_page.css")
    assert isinstance(css, str) and "url(" not in Path(css).read_text()


async def test_its_files_are_served_without_a_collecting_step(settings: Settings) -> None:
    settings.WHITENOISE_AUTOREFRESH = False  # As in production: indexed at the start.
    for name in ("front_page.css", "mark.svg"):
        answer = await AsyncClient().get(f"/static/penstock/{name}")
        assert answer.status_code == 200
        assert answer["Cache-Control"] == "max-age=3600, public"
    assert (await AsyncClient().get("/static/penstock/none.css")).status_code == 404


async def test_a_host_that_is_not_ours_is_refused() -> None:
    answer = await AsyncClient().get("/", headers={"host": "evil.example"})
    assert answer.status_code == 400
