"""The picture and the table of `shortlist bench peers`, from the file that it wrote.

    python -m studies.bench.peers_page docs/figures/peers.json docs/figures/peers.svg docs/measurements.md

The picture has the faster setting of each peer; the table, between two comments of the page, has all rows.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from studies.bench.peers import CANNOT

Shown = Callable[[Mapping[str, Any]], str]

NAMES = {
    "vowpal": "Vowpal Wabbit",
    "mabwiser": "MABWiser",
    "contextualbandits": "contextualbandits",
    "bayesianbandits": "bayesianbandits",
    "faiss": "faiss and 20 lines",
    "item-knn": "item-kNN",
    "ease": "EASE",
    "implicit": "implicit (ALS)",
    "service": "Shortlist over HTTP",
    "library": "Shortlist, the library",
}
OURS = {"service", "library"}
COLOURS = {True: ("#7fb3d5", "#0b62a4"), False: ("#c9c9c9", "#8d8d8d")}  # few items, many items
WIDTH, LEFT, RIGHT, TOP, ROW, BAR = 720, 150, 80, 64, 34, 13
LEAST_MS = 0.01
EACH = "a decision", "learning its reward", "regret, first 1,000"


def picture(record: Mapping[str, Any]) -> str:
    """Bars of the time of a decision, on a logarithmic scale."""
    few, many = sorted({row["K"] for row in record["rows"]})[:2]
    times = {
        (name, arms): min(
            (row["decide_ms"] for row in record["rows"] if (row["peer"], row["K"]) == (name, arms)),
            default=None,
        )
        for name in NAMES
        for arms in (few, many)
    }
    return "\n".join(_elements(times, few, many)) + "\n"


def _elements(times: Mapping[tuple[str, int], float | None], few: int, many: int) -> Iterator[str]:
    height = TOP + ROW * len(NAMES) + 30
    most = max(value for value in times.values() if value is not None)
    scale = (WIDTH - LEFT - RIGHT) / math.log(most / LEAST_MS)
    title = f"Time of one decision, {few:,} and {many:,} items"
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" '
        f'font-size="12" role="img" aria-label="{escape(title)}">'
    )
    yield '<rect width="100%" height="100%" fill="white"/>'
    yield f'<text x="{LEFT}" y="24" font-size="16" font-weight="bold">{escape(title)}</text>'
    note = f"logarithmic scale; the upper bar of each is of {few:,} items"
    yield f'<text x="{LEFT}" y="44" fill="#555">{note}</text>'
    for power in range(math.ceil(math.log10(LEAST_MS)), math.ceil(math.log10(most))):
        x = LEFT + scale * math.log(10**power / LEAST_MS)
        yield f'<path d="M{x:.1f} {TOP - 6}V{height - 26}" stroke="#ddd"/>'
        yield f'<text x="{x:.1f}" y="{height - 10}" text-anchor="middle">{_time(10.0**power)}</text>'
    for place, name in enumerate(NAMES):
        top = TOP + ROW * place
        yield f'<text x="{LEFT - 8}" y="{top + BAR + 4}" text-anchor="end">{escape(NAMES[name])}</text>'
        for arms, colour, y in zip((few, many), COLOURS[name in OURS], (top, top + BAR), strict=True):
            value = times[name, arms]
            if value is not None:
                length = scale * math.log(value / LEAST_MS)
                yield f'<rect x="{LEFT}" y="{y}" width="{length:.1f}" height="{BAR - 1}" fill="{colour}"/>'
                yield f'<text x="{LEFT + length + 5:.1f}" y="{y + BAR - 3}">{_time(value)}</text>'
    yield "</svg>"


def table(record: Mapping[str, Any]) -> str:
    """A row for each setting of a peer, with columns for each number of items, as Markdown."""
    counts = sorted({row["K"] for row in record["rows"]})
    rows = {(row["peer"], row["setting"], row["K"]): row for row in record["rows"]}
    titles = [
        f"{arms:,} items: {EACH[0]}" if not at else each for arms in counts for at, each in enumerate(EACH)
    ]
    lines = [
        f"| what decides | {' | '.join(titles)} | what it leaves to you |",
        "|---" * (len(titles) + 2) + "|",
    ]
    for peer, setting in dict.fromkeys((peer, setting) for peer, setting, _ in rows):
        name = NAMES[peer]
        if setting != "its defaults":
            name += f", `{setting}`" if setting.startswith("--") else f", {setting}"
        cells = [cell for arms in counts for cell in _cells(rows.get((peer, setting, arms)))]
        lines.append(f"| {' | '.join([name, *cells, CANNOT[peer]])} |")
    return "\n".join(lines)


def _cells(row: Mapping[str, Any] | None) -> list[str]:
    """``EACH`` of one peer and number of items; the rounds where there were too few for a regret."""
    if row is None:
        return ["skipped", "", ""]
    regret = row["regret_1000"]
    shown = f"{row['rounds']:,} rounds" if regret is None else f"{regret:.2f}"
    return [_time(row["decide_ms"]), _time(row["learn_ms"]), shown]


def _time(ms: float) -> str:
    return f"{ms / 1e3:.2g} s" if ms >= 1e3 else f"{ms:.0f} ms" if ms >= 10.0 else f"{ms:.2g} ms"


def renew(name: str, picture: Shown, table: Shown, files: Sequence[str]) -> None:
    """Write picture and table of a benchmark of this name.

    ``files``: its rows, the picture, and the page that has the table between two comments.
    """
    rows, svg, page = map(Path, files)
    record = json.loads(rows.read_text())
    svg.write_text(picture(record))
    start, end, shown = f"<!-- {name} -->", f"<!-- /{name} -->", table(record)
    page.write_text(re.sub(rf"(?s){start}.*?{end}", lambda _: f"{start}\n{shown}\n{end}", page.read_text()))


if __name__ == "__main__":
    renew("peers", picture, table, sys.argv[1:])
