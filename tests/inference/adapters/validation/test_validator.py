"""Good uploads are written anew, the same bytes for the same adapter; a child that fails is told
apart from an upload that is bad."""

import json
import struct
import tarfile
import zipfile
from pathlib import Path
from typing import IO, Any, cast

import numpy
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import safe_open

from inference.adapters.validation.validator import validate
from inference.adapters.validation.verdicts import (
    Accepted,
    Bounds,
    FailureCode,
    Guard,
    RefusalCode,
    Refused,
    ValidatorFailed,
    WarningCode,
)
from tests.support.adapter_uploads.upload import (
    BASE,
    PREFIX,
    RANK,
    arrays,
    config,
    files,
    safetensors,
    tarred,
    upload,
    zipped,
)
from tests.support.adapter_uploads.verdict import ALWAYS, verdict_of


def accepted(folder: Path, data: bytes) -> Accepted:
    verdict = verdict_of(folder, data)
    assert isinstance(verdict, Accepted), verdict
    return verdict


def stored(path: Path) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The configuration in a stored file, and the bytes of each tensor with its type and shape."""
    data = path.read_bytes()
    (size,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + size])
    configuration = json.loads(header.pop("__metadata__")["adapter_config"])
    return configuration, {
        name: repr((entry["dtype"], entry["shape"])).encode()
        + data[8 + size + entry["data_offsets"][0] : 8 + size + entry["data_offsets"][1]]
        for name, entry in header.items()
    }


def as_stored(tensors: dict[str, Any]) -> dict[str, bytes]:
    names = {"<f4": "F32", "<f2": "F16", "<u2": "BF16"}
    return {
        name: repr((names[array.dtype.str], list(array.shape))).encode() + array.tobytes()
        for name, array in tensors.items()
    }


class Stream:
    """A file that cannot be rewound: a zip's sizes come behind the bytes."""

    def __init__(self) -> None:
        self.data = bytearray()

    def write(self, piece: bytes) -> int:
        self.data += piece
        return len(piece)

    def flush(self) -> None:
        """Nothing waits."""


def streamed_zip() -> bytes:
    stream = Stream()
    with zipfile.ZipFile(cast(IO[bytes], stream), "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files().items():
            archive.writestr(name, data)
    return bytes(stream.data)


PACKED = {
    "zip as a stream has it": streamed_zip(),
    "zip": zipped(files()),
    "zip without compression": zipped(files(), method=zipfile.ZIP_STORED),
    "tar": tarred(files()),
    "tar of GNU's": tarred(files(), dialect=tarfile.GNU_FORMAT),
    "tar.gz": tarred(files(), mode="w:gz"),
    "zip of the folder": zipped({f"support/{name}": data for name, data in files().items()}),
    "tar of the folder": tarred({f"./support/{name}": data for name, data in files().items()}),
    "zip with what trainers leave": zipped(
        {
            **files(),
            "README.md": b"# me",
            "tokenizer.json": b"{}",
            "__MACOSX/._adapter_config.json": b"x",
            "._adapter_model.safetensors": b"x",
        }
    ),
}


@pytest.mark.parametrize("name", PACKED)
def test_a_good_adapter_is_written_anew_whatever_it_is_packed_in(name: str, tmp_path: Path) -> None:
    verdict = accepted(tmp_path, PACKED[name])
    assert verdict.rank == RANK
    assert verdict.modules == len(BASE.modules)
    assert verdict.parameters == sum(array.size for array in arrays().values())
    assert verdict.warnings == ()
    assert verdict.guards >= ALWAYS
    assert verdict.size_bytes == verdict.path.stat().st_size
    assert list((tmp_path / "kept").iterdir()) == [verdict.path]
    configuration, tensors = stored(verdict.path)
    assert tensors == as_stored(arrays())
    assert configuration["r"] == RANK
    assert configuration["target_modules"] == sorted(module.name for module in BASE.modules)


def test_the_same_adapter_gives_the_same_digest(tmp_path: Path) -> None:
    digests = {
        accepted(tmp_path, data).sha256
        for data in (
            PACKED["zip"],
            PACKED["tar"],
            zipped(files(tensors=safetensors(dict(reversed(arrays().items()))))),
            zipped(files(settings=config(lora_dropout=0.3, base_model_name_or_path="x"))),
            zipped(files(settings=config(target_modules="all-linear", revision="main"))),
        )
    }
    assert len(digests) == 1


def test_another_alpha_is_another_adapter(tmp_path: Path) -> None:
    one = accepted(tmp_path, zipped(files(settings=config(lora_alpha=8))))
    other = accepted(tmp_path, zipped(files(settings=config(lora_alpha=16))))
    assert one.sha256 != other.sha256


def test_what_is_stored_is_read_by_the_library(tmp_path: Path) -> None:
    verdict = accepted(tmp_path, zipped(files()))
    with safe_open(str(verdict.path), framework="numpy") as file:
        assert list(file.metadata()) == ["adapter_config"]
        assert {name: file.get_tensor(name).tobytes() for name in file.keys()} == {  # noqa: SIM118
            name: array.tobytes() for name, array in arrays().items()
        }


def test_the_configuration_that_is_stored_asks_for_nothing_of_the_uploads(tmp_path: Path) -> None:
    verdict = accepted(
        tmp_path,
        zipped(
            files(
                settings=config(
                    base_model_name_or_path="https://example.com/base",
                    init_lora_weights="eva",
                    eva_config={"rho": 2.0},
                    use_rslora=True,
                )
            )
        ),
    )
    configuration, _ = stored(verdict.path)
    assert configuration["use_rslora"] is True
    assert configuration["init_lora_weights"] is True
    assert "example.com" not in verdict.path.read_bytes().decode("latin-1")


def test_ranks_and_alphas_by_pattern_are_kept_for_each_module(tmp_path: Path) -> None:
    small = f"{PREFIX}model.layers.1.v_proj"
    tensors = {
        name: arrays(rank=2)[name] if name.startswith(small) else array
        for name, array in arrays().items()
    }
    verdict = accepted(
        tmp_path,
        zipped(
            files(
                tensors=safetensors(tensors),
                settings=config(
                    rank_pattern={"layers.1.v_proj": 2, "v_proj": 4},
                    alpha_pattern={"^model.layers.0.q_proj": 32.0, "q_proj": 8},
                ),
            )
        ),
    )
    configuration, _ = stored(verdict.path)
    assert configuration["rank_pattern"] == {"^model.layers.1.v_proj": 2}
    assert configuration["alpha_pattern"] == {"^model.layers.0.q_proj": 32}
    assert verdict.rank == RANK


def test_an_adapter_of_some_modules_is_taken(tmp_path: Path) -> None:
    tensors = {name: array for name, array in arrays().items() if "layers.1.q_proj" in name}
    verdict = accepted(tmp_path, zipped(files(tensors=safetensors(tensors))))
    assert verdict.modules == 1
    assert stored(verdict.path)[0]["target_modules"] == ["model.layers.1.q_proj"]


def test_an_adapter_without_effect_is_taken_with_a_warning(tmp_path: Path) -> None:
    tensors = {
        name: -numpy.zeros_like(array) if "lora_B" in name else array
        for name, array in arrays().items()
    }
    verdict = accepted(tmp_path, zipped(files(tensors=safetensors(tensors))))
    assert verdict.warnings == (WarningCode.NO_EFFECT,)


def test_the_stored_file_is_an_upload_like_any_other(tmp_path: Path) -> None:
    once = accepted(tmp_path, zipped(files()))
    configuration, _ = stored(once.path)
    again = files(tensors=once.path.read_bytes(), settings=configuration)
    assert accepted(tmp_path, zipped(again)).sha256 == once.sha256


@settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    rank=st.integers(1, 16),
    dtypes=st.tuples(*[st.sampled_from(["<f4", "<f2", "<u2"])] * 2),
    seed=st.integers(0, 2**32),
    is_zip=st.booleans(),
    chosen=st.sets(st.sampled_from([module.name for module in BASE.modules]), min_size=1),
)
def test_whatever_is_accepted_holds_the_uploads_own_numbers(
    rank: int,
    dtypes: tuple[str, str],
    seed: int,
    is_zip: bool,
    chosen: set[str],
    tmp_path: Path,
) -> None:
    halves = [arrays(rank=rank, dtype=dtype, seed=seed) for dtype in dtypes]
    tensors = {
        name: halves["lora_B" in name][name]
        for name in halves[0]
        if name.removeprefix(PREFIX).rsplit(".lora_", 1)[0] in chosen
    }
    both = files(tensors=safetensors(tensors), settings=config(r=rank))
    verdict = accepted(tmp_path, zipped(both) if is_zip else tarred(both))
    assert stored(verdict.path)[1] == as_stored(tensors)
    assert verdict.rank == rank


@pytest.mark.rare
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    at=st.integers(0, len(PACKED["zip without compression"]) - 1),
    byte=st.integers(0, 255),
    name=st.sampled_from(["zip", "zip without compression", "tar", "tar.gz"]),
)
def test_a_flipped_byte_is_refused_or_changes_nothing_that_is_stored_by_more_than_itself(
    at: int, byte: int, name: str, tmp_path: Path
) -> None:
    data = bytearray(PACKED[name])
    data[at % len(data)] = byte
    verdict = verdict_of(tmp_path, bytes(data))
    if isinstance(verdict, Accepted):
        before, after = as_stored(arrays()), stored(verdict.path)[1]
        assert before.keys() == after.keys()
        changed = sum(
            one != other
            for key in before
            for one, other in zip(before[key], after[key], strict=True)
        )
        assert changed <= 1
        verdict.path.unlink()


# A child that is not what it should be.


def run_child(folder: Path, program: str, bounds: Bounds | None = None) -> Accepted | Refused:
    child = folder / "child.py"
    child.write_text("import os, signal, time\n" + program)
    kept = folder / "kept"
    kept.mkdir()
    try:
        path = upload(folder, zipped(files()))
        return validate(path, kept, BASE, bounds or Bounds(), program=child)
    finally:
        assert list(kept.iterdir()) == []


JAILED = '{"type":"jailed","guards":["limits"]}'
FAILING: dict[str, tuple[str, FailureCode]] = {
    "is killed": ("os.kill(os.getpid(), signal.SIGKILL)", FailureCode.DIED),
    "crashes": ("os.kill(os.getpid(), signal.SIGSEGV)", FailureCode.DIED),
    "ends with an error": ("raise SystemExit(3)", FailureCode.DIED),
    "says nothing": ("", FailureCode.BABBLED),
    "says one line": (f"print('{JAILED}')", FailureCode.BABBLED),
    "says what is no JSON": (f"print('{JAILED}'); print('yes')", FailureCode.BABBLED),
    "makes up a reason": (
        f"""print('{JAILED}'); print('{{"type":"rejected","code":"x","message":"","where":""}}')""",
        FailureCode.BABBLED,
    ),
    "accepts without a file": (
        f"""print('{JAILED}')
print('{{"type":"passed","rank":1,"modules":1,"parameters":1,"warnings":[]}}')""",
        FailureCode.BABBLED,
    ),
    "has no end": ("while True: print('x' * 1000)", FailureCode.BABBLED),
    "hangs": ("time.sleep(600)", FailureCode.TOO_LONG),
    "hangs with its output closed": ("os.close(1); time.sleep(600)", FailureCode.TOO_LONG),
    "breaks": (
        f"""print('{JAILED}')
print('{{"type":"broke","code":"validator_broke","reason":"KeyError at x.py:1"}}')""",
        FailureCode.BROKE,
    ),
    "has no space": (
        f"""print('{JAILED}')
print('{{"type":"broke","code":"validator_no_space","reason":"OSError at x.py:1"}}')""",
        FailureCode.NO_SPACE,
    ),
}


@pytest.mark.parametrize("name", FAILING)
def test_a_child_that_fails_is_not_the_uploads_fault(name: str, tmp_path: Path) -> None:
    program, code = FAILING[name]
    with pytest.raises(ValidatorFailed) as failed:
        run_child(tmp_path, program, Bounds(wall_seconds=1.5))
    assert failed.value.code == code


def test_a_child_that_fails_has_told_what_held_it(tmp_path: Path) -> None:
    with pytest.raises(ValidatorFailed) as failed:
        run_child(tmp_path, f"print('{JAILED}', flush=True)\nos.kill(os.getpid(), signal.SIGKILL)")
    assert failed.value.guards == {Guard.LIMITS}


def test_a_child_that_computed_too_long_is_the_uploads_fault(tmp_path: Path) -> None:
    verdict = run_child(tmp_path, "os.kill(os.getpid(), signal.SIGXCPU)")
    assert isinstance(verdict, Refused)
    assert verdict.code == RefusalCode.TOO_MUCH_WORK


def test_an_upload_that_takes_too_much_memory_is_refused(tmp_path: Path) -> None:
    header = b'{"a":{"b":' + b"[" + b"[]," * 1_300_000 + b"[]]}}"
    data = zipped(files(tensors=struct.pack("<Q", len(header)) + header))
    verdict = verdict_of(tmp_path, data, Bounds(memory_bytes=200 * 2**20))
    assert isinstance(verdict, Refused)
    assert verdict.code in (RefusalCode.TOO_MUCH_MEMORY, RefusalCode.HEADER_INVALID)
    assert list((tmp_path / "kept").iterdir()) == []


def test_a_folder_that_cannot_be_written_is_not_the_uploads_fault(tmp_path: Path) -> None:
    with pytest.raises(ValidatorFailed) as failed:
        validate(upload(tmp_path, zipped(files())), tmp_path / "nowhere", BASE, Bounds())
    assert failed.value.code == FailureCode.NOT_STARTED
