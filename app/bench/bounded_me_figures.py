"""`shortlist reproduce figures2to4-bounded-me`: precision against speed-up, from the benchmark.

The paper's Figures 2 (Gaussian), 3 (uniform) and 4 (matrix factorisation; here vectors of rank 16) have no
printed numbers: BoundedME keeps its precision while the speed-up grows, the others lose it.

Source: Liu, Wu, Mozafari, "A Bandit Approach to Maximum Inner Product Search", Figures 2 to 4.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from app.bench import bounded_me
from app.experiments.plots import figure

MARKS = {"bounded_me": "o-", "racing": "s-", "hnswlib": "^--", "faiss_flat": "*"}
# Queries that share the building of a graph.
BUILDS = {10_000: "^:", 100: "v:", 1: "<:"}


def run(name: str, quick: bool, data: Path | None) -> dict[str, Any]:  # noqa: ARG001 - as all reproductions
    """Run the benchmark; draw one figure an N where matplotlib is installed."""
    record = bounded_me.run(quick)
    record["benchmark"] = name
    if find_spec("matplotlib") is None:
        print("matplotlib is not installed (pip install 'shortlist[plots]'): there is no figure")
        return record
    for dim in sorted({row["N"] for row in record["rows"]}):
        print(f"figure: {draw(record['rows'], dim, Path(f'{name}-{dim}.png'))}")
    return record


def draw(rows: list[dict[str, Any]], dim: int, path: Path) -> Path:
    """Precision against speed-up of a search, preparation left out, as the paper does; for a graph also with
    its building, which some queries share. Data by k.
    """
    panels = [(data, k) for k in bounded_me.KS for data in bounded_me.DATA]
    with figure(path, columns=len(bounded_me.DATA), lines=len(bounded_me.KS)) as axes:
        for place, (data, k) in zip(axes, panels, strict=True):
            for method, mark in MARKS.items():
                some = [r for r in rows if (r["N"], r["data"], r["k"], r["method"]) == (dim, data, k, method)]
                some.sort(key=lambda row: row["time"])
                place.plot([1 / r["time"] for r in some], [r["precision"] for r in some], mark, label=method)
            some = [r for r in rows if (r["N"], r["data"], r["k"], r["method"]) == (dim, data, k, "hnswlib")]
            for count, mark in BUILDS.items():
                speeds, label = [r[f"for_{count}"] for r in some], f"hnswlib, built for {count:,}"
                place.plot(speeds, [r["precision"] for r in some], mark, label=label, markersize=4)
            place.set(xscale="log", ylim=(0, 1.05), title=f"{data}, N = {dim:,}, top {k}")
            place.set(xlabel="speed-up over the scan", ylabel=f"precision@{k}")
        axes[0].legend(fontsize="x-small")
    return path
