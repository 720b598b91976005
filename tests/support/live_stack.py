"""A whole Penstock for acceptance tests and the benchmark: the code of `make up`, in a folder and
on ports of its own, with the real vLLM. It ends with this process, also when that is killed."""

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from local_stack.installation.progress import Progress
from local_stack.settings import Ports, StackSettings
from local_stack.stack import Stack

from gpu_workers.config import read_env_file
from tests.support.places import LOOPBACK, ROOT, free_port
from tests.support.stack_addresses import LiveStack, Person

# By the process of a run of tests: each may have a stack at the same time.
KEPT_LOGS = ROOT / "var" / "live-stack-log" / os.environ.get("PYTEST_XDIST_WORKER", "alone")


@contextmanager
def run_live_stack(workers: int = 1, /, **environ: str) -> Iterator[LiveStack]:
    """Up until the block ends, with so many workers. `environ` are further variables for the
    services."""
    folder = Path(tempfile.mkdtemp(prefix="penstock-live-"))
    folder.chmod(0o711)  # PostgreSQL's user, which is not us where we are root, must get through
    ports = Ports(
        web=free_port(),
        postgres=free_port(),
        dispatch_redis=free_port(),
        redis=free_port(),
        worker_metrics=free_port(),
    )
    inherited = {name: value for name, value in os.environ.items() if not _is_of_tests(name)}
    # A name, as an address can have no passkeys; strangers may come, and providers run here.
    defaults = {
        "PENSTOCK_PUBLIC_URL": f"http://localhost:{ports.web}",
        "PENSTOCK_SIGN_UP": "open",
        "PENSTOCK_WEBHOOK_ALLOW_LOOPBACK": "1",
    }
    settings = StackSettings(
        ports=ports, gpu_groups=(None,) * workers, environ=inherited | defaults | environ
    )
    stack = Stack(ROOT, folder / "var", settings, data_folder=folder / "data", dies_with_us=True)
    progress = Progress(sys.stderr)
    try:
        stack.up(progress)
        demo_env = read_env_file(stack.demo_env_file)
        yield LiveStack(
            url=f"http://{LOOPBACK}:{ports.web}",
            public_url=stack.environ["PENSTOCK_PUBLIC_URL"],
            model=demo_env["PENSTOCK_MODEL"],
            acme_key=demo_env["PENSTOCK_ACME_KEY"],
            globex_key=demo_env["PENSTOCK_GLOBEX_KEY"],
            acme_owner=_person(demo_env, "ACME"),
            globex_owner=_person(demo_env, "GLOBEX"),
            operator=_person(demo_env, "OPERATOR"),
            database_url=demo_env["PENSTOCK_DATABASE_URL"],
            dispatch_redis_url=demo_env["PENSTOCK_DISPATCH_REDIS_URL"],
            var_folder=stack.var,
            environ=stack.environ,
        )
    finally:
        stack.down(progress)
        # The last run's logs stay, to be read when it failed.
        shutil.rmtree(KEPT_LOGS, ignore_errors=True)
        shutil.copytree(stack.var / "log", KEPT_LOGS)
        shutil.rmtree(folder, ignore_errors=True)


def _person(demo_env: dict[str, str], name: str) -> Person:
    return Person(
        email=demo_env[f"PENSTOCK_{name}_EMAIL"], password=demo_env[f"PENSTOCK_{name}_PASSWORD"]
    )


def _is_of_tests(name: str) -> bool:
    return name.startswith("PENSTOCK_") or name == "DJANGO_SETTINGS_MODULE"
