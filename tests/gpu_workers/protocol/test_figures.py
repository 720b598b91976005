"""What a worker tells beside its requests, on the wire."""

from gpu_workers.protocol import codec
from gpu_workers.protocol.figures import EngineFigures, GpuFigures
from tests.support.fleet import worker_info


def test_figures_that_a_worker_does_not_tell_come_back_as_unknown() -> None:
    told = worker_info(
        figures=EngineFigures(kv_used=0.5, step_us=8_000),
        gpus=[GpuFigures(uuid="GPU-1", name="H100", index=0, ecc_corrected=0)],
    )
    read = codec.decode_worker_info(codec.encode(told))
    assert read == told
    assert read.figures is not None
    assert read.figures.preemptions is None
    assert read.gpus is not None
    assert (read.gpus[0].ecc_corrected, read.gpus[0].ecc_uncorrected) == (0, None)


def test_a_worker_that_tells_none_is_unknown_and_not_idle() -> None:
    read = codec.decode_worker_info(codec.encode(worker_info()))
    assert read.figures is None
    assert read.gpus is None
