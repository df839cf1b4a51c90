"""Measuring anew how good a graph is, once arms died that its probes leaned on: in a thread, while it serves.

A graph is measured when it is built. Where the best arm of a query died, another one is the best, and nobody
knows whether the graph finds it. So other probes are answered, drawn ones and queries that were served of
late: also of users who ask in one narrow range again and again. What is worse is told.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from app.indexes.hnsw import HnswGraph
from app.indexes.maintenance import Cancellation, Cancelled
from app.indexes.planner import find
from app.indexes.probes import ExactLists, Probes, Quality, quality_of, queries_like, solve, worst_of
from app.indexes.snapshot import Structure
from app.indexes.table import TableSnapshot
from shortlist.types import Vector

_PROBES, _LISTS = 400, 100
# After a measurement, rest for this multiple of the time it took; where more of the probes than this share
# are lost, for as long as it took. Where none died since, but other queries came, for this one.
_REST, _MUCH_LOST, _SAME_REST = 8.0, 0.1, 60.0
_LIST_SLACK = 0.05  # where lists of up to ten find less than the target by so much, they are scanned


@dataclass(kw_only=True, slots=True, eq=False)
class Measurement(Cancellation):
    """Call ``run`` in any thread, then ``LiveIndex.finish_measurement`` in the thread of the event loop.

    ``graph``: of ``table``, both of one moment. ``recent``: queries served lately, each (d,). ``seed`` fixes
    the probes that are drawn. Some arm of the graph is alive. After ``run``: ``answers``, their quality and
    the probes, and the lists; None if it was cancelled.

    Cost: a search and K d multiply-adds for each of 400 probes.
    """

    table: TableSnapshot
    graph: HnswGraph
    recent: Sequence[Vector]
    seed: int
    answers: tuple[Quality, Probes, ExactLists] | None = None
    seconds: float = 0.0

    def __post_init__(self) -> None:
        Cancellation.__init__(self)

    def run(self) -> None:
        started = time.monotonic()
        with suppress(Cancelled):
            self._measure()
        self.seconds = time.monotonic() - started

    def _measure(self) -> None:
        table, graph = self.table, self.graph
        among = np.arange(table.rows) < graph.covered
        rng = np.random.default_rng((self.seed, len(table.dead)))
        queries, groups = queries_like(table.dim, _PROBES, self.recent, rng)
        probes, answers = solve(table, queries, among=among, groups=groups), []
        for query in queries:
            self.check()
            answers.append(find(table, graph, query, 1))
        lists = ExactLists.of(table, queries[:_LISTS], groups[:_LISTS], last=graph.covered)
        # The graph no longer finds what died meanwhile.
        kept = np.flatnonzero(~graph.is_gone(probes.winners))
        if len(kept):
            probes, answers = probes.some(kept), [answers[place] for place in kept.tolist()]
            quality = worst_of(answers, probes) or quality_of(answers, probes)
            quality = lists.measured(quality, lambda query, k: find(table, graph, query, k))
            self.answers = quality, probes, lists


class Measuring:
    """When a graph is measured anew, and what follows from it. For the thread of the event loop."""

    def __init__(self) -> None:
        self._job: Measurement | None = None
        self._ended_at = self._took_s = 0.0
        self._last: Vector | None = None  # of the queries that were known at the last measurement

    def is_due(self, graph: HnswGraph, recent: deque[Vector], *, is_at_rest: bool) -> bool:
        """Whether so many died that it should be, or ``is_at_rest``: some did, and now no others do.

        Also where all of the ``recent`` queries came since.
        """
        state = graph.degradation
        if self._job is not None or not state.dead or state.dead == graph.arms:
            return False
        rested, took = time.monotonic() - self._ended_at, self._took_s
        if state.unmeasured and rested >= took * (1.0 if state.lost > _MUCH_LOST else _REST):
            return state.is_unknown or is_at_rest
        is_full = len(recent) == recent.maxlen
        return (
            is_full and rested >= took * _SAME_REST and all(each is not self._last for each in list(recent))
        )

    def begin(self, table: TableSnapshot, graph: HnswGraph, recent: deque[Vector], seed: int) -> Measurement:
        self._job = Measurement(table=table, graph=graph, recent=tuple(recent), seed=seed)
        return self._job

    def finish(self, job: Measurement, graph: Structure | None, target: float) -> None:
        """Take note of what was found, unless another ``graph`` serves by now. Lists may be scanned then."""
        if job is not self._job:
            return
        self._job, self._ended_at, self._took_s = None, time.monotonic(), job.seconds
        self._last = job.recent[-1] if job.recent else None
        if job.answers is None or not isinstance(graph, HnswGraph) or graph.number != job.graph.number:
            return
        quality, probes, lists = job.answers
        if quality.recall_at_10 < target - _LIST_SLACK:
            graph.tuned_for_lists(None)
            quality = replace(quality, recall_at_10=1.0)
        job.graph.answered(quality, probes, lists)
