"""Prometheus' settings, rules and boards, as promtool judges them."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.signals.prometheus import (
    BOARDS,
    MONITORING,
    RULES,
    WITHOUT_READINGS,
    board_expressions,
    metrics_of,
    needs_prometheus,
    rules,
)

TESTS = sorted((MONITORING / "tests").glob("*.yml"))
ALERTS = [rule["alert"] for rule in rules() if "alert" in rule]


def promtool(*arguments: str | Path, cwd: Path | None = None) -> None:
    needs_prometheus()
    done = subprocess.run(
        ["promtool", *map(str, arguments)], capture_output=True, text=True, check=False, cwd=cwd
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_takes_the_rules() -> None:
    promtool("check", "rules", *RULES)


def test_promtool_takes_the_settings(tmp_path: Path) -> None:
    shutil.copytree(MONITORING, tmp_path / "monitoring")
    (tmp_path / "monitoring" / "metrics-token").write_text("a token")
    promtool("check", "config", "prometheus.yml", cwd=tmp_path / "monitoring")


def test_the_rules_do_what_their_tests_say() -> None:
    promtool("test", "rules", *TESTS)


def _alert_cases() -> list[dict[str, Any]]:
    return [
        case
        for file in TESTS
        for test in yaml.safe_load(file.read_text())["tests"]
        for case in test.get("alert_rule_test", [])
    ]


@pytest.mark.parametrize("alert", ALERTS)
def test_every_alert_fires_in_one_case_and_is_silent_in_another(alert: str) -> None:
    cases = [case for case in _alert_cases() if case["alertname"] == alert]
    assert {bool(case["exp_alerts"]) for case in cases} == {True, False}


def test_what_no_stack_of_the_tests_has_is_tested_on_recorded_readings() -> None:
    tested = {
        case["expr"]
        for file in TESTS
        for test in yaml.safe_load(file.read_text())["tests"]
        for case in test.get("promql_expr_test", [])
    }
    asked = {expr for expr in board_expressions() if WITHOUT_READINGS.search(expr)}
    assert asked and asked <= tested


def test_what_is_read_under_a_rules_name_is_recorded() -> None:
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    asked = [*board_expressions(), *(rule["expr"] for rule in rules())]
    named = {name for expr in asked for name in metrics_of(expr) if name.startswith("penstock:")}
    assert named <= recorded


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.stem)
def test_a_board_says_what_each_panel_shows(board: Path) -> None:
    content = json.loads(board.read_text())
    panels = [panel for panel in content["panels"] if panel["type"] != "row"]
    assert panels
    for panel in panels:
        assert panel["title"] and panel["description"] and panel["targets"]
        assert panel["datasource"]["uid"] == "penstock"
    ids = [panel["id"] for panel in content["panels"]]
    assert len(ids) == len(set(ids))
    # From no other host, and with nothing that a scrape would not bring.
    assert not re.search(r"https?://", board.read_text())
