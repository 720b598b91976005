"""manage.py in a checkout whose stack was started by `make up`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from local_stack import stack_env
from local_stack.settings import StackSettings
from local_stack.stack import Stack

from tests.support.places import LOOPBACK, ROOT, free_port
from tests.support.servers import TestServers


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with a `var` of its own."""
    (tmp_path / "manage.py").write_text((ROOT / "manage.py").read_text())
    for folder in ("platform", "tenants", "inference", "gpu_workers", "templates"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    (tmp_path / "var").mkdir()
    return tmp_path


def write_stack_env(checkout: Path, **changes: str) -> None:
    file = checkout / "var" / stack_env.NAME
    stack_env.write(file, os.environ | changes, os.environ["PENSTOCK_OWNER_DATABASE_URL"])


def manage(checkout: Path, *arguments: str, **environ: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, str(checkout / "manage.py"), *arguments],
        env={"PATH": os.environ["PATH"]} | environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def print_setting(name: str) -> tuple[str, str]:
    return "shell", f"--command=from django.conf import settings; print(settings.{name})"


def test_it_uses_the_stacks_settings_where_the_environment_has_none(
    checkout: Path, test_servers: TestServers
) -> None:
    test_servers.start_postgres()
    write_stack_env(checkout, PENSTOCK_PUBLIC_URL="http://of.the.stack")
    done = manage(checkout, *print_setting("PENSTOCK_PUBLIC_URL"))
    assert done.stdout.strip().endswith("http://of.the.stack")
    assert done.stderr == "Using the local stack's settings (var/stack.env).\n"


def test_an_environment_that_is_set_is_used_alone(checkout: Path) -> None:
    write_stack_env(checkout, PENSTOCK_PUBLIC_URL="http://of.the.stack")
    given = {name: text for name, text in os.environ.items() if name.startswith("PENSTOCK_")}
    done = manage(checkout, *print_setting("PENSTOCK_PUBLIC_URL"), **given)
    assert done.stdout.strip().endswith(given["PENSTOCK_PUBLIC_URL"])
    assert "local stack" not in done.stderr


@pytest.mark.parametrize(
    "given", [{"PENSTOCK_LOG_LEVEL": "info"}, {"PENSTOCK_SECRET_KEY_FILE": "/a/file"}]
)
def test_an_environment_that_is_set_in_part_is_not_completed(
    checkout: Path, given: dict[str, str]
) -> None:
    write_stack_env(checkout)
    done = manage(checkout, "check", **given)
    assert done.returncode == 1
    assert done.stderr.startswith("Penstock cannot start: ")
    assert "PENSTOCK_DATABASE_URL is missing" in done.stderr


def test_a_variable_of_make_up_alone_leaves_the_environment_unset(checkout: Path) -> None:
    assert not stack_env.has_settings({"PENSTOCK_WEB_PORT": "8100", "PENSTOCK_ENGINE": "cpu"})
    assert not stack_env.has_settings({"PENSTOCK_SECRET_KEY": ""})
    assert stack_env.has_settings({"PENSTOCK_DATABASE_URL": "postgresql://db/penstock"})


def test_settings_for_checks_are_left_alone(checkout: Path) -> None:
    write_stack_env(checkout)
    done = manage(checkout, "check", DJANGO_SETTINGS_MODULE="control_plane.settings_for_checks")
    assert done.returncode == 0, done.stderr
    assert "local stack" not in done.stderr


@pytest.mark.parametrize(
    "command", [pytest.param("migrate", marks=pytest.mark.rare), "load_functions"]
)
def test_a_stack_that_is_down_is_said_to_be(checkout: Path, command: str) -> None:
    nowhere = f"{LOOPBACK}:{free_port()}"
    write_stack_env(
        checkout,
        PENSTOCK_DATABASE_URL=f"postgresql://nobody@{nowhere}/penstock",
        PENSTOCK_DISPATCH_REDIS_URL=f"redis://{nowhere}/0",
    )
    file = checkout / "var" / stack_env.NAME
    file.write_text(
        file.read_text().replace(
            os.environ["PENSTOCK_OWNER_DATABASE_URL"], f"postgresql://nobody@{nowhere}/penstock"
        )
    )
    done = manage(checkout, command)
    assert done.returncode == 3
    first, *others = done.stderr.splitlines()
    assert first.startswith("Using the local stack's settings (var/stack.env).")
    assert "`make up`" in first
    assert len(others) == 1
    assert "not reachable" in others[0]


def test_only_a_server_that_takes_no_connection_is_down(test_servers: TestServers) -> None:
    port = free_port()
    environ = {
        "PENSTOCK_DATABASE_URL": f"postgresql://u:p@{LOOPBACK}:{port}/penstock",
        "PENSTOCK_DISPATCH_REDIS_URL": test_servers.dispatch_redis.url,
        "PENSTOCK_REDIS_URL": "redis+sentinel://u:p@one:1,two:2/penstock/0",
    }
    assert stack_env.servers_down(environ) == [f"PostgreSQL at {LOOPBACK}:{port}"]


def test_the_file_is_readable_by_its_owner_alone_and_holds_what_the_control_plane_reads(
    checkout: Path,
) -> None:
    write_stack_env(checkout, PENSTOCK_MODEL_PATH="/a/model", PENSTOCK_STACK="a-mark")
    file = checkout / "var" / stack_env.NAME
    assert file.stat().st_mode & 0o777 == 0o600
    names = {line.partition("=")[0] for line in file.read_text().splitlines()}
    assert {"PENSTOCK_SECRET_KEY", "PENSTOCK_OWNER_DATABASE_URL"} <= names
    assert names <= set(stack_env.VARIABLES)


def test_e_mails_go_to_a_folder_of_the_stack_unless_a_server_is_given(tmp_path: Path) -> None:
    def email_url(**given: str) -> str:
        settings = StackSettings.read(tmp_path, given)
        stack = Stack(tmp_path, tmp_path / "var", settings, data_folder=tmp_path / "data")
        return stack.environ["PENSTOCK_EMAIL_URL"]

    (tmp_path / "var").mkdir()
    assert email_url() == f"file:{tmp_path / 'var' / 'mail'}"
    assert email_url(PENSTOCK_EMAIL_URL="smtp://relay:25") == "smtp://relay:25"
