"""`shortlist reproduce kcenter-tables`: Tables I to VII of the k-center paper in shape, print beside ours.

What differs from the paper: the points. Tables I to IV: patches of two photographs, or clusters without
scikit-learn, in place of Tiny ImageNet; V to VII: ``clusters`` of the same m that lead by more, in place of
Tiny ImageNet and (VII) of shoes, so that every method ends; VII judges them as in section VIII-C2. With
``--data`` there are rows for MovieLens too: I to IV, to n = 1,000, for the movies' ratings by m users, VI for
features of 16 coordinates, distances divided by the largest. Coordinates are read without replacement, in
batches; the corrections of docs/papers/k-center.md. A campaign is broken off after ``most`` queries (a
hundred times that for random ones): then ``done`` is False, and there is no share of it or to it.

Notation
    queries     coordinates read of pairs (Tables I to IV), or answers (V to VII)
    share       queries / those of the baseline: naive greedy (I to IV), NS-TS with z = 0, which is NS-UCB
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from shortlist.kcenter.coordinates import Coordinates, blocked
from shortlist.kcenter.ds_ts import ds_ts
from shortlist.kcenter.ds_ucb import ds_ucb
from shortlist.kcenter.naive_greedy import naive_greedy
from shortlist.kcenter.random_sampling import random_sampling
from shortlist_client.progress import progress
from studies.experiments import kcenter_printed as printed
from studies.experiments.kcenter_campaigns import Played, Setting, play
from studies.experiments.kcenter_data import DIM, Points, clusters, distances, greedy, judged, movies, patches
from studies.measurement import report

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
    """How far to go: most answers of a campaign; largest n of sampling, of random sampling, of campaigns.

    ``deltas``: of Table I.
    """

    most: int
    sampled: int
    random: int
    asked: int
    asked_k: int
    deltas: Sequence[float] = tuple(printed.TABLE_1)


FULL = Effort(300_000_000, 10_000, 1_000, 1_000, 10)
QUICK = Effort(10_000_000, 1_000, 100, 55, 5)
CLUSTERS, LEAST = 12, 0.4
MOST_MOVIES, MOVIE_TABLES, MOST_ABOUT_MOVIES = 1_000, ("VI",), 10_000_000


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
            "share": queries / base if base and done else None,
            "printed": paper,
            "printed_share": None if paper is None else paper / paper_base,
            "greedy's": same,
            "done": done,
        }


def run(name: str, quick: bool, data: Path | None, effort: Effort | None = None) -> dict[str, Any]:
    """Print the tables as one, a line a method; return the record."""
    effort = effort or (QUICK if quick else FULL)
    films = {} if data is None else movies(data, seed=SEED)
    cells = list(_cells(effort))
    found: dict[int, list[dict[str, Any]]] = {}
    # By n: the points of one size are laid out once.
    order = sorted(range(len(cells)), key=lambda place: cells[place].n)
    for place in progress(order, "cells"):
        found[place] = _rows(cells[place], effort, films)
    rows = [row for place in range(len(cells)) for row in found[place]]
    record = report(name, [_shown(row) for row in rows], seed=SEED)
    return {**record, "rows": rows}


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    return row if row["done"] else {**row, "queries": f"more than {row['queries']:,}"}


def _cells(effort: Effort) -> Iterator[Cell]:
    for delta in effort.deltas:
        yield Cell("I", 1_000, 10, delta, {"ds_ucb": printed.TABLE_1[delta]})
    for table, numbers, methods in TABLES:
        for (n, k), paper_numbers in numbers.items():
            asked = table in NOISE_STD
            if n <= (effort.asked if asked else effort.sampled) and (not asked or k <= effort.asked_k):
                yield Cell(table, n, k, DELTA, dict(zip(methods, paper_numbers, strict=True)))


def _rows(cell: Cell, effort: Effort, films: Mapping[str, Points]) -> list[dict[str, Any]]:
    n = cell.n
    if cell.table in NOISE_STD:
        rows = _asked(cell, effort, "clusters", clusters(n, CLUSTERS, seed=SEED, least=LEAST))
        film = films.get("movielens features")
        if film is None or len(film) < n or cell.table not in MOVIE_TABLES:
            return rows
        short = replace(effort, most=min(effort.most, MOST_ABOUT_MOVIES))
        return rows + _asked(cell, short, "movielens features", film[:n])
    rows = _sampled(cell, effort, *_points(n), _layout(n))
    film = films.get("movielens ratings")
    if film is None or not n <= min(len(film), MOST_MOVIES):
        return rows
    layout = blocked(film[:n], rng=np.random.default_rng(SEED))
    return rows + _sampled(cell, effort, "movielens ratings", film[:n], layout)


@functools.lru_cache(maxsize=1)
def _points(n: int) -> tuple[str, Points]:
    found = patches(n, seed=SEED)
    return ("clusters", clusters(n, CLUSTERS, seed=SEED)) if found is None else ("patches", found)


@functools.lru_cache(maxsize=1)
def _layout(n: int) -> Coordinates:
    return blocked(_points(n)[1], rng=np.random.default_rng(SEED))


def _sampled(
    cell: Cell, effort: Effort, data: str, points: Points, layout: Coordinates
) -> list[dict[str, Any]]:
    """Rows of a table of dimension sampling."""
    wanted = naive_greedy(points, k=cell.k, first=0, rng=np.random.default_rng(0)).centers.tolist()
    rows = []
    for method in cell.printed:
        if method == "naive" or (method.startswith("random") and cell.n > effort.random):
            continue
        found = _sample(layout, method, cell)
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


def _asked(cell: Cell, effort: Effort, data: str, points: Points) -> list[dict[str, Any]]:
    """Rows of a table of noisy distances; NS-TandS also with the threshold for which nothing is proven."""
    between, std = distances(points), NOISE_STD[cell.table]
    if data != "clusters":
        between /= between.max()
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
    if name == "random":
        return play(replace(setting, most=100 * setting.most), "random")
    return play(setting, "ns_ts", mix=float(rest[2:]))
