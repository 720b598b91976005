"""The settings of `make up`, from the environment and an `.env` file in the checkout."""

import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Self

from gpu_workers.config import read_env_file
from local_stack.programs import KEEP_ALIVE_SECONDS
from local_stack.services import ServiceError

MOST_KEEP_ALIVE_SECONDS = 3600


class InvalidSetting(ServiceError):
    """A setting cannot be used; `variable` is where it was read."""

    def __init__(self, variable: str, message: str) -> None:
        super().__init__(message)
        self.variable = variable


class TooFewGpus(ServiceError):
    """The machine has fewer GPUs than one worker needs."""

    def __init__(self, *, needed: int, found: int) -> None:
        super().__init__(
            f"One worker needs {needed} GPUs (tensor x pipeline parallel size) and the machine "
            f"has {found}: lower PENSTOCK_TENSOR_PARALLEL_SIZE or _PIPELINE_PARALLEL_SIZE."
        )
        self.needed = needed
        self.found = found


@dataclass(frozen=True, kw_only=True)
class Ports:
    """Loopback ports of the processes that we start ourselves."""

    # PENSTOCK_WEB_PORT
    web: int = 8000
    # PENSTOCK_POSTGRES_PORT
    postgres: int = 15432
    # PENSTOCK_DISPATCH_REDIS_PORT
    dispatch_redis: int = 16379
    # PENSTOCK_REDIS_PORT
    redis: int = 16380
    # PENSTOCK_WORKER_METRICS_PORT: of the first worker; the next ones follow
    worker_metrics: int = 9101

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> Self:
        """Read the ports. Raises `InvalidSetting` for a value that is no port."""
        return cls(**{each.name: _port(environ, each.name) for each in fields(cls)})

    @staticmethod
    def variable(name: str) -> str:
        """Return the environment variable that sets a port."""
        return f"PENSTOCK_{name.upper()}_PORT"


@dataclass(frozen=True, kw_only=True)
class StackSettings:
    """A stack on one machine. A given URL means: use that server instead of starting one."""

    ports: Ports
    # PENSTOCK_DATABASE_URL, PENSTOCK_DISPATCH_REDIS_URL, PENSTOCK_REDIS_URL
    database_url: str | None = field(default=None, repr=False)
    # PENSTOCK_OWNER_DATABASE_URL: what `migrate` signs in with on a PostgreSQL of yours
    owner_database_url: str | None = field(default=None, repr=False)
    dispatch_redis_url: str | None = field(default=None, repr=False)
    redis_url: str | None = field(default=None, repr=False)
    # PENSTOCK_WORKER_MODEL: the name under which tenants ask for the model of the GPU worker
    model: str = "penstock-demo"
    # PENSTOCK_WORKER_POOL: the pool of that worker; default: the model's name
    given_pool: str = ""
    # PENSTOCK_KEEP_ALIVE_SECONDS: how long an idle connection of a client stays open
    keep_alive_seconds: int = KEEP_ALIVE_SECONDS
    # One worker each: its CUDA_VISIBLE_DEVICES, or None on a machine without CUDA.
    gpu_groups: tuple[str | None, ...] = (None,)
    # The whole environment that the services inherit.
    environ: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def pool(self) -> str:
        return self.given_pool or self.model

    @classmethod
    def read(cls, root: Path, environ: Mapping[str, str]) -> Self:
        """Read `environ` over the checkout's `.env`. Raises `InvalidSetting` for an invalid value,
        and `TooFewGpus`."""
        dotenv = root / ".env"
        merged = (read_env_file(dotenv) if dotenv.exists() else {}) | dict(environ)
        merged = _with_files_read(merged)
        return cls(
            ports=Ports.from_environ(merged),
            database_url=merged.get("PENSTOCK_DATABASE_URL") or None,
            owner_database_url=merged.get("PENSTOCK_OWNER_DATABASE_URL") or None,
            dispatch_redis_url=merged.get("PENSTOCK_DISPATCH_REDIS_URL") or None,
            redis_url=merged.get("PENSTOCK_REDIS_URL") or None,
            model=merged.get("PENSTOCK_WORKER_MODEL") or "penstock-demo",
            given_pool=merged.get("PENSTOCK_WORKER_POOL", ""),
            keep_alive_seconds=_seconds(
                merged, "PENSTOCK_KEEP_ALIVE_SECONDS", default=KEEP_ALIVE_SECONDS
            ),
            gpu_groups=_gpu_groups(merged),
            environ=merged,
        )


def _with_files_read(environ: Mapping[str, str]) -> dict[str, str]:
    """Replace each PENSTOCK_..._FILE by what its file holds.

    Raises `InvalidSetting` if a file cannot be read, or its variable is given as well.
    """
    read = dict(environ)
    for variable, path in environ.items():
        name = variable.removesuffix("_FILE")
        if name == variable or not name.startswith("PENSTOCK_") or not path:
            continue
        if environ.get(name):
            raise InvalidSetting(variable, f"{name} and {variable} are both given; keep one.")
        try:
            read[name] = Path(path).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            raise InvalidSetting(
                variable, f"{variable} cannot be read from {path}: {reason}."
            ) from None
        del read[variable]
    return read


def _port(environ: Mapping[str, str], name: str) -> int:
    variable = Ports.variable(name)
    text = environ.get(variable, "")
    default = int(getattr(Ports, name))
    if text in ("", "0"):
        return default
    if not text.isdigit() or not 1 <= int(text) <= 65535:
        raise InvalidSetting(variable, f"{variable} must be a port from 1 to 65535, got: {text!r}.")
    return int(text)


def _seconds(environ: Mapping[str, str], variable: str, *, default: int) -> int:
    text = environ.get(variable) or str(default)
    if not text.isdigit() or not 1 <= int(text) <= MOST_KEEP_ALIVE_SECONDS:
        raise InvalidSetting(
            variable,
            f"{variable} must be seconds from 1 to {MOST_KEEP_ALIVE_SECONDS}, got: {text!r}.",
        )
    return int(text)


def _gpu_groups(environ: Mapping[str, str]) -> tuple[str | None, ...]:
    """Return PENSTOCK_GPU_GROUPS ("0,1;2,3"), else all GPUs in groups of tensor x pipeline size.

    Raises `InvalidSetting` if a size is no number, and `TooFewGpus`.
    """
    given = environ.get("PENSTOCK_GPU_GROUPS", "")
    if given:
        return tuple(group.strip() for group in given.split(";") if group.strip())
    gpus = find_gpus(environ)
    if not gpus:
        return (None,)
    size = 1
    for variable in ("PENSTOCK_TENSOR_PARALLEL_SIZE", "PENSTOCK_PIPELINE_PARALLEL_SIZE"):
        text = environ.get(variable) or "1"
        if not text.isdigit() or int(text) < 1:
            raise InvalidSetting(
                variable, f"{variable} must be a whole number above 0, got: {text!r}."
            )
        size *= int(text)
    groups = [gpus[first : first + size] for first in range(0, len(gpus) - size + 1, size)]
    if not groups:
        raise TooFewGpus(needed=size, found=len(gpus))
    return tuple(",".join(group) for group in groups)


def find_gpus(environ: Mapping[str, str]) -> list[str]:
    """Return the GPUs that workers may use, as CUDA_VISIBLE_DEVICES names them."""
    if environ.get("PENSTOCK_ENGINE") == "cpu" or not Path("/dev/nvidia0").exists():
        return []
    if environ.get("CUDA_VISIBLE_DEVICES"):
        return environ["CUDA_VISIBLE_DEVICES"].split(",")
    if shutil.which("nvidia-smi") is None:
        return ["0"]
    asked = ["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"]
    return subprocess.run(asked, capture_output=True, text=True, check=False).stdout.split()
