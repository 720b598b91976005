import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest
from django.core.management import call_command

from tests.support.places import ROOT


def manage(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(ROOT / "manage.py"), *arguments],
        env={"PATH": os.environ["PATH"]} | environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def penstock_environ(**changes: str) -> dict[str, str]:
    ours = {name: value for name, value in os.environ.items() if name.startswith("PENSTOCK_")}
    return ours | changes


def test_pythons_own_platform_module_is_not_shadowed() -> None:
    assert platform.python_version() == sys.version.split()[0]
    assert not list((ROOT / "platform").glob("*.py"))


@pytest.mark.django_db
def test_no_migration_is_missing() -> None:
    call_command("makemigrations", "--check", "--dry-run", verbosity=0)


def test_a_start_without_settings_is_one_sentence_that_names_them() -> None:
    # One variable is set, so that a stack of this checkout is not taken for what is meant.
    done = manage("check", PENSTOCK_LOG_LEVEL="info")
    assert done.returncode == 1
    assert done.stderr.startswith("Penstock cannot start: ")
    assert "PENSTOCK_SECRET_KEY is missing" in done.stderr
    assert "PENSTOCK_DATABASE_URL is missing" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_admins_pages_are_left_alone_until_an_address_or_a_check_asks_for_them() -> None:
    code = (
        "import django; django.setup(); "
        "from django.contrib import admin; from django.core.checks import run_checks; "
        "from tenants.models import Tenant; "
        "print(admin.site.is_registered(Tenant)); run_checks(tags=['admin']); "
        "print(admin.site.is_registered(Tenant))"
    )
    environ = penstock_environ(
        DJANGO_SETTINGS_MODULE="control_plane.settings_for_checks",
        PYTHONPATH=f"{ROOT}{os.pathsep}{ROOT / 'platform'}",
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == ["False", "True"], done.stderr


@pytest.mark.parametrize(
    ("chosen", "subdomains", "preload"),
    [("", False, False), ("subdomains", True, False), ("preload", True, True)],
)
def test_hsts_binds_other_hosts_only_by_choice(
    chosen: str, subdomains: bool, preload: bool
) -> None:
    code = (
        "from django.conf import settings; "
        "print(settings.SECURE_HSTS_SECONDS > 0, settings.SECURE_HSTS_INCLUDE_SUBDOMAINS, "
        "settings.SECURE_HSTS_PRELOAD)"
    )
    environ = penstock_environ(
        PENSTOCK_PUBLIC_URL="https://penstock.example",
        DJANGO_SETTINGS_MODULE="control_plane.settings",
        PYTHONPATH=f"{ROOT}{os.pathsep}{ROOT / 'platform'}",
        **({"PENSTOCK_HSTS": chosen} if chosen else {}),
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == ["True", str(subdomains), str(preload)], done.stderr


def test_djangos_deployment_check_has_nothing_to_say_behind_https() -> None:
    environ = penstock_environ(
        PENSTOCK_SECRET_KEY="".join(f"{number:02x}" for number in range(40)),
        PENSTOCK_PUBLIC_URL="https://penstock.example",
        PENSTOCK_ALLOWED_HOSTS="penstock.example",
        PENSTOCK_ALLOWED_ORIGINS="https://penstock.example",
    )
    done = manage("check", "--deploy", "--fail-level", "WARNING", **environ)
    assert done.returncode == 0, done.stderr
    assert "no issues" in done.stdout


@pytest.mark.rare
def test_the_settings_for_checks_need_nothing_from_outside() -> None:
    done = manage("check", DJANGO_SETTINGS_MODULE="control_plane.settings_for_checks")
    assert done.returncode == 0, done.stderr


def test_the_gateway_alone_imports_no_django() -> None:
    code = (
        "import sys, control_plane.gateway as gateway; gateway.application; "
        "sys.exit('django' in sys.modules)"
    )
    environ = penstock_environ(PYTHONPATH=f"{ROOT}{os.pathsep}{ROOT / 'platform'}")
    for name in ("PENSTOCK_DATABASE_URL", "PENSTOCK_SECRET_KEY", "PENSTOCK_REDIS_URL"):
        del environ[name]
    done = subprocess.run(
        [sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_what_pages_ask_of_celery_reaches_its_workers() -> None:
    """A process that only serves pages knows the broker too, not Celery's own default."""
    code = (
        "import django; django.setup(); "
        "from celery import current_app; from django.conf import settings; "
        "assert current_app.conf.broker_url == settings.CELERY_BROKER_URL; "
        "from inference.tasks import retry_dead_letter as task; "
        "assert task.app.conf.broker_url == settings.CELERY_BROKER_URL"
    )
    paths = f"{ROOT}{os.pathsep}{ROOT / 'platform'}"
    environ = penstock_environ(PYTHONPATH=paths, DJANGO_SETTINGS_MODULE="control_plane.settings")
    done = subprocess.run(
        [sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_celery_knows_every_task_that_its_clock_asks_for() -> None:
    from control_plane.celery import app

    app.loader.import_default_modules()
    asked = {entry["task"] for entry in app.conf.beat_schedule.values()}
    assert asked <= set(app.tasks)
    assert asked


def test_every_task_of_the_clock_goes_to_a_queue_that_a_worker_of_make_up_takes() -> None:
    from control_plane.celery import app
    from local_stack.programs import celery_programs

    taken = set()
    for program in celery_programs(Path("schedule")):
        words = program.command
        if "worker" in words:
            named = words[words.index("--queues") + 1] if "--queues" in words else None
            taken.add(named or app.conf.task_default_queue)
    asked = {
        app.amqp.router.route({}, entry["task"])["queue"].name
        for entry in app.conf.beat_schedule.values()
    }
    assert asked == taken == {"penstock", "webhooks", "adapters", "slow"}
