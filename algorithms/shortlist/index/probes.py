"""Probes: queries with known answers, on which an index is judged and timed.

Notation
    P, d        number of probes, dimension
    best        (P,) largest score of any live arm, in float64
    recall      share of the probes whose best arm was found
    ratio       score found / best score; 1 - (best - found) / |best| when the best score is negative

An index is timed against an exact search, alternately: some probes by the one, some by the other. Other load
on the machine then slows both down, and leaves their ratio unchanged.

Times are processor times of the calling thread. So waiting for a core, or for the interpreter lock, does not
count. Further threads of BLAS are not counted either; in the service it has one.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from shortlist.index.exact import scan
from shortlist.index.table import TableSnapshot
from shortlist.mips.exact import unit_scale
from shortlist.types import Matrix, Rows, TopK, Vector

Search = Callable[[Vector], TopK]
Groups = NDArray[np.int8]
_Answer = TypeVar("_Answer")

LIST, LONGEST_LIST = 10, 100
DRAWN, SERVED = 0, 1  # groups of probes: Gaussian ones, and those like queries that were served

_CHUNK_ROWS = 1_024  # their scores on all probes fit into a cache
_ENOUGH_RECENT = 64
_SAME_SCORE = 1e-6
# In a round the index answers this many queries, and the exact search this many, or until it took so long.
_ROUND, _EXACT_ROUND, _EXACT_ROUND_S = 40, 5, 0.02
_MOST_ROUNDS = 25
_TYPICAL_S = 0.5
_FINE_S = 1e-5


@dataclass(frozen=True, slots=True, eq=False)
class Probes:
    """Shapes: queries (P, d), winners (P,) rows, best (P,), fallback_winners (P,) rows, groups (P,).

    ``fallback_winners``: they would win if the longest arms, ``reserve`` of them, were dead. ``groups``:
    DRAWN or SERVED.
    """

    queries: Matrix
    winners: Rows
    best: Vector
    fallback_winners: Rows
    reserve: int
    groups: Groups

    def some(self, positions: Rows | NDArray[np.bool_]) -> Probes:
        queries, winners, best = self.queries[positions], self.winners[positions], self.best[positions]
        return Probes(
            queries, winners, best, self.fallback_winners[positions], self.reserve, self.groups[positions]
        )


@dataclass(frozen=True, slots=True)
class Quality:
    """The quality of a search's answers to the probes. ``recall_error`` is the standard error of the recall.

    ``recall_at_10``, ``recall_at_100``: the share of the right arms in a list of so many.
    """

    recall_at_1: float
    ratio_mean: float
    ratio_min: float
    recall_error: float
    recall_at_10: float = 1.0
    recall_at_100: float = 1.0

    def less(self, lost: float, lost_at_10: float = 0.0, lost_at_100: float = 0.0) -> Quality:
        """The least that it can be if nothing is known of the probes of this share, and of what stands in the
        place of these shares of their lists.
        """
        if not max(lost, lost_at_10, lost_at_100):
            return self
        recalls = self.recall_at_1, self.recall_at_10, self.recall_at_100
        losses = lost, max(lost, lost_at_10), max(lost, lost_at_100)
        first, tenth, hundredth = (
            max(0.0, recall - less) for recall, less in zip(recalls, losses, strict=True)
        )
        mean, least = max(0.0, self.ratio_mean - lost), min(0.0, self.ratio_min)
        return Quality(first, mean, least, self.recall_error, tenth, hundredth)


@dataclass(frozen=True, slots=True)
class Trial:
    """One search on the probes: its quality, its typical time, and that of the best exact search meanwhile.

    ``worst``: the quality on the worst group of probes; None: there is one. Times are in microseconds.
    """

    quality: Quality
    us: float
    exact_us: float
    worst: Quality | None = None

    @property
    def least(self) -> Quality:
        """The quality which may be told."""
        return self.worst or self.quality

    @property
    def speedup(self) -> float:
        """The speed relative to the best exact search."""
        return self.exact_us / self.us


def make_queries(
    dim: int, count: int, recent: Sequence[Vector], rng: np.random.Generator
) -> tuple[Matrix, Groups]:
    """Gaussian directions (count, d), some of them replaced by recent queries, and the group of each.

    With 64 recent queries or more, up to half of the directions are such queries.
    """
    queries, real = rng.standard_normal((count, dim)), _directions(dim, recent)
    groups = np.zeros(count, dtype=np.int8)
    if len(real) < _ENOUGH_RECENT:
        return queries, groups
    chosen = rng.choice(len(real), size=min(count // 2, len(real)), replace=False)
    queries[: len(chosen)], groups[: len(chosen)] = real[chosen], SERVED
    order = rng.permutation(count)
    return queries[order], groups[order]


def queries_like(
    dim: int, count: int, recent: Sequence[Vector], rng: np.random.Generator
) -> tuple[Matrix, Groups]:
    """Directions (count, d), half of them Gaussian and half like the ``recent`` queries; the group of each.

    As the recent ones: as many of them as there are room and queries for, and directions between two of them.
    None is so with fewer than 64 recent queries.
    """
    queries, real = rng.standard_normal((count, dim)), _directions(dim, recent)
    groups = np.zeros(count, dtype=np.int8)
    if len(real) < _ENOUGH_RECENT:
        return queries, groups
    half = count // 2
    ones, others = real[rng.integers(len(real), size=(2, half))]
    like = ones + others
    like *= np.sqrt(dim) / np.maximum(np.linalg.norm(like, axis=1, keepdims=True), _SAME_SCORE)
    chosen = rng.choice(len(real), size=min(half, len(real)), replace=False)
    like[: len(chosen)] = real[chosen]
    queries[:half], groups[:half] = like, SERVED
    order = rng.permutation(count)
    return queries[order], groups[order]


def _directions(dim: int, recent: Sequence[Vector]) -> Matrix:
    """The queries that have a direction, as long as a Gaussian one is. Shape (r, d)."""
    real = [unit_scale(query) for query in recent if query.shape == (dim,)]
    directions = [query * (np.sqrt(dim) / norm) for query, norm in real if norm > 0.0]
    return np.array(directions) if directions else np.empty((0, dim))


def solve(
    table: TableSnapshot,
    queries: Matrix,
    *,
    among: NDArray[np.bool_] | None = None,
    reserve: int = 0,
    groups: Groups | None = None,
    check: Callable[[], None] = lambda: None,
) -> Probes:
    """Find the best live arm of every query.

    Shapes: queries (P, d). ``among`` (K,): True for rows that count, at least one of them alive; None: all.
    ``reserve``: how many of the longest arms are dead when the fallback winners win; if no arm would be left,
    those are the winners. ``groups``: None: all are of one. ``check`` may raise to stop.
    Cost: K P d multiply-adds.
    """
    lines = np.arange(len(queries))
    working = queries.astype(table.working.dtype)
    best = np.full(len(queries), -np.inf)
    winners = np.full(len(queries), table.live_rows[0] if among is None else int(among.argmax()))
    best_heirs, fallback_winners = best.copy(), winners.copy()
    shortest = np.inf  # norm of the shortest of the longest ``reserve`` arms
    if reserve:
        norms = table.norms[table.live_rows]
        shortest = float(np.partition(norms, len(norms) - reserve)[len(norms) - reserve])
    for start in range(0, table.rows, _CHUNK_ROWS):
        check()
        rows = np.arange(start, min(start + _CHUNK_ROWS, table.rows))
        scores = working @ table.working[start : start + _CHUNK_ROWS].T
        counted = table.is_alive(rows)
        if among is not None:
            counted &= among[rows]
        scores[:, ~counted] = -np.inf
        top = scores.argmax(axis=1)
        _take_better(best, winners, scores[lines, top], start + top)
        if reserve:
            is_dead = table.norms[rows] >= shortest
            passed_on = np.flatnonzero(is_dead[top])
            scores[:, is_dead] = -np.inf
            top[passed_on] = scores[passed_on].argmax(axis=1)
            _take_better(best_heirs, fallback_winners, scores[lines, top], start + top)
    fallback_winners = np.where(np.isfinite(best_heirs), fallback_winners, winners)
    best = np.add.reduce(table.features.take(winners, axis=0) * queries, axis=1)
    groups = np.zeros(len(queries), dtype=np.int8) if groups is None else groups
    return Probes(queries, winners, best, fallback_winners, reserve, groups)


def _take_better(best: Vector, winners: Rows, scores: NDArray[np.floating[Any]], rows: Rows) -> None:
    better = scores > best
    best[better], winners[better] = scores[better], rows[better]


def compare(search: Search, exact: Search, probes: Probes) -> Trial:
    """Answer every probe by ``search``, and some by the ``exact`` one in between: quality and times."""
    answers, us, exact_us = time_alternately(search, exact, probes.queries)
    return Trial(quality_of(answers, probes), us, exact_us, worst_of(answers, probes))


def worst_of(answers: Sequence[TopK], probes: Probes) -> Quality | None:
    """The quality on the worst group of the probes, None if there is but one.

    A search that is good on average may be bad where it is used.
    """
    parts = [np.flatnonzero(probes.groups == group) for group in np.unique(probes.groups)]
    if len(parts) < 2:
        return None
    qualities = [
        quality_of([answers[position] for position in part.tolist()], probes.some(part)) for part in parts
    ]
    worst = min(qualities, key=lambda quality: quality.recall_at_1)
    return replace(
        worst,
        ratio_mean=min(each.ratio_mean for each in qualities),
        ratio_min=min(each.ratio_min for each in qualities),
    )


@dataclass(frozen=True, slots=True, eq=False)
class ExactLists:
    """The right longest lists: up to 100 ``rows`` for each of ``queries`` (n, d), best first.

    ``groups`` (n,): of the queries.
    """

    queries: Matrix
    rows: list[Rows]
    groups: Groups

    @classmethod
    def of(
        cls, table: TableSnapshot, queries: Matrix, groups: Groups, *, last: int | None = None
    ) -> ExactLists:
        """The lists of rows below ``last``. Cost: K d reads for each query."""
        rows = [scan(table, query, LONGEST_LIST).rows for query in queries]
        return cls(queries, rows if last is None else [row[row < last] for row in rows], groups)

    def members(self, k: int) -> tuple[Rows, Groups]:
        """The arms that belong in the lists of ``k``, and the group of each."""
        rows = [row[:k] for row in self.rows]
        return np.concatenate(rows), self.groups.repeat([len(row) for row in rows])

    def recall(self, search: Callable[[Vector, int], TopK], k: int) -> float:
        """The share of the arms that belong in a list of ``k`` which are in it, of the worst group."""
        lists = zip(self.queries, self.rows, strict=True)
        by_list = [np.isin(rows[:k], search(query, k).rows) for query, rows in lists if len(rows)]
        if not by_list:
            return 1.0
        groups, is_found = self.members(k)[1], np.concatenate(by_list)
        return min(float(is_found[groups == group].mean()) for group in np.unique(groups))

    def measured(self, quality: Quality, search: Callable[[Vector, int], TopK]) -> Quality:
        """``quality`` with the recall of lists."""
        tenth, hundredth = self.recall(search, LIST), self.recall(search, LONGEST_LIST)
        return replace(quality, recall_at_10=tenth, recall_at_100=hundredth)


def time_alternately(search: Search, exact: Search, queries: Matrix) -> tuple[list[TopK], float, float]:
    """Let both searches answer queries by turns: 40 by ``search``, then 1 to 5 of these by ``exact``.

    There are at most 25 turns, so of many queries ``search`` answers more in a turn.

    Returns the answers of ``search``, its median time in microseconds, and that time multiplied by the
    median over all rounds of (median time of ``exact`` / median time of ``search``).
    """
    answers: list[TopK] = []
    seconds: list[float] = []
    ratios = []
    search(queries[0])
    exact(queries[0])
    for round_ in np.array_split(queries, min(max(1, len(queries) // _ROUND), _MOST_ROUNDS)):
        mine = [_timed(search, query, answers) for query in round_]
        others = _times(exact, round_[:_EXACT_ROUND], _EXACT_ROUND_S)
        ratios.append(float(np.median(others) / np.median(mine)))
        seconds += mine
    us = float(np.median(seconds) * 1e6)
    return answers, us, us * float(np.median(ratios))


def typical_us(search: Callable[[Vector], object], queries: Matrix) -> float:
    """Median time of one search, in microseconds: of as many as there is half a second for, at least one."""
    search(queries[0])
    return float(np.median(_times(search, queries, _TYPICAL_S)) * 1e6)


def _times(search: Callable[[Vector], object], queries: Matrix, most_s: float) -> list[float]:
    """Seconds of each search, until they took so long together."""
    seconds: list[float] = []
    for query in queries:
        seconds.append(_timed(search, query, []))
        if sum(seconds) >= most_s:
            break
    return seconds


def _timed(search: Callable[[Vector], _Answer], query: Vector, answers: list[_Answer]) -> float:
    clock = processor_clock()
    started = clock()
    answer = search(query)
    seconds = clock() - started
    answers.append(answer)
    return seconds


@cache
def processor_clock() -> Callable[[], float]:
    """Processor time of the calling thread; elapsed time on systems where the former ticks coarsely."""
    started = time.thread_time()
    while (ticked := time.thread_time()) == started:
        pass
    return time.thread_time if ticked - started < _FINE_S else time.perf_counter


def quality_of(answers: Sequence[TopK], probes: Probes) -> Quality:
    """The quality of the answers to the probes, of a search for the best arm."""
    scale = np.abs(probes.best)
    missing = probes.best - np.array([answer.scores[0] for answer in answers])
    ratio = 1.0 - np.divide(missing, scale, out=np.zeros_like(scale), where=scale > 0.0)
    recall = float((missing <= _SAME_SCORE * scale).mean())
    return Quality(
        recall_at_1=recall,
        ratio_mean=float(ratio.mean()),
        ratio_min=float(ratio.min()),
        recall_error=math.sqrt(recall * (1.0 - recall) / len(answers)),
    )
