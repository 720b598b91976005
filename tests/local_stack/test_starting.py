"""`make up` where the engine's packages are still being installed."""

import io
import sys
from pathlib import Path

import pytest
from local_stack import bootstrap
from local_stack.installation.environments import CONTROL_PLANE, Environment
from local_stack.installation.install_errors import InstallError, InstallProblem
from local_stack.installation.progress import Progress

from tests.local_stack.wheels import make_wheel

ENGINE = Environment(
    folder=".venv-engine",
    lock="engine.txt",
    pythons=(sys.version_info[:2],),
    needed_bytes=1,
    source_roots=(".",),
)
# Makes an environment at once, and then fails to install anything into it.
UV_ERROR = "error: nothing can be installed"
UV = f"""#!/bin/sh
for last; do :; done
if [ "$1" = venv ]; then mkdir -p "$last/bin" && : > "$last/bin/python"; exit; fi
echo "{UV_ERROR}"
exit 1
"""


@pytest.fixture
def start(root: Path, tmp_path: Path, without_settings: pytest.MonkeyPatch) -> Path:
    """The control plane's Python in a checkout where it is made: a script that the test writes."""
    wheel = make_wheel(tmp_path / "wheels", "uv", "0.0.1", script=UV)
    without_settings.setenv("PIP_NO_INDEX", "1")
    without_settings.setenv("PIP_FIND_LINKS", str(wheel.file.parent))
    lock = root / CONTROL_PLANE.lock
    lock.parent.mkdir()
    lock.write_text(wheel.pinned)
    (root / ENGINE.lock).write_text("# nothing\n")
    python = CONTROL_PLANE.python(root)
    python.parent.mkdir(parents=True)
    CONTROL_PLANE.stamp_path(root).write_text(CONTROL_PLANE.stamp(root))
    python.touch(0o755)
    return python


def test_the_exit_status_is_that_of_the_start(root: Path, start: Path) -> None:
    start.write_text('#!/bin/sh\n[ "$*" = "-m local_stack up" ] && exit 7\n')
    ENGINE.path(root).mkdir()
    ENGINE.stamp_path(root).write_text(ENGINE.stamp(root))
    assert bootstrap.make_and_start(root, ENGINE, Progress(io.StringIO())) == 7


def test_a_start_ends_where_the_engine_cannot_be_installed(root: Path, start: Path) -> None:
    start.write_text("#!/bin/sh\nexec sleep 600\n")
    with pytest.raises(InstallError, match=UV_ERROR) as refused:
        bootstrap.make_and_start(root, ENGINE, Progress(io.StringIO()))
    assert refused.value.problem == InstallProblem.OTHER
