"""The distribution's Prometheus and promtool, and the expressions that our files ask them."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
import yaml

from tests.support.places import NO_TLS, ROOT, free_port
from tests.support.polling import eventually_sync

MONITORING: Final = ROOT / "platform" / "monitoring"
RULES: Final = sorted((MONITORING / "rules").glob("*.yml"))
BOARDS: Final = sorted((MONITORING / "grafana" / "dashboards").glob("*.json"))
# What no stack of the tests has, nor a night's fsck; its expressions have recorded readings.
WITHOUT_READINGS: Final = re.compile(r"penstock_gpu_|penstock_fsck_|spec_decode|speculative")
_METRIC: Final = re.compile(r"\b(?:penstock[a-z0-9_:]+|vllm:[a-z0-9_]+|up)\b(?!=)")


def needs_prometheus() -> None:
    """Skip where the machine has none; `.ci/run` installs it."""
    if shutil.which("prometheus") is None or shutil.which("promtool") is None:
        pytest.skip(
            "This machine has no Prometheus; .ci/run installs it: apt-get install prometheus"
        )


def rules() -> list[dict[str, Any]]:
    """Return all recording and alert rules."""
    return [
        rule
        for file in RULES
        for group in yaml.safe_load(file.read_text())["groups"]
        for rule in group["rules"]
    ]


def board_expressions() -> list[str]:
    return [
        target["expr"]
        for file in BOARDS
        for panel in json.loads(file.read_text())["panels"]
        for target in panel.get("targets", [])
    ]


def metrics_of(expression: str) -> set[str]:
    """Return the names of the metrics and recorded series that an expression reads."""
    bare = re.sub(r'"[^"]*"', '""', expression)
    return set(_METRIC.findall(bare))


class Prometheus:
    """A server on loopback."""

    def __init__(self, url: str) -> None:
        self._client = httpx.Client(base_url=f"{url}/api/v1/", timeout=10, verify=NO_TLS)

    def get(self, path: str, **query: str) -> Any:
        answer = self._client.get(path, params=query).json()
        assert answer["status"] == "success", answer
        return answer["data"]

    def close(self) -> None:
        self._client.close()

    def series(self, expression: str) -> list[Any]:
        found: list[Any] = self.get("query", query=expression)["result"]
        return found

    def is_ready(self) -> bool:
        try:
            return bool(self.get("targets"))
        except (httpx.HTTPError, ValueError):
            return False


@contextmanager
def run_prometheus(folder: Path, *, web: str, token: str) -> Iterator[Prometheus]:
    """Run the distribution's Prometheus by our own settings, but for where the web process is and
    how often it looks, until the block ends."""
    (folder / "metrics-token").write_text(token)
    shutil.copytree(MONITORING / "rules", folder / "rules")
    text = (MONITORING / "prometheus.yml").read_text()
    settings = yaml.safe_load(text.replace("management:8000", web).replace(": 15s", ": 1s"))
    del settings["scrape_configs"][0]["dns_sd_configs"]
    settings["scrape_configs"][0]["static_configs"] = [{"targets": [web]}]
    (folder / "prometheus.yml").write_text(yaml.safe_dump(settings))
    port = free_port()
    command = ["prometheus", f"--config.file={folder / 'prometheus.yml'}"]
    command += [f"--storage.tsdb.path={folder / 'data'}", "--storage.tsdb.retention.size=64MB"]
    command += [f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        server = Prometheus(f"http://127.0.0.1:{port}")
        try:
            eventually_sync(server.is_ready, 30)
            yield server
        finally:
            server.close()
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
