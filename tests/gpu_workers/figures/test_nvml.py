"""What NVML's bindings are asked; `FakeNvml` stands in for the driver under them."""

import pynvml
import pytest

from gpu_workers.figures.nvml import NoGpu, Nvml
from tests.support.gpus.fake_nvml import GIB, NOT_SUPPORTED, FakeGpu, FakeNvml

FIRST = FakeGpu(index=0, uuid="GPU-11111111-aaaa")
SECOND = FakeGpu(index=1, uuid="GPU-22222222-bbbb")
THIRD = FakeGpu(index=2, uuid="GPU-22334444-cccc")
PART = FakeGpu(index=0, uuid="MIG-5555", part_of=FIRST)


def visible(setting: str | None, most: int = 8) -> list[int | str]:
    nvml = Nvml(FakeNvml(FIRST, SECOND, THIRD, parts=(PART,)))
    handles = nvml.visible(setting, most)
    return [gpu.uuid if gpu.part_of else gpu.index for gpu in handles]


def test_without_a_setting_the_engine_has_the_first_of_all_gpus() -> None:
    assert visible(None, most=2) == [0, 1]


@pytest.mark.parametrize(
    ("setting", "seen"),
    [
        ("2,0", [2, 0]),
        (" 1 , 2 ", [1, 2]),
        ("GPU-22222222-bbbb", [1]),
        ("GPU-1111", [0]),
        ("GPU-22", []),  # two begin so
        ("", []),
        ("-1", []),
        ("0,9,1", [0]),  # CUDA stops at the first that there is not
        ("MIG-5555", ["MIG-5555"]),
        ("MIG-none", []),
    ],
)
def test_a_worker_reads_the_gpus_that_cuda_shows_it(setting: str, seen: list[int | str]) -> None:
    assert visible(setting) == seen


def test_no_more_gpus_are_read_than_the_engine_uses() -> None:
    assert visible("2,1,0", most=1) == [2]


def test_a_gpu_reports_use_memory_power_heat_clocks_throttling_and_errors() -> None:
    gpu = FakeGpu(index=3, uuid="GPU-3", reasons=0x01 | 0x04 | 0x40, corrected=7, uncorrected=1)
    figures = Nvml(FakeNvml(gpu)).read(gpu)
    assert (figures.index, figures.uuid, figures.name) == (3, "GPU-3", "NVIDIA H100 80GB HBM3")
    assert figures.busy == pytest.approx(0.93)
    assert (figures.memory_used_bytes, figures.memory_total_bytes) == (61 * GIB, 80 * GIB)
    assert (figures.power_watts, figures.power_limit_watts) == (512.345, 700.0)
    assert (figures.celsius, figures.sm_clock_mhz, figures.memory_clock_mhz) == (61, 1980, 2619)
    assert figures.throttling == ["power_cap", "hardware_heat"], "being idle is no throttling"
    assert (figures.ecc_corrected, figures.ecc_uncorrected) == (7, 1)


def test_what_a_gpu_does_not_answer_is_unknown_and_never_nought() -> None:
    silent = dict.fromkeys(("power", "limit", "celsius", "uncorrected"), NOT_SUPPORTED)
    gpu = FakeGpu(index=0, uuid="GPU-0", answers=silent)
    figures = Nvml(FakeNvml(gpu)).read(gpu)
    assert figures.power_watts is figures.power_limit_watts is figures.celsius is None
    assert figures.ecc_uncorrected is None
    assert figures.busy is not None


def test_of_a_part_heat_power_and_errors_are_those_of_its_gpu() -> None:
    gpu = FakeGpu(index=4, uuid="GPU-4", uncorrected=2)
    part = FakeGpu(index=0, uuid="MIG-4-0", part_of=gpu)
    figures = Nvml(FakeNvml(gpu, parts=(part,))).read(part)
    assert (figures.uuid, figures.index) == ("MIG-4-0", 4)
    assert figures.busy is None, "NVML does not tell it of a part"
    assert (figures.celsius, figures.ecc_uncorrected) == (61, 2)


def test_a_driver_that_answers_nothing_is_an_error() -> None:
    nvml = FakeNvml(FIRST)
    nvml.problem = pynvml.NVML_ERROR_GPU_IS_LOST
    with pytest.raises(pynvml.NVMLError):
        Nvml(nvml).read(FIRST)


def test_nvidias_own_bindings_have_all_that_is_asked() -> None:
    """By name: the fake would hide what they lack."""
    asked = {name for name in vars(FakeNvml) if name.startswith("nvml")}
    assert asked
    assert not {name for name in asked if not callable(getattr(pynvml, name, None))}


def test_nvidias_own_bindings_say_where_there_is_no_gpu() -> None:
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        with pytest.raises(NoGpu, match=r"\w"):
            Nvml.open()
    else:
        pynvml.nvmlShutdown()
        pytest.skip("this machine has a driver")
