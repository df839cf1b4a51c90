"""Long work on one catalogue's index, in a thread, over a frozen snapshot.

``Maintenance`` compacts the table, or plans and builds an index. ``Measurement`` measures again how good a
graph is after arms died. (``publishing`` has the other kinds of work.) A graph is measured when it is built,
by probes whose best arms are known. When such an arm dies, another one is the best, and nobody knows whether
the graph finds it. So new probes are answered: random ones, and queries served lately, also from users with
one narrow range. If the graph finds less than before, the index is told.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from app.filters.attributes import Compaction
from app.indexes.index_kinds import CANDIDATES
from app.indexes.index_limits import IndexLimits
from shortlist.index.cancellation import Cancellation, Cancelled
from shortlist.index.index import Build, GrowingIndex, Index, RemeasuredIndex
from shortlist.index.planner import IndexOptions, Plan, find, plan, probe_generator
from shortlist.index.probes import ExactLists, Probes, Quality, quality_of, queries_like, solve, worst_of
from shortlist.index.table import ArmTable, TableSnapshot
from shortlist.types import NO_ROWS, Rows, Vector

_MEASURING_PROBES, _MEASURING_LISTS = 400, 100
_LIST_SLACK = 0.05  # where lists of up to ten find less than the target by so much, they are scanned


@dataclass(kw_only=True, slots=True, eq=False)
class Maintenance(Cancellation):
    """One piece of work: a compaction, or measuring and building.

    Call ``run`` in any thread, then ``LiveIndex.finish`` in the thread of the event loop.
    ``cancel`` makes ``run`` return early, within seconds. After ``run``: ``compacted``, a table, and the
    ``positions`` of the rows there; ``plan`` and ``structure`` otherwise; ``seconds`` of work. ``progress``:
    the built share of the structure, and the seconds for this share. ``positions_now``: where the rows of
    ``table`` are, None: where they were when the work began.

    ``seed`` fixes probes and graph. ``recent``: queries served lately, each (d,). ``threads``: of a build.
    ``attributes``: if given, their compaction is all of the work. ``growing``: the graph of a growing
    catalogue, to be extended if possible. With one thread the graph is a function of the arms, the options,
    the seed and ``recent``.
    """

    table: TableSnapshot
    options: IndexOptions
    compaction: bool
    load_from: Path | None
    save_to: Path | None
    seed: int
    recent: Sequence[Vector]
    threads: int
    attributes: Compaction | None = None
    growing: GrowingIndex | None = None
    limits: IndexLimits = IndexLimits()
    compacted: ArmTable | None = None
    positions: Rows = field(default_factory=lambda: NO_ROWS)
    plan: Plan | None = None
    structure: Index | None = None
    positions_now: Rows | None = None
    seconds: float = 0.0
    progress: tuple[float, float] | None = None

    def left_s(self) -> float | None:
        """Seconds until the structure is built, estimated by the built share; None: unknown."""
        if self.progress is None or self.progress[0] >= 1.0:
            return None
        share, took_s = self.progress
        return took_s * (1.0 - share) / share

    def follow(self, positions: Rows) -> None:
        """Renumber all rows: row r is now ``positions[r]``, -1 for a row which is gone."""
        before = np.arange(self.table.rows) if self.positions_now is None else self.positions_now
        self.positions_now = np.append(positions, -1)[before]

    def run(self) -> None:
        started = time.monotonic()
        try:
            with self.turn():
                if self.attributes is not None:
                    self.attributes.run()
                elif self.compaction:
                    self.compacted, self.positions = ArmTable.compacted(self.table, check=self.give_way)
                else:
                    self._measure_and_build()
        except Cancelled:
            self.compacted = self.plan = self.structure = None
        finally:
            self.seconds = time.monotonic() - started

    def _measure_and_build(self) -> None:
        started = time.monotonic()

        def advance(share: float) -> None:
            nonlocal started
            if share > 0.0:
                self.progress = share, time.monotonic() - started
            else:  # also of a second structure, after one that was tried
                started, self.progress = time.monotonic(), None

        build = Build(
            seed=self.seed,
            threads=self.threads,
            check=self.give_way,
            advance=advance,
            load_from=self.load_from,
            save_to=self.save_to,
            growing=self.growing,
        )
        rng = probe_generator(self.seed)
        chosen, structure = plan(
            self.table,
            self.options,
            build,
            recent=self.recent,
            rng=rng,
            candidates=CANDIDATES,
            small_numbers=self.limits.small_numbers,
            least_probes=self.limits.least_probes,
        )
        self.check()
        self.plan, self.structure = chosen, structure


@dataclass(kw_only=True, slots=True, eq=False)
class Measurement(Cancellation):
    """Call ``run`` in any thread, then ``LiveIndex.finish`` in the thread of the event loop.

    ``graph``: of ``table``, both of one moment. ``recent``: queries served lately, each (d,). ``seed`` fixes
    the drawn probes. Some arm of the graph is alive. After ``run``: ``answers``, their quality and the
    probes, and the lists; None if it was cancelled.

    Cost: a search and K d multiply-adds for each of 400 probes.
    """

    table: TableSnapshot
    graph: RemeasuredIndex
    recent: Sequence[Vector]
    seed: int
    answers: tuple[Quality, Probes, ExactLists] | None = None
    seconds: float = 0.0

    def run(self) -> None:
        with suppress(Cancelled), self.turn():
            started = time.monotonic()
            self._measure()
            self.seconds = time.monotonic() - started

    def _measure(self) -> None:
        table, graph = self.table, self.graph
        is_covered = np.arange(table.rows) < graph.covered
        rng = np.random.default_rng((self.seed, len(table.dead)))
        queries, groups = queries_like(table.dim, _MEASURING_PROBES, self.recent, rng)
        probes, answers = solve(table, queries, among=is_covered, groups=groups), []
        for query in queries:
            self.check()
            answers.append(find(table, graph, query, 1))
        lists = ExactLists.of(
            table, queries[:_MEASURING_LISTS], groups[:_MEASURING_LISTS], last=graph.covered
        )
        # The graph no longer finds what died meanwhile.
        alive = np.flatnonzero(~graph.is_gone(probes.winners))
        if len(alive):
            probes, answers = probes.some(alive), [answers[position] for position in alive.tolist()]
            quality = worst_of(answers, probes) or quality_of(answers, probes)
            quality = lists.measured(quality, lambda query, k: find(table, graph, query, k))
            self.answers = quality, probes, lists


class Measuring:
    """When a graph is measured again, and the consequences. For the thread of the event loop."""

    def __init__(self) -> None:
        self._job: Measurement | None = None
        self._ended_at = self._took_s = 0.0
        self._last: Vector | None = None  # of the queries that were known at the last measurement

    def is_due(
        self, graph: RemeasuredIndex, recent: deque[Vector], limits: IndexLimits, *, is_at_rest: bool
    ) -> bool:
        """True if enough arms died for another measurement, or ``is_at_rest`` and some died, or all
        ``recent`` queries came since.
        """
        state = graph.degradation
        if self._job is not None or not state.dead or state.dead == graph.arms:
            return False
        rested, took = time.monotonic() - self._ended_at, self._took_s
        least_rest = 1.0 if state.lost > limits.much_lost else limits.measuring_rest
        if state.unmeasured and rested >= took * least_rest:
            return state.is_unknown or is_at_rest
        is_full = len(recent) == recent.maxlen
        return (
            # By identity: the vectors are kept as they came, and to compare their numbers would cost more.
            is_full
            and rested >= took * limits.same_rest
            and all(query is not self._last for query in list(recent))
        )

    def begin(
        self, table: TableSnapshot, graph: RemeasuredIndex, recent: deque[Vector], seed: int
    ) -> Measurement:
        self._job = Measurement(table=table, graph=graph, recent=tuple(recent), seed=seed)
        return self._job

    def finish(self, job: Measurement, graph: Index | None, target: float) -> None:
        """Note what was measured, unless another ``graph`` serves now. Lists may be scanned then."""
        if job is not self._job:
            return
        self._job, self._ended_at, self._took_s = None, time.monotonic(), job.seconds
        self._last = job.recent[-1] if job.recent else None
        # A compaction leaves the graph and its number as they are: the measurement still holds.
        if job.answers is None or graph is None or graph.number != job.graph.number:
            return
        quality, probes, lists = job.answers
        if quality.recall_at_10 < target - _LIST_SLACK:
            job.graph.scan_lists()
            quality = replace(quality, recall_at_10=1.0)
        job.graph.answered(quality, probes, lists)
