"""The arms of a catalogue at one moment, as a learner sees them.

A learner without an intercept sees them as they are. One with an intercept sees one more coordinate, the same
of all arms: x' = [x, c], c in the unit of the features. Then x'.q' = x.q'_1..d + c q'_(d+1), so the order of
the arms is that of one search among the x, and no index of d + 1 dimensions is needed. The m numbers of
``match`` are treated alike where no request says them: x' = [x, 0, c].
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, TypeAlias

import msgspec
import numpy as np

from app.indexes.snapshot import Snapshot
from shortlist.index.table import TableSnapshot
from shortlist.types import NO_ROWS, Matrix, Rows, TopK, Vector

LearnerSnapshot: TypeAlias = "Snapshot | ConstantSnapshot"
"""What policies need of the arms. It can be used from any thread, and never changes.

plain           the catalogue's own snapshot, in its own dimension d
table           tells which rows live or died, and in which table. Its features are the catalogue's as well
largest_norm    bounds the norms of the features that the learner sees
expected_us     the measured typical time of a search, in microseconds
"""


def beside_features(features: Matrix, zeros: int, constant: float | None) -> Matrix:
    """Features with so many zeros and the constant of an intercept after them; None: there is none.

    Shapes: (n, d) -> (n, d').
    """
    count, dim = features.shape
    extended = np.empty((count, dim + zeros + (constant is not None)))
    extended[:, :dim], extended[:, dim : dim + zeros] = features, 0.0
    if constant is not None:
        extended[:, -1] = constant
    return extended


class ConstantSnapshot(msgspec.Struct, frozen=True, eq=False):
    """A snapshot of d dimensions, whose features and queries have more. One is made for every choice.

    ``constant``: the last coordinate of every arm, 0: not known yet; None: there is none. ``zeros``: number
    of coordinates before, which are 0 in every arm.
    """

    plain: Snapshot
    constant: float | None
    zeros: int = 0

    @property
    def table(self) -> TableSnapshot:
        return self.plain.table

    @property
    def size(self) -> int:
        return self.plain.size

    @property
    def proposes(self) -> bool:
        return self.plain.proposes

    @property
    def expected_us(self) -> float:
        return self.plain.expected_us

    @property
    def largest_norm(self) -> float:
        return math.sqrt(self.plain.largest_norm**2 + (self.constant or 0.0) ** 2)

    def search(self, query: Vector, k: int, exclude: Rows = NO_ROWS) -> TopK:
        """Shapes: query (d',). Otherwise as ``Snapshot.search``."""
        return self._joint(self.plain.search(self.catalogue_query(query), k, exclude), query)

    def search_exact(self, query: Vector, k: int, exclude: Rows = NO_ROWS) -> TopK:
        return self._joint(self.plain.search_exact(self.catalogue_query(query), k, exclude), query)

    def catalogue_query(self, query: Vector) -> Vector:
        """The query among the features of ``plain``, or queries. Shapes: (d', …) -> (d, …)."""
        return query[: len(query) - self.zeros - (self.constant is not None)]

    def constant_score(self, query: Vector) -> Any:
        """The query's score for every arm alike, besides the features. Shapes: (d', …) -> (…)."""
        return 0.0 if self.constant is None else query[-1] * self.constant

    def features_of(self, rows: Rows) -> Matrix:
        """Shapes: rows (n,) -> (n, d')."""
        return beside_features(self.plain.features_of(rows), self.zeros, self.constant)

    def rows_of(self, ids: Iterable[str]) -> Rows:
        return self.plain.rows_of(ids)

    def id_of(self, row: int) -> str:
        return self.plain.id_of(row)

    def revision_of(self, row: int) -> int:
        return self.plain.revision_of(row)

    def eligible(self, exclude: Rows = NO_ROWS) -> Rows:
        return self.plain.eligible(exclude)

    def _joint(self, result: TopK, query: Vector) -> TopK:
        return TopK(result.rows, result.scores + self.constant_score(query), result.exact)
