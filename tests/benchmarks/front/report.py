"""What a core in front of an engine carries: tables, plots and JSON."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from tests.benchmarks.figures import Figures, shown, table
from tests.benchmarks.measured import ENGINE, LOAD, Comparison, Measurement, Spread
from tests.benchmarks.plot import stacks
from tests.benchmarks.sides import OURS, VLLMS

NAME = "front"


@dataclass(frozen=True, kw_only=True)
class Capacity:
    """What a side carries with a core for its busiest process, and for each CPU second of all its
    processes together, engine and load generator left out."""

    busiest: str
    tokens_per_busiest_second: Spread
    requests_per_busiest_second: Spread
    tokens_per_cpu_second: Spread
    requests_per_cpu_second: Spread

    @classmethod
    def of(cls, measurements: Sequence[Measurement]) -> "Capacity":
        total: dict[str, float] = {}
        for each in measurements:
            for name, seconds in each.in_front.items():
                total[name] = total.get(name, 0.0) + seconds
        busiest = max(total, key=lambda name: total[name])

        def a_second(seconds: Mapping[int, float], counts: list[int]) -> Spread:
            return Spread.of(count / seconds[n] for n, count in enumerate(counts))

        alone = {n: each.in_front[busiest] for n, each in enumerate(measurements)}
        every = {n: sum(each.in_front.values()) for n, each in enumerate(measurements)}
        tokens = [each.result.tokens for each in measurements]
        requests = [len(each.result.samples) for each in measurements]
        return cls(
            busiest=busiest,
            tokens_per_busiest_second=a_second(alone, tokens),
            requests_per_busiest_second=a_second(alone, requests),
            tokens_per_cpu_second=a_second(every, tokens),
            requests_per_cpu_second=a_second(every, requests),
        )


@dataclass(frozen=True, kw_only=True)
class Cost:
    """CPU time by program, the medians of a short and a long answer solved for both."""

    ms_per_request: dict[str, float]
    us_per_token: dict[str, float]

    @classmethod
    def between(cls, short: Sequence[Measurement], long: Sequence[Measurement]) -> "Cost":
        low, high = _tokens_a_request(short), _tokens_a_request(long)
        per_request, per_token = {}, {}
        for name in short[0].cpu:
            few, many = _seconds_a_request(short, name), _seconds_a_request(long, name)
            slope = (many - few) / (high - low)
            per_token[name] = 1e6 * slope
            per_request[name] = 1e3 * (few - slope * low)
        return cls(ms_per_request=per_request, us_per_token=per_token)


# Side -> program -> share of a core while nobody asks for anything.
Idle = Mapping[str, Mapping[str, float]]


def markdown(comparisons: Sequence[Comparison], idle: Idle, machine: Mapping[str, str]) -> str:
    parts = [
        "<!-- Written by `make bench-front`; README.md says how to read it. -->",
        "# In front of an engine",
        "; ".join(f"{name} {value}" for name, value in machine.items()) + ".",
        "Median (lowest to highest) over the rounds. A core's worth is what a side carries when "
        "its busiest process fills one core; a CPU second counts all its processes, but neither "
        "the replayed engine nor the load generator.",
        _capacity_table(comparisons),
        "## Against the bars",
        "\n".join(f"- {line}" for line in verdicts(comparisons)),
        "## CPU by process, ms per 1,000 tokens",
        *[_cpu_table(name, comparisons) for name in (OURS, VLLMS)],
    ]
    parts += ["## Idle, percent of a core", _idle_table(idle)]
    if costs := _cost_rows(comparisons):
        parts += ["## By request and by token", table(costs)]
    return "\n\n".join(parts) + "\n"


def verdicts(comparisons: Sequence[Comparison]) -> list[str]:
    """Hold each workload against what is aimed at."""
    lines = []
    for each in comparisons:
        if each.sides.keys() != {OURS, VLLMS}:
            continue
        ours, vllms = Capacity.of(each.sides[OURS]), Capacity.of(each.sides[VLLMS])
        core = _ratio(ours.tokens_per_busiest_second, vllms.tokens_per_busiest_second)
        second = _ratio(ours.tokens_per_cpu_second, vllms.tokens_per_cpu_second)
        lines.append(
            f"{each.name}: {core:.2f}x of vLLM's own server per busiest process (bar 1.5), "
            f"{second:.2f}x per CPU second (bar 1.0)"
        )
    return lines


def write(
    folder: Path, comparisons: Sequence[Comparison], idle: Idle, machine: Mapping[str, str]
) -> None:
    """Write front.md, front.json and the plot."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{NAME}.md").write_text(markdown(comparisons, idle, machine), encoding="utf-8")
    workloads = {each.name: _as_json(each) for each in comparisons}
    report = {"machine": machine, "idle": idle, "workloads": workloads}
    text = json.dumps(report, indent=1) + "\n"
    (folder / f"{NAME}.json").write_text(text, encoding="utf-8")
    groups = {
        f"{each.name}\n{side}": Figures.of(rounds).cpu_in_front
        for each in comparisons
        for side, rounds in each.sides.items()
    }
    plot = stacks("CPU time in front of the engine", "ms per 1,000 tokens", groups)
    (folder / f"{NAME}_cpu.svg").write_text(plot, encoding="utf-8")


def _capacity_table(comparisons: Sequence[Comparison]) -> str:
    rows = [
        ["workload", "side", "tokens/s", "requests/s", "busiest process", "tokens a core's worth",
         "requests a core's worth", "tokens a CPU second", "TTFT p50 ms", "TTFT p99 ms",
         "tokens a step", "tokens an arrival"]
    ]  # fmt: skip
    for each in comparisons:
        for side, rounds in each.sides.items():
            figures, capacity = Figures.of(rounds), Capacity.of(rounds)
            rows.append(
                [
                    each.name,
                    side,
                    shown(figures.tokens_per_second),
                    shown(figures.requests_per_second, 1),
                    capacity.busiest,
                    shown(capacity.tokens_per_busiest_second),
                    shown(capacity.requests_per_busiest_second, 1),
                    shown(capacity.tokens_per_cpu_second),
                    shown(figures.ttft_p50_ms, 1),
                    shown(figures.ttft_p99_ms, 1),
                    f"{figures.tokens_per_step.median:.1f}",
                    f"{figures.tokens_per_arrival.median:.2f}",
                ]
            )
    return table(rows)


def _cpu_table(side: str, comparisons: Sequence[Comparison]) -> str:
    taking_part = [each for each in comparisons if side in each.sides]
    programs = list(dict.fromkeys(name for each in taking_part for name in each.sides[side][0].cpu))
    rows = [[side, *programs, "in front of the engine"]]
    for each in taking_part:
        figures = Figures.of(each.sides[side])
        cells = [f"{figures.cpu_ms_per_1000_tokens[name].median:.1f}" for name in programs]
        rows.append([each.name, *cells, shown(figures.cpu_in_front_ms_per_1000_tokens, 1)])
    return table(rows)


def _idle_table(idle: Idle) -> str:
    rows = [["side", "process", "percent"]]
    for side, programs in idle.items():
        rows += [[side, name, f"{100 * share:.1f}"] for name, share in programs.items()]
        in_front = sum(share for name, share in programs.items() if name not in (ENGINE, LOAD))
        rows.append([side, "in front of the engine", f"{100 * in_front:.1f}"])
    return table(rows)


def _cost_rows(comparisons: Sequence[Comparison]) -> list[list[str]]:
    """Compare the shortest with the longest answers at each number of streams."""
    rows = [["workloads", "side", "process", "ms a request", "us a token"]]
    alike: dict[str, list[Comparison]] = {}
    for each in comparisons:
        alike.setdefault(each.name.replace(f", {each.round.max_tokens} tokens", ""), []).append(
            each
        )
    for streams, group in alike.items():
        group = sorted(group, key=lambda each: each.round.max_tokens)
        if len(group) == 1:
            continue
        for side in group[0].sides:
            cost = Cost.between(group[0].sides[side], group[-1].sides[side])
            counted = [name for name in cost.us_per_token if name not in (ENGINE, LOAD)]
            for name in counted:
                rows.append(_cost_row(streams, side, name, cost, [name]))
            rows.append(_cost_row(streams, side, "all", cost, counted))
    return rows if len(rows) > 1 else []


def _cost_row(streams: str, side: str, shown_as: str, cost: Cost, names: list[str]) -> list[str]:
    request = sum(cost.ms_per_request[name] for name in names)
    token = sum(cost.us_per_token[name] for name in names)
    return [streams, side, shown_as, f"{request:.2f}", f"{token:.1f}"]


def _as_json(comparison: Comparison) -> dict[str, object]:
    return {
        side: {"figures": asdict(Figures.of(rounds)), "capacity": asdict(Capacity.of(rounds))}
        for side, rounds in comparison.sides.items()
    }


def _ratio(ours: Spread, theirs: Spread) -> float:
    return ours.median / theirs.median


def _tokens_a_request(measurements: Sequence[Measurement]) -> float:
    result = measurements[0].result
    return result.tokens / len(result.samples)


def _seconds_a_request(measurements: Sequence[Measurement], program: str) -> float:
    return median(each.cpu.get(program, 0.0) / len(each.result.samples) for each in measurements)
