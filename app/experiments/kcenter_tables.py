"""`shortlist reproduce kcenter-tables`: Tables I to VII of the k-center paper in shape, print beside ours.

What differs from the paper: the points (patches of two photographs, or clusters without scikit-learn, in
place of Tiny ImageNet; distances judged as in section VIII-C2, of such points, in place of shoes);
coordinates are read without replacement, in batches; the corrections of docs/papers.md, section 5. A campaign
is broken off after ``most`` queries: then ``done`` is False, and there is no share if it is of the baseline.

Notation
    queries     coordinates read of pairs (Tables I to IV), or answers (V to VII)
    share       queries / those of the baseline: naive greedy (I to IV), NS-TS with z = 0 (V to VII)
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from app.algorithms.kcenter.coordinates import Coordinates, blocked
from app.algorithms.kcenter.ds_ts import ds_ts
from app.algorithms.kcenter.ds_ucb import ds_ucb
from app.algorithms.kcenter.naive_greedy import naive_greedy
from app.algorithms.kcenter.random_sampling import random_sampling
from app.bench.report import report
from app.experiments import kcenter_printed as printed
from app.experiments.kcenter_campaigns import Played, Setting, play
from app.experiments.kcenter_data import DIM, Points, clusters, distances, greedy, judged, patches

SEED = 7
DELTA = 0.1
BASE = "ns_ts z=0"
TABLES: tuple[tuple[str, Mapping[tuple[int, int], tuple[float, ...]], tuple[str, ...]], ...] = (
    ("II", printed.TABLE_2, ("naive", "random", "ds_ucb")),
    ("III", printed.TABLE_3, ("ds_ts z=1", "ds_ts z=0.99", "ds_ts z=0")),
    ("IV", printed.TABLE_4, ("naive", "random kl", "ds_ts z=0.99")),
    ("V", printed.TABLE_5, ("ns_ts z=0.9", "ns_ts z=0.8", "ns_ts z=0")),
    ("VI", printed.TABLE_6, ("ns_ts z=0", "ns_ts z=0.8", "ns_tands")),
    ("VII", printed.TABLE_7, ("random", "ns_ts z=0.9", "ns_ts z=0.7", "ns_ts z=0", "ns_tands")),
)
NOISE_STD = {"V": 0.1, "VI": 0.001**0.5, "VII": None}


@dataclass(frozen=True, slots=True)
class Effort:
    """How far to go: most answers of a campaign; largest n of sampling, of random sampling, of campaigns."""

    most: int
    sampled: int
    random: int
    asked: int
    asked_k: int


FULL = Effort(1_000_000, 10_000, 1_000, 1_000, 10)
QUICK = Effort(30_000, 1_000, 100, 25, 5)


@dataclass(frozen=True, slots=True)
class Cell:
    """A line of a printed table; ``printed`` by method."""

    table: str
    n: int
    k: int
    delta: float
    printed: Mapping[str, float]

    def row(
        self, data: str, method: str, queries: int, *, base: int | None, same: bool, done: bool = True
    ) -> dict[str, Any]:
        paper = self.printed.get(method)
        paper_base = self.printed[BASE] if self.table in NOISE_STD else self.n * self.k * DIM
        return {
            "table": self.table,
            "data": data,
            "n": self.n,
            "k": self.k,
            "delta": self.delta,
            "method": method,
            "queries": queries,
            "share": queries / base if base else None,
            "printed": paper,
            "printed_share": None if paper is None else paper / paper_base,
            "greedy's": same,
            "done": done,
        }


def run(name: str, quick: bool, data: Path | None) -> dict[str, Any]:  # noqa: ARG001 - needs no files
    """Print the tables as one, a line a method; return the record."""
    effort = QUICK if quick else FULL
    rows: list[dict[str, Any]] = []
    for cell in tqdm(list(_cells(effort)), unit=" cells", disable=None):
        rows += (_asked if cell.table in NOISE_STD else _sampled)(cell, effort)
    return report(name, rows, seed=SEED)


def _cells(effort: Effort) -> Iterator[Cell]:
    for delta, paper in printed.TABLE_1.items():
        yield Cell("I", 1_000, 10, delta, {"ds_ucb": paper})
    for table, numbers, methods in TABLES:
        for (n, k), paper_numbers in numbers.items():
            asked = table in NOISE_STD
            if n <= (effort.asked if asked else effort.sampled) and (not asked or k <= effort.asked_k):
                yield Cell(table, n, k, DELTA, dict(zip(methods, paper_numbers, strict=True)))


@functools.lru_cache(maxsize=2)
def _points(n: int) -> tuple[str, Points]:
    found = patches(n, seed=SEED)
    return ("clusters", clusters(n, 12, seed=SEED)) if found is None else ("patches", found)


@functools.lru_cache(maxsize=1)
def _layout(n: int) -> Coordinates:
    return blocked(_points(n)[1], rng=np.random.default_rng(SEED))


def _sampled(cell: Cell, effort: Effort) -> list[dict[str, Any]]:
    """Rows of a table of dimension sampling."""
    data, points = _points(cell.n)
    wanted = naive_greedy(points, k=cell.k, first=0, rng=np.random.default_rng(0)).centers.tolist()
    rows = []
    for method in cell.printed:
        if method == "naive" or (method.startswith("random") and cell.n > effort.random):
            continue
        found = _sample(_layout(cell.n), method, cell)
        same = found.centers.tolist() == wanted
        rows.append(cell.row(data, method, found.reads, base=found.exhaustive_reads, same=same))
    return rows


def _sample(layout: Coordinates, method: str, cell: Cell) -> Any:
    rng = np.random.default_rng(SEED)
    options: dict[str, Any] = {"k": cell.k, "delta": cell.delta, "first": 0, "rng": rng}
    if method.startswith("ds_ts"):
        return ds_ts(layout, mix=float(method.partition("=")[2]), **options)
    if method == "random kl":
        return random_sampling(layout, **options)
    return (random_sampling if method == "random" else ds_ucb)(layout, ci="experiment", **options)


def _asked(cell: Cell, effort: Effort) -> list[dict[str, Any]]:
    """Rows of a table of noisy distances; NS-TandS also with the threshold for which nothing is proven."""
    data, points = _points(cell.n)
    between, std = distances(points), NOISE_STD[cell.table]
    if std is None:
        data, between = f"{data}, judged", judged(between)
    wanted = greedy(between, cell.k, 0)
    setting = Setting(between, cell.k, std, cell.delta, effort.most, SEED)
    methods = [*cell.printed, *(["ns_tands heuristic"] if "ns_tands" in cell.printed else [])]
    played = {method: _play(setting, method) for method in methods}
    rows = []
    for method, found in played.items():
        same = list(found.centers) == wanted[: len(found.centers)]
        base = played[BASE].queries if played[BASE].done else None
        rows.append(cell.row(data, method, found.queries, base=base, same=same, done=found.done))
    return rows


def _play(setting: Setting, method: str) -> Played:
    name, _, rest = method.partition(" ")
    if name == "ns_tands":
        return play(setting, "ns_tands", threshold="heuristic" if rest else "proven")
    return play(setting, "random" if name == "random" else "ns_ts", mix=float(rest[2:] or 0.0))
