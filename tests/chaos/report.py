"""Figures beside their bars."""

from dataclasses import dataclass, field
from typing import Final

TIMES: Final = ("s", "ms")


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One thing that was measured. `most` None: it is told and held to nothing."""

    drill: str
    what: str
    value: float
    unit: str = ""
    most: float | None = None

    @property
    def is_met(self) -> bool:
        return self.most is None or self.value <= self.most


@dataclass(kw_only=True)
class Report:
    figures: list[Figure] = field(default_factory=list)

    def missed(self, *, times: bool) -> list[str]:
        """Return what missed its bar: of `times` those in s and ms, else all others."""
        return [
            f"{each.drill}: {each.what}"
            for each in self.figures
            if not each.is_met and (each.unit in TIMES) is times
        ]

    def add(
        self, drill: str, what: str, value: float, unit: str = "", *, most: float | None = None
    ) -> None:
        figure = Figure(drill=drill, what=what, value=value, unit=unit, most=most)
        self.figures.append(figure)
        print(f"  {_row(figure)}", flush=True)

    def table(self) -> str:
        rows = ["| drill | figure | measured | bar | met |", "| --- | --- | --- | --- | --- |"]
        return "\n".join(rows + [f"| {figure.drill} {_row(figure)}" for figure in self.figures])


def _row(figure: Figure) -> str:
    bar = "" if figure.most is None else f"<= {figure.most:g} {figure.unit}".strip()
    met = "" if figure.most is None else ("yes" if figure.is_met else "NO")
    measured = f"{figure.value:.4g} {figure.unit}".strip()
    return f"| {figure.what} | {measured} | {bar} | {met} |"
