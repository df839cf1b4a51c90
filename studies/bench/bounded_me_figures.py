"""`shortlist reproduce figures2to4-bounded-me`: precision against speed-up, from the benchmark.

The paper's Figures 2 (Gaussian), 3 (uniform) and 4 (matrix factorisation; here vectors of rank 16, and with
``--data`` factors of MovieLens) have no printed numbers: BoundedME keeps its precision while the speed-up
grows, the others lose it. They are drawn once by time, and once by the number of products, which does not
depend on the machine.

Source: Liu, Wu, Mozafari, "A Bandit Approach to Maximum Inner Product Search", Figures 2 to 4.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from studies.bench import bounded_me
from studies.experiments.plots import can_draw, figure

MARKS = {
    "bounded_me": "o-",
    "racing": "s-",
    "greedy_mips": "d--",
    "lsh_mips": "x",
    "pca_mips": "+--",
    "hnswlib": "^--",
    "faiss_flat": "*",
}
# What is drawn: the column of which a speed-up is the inverse, and how the axis is called.
SPEEDS = {"time": "speed-up over the scan", "reads": "n N / products computed"}


def run(name: str, quick: bool, data: Path | None) -> dict[str, Any]:
    """Run the benchmark; draw two figures an N where matplotlib is installed."""
    record = bounded_me.run(quick, data)
    record["benchmark"] = name
    if not can_draw():
        return record
    for dim in sorted({row["N"] for row in record["rows"]}):
        rows = [row for row in record["rows"] if row["N"] == dim]
        for speed in SPEEDS:
            print(f"figure: {draw(rows, speed, Path(f'{name}-{dim}-{speed}.png'))}")
    return record


def draw(rows: list[dict[str, Any]], speed: str, path: Path) -> Path:
    """Precision against speed-up of a search, preparation left out, as the paper does; data by k.

    ``rows`` are of one N, ``speed`` is a key of ``SPEEDS``.
    """
    kinds = list(dict.fromkeys(row["data"] for row in rows))
    panels = [(data, k) for k in bounded_me.KS for data in kinds]
    with figure(path, columns=len(kinds), lines=len(bounded_me.KS)) as axes:
        for place, (data, k) in zip(axes, panels, strict=True):
            some = [row for row in rows if (row["data"], row["k"]) == (data, k)]
            _panel(place, some, speed)
            place.set(xscale="log", ylim=(0, 1.05), title=f"{data}, N = {some[0]['N']:,}, top {k}")
            place.set(xlabel=SPEEDS[speed], ylabel=f"precision@{k}")
        axes[0].legend(fontsize="x-small")
    return path


def _panel(place: Any, rows: list[dict[str, Any]], speed: str) -> None:
    for colour, (method, mark) in enumerate(MARKS.items()):
        some = [row for row in rows if row["method"] == method and row[speed] is not None]
        some.sort(key=lambda row: row[speed])
        speeds, found = [1 / row[speed] for row in some], [row["precision"] for row in some]
        if some:
            place.plot(speeds, found, mark, label=method, color=f"C{colour}")
