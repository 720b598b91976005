"""What one gateway process carries, as Markdown."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from tests.benchmarks.figures import Figures, shown, table
from tests.benchmarks.gateway.workloads import Workload
from tests.benchmarks.measured import ENGINE, LOAD, Measurement, Spread

GATEWAY = "gateway"
KIB, MIB = 1 << 10, 1 << 20
BARS = (
    "Bars: 1,500 requests/s and 50,000 events/s of one gateway process; 50 KiB an idle websocket; "
    "memory flat over 200,000 requests."
)
# Readings before this are the process still growing into its work.
SETTLED_AFTER_REQUESTS = 20_000


@dataclass(frozen=True, kw_only=True)
class Measured:
    """The rounds of one workload."""

    workload: Workload
    rounds: Sequence[Measurement]

    def per_second_of(self, program: str, *, of_tokens: bool = False) -> Spread:
        """Return the requests, or tokens, that a CPU second of a program carries."""
        return Spread.of(_count(each, of_tokens) / each.cpu[program] for each in self.rounds)

    def ms_a_request(self, programs: Sequence[str]) -> Spread:
        return Spread.of(
            1e3 * sum(each.cpu.get(name, 0.0) for name in programs) / len(each.result.samples)
            for each in self.rounds
        )

    @property
    def programs(self) -> list[str]:
        """Return all programs of Penstock."""
        names = dict.fromkeys(name for each in self.rounds for name in each.cpu)
        return [name for name in names if name not in (ENGINE, LOAD)]


def line(measured: Measured) -> str:
    return (
        f"{measured.workload.name}: {shown(Figures.of(measured.rounds).requests_per_second)} "
        f"requests/s; gateway {shown(measured.ms_a_request([GATEWAY]), 2)} ms a request; all "
        f"{shown(measured.ms_a_request(measured.programs), 2)}"
    )


def capacity(all_measured: Sequence[Measured]) -> str:
    rows = [
        ["workload", "streams", "requests/s", "events/s", "gateway: requests a core's worth",
         "events a core's worth", "TTFT p50 ms", "TTFT p99 ms", "tokens an arrival"]
    ]  # fmt: skip
    for each in all_measured:
        figures = Figures.of(each.rounds)
        rows.append(
            [
                each.workload.name,
                str(each.workload.streams),
                shown(figures.requests_per_second),
                shown(figures.tokens_per_second),
                shown(each.per_second_of(GATEWAY)),
                shown(each.per_second_of(GATEWAY, of_tokens=True)),
                shown(figures.ttft_p50_ms, 1),
                shown(figures.ttft_p99_ms, 1),
                f"{figures.tokens_per_arrival.median:.2f}",
            ]
        )
    return f"{BARS}\n\n{table(rows)}"


def by_process(all_measured: Sequence[Measured]) -> str:
    programs = all_measured[0].programs
    rows = [["CPU ms a request", *programs, "all"]]
    for each in all_measured:
        cells = [f"{each.ms_a_request([name]).median:.2f}" for name in programs]
        rows.append([each.workload.name, *cells, shown(each.ms_a_request(programs), 2)])
    return table(rows)


def websockets(still_open: int, *, bytes_each: float, share: float, share_alone: float) -> str:
    return (
        f"{still_open:,} idle websockets: {bytes_each / KIB:.1f} KiB each; the gateway takes "
        f"{100 * share:.1f}% of a core with them and {100 * share_alone:.1f}% without."
    )


def memory(readings: Sequence[tuple[int, int]]) -> str:
    """Say how the gateway's memory grew. `readings`: (requests so far, bytes)."""
    settled = [each for each in readings if each[0] >= SETTLED_AFTER_REQUESTS] or list(readings)
    (first, least), (last, most) = settled[0], settled[-1]
    grown = (most - least) / KIB / max(1, (last - first) / 1000)
    middle = median(size for _, size in settled) / MIB
    return (
        f"Memory over {last:,} requests: {least / MIB:.1f} MiB after {first:,}, {most / MIB:.1f} "
        f"MiB after {last:,} (median {middle:.1f}), {grown:+.1f} KiB a thousand requests."
    )


def reading(requests: int, size: int) -> str:
    return f"{requests:,} requests: {size / MIB:.1f} MiB"


def shares(programs: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {100 * share:.1f}%" for name, share in programs.items())


def markdown(machine: Mapping[str, str], sections: Sequence[str]) -> str:
    head = "# One gateway process"
    where = "; ".join(f"{name} {value}" for name, value in machine.items()) + "."
    return "\n\n".join([head, where, *sections]) + "\n"


def _count(measurement: Measurement, of_tokens: bool) -> int:
    return measurement.result.tokens if of_tokens else len(measurement.result.samples)
