"""The picture and the table of `shortlist bench people`, from the file that it wrote.

    python -m studies.bench.people_page docs/figures/people.json docs/figures/people.svg docs/measurements.md

Each has all rows. A point of the picture is the ratio of hits, ours over theirs, with one standard error.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

from studies.bench.peers_page import renew

Row = Mapping[str, Any]

NAMES = {
    "popular": "most popular",
    "item-kNN": "item-kNN",
    "EASE": "EASE",
    "ALS": "ALS",
    "VW": "Vowpal Wabbit",
    "no prior": "ours, no prior",
}
COLOURS = {
    "popular": "#0b62a4",
    "item-kNN": "#c8553d",
    "EASE": "#d4a017",
    "ALS": "#5a9e6f",
    "VW": "#8d8d8d",
    "no prior": "#7b5ea7",
}
PANELS = (("first five rounds", "first5", 130), ("all rounds", "ratio", 375))  # title, column, left edge
LEAST, MOST, PANEL, AHEAD = 0.3, 4.0, 220, 620
WIDTH, TOP, ROW, DOT = 840, 92, 52, 4
TICKS = (0.5, 1.0, 2.0)


def groups(record: Mapping[str, Any]) -> dict[tuple[str, str], dict[str, Row]]:
    """The rows by world and setting, then by opponent; the group of the least ratio first."""
    found: dict[tuple[str, str], dict[str, Row]] = {}
    for row in record["rows"]:
        found.setdefault((row["world"], row["setting"]), {})[row["opponent"]] = row
    return dict(sorted(found.items(), key=lambda item: min(row["ratio"] for row in item[1].values())))


def picture(record: Mapping[str, Any]) -> str:
    """Two panels of points on a logarithmic scale, and the round from which ours is ahead."""
    return "\n".join(_elements(groups(record))) + "\n"


def _elements(rows_of: Mapping[tuple[str, str], Mapping[str, Row]]) -> Iterator[str]:
    height = TOP + ROW * len(rows_of) + 26
    title = "Hits of new people: the default, over what one would use instead"
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" '
        f'font-size="12" role="img" aria-label="{escape(title)}">'
    )
    yield '<rect width="100%" height="100%" fill="white"/>'
    yield f'<text x="20" y="24" font-size="16" font-weight="bold">{escape(title)}</text>'
    for place, (name, label) in enumerate(NAMES.items()):
        left = 24 + 124 * place
        yield f'<circle cx="{left}" cy="44" r="{DOT}" fill="{COLOURS[name]}"/>'
        yield f'<text x="{left + 9}" y="48">{label}</text>'
    for panel, _, left in PANELS:
        yield f'<text x="{left + PANEL / 2}" y="72" text-anchor="middle" fill="#555">{panel}</text>'
        for tick in TICKS:
            x, colour = left + _x(tick), "#888" if tick == 1.0 else "#ddd"
            yield f'<path d="M{x:.1f} {TOP - 8}V{height - 22}" stroke="{colour}"/>'
            yield f'<text x="{x:.1f}" y="{height - 8}" text-anchor="middle">{tick:g}</text>'
    yield f'<text x="{AHEAD}" y="72" fill="#555">ahead from round</text>'
    for place, ((world, setting), rows) in enumerate(rows_of.items()):
        top = TOP + ROW * place
        yield f'<text x="120" y="{top + ROW / 2:.0f}" text-anchor="end">{world}, {setting}</text>'
        for at, (name, row) in enumerate((name, rows[name]) for name in NAMES if name in rows):
            y = top + 3 + at * (ROW - 10) / (len(NAMES) - 1)
            for _, column, left in PANELS:
                yield from _point(left, y, row[column], row[f"{_prefix(column)}error"] or 0.0, COLOURS[name])
        ahead = (
            f'<tspan fill="{COLOURS[name]}">{_ahead(rows[name])}</tspan>' for name in NAMES if name in rows
        )
        yield f'<text x="{AHEAD}" y="{top + ROW / 2:.0f}">{" · ".join(ahead)}</text>'
    yield "</svg>"


def _point(left: float, y: float, ratio: float, error: float, colour: str) -> Iterator[str]:
    low, high = _x(ratio - error), _x(ratio + error)
    yield f'<path d="M{left + low:.1f} {y:.1f}H{left + high:.1f}" stroke="{colour}" stroke-width="2"/>'
    yield f'<circle cx="{left + _x(ratio):.1f}" cy="{y:.1f}" r="{DOT}" fill="{colour}"/>'


def _x(ratio: float) -> float:
    share = math.log(min(max(ratio, LEAST), MOST) / LEAST) / math.log(MOST / LEAST)
    return PANEL * share


def table(record: Mapping[str, Any]) -> str:
    """All rows, as Markdown: those of a world and setting in one line."""
    lines = [
        f"| world | setting | hits | {' | '.join(NAMES.values())} |",
        "|---|---|---" + "|---" * len(NAMES) + "|",
    ]
    for (world, setting), rows in groups(record).items():
        ours = next(rows[name]["ours"] for name in NAMES if name in rows)
        cells = (_cell(rows.get(name)) for name in NAMES)
        lines.append(f"| {world} | {setting} | {ours:.2f} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(row: Row | None) -> str:
    if row is None:
        return "not measured"
    parts: Sequence[str] = [
        f"{row[column]:.2f}"
        + (f" ({row[f'{_prefix(column)}error']:.2f})" if row[f"{_prefix(column)}error"] else "")
        for column in ("ratio", "first5")
    ]
    return "; ".join([*parts, _ahead(row)])


def _prefix(column: str) -> str:
    return "" if column == "ratio" else f"{column}_"


def _ahead(row: Row) -> str:
    return "never" if row["ahead"] is None else str(row["ahead"])


if __name__ == "__main__":
    renew("people", picture, table, sys.argv[1:])
