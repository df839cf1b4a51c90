"""Making a segment of rows that came since a structure was built, over a frozen snapshot, in a thread."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import numpy as np

from app.indexes.exact import scan
from app.indexes.hnsw import HnswGraph
from app.indexes.insertion import build_lock
from app.indexes.inverted_file import Centroids, InvertedFile, batched
from app.indexes.maintenance import Cancellation, Cancelled
from app.indexes.norm_pruned import NormBlocks
from app.indexes.probes import ExactLists, compare, make_queries, solve
from app.indexes.segments import Segment
from app.indexes.snapshot import Structure
from app.indexes.table import TableSnapshot
from shortlist.types import Rows, Vector

_PROBES, _LISTS = 256, 40


@dataclass(kw_only=True, slots=True, eq=False)
class SegmentBuild(Cancellation):
    """Call ``run`` in any thread, then ``LiveIndex.finish_segment`` in the thread of the event loop.

    ``first``: where the segment begins. ``cut``: shorter arms are left out. ``joined``: segments with rows
    from there on, which it takes the place of. ``centroids``: those of the last segment; None: others are
    trained. ``target``: share of the probes whose best arm is to be found. ``recent``: queries served lately,
    each (d,). After ``run``: ``segment``, None if it was cancelled.

    Cost: m n d multiply-adds for m new rows and n centroids, and m' d reads and writes for m' rows in all.
    """

    table: TableSnapshot
    structure: Structure | None
    joined: Sequence[Segment]
    centroids: Centroids | None
    first: int
    cut: float
    target: float
    seed: int
    recent: Sequence[Vector]
    segment: Segment | None = None

    def __post_init__(self) -> None:
        Cancellation.__init__(self)

    def run(self) -> None:
        # One build at a time, as of graphs: a core stays with the event loop.
        with suppress(Cancelled), build_lock(self.check):
            self.segment = self._built()

    def _built(self) -> Segment:
        self.check()
        table, cut = self.table, self.cut
        rows = np.arange(self.first, table.rows)
        rows = rows[table.is_alive(rows) & (table.norms[rows] >= cut)]
        rng = np.random.default_rng((self.seed, table.rows))
        if not len(rows):
            return Segment(NormBlocks(table, rows), self.first, cut, 0.0)
        queries, groups = make_queries(table.dim, _PROBES, self.recent, rng)
        probes = solve(table, queries, first=self.first, groups=groups)
        lists = ExactLists.of(table, queries[:_LISTS], groups[:_LISTS], first=self.first)
        made: InvertedFile | NormBlocks
        if isinstance(self.structure, NormBlocks):
            made = NormBlocks(table, rows)
        else:
            made = self._inverted_file(rows, rng)
            made.tuned(table, probes, self.target)
            made.tuned_for_lists(lists, self.target)
        trial = compare(
            lambda query: made.search(table, query, 1),
            lambda query: scan(table, query, 1, first=self.first),
            probes,
        )
        made.answered(lists.measured(trial.least, partial(made.search, table)), probes, lists)
        return Segment(made, self.first, cut, 1.0 / trial.speedup)

    def _inverted_file(self, rows: Rows, rng: np.random.Generator) -> InvertedFile:
        """An inverted file over ``rows`` (m,). Those of joined segments stay in their lists."""
        table, first, centroids = self.table, self.first, self.centroids
        if centroids is None:
            centroids = Centroids.trained(table, _known(self.structure, rows), rng)
        labels = np.full(table.rows - first, -1, dtype=np.int16)
        for part in (segment.structure for segment in self.joined):
            if isinstance(part, InvertedFile) and part.centroids is centroids:
                there = part.rows >= first
                labels[part.rows[there] - first] = part.labels[there]
        labels = labels[rows - first]
        for new in batched(np.flatnonzero(labels < 0)):
            self.check()
            labels[new] = centroids.nearest(table.features[rows[new]].astype(table.working.dtype))
        return InvertedFile(table, centroids, rows, labels, first=first, check=self.check)


def _known(structure: Structure | None, rows: Rows) -> Rows:
    """Rows to train centroids on: the arms of the graph, or ``rows`` if there are more of them."""
    in_graph = structure.rows[structure.rows >= 0] if isinstance(structure, HnswGraph) else rows
    return in_graph if len(in_graph) > len(rows) else rows
