"""How long what signs in as a role of ours may take in PostgreSQL."""

import os
import subprocess
import sys

import pytest
from django.db import connection

from tenants.isolation.scoping import operator_scope
from tests.support.places import ROOT

pytestmark = pytest.mark.django_db
_IDLE = "idle_in_transaction_session_timeout"
_ASKED = f"SELECT current_setting('statement_timeout'), current_setting('{_IDLE}')"


def test_a_page_has_a_minute_for_a_statement_and_between_two() -> None:
    with connection.cursor() as cursor:
        cursor.execute(_ASKED)
        assert cursor.fetchone() == ("1min", "1min")


def test_who_becomes_an_operator_gains_no_time() -> None:
    with operator_scope("test"), connection.cursor() as cursor:
        cursor.execute(_ASKED)
        assert cursor.fetchone() == ("1min", "1min")


@pytest.mark.parametrize(
    "command",
    [
        ["manage.py", "shell", "--no-imports", "-c"],
        ["-c"],
    ],
)
def test_commands_and_celery_workers_take_the_time_that_they_need(command: list[str]) -> None:
    asked = (
        "from django.db import connection as c; c.ensure_connection(); k = c.cursor(); "
        f'k.execute("{_ASKED}"); '
        "print(k.fetchone())"
    )
    as_celery = (
        "import django; django.setup(); from control_plane import celery; "
        "from celery.signals import celeryd_init; celeryd_init.send(sender='here'); "
    )
    code = asked if command[0] == "manage.py" else as_celery + asked
    environ = os.environ | {
        "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'platform'}",
        "DJANGO_SETTINGS_MODULE": "control_plane.settings",
    }
    done = subprocess.run(
        [sys.executable, *command, code],
        env=environ,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout.strip().endswith("('0', '10min')"), done.stderr
