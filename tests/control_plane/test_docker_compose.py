"""docker-compose.yml and the Dockerfile, checked without a docker engine: they are not run here."""

import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from control_plane.env import GatewayEnvironment, Settings
from control_plane.planes.paths import Plane
from django.core.management import get_commands
from local_stack import programs

from gpu_workers.config import WorkerConfig
from tests.support.places import ROOT

SECRETS = {
    "PENSTOCK_SECRET_KEY": "s" * 40,
    "PENSTOCK_API_KEY_PEPPER": "p" * 40,
    "PENSTOCK_POSTGRES_PASSWORD": "postgrespassword",
    "PENSTOCK_POSTGRES_OWNER_PASSWORD": "ownerpassword",
    "PENSTOCK_POSTGRES_WEB_PASSWORD": "webpassword",
    "PENSTOCK_REDIS_PASSWORD": "redispassword",
    "PENSTOCK_GATEWAY_REDIS_PASSWORD": "gatewaypassword",
    "PENSTOCK_WORKER_REDIS_PASSWORD": "workerpassword",
}
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
BUILT = [name for name, service in SERVICES.items() if "build" in service]
CONTROL_PLANE = [name for name in BUILT if not name.startswith("worker")]
# The gateway has less: see below.
WITH_DJANGO = [name for name in CONTROL_PLANE if name != "gateway"]
WORKERS = [name for name in BUILT if name.startswith("worker")]


def _substituted(text: str) -> str:
    def value(match: re.Match[str]) -> str:
        default = match[2][2:] if (match[2] or "").startswith(":-") else ""
        return SECRETS.get(match[1], default)

    return re.sub(r"\$\{(\w+)(:[-?][^}]*)?\}", value, text).replace("$$", "$")


def _environ(service: str) -> dict[str, str]:
    given = SERVICES[service].get("environment", {})
    return {name: _substituted(str(value)) for name, value in given.items()}


def _python_commands(service: str) -> list[list[str]]:
    command: list[str] = SERVICES[service].get("command", [])
    if command[:2] == ["sh", "-c"]:
        script = re.sub(r" > \S+$", "", command[2].rpartition(" | ")[2])
        return [shlex.split(part) for part in script.split("&&")]
    return [command] if command else []


def test_it_holds_every_part_of_the_stack() -> None:
    servers = {"postgres", "dispatch-redis", "redis"}
    parts = servers | {"edge", "gateway", "management"}
    parts |= {"celery", "webhooks", "slow", "adapters", "beat", "collector"}
    assert parts <= SERVICES.keys()
    assert SERVICES["worker-cpu"]["profiles"] == ["cpu"]
    assert SERVICES["worker-gpu"]["profiles"] == ["gpu"]
    devices = SERVICES["worker-gpu"]["deploy"]["resources"]["reservations"]["devices"]
    assert devices[0]["driver"] == "nvidia"


@pytest.mark.parametrize("service", BUILT)
def test_every_build_context_and_target_exists(service: str) -> None:
    build = SERVICES[service]["build"]
    assert (ROOT / build["context"] / "Dockerfile").is_file()
    assert re.search(rf"(?m)^FROM \S+ AS {re.escape(build['target'])}$", DOCKERFILE)


def test_every_stage_that_the_dockerfile_names_is_defined_before() -> None:
    defined: set[str] = set()
    for line in DOCKERFILE.splitlines():
        if copied := re.match(r"COPY --from=(\S+)", line):
            assert copied[1] in defined
        if stage := re.match(r"FROM (\S+) AS (\S+)", line):
            assert ":" in stage[1] or stage[1] in defined
            defined.add(stage[2])


def test_every_file_that_the_dockerfile_copies_exists() -> None:
    for line in DOCKERFILE.splitlines():
        if line.startswith("COPY ") and "--from" not in line:
            for source in line.split()[1:-1]:
                assert (ROOT / source).exists(), source


def test_no_image_has_tests_or_the_history_of_the_sources() -> None:
    copied = [line.split()[1:-1] for line in DOCKERFILE.splitlines() if line.startswith("COPY ")]
    sources = {source for sources in copied for source in sources if not source.startswith("--")}
    assert {"inference", "gpu_workers"} <= sources
    assert not {source for source in sources if source.startswith((".", "tests", "*"))}


@pytest.mark.parametrize("service", CONTROL_PLANE)
def test_every_command_of_the_control_plane_exists(service: str) -> None:
    for command in _python_commands(service):
        assert command[0] == "python"
        if command[1] == "-m":
            assert importlib.util.find_spec(command[2])
        else:
            assert command[1] == "manage.py"
            assert command[2] in get_commands()


def test_the_images_start_modules_that_exist() -> None:
    for module in re.findall(r'"-m", "([\w.]+)"', DOCKERFILE):
        assert importlib.util.find_spec(module), module
    for path in re.findall(r'"([\w.]+):application"', DOCKERFILE):
        assert importlib.util.find_spec(path), path


@pytest.mark.parametrize("service", WITH_DJANGO)
def test_the_control_plane_accepts_the_variables_it_is_given(service: str) -> None:
    settings = Settings.from_environ(_environ(service))
    assert "@postgres:5432/" in settings.database_url
    assert settings.dispatch_redis_url != settings.redis_url


@pytest.mark.parametrize("service", WITH_DJANGO)
def test_a_payment_provider_can_be_chosen_and_its_package_is_in_the_image(
    service: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = {
        "PENSTOCK_PAYMENT_PROVIDER": "stripe",
        "PENSTOCK_STRIPE_API_KEY": "sk_test_of_nobody",
        "PENSTOCK_STRIPE_WEBHOOK_SECRET": "whsec_of_nobody",
    }
    for name, value in chosen.items():
        monkeypatch.setitem(SECRETS, name, value)
    assert Settings.from_environ(_environ(service)).payment_provider == "stripe"
    assert "requirements/web.txt" in DOCKERFILE
    assert re.search(r"(?m)^stripe==", (ROOT / "requirements" / "web.txt").read_text())


@pytest.mark.parametrize("service", WORKERS)
def test_the_worker_accepts_the_variables_it_is_given(service: str) -> None:
    environ = _environ(service)
    assert environ.keys() <= WorkerConfig.variables().keys()
    assert WorkerConfig.from_environ(environ).model == "penstock-demo"


def test_the_users_of_the_dispatch_redis_are_those_whose_urls_the_services_have(
    tmp_path: Path,
) -> None:
    """The service's own script, run here; that a server takes such a file has a test of its own."""
    file = "/var/lib/penstock/redis-users/users.acl"
    assert SERVICES["redis-users"]["volumes"][0].endswith(f":{Path(file).parent}")
    script = _substituted(SERVICES["redis-users"]["command"][2])
    assert script.endswith(f" > {file}")
    environ = _environ("redis-users") | {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"}
    written = tmp_path / "users.acl"
    script = script.replace(file, str(written))
    subprocess.run(["sh", "-c", script], env=environ, cwd=ROOT, check=True)
    rules = {line.split()[1]: line for line in written.read_text().splitlines()}
    assert rules.pop("default") == "user default reset off"
    for service, variable in (
        ("management", "PENSTOCK_DISPATCH_REDIS_URL"),
        ("gateway", "PENSTOCK_GATEWAY_REDIS_URL"),
        ("worker-cpu", "PENSTOCK_DISPATCH_REDIS_URL"),
    ):
        url = urlsplit(_environ(service)[variable])
        digest = hashlib.sha256(str(url.password).encode()).hexdigest()
        assert f"#{digest}" in rules.pop(str(url.username))
    assert not rules


def test_every_server_leaves_forwarded_headers_to_the_edge() -> None:
    assert '"--no-proxy-headers"' in DOCKERFILE
    served = re.search(r'"uvicorn", ("control_plane.asgi:application".*?)\]', DOCKERFILE, re.DOTALL)
    assert served is not None
    _, *options = re.findall(r'"([^"]+)"', served[1])
    for plane in Plane:
        application = f"control_plane.processes.{plane}:application"
        command = ["python", "-m", "uvicorn", application, *options]
        assert SERVICES[plane]["command"] == command
        assert importlib.util.find_spec(f"control_plane.processes.{plane}")
    local = programs.web_program(8000).command
    for option in ("--no-proxy-headers", "--timeout-keep-alive", "Keep-Alive:timeout=75"):
        assert option in options
        assert option in local


def test_what_the_profile_monitoring_mounts_is_there_and_its_settings_name_it() -> None:
    monitoring = {name for name, each in SERVICES.items() if each.get("profiles") == ["monitoring"]}
    assert monitoring == {"prometheus", "grafana"}
    mounted: dict[str, Path] = {}
    for name in monitoring:
        for volume in SERVICES[name]["volumes"]:
            source, target, *_ = volume.split(":")
            if source.startswith("./"):
                assert (ROOT / source).exists(), source
                mounted[target] = ROOT / source
        assert all(port.startswith("127.0.0.1:") for port in SERVICES[name]["ports"])
    providers = mounted["/etc/grafana/provisioning"] / "dashboards" / "penstock.yml"
    (provider,) = yaml.safe_load(providers.read_text())["providers"]
    assert provider["options"]["path"] in mounted
    settings = yaml.safe_load(mounted["/etc/prometheus/prometheus.yml"].read_text())
    assert settings["rule_files"] == ["rules/*.yml"] and "/etc/prometheus/rules" in mounted
    processes, workers = settings["scrape_configs"]
    assert set(processes["dns_sd_configs"][0]["names"]) == set(Plane)
    assert workers["http_sd_configs"][0]["url"] == "http://management:8000/metrics/targets"


def test_the_gateway_is_told_no_secret_of_management() -> None:
    environ = _environ("gateway")
    assert GatewayEnvironment.from_environ(environ).trusted_proxies
    given = " ".join(environ.values())
    for secret in SECRETS.keys() - {"PENSTOCK_API_KEY_PEPPER", "PENSTOCK_GATEWAY_REDIS_PASSWORD"}:
        assert SECRETS[secret] not in given
    assert SERVICES["gateway"]["volumes"] == []


def test_only_the_edge_has_a_port_and_can_say_who_is_calling() -> None:
    monitoring = {"prometheus", "grafana"}
    published = {name for name, service in SERVICES.items() if "ports" in service} - monitoring
    assert published == {"edge"}
    assert all(port.startswith("127.0.0.1:") for port in SERVICES["edge"]["ports"])
    address = _substituted(SERVICES["edge"]["networks"]["edge"]["ipv4_address"])
    (pool,) = COMPOSE["networks"]["edge"]["ipam"]["config"]
    assert ip_address(address) in ip_network(_substituted(pool["subnet"]))
    # Nothing that comes and goes is given this address.
    assert ip_address(address) not in ip_network(_substituted(pool["ip_range"]))
    for plane in Plane:
        assert SERVICES[plane]["networks"] == ["default", "edge"]
        proxies = GatewayEnvironment.from_environ(_environ(plane)).trusted_proxies
        assert proxies == (ip_network(address),)
    assert list(SERVICES["edge"]["networks"]) == ["edge"]


def test_gateways_can_be_scaled() -> None:
    assert not any("container_name" in service for service in SERVICES.values())
    assert not any("networks" in SERVICES[name] for name in ("postgres", "redis", "dispatch-redis"))
    caddyfile = (ROOT / "platform/edge/Caddyfile").read_text()
    for plane in Plane:
        assert re.search(rf"dynamic a {{\$\w+:{plane} 8000}}", caddyfile)
    assert SERVICES["edge"]["volumes"] == ["./platform/edge/Caddyfile:/etc/caddy/Caddyfile:ro"]


def test_what_others_wait_for_can_tell_its_health() -> None:
    for service in SERVICES.values():
        for awaited, condition in service.get("depends_on", {}).items():
            if condition["condition"] == "service_healthy":
                is_of_the_image = awaited in list(Plane) and "\nHEALTHCHECK" in DOCKERFILE
                assert is_of_the_image or "test" in SERVICES[awaited]["healthcheck"]


@pytest.mark.parametrize("service", ["postgres", "dispatch-redis", "redis", "edge", *BUILT])
def test_whatever_holds_prompts_or_secrets_leaves_no_core(service: str) -> None:
    assert SERVICES[service]["ulimits"]["core"] == 0


@pytest.mark.parametrize("service", ["dispatch-redis", "redis"])
def test_no_redis_keeps_arguments_of_commands(service: str) -> None:
    command = " ".join(SERVICES[service]["command"])
    assert "--crash-log-enabled no" in command and "--slowlog-log-slower-than -1" in command
    assert "--appendonly no" in command and re.search(r"--save ('')? ?--", command)


def test_no_image_runs_as_root() -> None:
    for target in {SERVICES[name]["build"]["target"] for name in BUILT}:
        assert _last_user(target) == "penstock"


def _last_user(stage: str) -> str:
    start = re.search(rf"(?m)^FROM (\S+) AS {re.escape(stage)}$", DOCKERFILE)
    assert start is not None
    body = DOCKERFILE[start.end() :].partition("\nFROM ")[0]
    users = re.findall(r"(?m)^USER (\S+)$", body)
    return users[-1] if users else _last_user(start[1])


@pytest.mark.skipif(
    shutil.which("docker-compose") is None,
    reason="the distribution's docker-compose is not installed; the file was only parsed",
)
@pytest.mark.parametrize("profile", ["cpu", "gpu"])
def test_docker_compose_accepts_the_file(profile: str, tmp_path: Path) -> None:
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), **SECRETS}
    command = ["docker-compose", "--profile", profile, "-f", str(ROOT / "docker-compose.yml")]
    printed = subprocess.run(
        [*command, "config"], env=environ, capture_output=True, text=True, check=False
    )
    assert printed.returncode == 0, printed.stderr
    assert yaml.safe_load(printed.stdout)["services"].keys() >= {
        "edge",
        "gateway",
        "management",
        f"worker-{profile}",
    }
