"""Plots as SVG, in a page of plain Python: bars and lines over two axes with round numbers."""

from collections.abc import Mapping, Sequence
from html import escape
from math import ceil, floor, log10
from pathlib import Path
from typing import Final

WIDTH: Final = 720
HEIGHT: Final = 300
LEFT: Final = 64
RIGHT: Final = 16
TOP: Final = 40
BOTTOM: Final = 48
COLORS: Final = ("#1f6feb", "#e36209", "#2da44e", "#8250df")
TICKS: Final = 6

Points = Sequence[tuple[float, float]]


def bars(path: str, points: Points, *, title: str, x: str, y: str) -> None:
    """A bar from zero up to the value, from every place to the next; there is at least one."""
    step = (points[1][0] - points[0][0]) if len(points) > 1 else 1.0
    frame = Frame([[*points, (points[-1][0] + step, 0.0)]])
    width = max(1.0, frame.across(points[0][0] + step) - frame.across(points[0][0]) - 1)
    drawn = [
        f'<rect x="{frame.across(at):.1f}" y="{frame.up(value):.1f}" width="{width:.1f}"'
        f' height="{frame.up(0) - frame.up(value):.1f}" fill="{COLORS[0]}"/>'
        for at, value in points
    ]
    _write(path, frame, drawn, title=title, x=x, y=y)


def lines(path: str, series: Mapping[str, Points], *, title: str, x: str, y: str) -> None:
    """A line for every name, with its points."""
    frame = Frame(list(series.values()))
    drawn = []
    for number, (name, points) in enumerate(series.items()):
        color = COLORS[number % len(COLORS)]
        places = [f"{frame.across(at):.1f},{frame.up(value):.1f}" for at, value in points]
        drawn.append(
            f'<polyline points="{" ".join(places)}" fill="none" stroke="{color}" stroke-width="2"/>'
        )
        middle, right = TOP + 14 * number, WIDTH - RIGHT
        drawn.append(
            f'<text x="{right}" y="{middle}" text-anchor="end" fill="{color}">{escape(name)}</text>'
        )
    _write(path, frame, drawn, title=title, x=x, y=y)


class Frame:
    """Where values lie on the paper."""

    def __init__(self, series: Sequence[Points]) -> None:
        places = [at for points in series for at, _ in points] or [0.0]
        values = [value for points in series for _, value in points] or [0.0]
        self.across_ticks = ticks(min(places), max(places))
        self.up_ticks = ticks(0, max(0.0, *values))

    def across(self, at: float) -> float:
        """How far from the left a place is."""
        first, last = self.across_ticks[0], self.across_ticks[-1]
        return LEFT + (at - first) / (last - first) * (WIDTH - LEFT - RIGHT)

    def up(self, value: float) -> float:
        """How far from the top a value is."""
        first, last = self.up_ticks[0], self.up_ticks[-1]
        return HEIGHT - BOTTOM - (value - first) / (last - first) * (HEIGHT - TOP - BOTTOM)


def ticks(least: float, most: float) -> list[float]:
    """Round numbers from at or below the least to at or above the most."""
    span = (most - least) or 1.0
    rough = span / TICKS
    power = 10.0 ** floor(log10(rough))
    step = next(power * by for by in (1, 2, 5, 10) if power * by >= rough)
    first, last = floor(least / step), ceil(most / step)
    return [number * step for number in range(first, max(last, first + 1) + 1)]


def _write(path: str, frame: Frame, drawn: Sequence[str], *, title: str, x: str, y: str) -> None:
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}"'
            ' font-family="sans-serif" font-size="12" fill="#57606a">'
        ),
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        f'<text x="{LEFT}" y="22" font-size="15" fill="#24292f">{escape(title)}</text>',
    ]
    for value in frame.up_ticks:
        height = frame.up(value)
        parts.append(
            f'<path d="M{LEFT} {height:.1f}H{right}" stroke="#d0d7de"/>'
            f'<text x="{LEFT - 6}" y="{height + 4:.1f}" text-anchor="end">{value:g}</text>'
        )
    parts += [
        f'<text x="{frame.across(at):.1f}" y="{bottom + 16}" text-anchor="middle">{at:g}</text>'
        for at in frame.across_ticks
    ]
    middle = (LEFT + right) / 2
    parts += drawn
    parts += [
        f'<text x="{middle:.1f}" y="{HEIGHT - 10}" text-anchor="middle">{escape(x)}</text>',
        (
            f'<text transform="translate(14 {(TOP + bottom) / 2:.1f}) rotate(-90)"'
            f' text-anchor="middle">{escape(y)}</text>'
        ),
        "</svg>",
    ]
    Path(path).write_text("\n".join(parts) + "\n")
