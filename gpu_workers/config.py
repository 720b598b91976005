"""A worker's settings: the second of the two files that read the environment.

Every setting is a field with a `PENSTOCK_` variable and a command-line flag of the same name;
flags win. What is wrong is reported all at once, each line naming its variable.
"""

import json
import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from gpu_workers.protocol import redis_url

DEMO_MODEL_PATH = Path(__file__).parent / "demo_model" / "model"

ADAPTER_CACHE_BYTES = 20 * 1024**3

# vLLM 0.32 takes these alone (`vllm.config.lora.MaxLoRARanks`).
LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
# As nearly all models of the Llama kind name them; what a model lacks matches nothing.
DEFAULT_TARGET_MODULES = (
    "q_proj",
    "k_proj",
    "v_proj",
    "o_proj",
    "gate_proj",
    "up_proj",
    "down_proj",
)

Parser = Callable[[str], Any]


class ConfigError(ValueError):
    """One or more settings are wrong. `problems`: variable -> reason; the message has all."""

    def __init__(self, problems: Mapping[str, str]) -> None:
        super().__init__("\n".join(f"{name}: {problem}" for name, problem in problems.items()))
        self.problems = dict(problems)


def _text(value: str) -> str:
    return value


def _one_of(*choices: str) -> Parser:
    def parse(value: str) -> str:
        if value not in choices:
            raise ValueError(f"expected one of {', '.join(choices)}")
        return value

    return parse


def _endpoint(value: str) -> str:
    parts = urlsplit(value)
    if value and (parts.scheme not in ("http", "https") or not parts.hostname):
        raise ValueError("expected a URL like http://collector:4318/v1/traces")
    return value


def _integer(minimum: int, maximum: int = 2**31 - 1) -> Parser:
    def parse(value: str) -> int:
        number = int(value) if value.strip().lstrip("-").isdigit() else None
        if number is None or not minimum <= number <= maximum:
            raise ValueError(f"expected a whole number from {minimum} to {maximum}")
        return number

    return parse


def _whole_of(*choices: int) -> Parser:
    def parse(value: str) -> int:
        if value.strip() not in map(str, choices):
            raise ValueError(f"expected one of {', '.join(map(str, choices))}")
        return int(value)

    return parse


def _words(value: str) -> tuple[str, ...]:
    words = tuple(word.strip() for word in value.split(","))
    if not all(word.replace("_", "").isalnum() for word in words):
        raise ValueError("expected names of letters, digits and _, with commas between")
    return words


def _number(minimum: float, maximum: float) -> Parser:
    def parse(value: str) -> float:
        try:
            number = float(value)
        except ValueError:
            number = float("nan")
        if not minimum <= number <= maximum:
            raise ValueError(f"expected a number from {minimum:g} to {maximum:g}")
        return number

    return parse


def _boolean(value: str) -> bool:
    match value.strip().lower():
        case "1" | "true" | "yes" | "on":
            return True
        case "0" | "false" | "no" | "off":
            return False
    raise ValueError("expected true or false")


def _json_object(value: str) -> dict[str, Any]:
    try:
        parsed = json.loads(value)
    except ValueError:
        parsed = None
    if not isinstance(parsed, dict):
        raise ValueError("expected a JSON object")
    return parsed


def _redis_url(value: str) -> str:
    if value.partition("://")[0] not in redis_url.SCHEMES or "://" not in value:
        raise ValueError(f"expected a URL of {', '.join(redis_url.SCHEMES)}")
    if redis_url.is_sentinel(value):
        redis_url.parse_sentinel(value)
    return value


def _setting(variable: str, parse: Parser, default: Any = MISSING, *, secret: bool = False) -> Any:
    metadata = {"variable": variable, "parse": parse, "secret": secret}
    if default is MISSING:
        return field(metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, kw_only=True)
class WorkerConfig:
    """All settings of a worker. None means the engine's own default."""

    # Dispatch Redis, with its password if it has one; PENSTOCK_DISPATCH_REDIS_URL_FILE names a file
    dispatch_redis_url: str = _setting("PENSTOCK_DISPATCH_REDIS_URL", _redis_url, secret=True)
    # vllm, or sim: the simulated engine, which needs neither a GPU nor a model
    engine: str = _setting("PENSTOCK_WORKER_ENGINE", _one_of("vllm", "sim"), "vllm")
    # The name under which tenants ask for the model; required for the simulated engine, so that it
    # stands in for none unless it is told to
    model: str = _setting("PENSTOCK_WORKER_MODEL", _text, "penstock-demo")
    # The pool whose queue the worker takes from; empty: the model's name
    pool: str = _setting("PENSTOCK_WORKER_POOL", _text, "")
    # Stable over restarts, so that an earlier incarnation is fenced at once; empty: host and pid
    name: str = _setting("PENSTOCK_WORKER_NAME", _text, "")
    # A folder of this worker alone, on a disk that outlives it, for usage that is not in PostgreSQL
    # yet; None: one under var/outbox that no other worker holds
    outbox: Path | None = _setting("PENSTOCK_WORKER_OUTBOX", Path, None)  # noqa: RUF009
    # A folder for what the engine compiles, kept over restarts, which workers may share; None:
    # var/compile-cache
    compile_cache: Path | None = _setting("PENSTOCK_WORKER_COMPILE_CACHE", Path, None)  # noqa: RUF009
    # A folder for adapters as they are fetched, kept over restarts, which workers may share; None:
    # var/adapter-cache
    adapter_cache: Path | None = _setting("PENSTOCK_ADAPTER_CACHE", Path, None)  # noqa: RUF009
    # Bytes that it may hold, those that are opened for the engine among them: more than twice what
    # is in memory at once
    adapter_cache_bytes: int = _setting(
        "PENSTOCK_ADAPTER_CACHE_BYTES", _integer(1, 2**63 - 1), ADAPTER_CACHE_BYTES
    )
    # A model folder or a hub name
    model_path: str = _setting("PENSTOCK_MODEL_PATH", _text, str(DEMO_MODEL_PATH))
    # Sequences held at once, one for each choice of a request; None: those of its batch
    slots: int | None = _setting("PENSTOCK_WORKER_SLOTS", _integer(1, 65536), None)
    # Where /metrics listens; 0 takes any free port and publishes it
    metrics_port: int = _setting("PENSTOCK_WORKER_METRICS_PORT", _integer(0, 65535), 0)
    # The address of /metrics; loopback unless Prometheus runs elsewhere
    metrics_host: str = _setting("PENSTOCK_WORKER_METRICS_HOST", _text, "127.0.0.1")
    # OTLP over HTTP, such as http://collector:4318/v1/traces: where spans are sent; empty: none are
    traces_endpoint: str = _setting("PENSTOCK_TRACES_ENDPOINT", _endpoint, "")
    # How long open requests may take to end after SIGTERM
    drain_seconds: float = _setting("PENSTOCK_WORKER_DRAIN_SECONDS", _number(0, 86400), 30.0)
    # How long the event loop may do nothing before the process ends itself, for a fresh start
    stuck_seconds: float = _setting("PENSTOCK_WORKER_STUCK_SECONDS", _number(1, 86400), 60.0)
    # How long an engine that has requests may make no step before it counts as hung; longer where
    # its steps have been longer
    hung_seconds: float = _setting("PENSTOCK_WORKER_HUNG_SECONDS", _number(1, 86400), 60.0)
    # console for people, json for machines
    log_format: str = _setting("PENSTOCK_LOG_FORMAT", _one_of("console", "json"), "console")
    # debug, info, warning or error
    log_level: str = _setting(
        "PENSTOCK_LOG_LEVEL", _one_of("debug", "info", "warning", "error"), "info"
    )

    # GPUs that one layer is split over
    tensor_parallel_size: int = _setting("PENSTOCK_TENSOR_PARALLEL_SIZE", _integer(1, 1024), 1)
    # GPUs that the layers are dealt out to
    pipeline_parallel_size: int = _setting("PENSTOCK_PIPELINE_PARALLEL_SIZE", _integer(1, 1024), 1)
    # Type of the weights: bfloat16, float16, float32; auto: the model's own, but float32 on a CPU
    # that does not compute in bfloat16
    dtype: str = _setting("PENSTOCK_DTYPE", _text, "auto")
    # Quantization method, where the model's own configuration does not say it
    quantization: str | None = _setting("PENSTOCK_QUANTIZATION", _text, None)
    # Type of the KV cache: auto, fp8, ...
    kv_cache_dtype: str = _setting("PENSTOCK_KV_CACHE_DTYPE", _text, "auto")
    # vLLM's speculative decoding configuration, as JSON
    speculative_config: dict[str, Any] | None = _setting(  # noqa: RUF009
        "PENSTOCK_SPECULATIVE_CONFIG", _json_object, None
    )
    # Sequences in one batch
    max_num_seqs: int = _setting("PENSTOCK_MAX_NUM_SEQS", _integer(1, 65536), 128)
    # Tokens in one batch, prefill and decode together
    max_num_batched_tokens: int | None = _setting(
        "PENSTOCK_MAX_NUM_BATCHED_TOKENS", _integer(1), None
    )
    # Context length, prompt and answer together; None: the model's own
    max_model_len: int | None = _setting("PENSTOCK_MAX_MODEL_LEN", _integer(1), None)
    # Share of the GPU's memory that the engine may take
    gpu_memory_utilization: float | None = _setting(
        "PENSTOCK_GPU_MEMORY_UTILIZATION", _number(0.01, 1.0), None
    )
    # Skip compilation and CUDA graphs: a quicker start, slower steps; None: only without a GPU
    enforce_eager: bool | None = _setting("PENSTOCK_ENFORCE_EAGER", _boolean, None)
    # vLLM's parser for the model's tool calls; setting it lets the model choose tools by itself
    tool_call_parser: str | None = _setting("PENSTOCK_TOOL_CALL_PARSER", _text, None)
    # vLLM's parser for the model's reasoning
    reasoning_parser: str | None = _setting("PENSTOCK_REASONING_PARSER", _text, None)

    # LoRA adapters that one batch can have at once; 0: the pool has no adapters
    adapter_slots: int = _setting("PENSTOCK_ADAPTER_SLOTS", _integer(0, 4096), 0)
    # LoRA adapters that are loaded at once, at least those of the slots; None: those of the slots
    adapters_in_memory: int | None = _setting(
        "PENSTOCK_ADAPTERS_IN_MEMORY", _integer(1, 65536), None
    )
    # The largest rank of an adapter. Every slot has room for it, and every token of a step that has
    # adapters is multiplied by as much
    adapter_max_rank: int = _setting("PENSTOCK_ADAPTER_MAX_RANK", _whole_of(*LORA_RANKS), 16)
    # Linear layers that adapters may change, by the last part of their names. With lm_head the
    # logits of every token are multiplied once more, with an adapter or not
    adapter_target_modules: tuple[str, ...] = _setting(
        "PENSTOCK_ADAPTER_TARGET_MODULES", _words, DEFAULT_TARGET_MODULES
    )

    # CPU seconds that compiling one JSON schema or grammar of a request may take
    structure_seconds: int = _setting("PENSTOCK_STRUCTURE_SECONDS", _integer(1, 600), 10)
    # While requests with a schema run: the newest is ended when so long a step comes three times
    # in a row; above what a step of this model takes without them
    structure_step_ms: int = _setting("PENSTOCK_STRUCTURE_STEP_MS", _integer(10, 60_000), 300)

    # Simulated engine: duration of one step, in which each running sequence gains one token
    sim_step_ms: float = _setting("PENSTOCK_SIM_STEP_MS", _number(0, 60_000), 20.0)
    # Simulated engine: bound on tokens a second over all sequences; 0: none
    sim_tokens_per_second: float = _setting("PENSTOCK_SIM_TOKENS_PER_SECOND", _number(0, 1e9), 0.0)
    # Simulated engine: context length in tokens
    sim_context_tokens: int = _setting("PENSTOCK_SIM_CONTEXT_TOKENS", _integer(16), 2048)
    # Simulated engine: how long the load of an adapter takes
    sim_adapter_load_ms: float = _setting("PENSTOCK_SIM_ADAPTER_LOAD_MS", _number(0, 60_000), 5.0)
    # Simulated engine: steps after which it lives and does nothing more; 0: never
    sim_hang_after_steps: int = _setting("PENSTOCK_SIM_HANG_AFTER_STEPS", _integer(0), 0)
    # Simulated engine: steps after which it blocks the worker's event loop once; 0: never
    sim_block_after_steps: int = _setting("PENSTOCK_SIM_BLOCK_AFTER_STEPS", _integer(0), 0)
    # Simulated engine: for how long it does that
    sim_block_seconds: float = _setting("PENSTOCK_SIM_BLOCK_SECONDS", _number(0, 3600), 0.0)

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> "WorkerConfig":
        """Read and check all settings; empty variables count as not set. Raises `ConfigError`."""
        values: dict[str, Any] = {}
        problems: dict[str, str] = {}
        for each in fields(cls):
            variable = each.metadata["variable"]
            try:
                value = _read(environ, variable, secret=each.metadata["secret"])
                if value:
                    values[each.name] = each.metadata["parse"](value)
                elif each.default is MISSING:
                    problems[variable] = "required, but not set"
            except ValueError as error:
                problems[variable] = str(error)
        if values.get("adapters_in_memory", 2**31) < values.get("adapter_slots", 0):
            problems["PENSTOCK_ADAPTERS_IN_MEMORY"] = "expected at least PENSTOCK_ADAPTER_SLOTS"
        if values.get("engine") == "sim" and "model" not in values:
            problems.setdefault(
                "PENSTOCK_WORKER_MODEL", "required with the simulated engine (--model)"
            )
        if problems:
            raise ConfigError(problems)
        values["pool"] = values.get("pool") or values.get("model", _default_of(cls, "model"))
        values["name"] = values.get("name") or f"{socket.gethostname()}-{os.getpid()}"
        return cls(**values)

    @classmethod
    def variables(cls) -> dict[str, "Field[Any]"]:
        """Return variable -> field, in order; `.env.example` and the flags follow it."""
        return {each.metadata["variable"]: each for each in fields(cls)}


def _read(environ: Mapping[str, str], variable: str, *, secret: bool) -> str:
    value = environ.get(variable, "")
    if not secret:
        return value
    path = environ.get(f"{variable}_FILE", "")
    if value and path:
        raise ValueError(f"set either {variable} or {variable}_FILE, not both")
    if not path:
        return value
    try:
        text = Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ValueError(f"{variable}_FILE cannot be read from {path}: {reason}") from None
    if not text:
        raise ValueError(f"{variable}_FILE is empty: {path}")
    return text


def _default_of(cls: type[WorkerConfig], name: str) -> Any:
    return next(each.default for each in fields(cls) if each.name == name)


def read_env_file(path: Path) -> dict[str, str]:
    """Return the KEY=value lines of a file such as var/demo.env; skip blank lines and comments.
    Raises `OSError` if it cannot be read."""
    settings: dict[str, str] = {}
    for line in path.read_text().splitlines():
        key, separator, value = line.partition("=")
        if separator and not key.lstrip().startswith("#"):
            settings[key.strip()] = value.strip().strip("'\"")
    return settings
