"""Plots as SVG text: lines over time, bars on a logarithmic scale, stacks."""

import math
from collections.abc import Mapping, Sequence
from html import escape

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 320, 70, 170, 40, 40
COLOURS = ("#1b6ca8", "#d1495b", "#edae49", "#3c7a4e", "#7b5ea7", "#00798c", "#8d6a4f", "#6c757d")


def lines(title: str, unit: str, series: Mapping[str, Sequence[tuple[float, float]]]) -> str:
    """`series`: name -> points (seconds, value)."""
    across = max(x for points in series.values() for x, _ in points) or 1
    top = max(y for points in series.values() for _, y in points) or 1
    parts = [_text(LEFT, HEIGHT - 12, f"0 to {across:.0f} s")]
    for share in (0, 0.25, 0.5, 0.75, 1):
        parts += _grid(_y(share), f"{share * top:,.0f}")
    for number, (name, points) in enumerate(series.items()):
        colour = COLOURS[number % len(COLOURS)]
        place = " ".join(f"{_x(x / across):.1f},{_y(y / top):.1f}" for x, y in points)
        parts.append(
            f'<polyline points="{place}" fill="none" stroke="{colour}" stroke-width="1.6"/>'
        )
        parts += _key(number, name, colour)
    return _svg(f"{title} ({unit})", parts)


def bars(title: str, unit: str, groups: Mapping[str, Mapping[str, float]]) -> str:
    """`groups`: group -> name -> value above zero."""
    values = [value for group in groups.values() for value in group.values()]
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    names = list(dict.fromkeys(name for group in groups.values() for name in group))
    parts: list[str] = []
    for power in range(low, high + 1):
        parts += _grid(_y((power - low) / (high - low)), f"{10.0**power:,g}")
    width = (WIDTH - LEFT - RIGHT) / len(groups)
    bar = 0.8 * width / len(names)
    for place, (group, each) in enumerate(groups.items()):
        parts.append(_text(LEFT + place * width, HEIGHT - 12, group, size=9))
        for number, name in enumerate(names):
            if name in each:
                y = _y((math.log10(each[name]) - low) / (high - low))
                x = LEFT + place * width + number * bar
                parts.append(
                    f'<rect x="{x:.1f}" y="{y:.1f}" width="{bar * 0.9:.1f}" '
                    f'height="{HEIGHT - BOTTOM - y:.1f}" fill="{COLOURS[number % len(COLOURS)]}"/>'
                )
    for number, name in enumerate(names):
        parts += _key(number, name, COLOURS[number % len(COLOURS)])
    return _svg(f"{title} ({unit}, logarithmic)", parts)


def stacks(title: str, unit: str, groups: Mapping[str, Mapping[str, float]]) -> str:
    """`groups`: one stack each, name -> value; names keep their colour across groups."""
    names = list(dict.fromkeys(name for group in groups.values() for name in group))
    top = max(sum(group.values()) for group in groups.values()) or 1
    parts: list[str] = []
    for share in (0, 0.25, 0.5, 0.75, 1):
        parts += _grid(_y(share), f"{share * top:,.3g}")
    width = (WIDTH - LEFT - RIGHT) / len(groups)
    for place, (group, each) in enumerate(groups.items()):
        x = LEFT + place * width
        for number, line in enumerate(group.split("\n")):
            parts.append(_text(x, HEIGHT - 24 + 12 * number, line, size=9))
        below = 0.0
        for name, value in each.items():
            y, height = _y((below + value) / top), _y(below / top) - _y((below + value) / top)
            colour = COLOURS[names.index(name) % len(COLOURS)]
            parts.append(
                f'<rect x="{x:.1f}" y="{y:.1f}" width="{0.8 * width:.1f}" '
                f'height="{height:.1f}" fill="{colour}"/>'
            )
            below += value
    for number, name in enumerate(names):
        parts += _key(number, name, COLOURS[number % len(COLOURS)])
    return _svg(f"{title} ({unit})", parts)


def _x(share: float) -> float:
    return LEFT + share * (WIDTH - LEFT - RIGHT)


def _y(share: float) -> float:
    return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)


def _grid(y: float, label: str) -> list[str]:
    line = f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="#ddd"/>'
    return [line, _text(LEFT - 6, y + 4, label, anchor="end")]


def _key(number: int, name: str, colour: str) -> list[str]:
    y = TOP + 16 * number
    box = f'<rect x="{WIDTH - RIGHT + 12}" y="{y}" width="10" height="10" fill="{colour}"/>'
    return [box, _text(WIDTH - RIGHT + 27, y + 9, name)]


def _text(x: float, y: float, text: str, *, size: int = 11, anchor: str = "start") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}">'
        f"{escape(text)}</text>"
    )


def _svg(title: str, parts: list[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'font-family="sans-serif" fill="#222"><rect width="{WIDTH}" height="{HEIGHT}" '
        f'fill="#fff"/>{_text(LEFT, 22, title, size=14)}'
    )
    return head + "\n".join(parts) + "</svg>\n"
