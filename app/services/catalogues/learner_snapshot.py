"""The arms of a catalogue at one moment, as a learner sees them.

Most learners see them as they are. A learner of shifted rewards sees x' = [x / sqrt 2, sqrt 2 / 2], over the
index of x: x'.q' = x.(q'_1..d / sqrt 2) + q'_(d+1) sqrt 2 / 2. So the order of the arms is that of one search
among the x, and no index of d + 1 dimensions is needed. The transformation: ``linear.shifted_rewards``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from app.indexes.snapshot import IndexKind, Snapshot
from app.indexes.table import TableSnapshot
from shortlist.linear.shifted_rewards import shift_features
from shortlist.types import NO_ROWS, Matrix, Rows, TopK, Vector

_HALF_ROOT = math.sqrt(0.5)


@dataclass(frozen=True, slots=True, eq=False)
class ShiftedSnapshot:
    """A snapshot of d dimensions, whose features and queries have d + 1."""

    plain: Snapshot

    @property
    def table(self) -> TableSnapshot:
        return self.plain.table

    @property
    def size(self) -> int:
        return self.plain.size

    @property
    def kind(self) -> IndexKind:
        return self.plain.kind

    @property
    def expected_us(self) -> float:
        return self.plain.expected_us

    @property
    def largest_norm(self) -> float:
        return math.sqrt((self.plain.largest_norm**2 + 1.0) / 2.0)

    def search(self, query: Vector, k: int, exclude: Rows = NO_ROWS) -> TopK:
        """Shapes: query (d + 1,). Otherwise as ``Snapshot.search``."""
        return _joint(self.plain.search(query[:-1] * _HALF_ROOT, k, exclude), query)

    def search_exact(self, query: Vector, k: int, exclude: Rows = NO_ROWS) -> TopK:
        return _joint(self.plain.search_exact(query[:-1] * _HALF_ROOT, k, exclude), query)

    def features_of(self, rows: Rows) -> Matrix:
        """Shapes: rows (m,) -> (m, d + 1)."""
        return shift_features(self.plain.features_of(rows))

    def rows_of(self, ids: Iterable[str]) -> Rows:
        return self.plain.rows_of(ids)

    def id_of(self, row: int) -> str:
        return self.plain.id_of(row)

    def revision_of(self, row: int) -> int:
        return self.plain.revision_of(row)

    def eligible(self, exclude: Rows = NO_ROWS) -> Rows:
        return self.plain.eligible(exclude)


def _joint(result: TopK, query: Vector) -> TopK:
    return TopK(result.rows, result.scores + query[-1] * _HALF_ROOT, result.exact)


LearnerSnapshot = Snapshot | ShiftedSnapshot
"""What policies need of the arms. It can be used from any thread, and never changes.

plain           the catalogue's own snapshot, in its own dimension d
table           tells which rows live or died, and in which table. Its features are the catalogue's as well
largest_norm    bounds the norms of the features that the learner sees
expected_us     the measured typical time of a search, in microseconds
"""
