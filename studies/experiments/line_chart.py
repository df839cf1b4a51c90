"""A line chart, heights logarithmic, as SVG: `python -m studies.experiments.line_chart rows.json chart.svg`.

The rows are those that `shortlist reproduce slates-figures --json` writes: samples until the stop, by gap.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

WIDTH, HEIGHT, LEFT, BOTTOM, TOP, LEGEND = 760, 420, 70, 50, 30, 210
COLOURS = ("#1b6ca8", "#d1495b", "#2e933c", "#8f5db7")


@dataclass(frozen=True, slots=True)
class Frame:
    """Where values are on the paper: x from ``left`` to ``right``, heights from 10^low to 10^high."""

    left: float
    right: float
    low: int
    high: int

    def at(self, x: float, y: float) -> tuple[float, float]:
        across = LEFT + (WIDTH - LEFT - LEGEND) * (x - self.left) / (self.right - self.left)
        share = (math.log10(y) - self.low) / (self.high - self.low)
        return across, TOP + (HEIGHT - TOP - BOTTOM) * (1.0 - share)


def svg(x: Sequence[float], lines: Mapping[str, Sequence[float]], *, across: str, up: str) -> str:
    """The chart; a name that ends in "paper" is dashed, in the colour of the same name without it."""
    values = [value for line in lines.values() for value in line]
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    frame = Frame(min(x), max(x), low, high)
    middle = (LEFT + WIDTH - LEGEND) / 2
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}">',
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
            '<g font-family="sans-serif" font-size="13">',
            *_axes(frame, x),
            *_lines(frame, x, lines),
            f'<text x="{middle}" y="{HEIGHT - 8}" text-anchor="middle">{across}</text>',
            f'<text x="{LEFT}" y="18">{up}</text></g></svg>\n',
        ]
    )


def _axes(frame: Frame, x: Sequence[float]) -> Iterator[str]:
    for power in range(frame.low, frame.high + 1):
        _, y = frame.at(frame.left, 10.0**power)
        yield f'<path d="M{LEFT} {y:.1f}H{WIDTH - LEGEND}" stroke="#ddd"/>'
        yield f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{10**power:,}</text>'
    for value in x:
        place, _ = frame.at(value, 1.0)
        yield f'<text x="{place:.1f}" y="{HEIGHT - BOTTOM + 20}" text-anchor="middle">{value}</text>'


def _lines(frame: Frame, x: Sequence[float], lines: Mapping[str, Sequence[float]]) -> Iterator[str]:
    names = list(dict.fromkeys(name.removesuffix(" paper") for name in lines))
    for place, (name, line) in enumerate(lines.items()):
        colour = COLOURS[names.index(name.removesuffix(" paper")) % len(COLOURS)]
        dashes = ' stroke-dasharray="6 4"' if name.endswith(" paper") else ""
        style = f'stroke="{colour}" stroke-width="2" fill="none"{dashes}'
        points = (frame.at(*point) for point in zip(x, line, strict=True))
        yield f'<path d="M{" L".join(f"{a:.1f} {b:.1f}" for a, b in points)}" {style}/>'
        y = TOP + 14 + 22 * place
        yield f'<path d="M{WIDTH - LEGEND + 20} {y}h34" {style}/>'
        yield f'<text x="{WIDTH - LEGEND + 62}" y="{y + 4}">{name}</text>'


def main(rows_file: str, chart_file: str) -> None:
    """Draw Figure 3 of the rows; methods that were given up at some gap are left out."""
    rows = [row for row in json.loads(Path(rows_file).read_text())["rows"] if row["figure"] == 3]
    gaps = [float(name.removeprefix("gap ")) for name in rows[0] if name.startswith("gap ")]
    lines = {
        row["method"] + (" paper" if row["bound"] == "paper" else ""): [row[f"gap {gap}"] for gap in gaps]
        for row in rows
    }
    drawn = {name: line for name, line in lines.items() if None not in line}
    Path(chart_file).write_text(
        svg(gaps, drawn, across="gap between the k-th and the next arm", up="totals until the stop (mean)")
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
