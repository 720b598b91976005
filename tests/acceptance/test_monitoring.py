"""The distribution's Prometheus, by our own settings, beside a live stack with the real vLLM."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.polling import eventually_sync
from tests.support.signals.prometheus import (
    WITHOUT_READINGS,
    Prometheus,
    board_expressions,
    metrics_of,
    needs_prometheus,
    rules,
    run_prometheus,
)
from tests.support.stack_addresses import LiveStack

pytestmark = [pytest.mark.engine, pytest.mark.stack]

# A Celery task counts what PostgreSQL alone knows, four times a minute.
SECONDS = 45


@pytest.fixture(scope="module")
def prometheus(
    live_stack: LiveStack, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Prometheus]:
    """Scrapes the stack, while it is asked and refuses."""
    needs_prometheus()
    live_stack.manage("set_gpu_cost", live_stack.model, "--per-gpu-hour", "2.50")
    for adapter in ("", "acme/support"):
        fields = {"model": adapter} if adapter else {}
        # Only of a stream is the time between tokens known.
        answer = live_stack.ask(
            live_stack.acme_key, "What is Penstock?", max_tokens=16, stream=True, **fields
        )
        assert answer.status_code == 200, answer.text
    refused = live_stack.ask(live_stack.acme_key, "What is Penstock?", temperature=99)
    assert refused.status_code == 400
    place = live_stack.url.removeprefix("http://")
    token = live_stack.environ["PENSTOCK_METRICS_TOKEN"]
    folder = tmp_path_factory.mktemp("prometheus")
    with run_prometheus(folder, web=place, token=token) as server:
        yield server


def test_the_worker_is_found_by_http_sd_and_answers(
    live_stack: LiveStack, prometheus: Prometheus
) -> None:
    def is_up() -> bool:
        return {each["metric"]["job"] for each in prometheus.series("up == 1")} == {
            "penstock",
            "penstock-workers",
        }

    eventually_sync(is_up, SECONDS)
    (worker,) = prometheus.series('up{job="penstock-workers"}')
    assert worker["metric"]["pool"] == live_stack.model
    assert f"http://{worker['metric']['instance']}/metrics" == live_stack.worker().metrics_url


def test_every_expression_of_boards_and_rules_returns_a_series(prometheus: Prometheus) -> None:
    recorded = [rule["record"] for rule in rules() if "record" in rule]
    asked = [*board_expressions(), *recorded]
    asked = [expr for expr in dict.fromkeys(asked) if not WITHOUT_READINGS.search(expr)]
    assert len(asked) >= 40

    def all_have() -> bool:
        asked[:] = [expr for expr in asked if not prometheus.series(expr)]
        return not asked

    try:
        eventually_sync(all_have, SECONDS)
    except AssertionError:
        pytest.fail(f"without a series: {asked}")


def test_every_alert_reads_series_that_there_are(prometheus: Prometheus) -> None:
    alerts = [rule["expr"] for rule in rules() if "alert" in rule]
    # A worker that is degraded says so; one that is not has no such series.
    ours = {name for expr in alerts for name in metrics_of(expr)} - {"penstock_worker_degraded"}
    wanted = {name for name in ours if not WITHOUT_READINGS.search(name)}
    assert len(wanted) > 15

    def missing() -> set[str]:
        return wanted - set(prometheus.get("label/__name__/values"))

    try:
        eventually_sync(lambda: not missing(), SECONDS)
    except AssertionError:
        pytest.fail(f"nothing is called {missing()}")


def test_no_alert_is_evaluated_with_an_error(prometheus: Prometheus) -> None:
    def all_looked_at() -> bool:
        groups = prometheus.get("rules")["groups"]
        return all(rule["health"] != "unknown" for group in groups for rule in group["rules"])

    eventually_sync(all_looked_at, SECONDS)
    for group in prometheus.get("rules")["groups"]:
        for rule in group["rules"]:
            assert rule["health"] == "ok", (rule["name"], rule.get("lastError"))


def test_the_file_with_the_token_is_in_no_series(
    live_stack: LiveStack, prometheus: Prometheus, tmp_path: Path
) -> None:
    token = re.escape(live_stack.environ["PENSTOCK_METRICS_TOKEN"])
    assert not re.search(token, str(prometheus.get("targets")))
