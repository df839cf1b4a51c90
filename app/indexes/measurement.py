"""Measuring anew how good a graph is, once arms died that its probes leaned on: in a thread, while it serves.

A graph is measured when it is built. Where the best arm of a query died, another one is the best, and nobody
knows whether the graph finds it. So other probes are answered, drawn ones and queries that were served of
late: also of users who ask in one narrow range again and again. What is worse is told.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from app.indexes.hnsw import HnswGraph
from app.indexes.maintenance import Cancellation, Cancelled
from app.indexes.planner import find
from app.indexes.probes import Lists, Probes, Quality, quality_of, queries_like, solve, worst_of
from app.indexes.table import TableSnapshot
from shortlist.types import Vector

_PROBES, _LISTS = 400, 50


@dataclass(kw_only=True, slots=True, eq=False)
class Measurement(Cancellation):
    """Call ``run`` in any thread, then ``LiveIndex.finish_measurement`` in the thread of the event loop.

    ``graph``: of ``table``, both of one moment. ``recent``: queries served lately, each (d,). ``seed`` fixes
    the probes that are drawn. Some arm of the graph is alive. After ``run``: ``answers``, their quality and
    the probes, None if it was cancelled.

    Cost: a search and K d multiply-adds for each of 400 probes.
    """

    table: TableSnapshot
    graph: HnswGraph
    recent: Sequence[Vector]
    seed: int
    answers: tuple[Quality, Probes] | None = None
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
        lists = Lists.of(table, queries[:_LISTS], last=graph.covered)
        # The graph no longer finds what died meanwhile.
        kept = np.flatnonzero(~graph.is_gone(probes.winners))
        if len(kept):
            probes, answers = probes.some(kept), [answers[place] for place in kept.tolist()]
            quality = worst_of(answers, probes) or quality_of(answers, probes)
            self.answers = lists.measured(quality, lambda query, k: find(table, graph, query, k)), probes
