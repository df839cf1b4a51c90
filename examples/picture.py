"""A picture of what policies earn, as an SVG that needs nothing else to be shown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from pathlib import Path

import numpy as np

from examples.environments import Matrix

WIDTH, HEIGHT = 720, 360
LEFT, RIGHT, TOP, BOTTOM = 60, 130, 70, 45
POINTS = 40
TICKS = 5
COLOURS = ("#0b62a4", "#7aa6c2", "#c8553d", "#8d8d8d")
FEWEST_PIXELS = 16.0  # between two names


def draw(path: Path, title: str, subtitle: str, rewards: Mapping[str, Matrix]) -> None:
    """Write the mean reward of each policy over the rounds. ``rewards``: (L, T) by policy."""
    rounds = next(iter(rewards.values())).shape[1]
    parts = np.array_split(np.arange(rounds), min(POINTS, rounds))
    lines = {name: [float(table[:, part].mean()) for part in parts] for name, table in rewards.items()}
    ends = [int(part[-1]) + 1 for part in parts]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(_elements(title, subtitle, ends, lines)) + "\n")


def _elements(title: str, subtitle: str, ends: list[int], lines: Mapping[str, list[float]]) -> Iterator[str]:
    every = [value for line in lines.values() for value in line]
    low, high = min(0.0, *every), max(0.0, *every) or 1.0

    def x(at: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * at / ends[-1]

    def y(value: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (value - low) / (high - low)

    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
        f'font-size="12" role="img" aria-label="{escape(title)}">'
    )
    yield '<rect width="100%" height="100%" fill="white"/>'
    yield f'<text x="{LEFT}" y="26" font-size="16" font-weight="bold">{escape(title)}</text>'
    yield f'<text x="{LEFT}" y="46" fill="#555">{escape(subtitle)}</text>'
    for value in np.linspace(low, high, TICKS):
        yield f'<path d="M{LEFT} {y(value):.1f}H{WIDTH - RIGHT}" stroke="#ddd"/>'
        yield f'<text x="{LEFT - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{value:.2f}</text>'
    for at in np.linspace(0, ends[-1], TICKS):
        yield f'<text x="{x(at):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{at:,.0f}</text>'
    yield f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 8}" text-anchor="middle">round</text>'
    below = float("inf")
    for name, colour in sorted(zip(lines, COLOURS, strict=False), key=lambda pair: lines[pair[0]][-1]):
        line = " ".join(f"{x(end):.1f},{y(value):.1f}" for end, value in zip(ends, lines[name], strict=True))
        yield f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>'
        below = min(y(lines[name][-1]) + 4, below - FEWEST_PIXELS)
        yield f'<text x="{WIDTH - RIGHT + 8}" y="{below:.1f}" fill="{colour}">{escape(name)}</text>'
    yield "</svg>"
