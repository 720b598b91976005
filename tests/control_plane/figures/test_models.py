"""The page of models says of today what PostgreSQL sums up from the records themselves."""

import re

import pytest
from django.test import Client

from inference.models import Pool, ServedModel
from tenants.isolation.scoping import operator_scope
from tests.support.figures.asking import in_one_hour, is_near
from tests.support.figures.direct_sums import summed
from tests.support.figures.world import POOLS, World

pytestmark = pytest.mark.django_db
_FACT = re.compile(r"<dt>(?P<name>.*?)</dt><dd>(?P<told>.*?)</dd>")
_LATENCIES = {"First token": "ttft_ms", "Between tokens": "inter_token_ms"}


@pytest.fixture
def _served(world: World) -> None:
    with operator_scope("test"):
        for model, pool in POOLS.items():
            found, _ = Pool.objects.get_or_create(name=pool)
            ServedModel.objects.create(name=model, pool=found, context_tokens=8192)


def facts_by_model(html: str) -> dict[str, dict[str, str]]:
    """Return what the page tells of each model, by name and without markup."""
    sections = re.findall(r'<section .*? aria-labelledby="model-\d+">(.*?)</section>', html, re.S)
    return {
        re.findall(r'<code class="wrap">(.*?)</code>', section)[0]: {
            fact["name"]: re.sub("<.*?>", "", fact["told"]).replace("&nbsp;", " ")
            for fact in _FACT.finditer(section)
        }
        for section in sections
    }


@pytest.mark.usefixtures("_served")
def test_a_model_has_the_sums_of_today(tenant: Client, world: World) -> None:
    address = f"/t/{world.acme.id}/models"
    hour, html = in_one_hour(lambda: tenant.get(address).content.decode())
    today = hour.date()
    exact = summed(today, today, "model", tenant_id=world.acme.id)
    told = facts_by_model(html)
    assert told.keys() == POOLS.keys()
    assert exact, "some of the world is of this hour"
    for model, facts in told.items():
        right = exact.get((model,))
        requests = right["requests"] if right else 0
        assert int(facts["Requests today"].replace(",", "").split()[0]) == requests
        if not right or not requests:
            assert "Served" not in facts
            continue
        served = requests - right["expired"] - right["failed"]
        assert facts["Served"].startswith(f"{100 * served / requests:.2f} %")
        for name, latency in _LATENCIES.items():
            shown = re.split(" p95 |, p99 ", facts[name])
            for each, milliseconds in zip(shown, right[latency] or [None] * 3, strict=True):
                assert is_near(each, milliseconds), (model, name, each, milliseconds)
