"""Looks at one upload, in the jail, and writes what is stored of it.

    python -I inference/adapters/validation/child.py < job

It imports all that it needs, shuts itself in, says what holds it, and only then reads the upload.
No Django, no torch, no pickle. Two lines of JSON go to stdout: `Jailed`, then a `Finding`.
"""

import errno
import os
import sys
from pathlib import Path
from typing import Final

# Isolated mode has no other way to our own packages than where they are installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

import msgspec

from inference.adapters.validation.archive import open_upload
from inference.adapters.validation.header import read_header
from inference.adapters.validation.jail import enter_jail
from inference.adapters.validation.lora_config import read_config
from inference.adapters.validation.modules import pair_up
from inference.adapters.validation.rewrite import write_adapter
from inference.adapters.validation.span import Span, write_all
from inference.adapters.validation.verdicts import (
    Broke,
    FailureCode,
    Finding,
    Jailed,
    Job,
    Passed,
    RefusalCode,
    Rejected,
    UploadRefused,
    WarningCode,
    written_bytes,
)

_STDIN: Final = 0
_STDOUT: Final = 1


def main() -> None:
    job = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=Job)
    guards = enter_jail(job.bounds, written_bytes=written_bytes(job.bounds))
    _say(Jailed(guards=guards))
    _say(find(job))
    os._exit(0)  # an interpreter that is taken down calls for what is no longer allowed


def find(job: Job) -> Finding:
    """Look at the upload, and write what is stored of it."""
    try:
        return _validate(job)
    except UploadRefused as refused:
        return Rejected(code=refused.code, message=refused.message, where=refused.where)
    except MemoryError:
        return Rejected(
            code=RefusalCode.TOO_MUCH_MEMORY,
            message="The upload takes more memory to look at than an adapter of its size may. Pack "
            "the folder that PEFT's save_pretrained wrote, with zip or tar.",
            where="",
        )
    except OSError as error:
        code = FailureCode.NO_SPACE if error.errno == errno.ENOSPC else FailureCode.BROKE
        return Broke(code=code, reason=_place(error))
    except Exception as error:  # noqa: BLE001 - said, not lost: the other side raises it
        return Broke(code=FailureCode.BROKE, reason=_place(error))


def _say(line: Jailed | Finding) -> None:
    write_all(_STDOUT, msgspec.json.encode(line) + b"\n")


def _validate(job: Job) -> Passed:
    archive = Span(job.archive, 0, os.lseek(job.archive, 0, os.SEEK_END))
    upload = open_upload(archive, job.scratch, job.bounds)
    settings = read_config(upload.config)
    tensors = read_header(upload.tensors, job.bounds)
    pairs = pair_up(tensors, job.base, settings, job.bounds)
    has_effect = write_adapter(pairs, settings, job.output)
    return Passed(
        rank=max(pair.rank for pair in pairs),
        modules=len(pairs),
        parameters=sum(tensor.shape[0] * tensor.shape[1] for tensor in tensors),
        warnings=[] if has_effect else [WarningCode.NO_EFFECT],
    )


def _place(error: Exception) -> str:
    """Return an error's type and line: its text could be the upload's."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return type(error).__name__
    file = Path(trace.tb_frame.f_code.co_filename).name
    return f"{type(error).__name__} at {file}:{trace.tb_lineno}"


if __name__ == "__main__":
    main()
