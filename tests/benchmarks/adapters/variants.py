"""As many adapters as are asked for, of the demo's two: each with other weights, since two with the
same bytes are one adapter to workers."""

import io
import json
import shutil
import zipfile
from pathlib import Path
from typing import Final

import numpy

from gpu_workers.adapter_files import CONFIG_FILE, WEIGHTS_FILE
from tests.support.places import ROOT

_DEMOS: Final = ("acme-support", "globex-support")
# Of bfloat16, which has 8 bits for a number: a smaller step would leave some as they are.
_STEP: Final = 1 / 64


def write_variant(number: int, folder: Path) -> Path:
    """Write an adapter as PEFT does, the weaker the higher its number, at most 63; return its
    folder, in `folder`."""
    demo = ROOT / "gpu_workers" / "demo_model" / "adapters" / _DEMOS[number % len(_DEMOS)]
    made = folder / f"adapter-{number}"
    made.mkdir(parents=True)
    shutil.copy(demo / CONFIG_FILE, made)
    data = bytearray((demo / WEIGHTS_FILE).read_bytes())
    begin = 8 + int.from_bytes(data[:8], "little")
    for name, tensor in json.loads(data[8:begin]).items():
        if ".lora_B." in name:
            assert tensor["dtype"] == "BF16"
            first, last = (begin + offset for offset in tensor["data_offsets"])
            weights = numpy.frombuffer(bytes(data[first:last]), "<u2").astype("<u4") << 16
            weaker = weights.view("<f4") * numpy.float32(1 - number * _STEP)
            data[first:last] = (weaker.view("<u4") >> 16).astype("<u2").tobytes()
    (made / WEIGHTS_FILE).write_bytes(data)
    return made


def packed(adapter: Path) -> bytes:
    """Return an adapter's two files as the zip that is uploaded."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        for name in (CONFIG_FILE, WEIGHTS_FILE):
            file.write(adapter / name, name)
    return archive.getvalue()
