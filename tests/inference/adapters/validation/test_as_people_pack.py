"""Archives as people have them: made by what was at hand, with what lay beside the two files."""

import gzip
import tarfile
from pathlib import Path

import pytest

from inference.adapters.validation.verdicts import RefusalCode
from tests.support.adapter_uploads.upload import config, files, tarred, zipped
from tests.support.adapter_uploads.verdict import assert_rejected, find_here

LEFTOVERS = (
    "README.txt",
    "NOTICE",
    "USE_POLICY.md",
    "config.json",
    "trainer_log.jsonl",
    "training_loss.png",
    "tokenizer.model",
    ".cache/huggingface/.gitignore",
    ".cache/huggingface/download/adapter_config.json.metadata",
    ".git/HEAD",
)


def within(folder: str, *others: str) -> dict[str, bytes]:
    contents = files() | dict.fromkeys(others, b"something")
    return {f"{folder}{name}": data for name, data in contents.items()}


def two_members(data: bytes) -> bytes:
    """As `cat a.gz b.gz`, pigz and bgzip write one."""
    half = len(data) // 2
    return gzip.compress(data[:half]) + gzip.compress(data[half:])


def of_unix_v7(data: bytes) -> bytes:
    """Without the magic that came later."""
    blocks = bytearray(data)
    at = 0
    while any(blocks[at : at + 512]):
        size = int(blocks[at + 124 : at + 135].strip(b"\0 "), 8)
        blocks[at + 257 : at + 345] = bytes(88)
        blocks[at + 148 : at + 156] = b" " * 8
        blocks[at + 148 : at + 156] = b"%06o\0 " % sum(blocks[at : at + 512])
        at += 512 + -(-size // 512) * 512
    return bytes(blocks)


PACKED = {
    "the two files": zipped(files()),
    "a folder": zipped(within("support/")),
    "a folder in a folder": zipped(within("out/support/")),
    "with what lay beside them": zipped(within("", *LEFTOVERS)),
    "a folder with what lay beside them": tarred(within("support/", *LEFTOVERS)),
    "by git archive": zipped(files(), comment=b"d0adc6d" + b"0" * 33),
    "a folder of a long name, by GNU tar": tarred(
        within(f"{'a' * 94}/"), dialect=tarfile.GNU_FORMAT
    ),
    "a folder of a very long name, by GNU tar": tarred(
        within(f"{'a' * 180}/"), dialect=tarfile.GNU_FORMAT
    ),
    "by a tar of 1979": of_unix_v7(tarred(files(), dialect=tarfile.USTAR_FORMAT)),
    "gzip in two members": two_members(tarred(files())),
    "without a task": zipped(
        files(
            settings=config(
                task_type=None,
                auto_mapping={
                    "base_model_class": "LlamaForCausalLM",
                    "parent_library": "transformers.models.llama.modeling_llama",
                },
            )
        )
    ),
}


@pytest.mark.parametrize("name", PACKED)
def test_it_is_taken_and_is_the_same_adapter(name: str, tmp_path: Path) -> None:
    assert find_here(tmp_path, PACKED[name]) == find_here(tmp_path, zipped(files()))


def test_all_that_has_to_be_left_out_is_told_at_once(tmp_path: Path) -> None:
    data = zipped(within("", "run.sh", "optimizer.pt", "model.safetensors"))
    refused = assert_rejected(tmp_path, data, RefusalCode.ARCHIVE_PICKLE)
    for name in ("run.sh", "optimizer.pt", "model.safetensors"):
        assert name in refused.message
    data = zipped(within("", *(f"part-{number}.exe" for number in range(15))))
    refused = assert_rejected(tmp_path, data, RefusalCode.ARCHIVE_UNEXPECTED_FILE)
    assert "part-9.exe and 5 more" in refused.message


def test_folders_of_several_adapters_are_named(tmp_path: Path) -> None:
    data = zipped(within("checkpoint-500/") | within("checkpoint-1000/"))
    refused = assert_rejected(tmp_path, data, RefusalCode.ARCHIVE_DUPLICATE)
    assert "checkpoint-500" in refused.message and "checkpoint-1000" in refused.message


@pytest.mark.parametrize(
    "data",
    [
        gzip.compress(tarred(files())) + b"rest",
        gzip.compress(tarred(files())) + gzip.compress(b"more"),
        two_members(tarred(files()))[:-9],
    ],
    ids=["other bytes behind", "a member too many", "cut"],
)
def test_what_is_behind_a_gzip_is_part_of_it_or_refused(data: bytes, tmp_path: Path) -> None:
    refused = find_here(tmp_path, data)
    assert getattr(refused, "code", None) in (
        RefusalCode.ARCHIVE_BROKEN,
        RefusalCode.ARCHIVE_STRAY_BYTES,
    )
