"""The arms of a catalogue at one moment, as a learner sees them.

A learner without an intercept sees them as they are. Others see one more coordinate, the same of all arms:
x' = [s x, c], over the index of x. Then x'.q' = x.(s q'_1..d) + c q'_(d+1), so the order of the arms is that
of one search among the x, and no index of d + 1 dimensions is needed.

    intercept        s = 1, c in the unit of the features
    shift_rewards    s = c = sqrt 2 / 2, and rewards are r / 2 + 1 / 2: ``linear.shifted_rewards``
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class ConstantCoordinate:
    """The last coordinate of what a learner sees of every arm.

    ``value``    c; 0: it is not known yet
    ``scale``    s, by which the features are multiplied
    ``unit``, ``zero``    a reward as users give it is unit r' + zero for the r' that the learner predicts;
                          zero is 0 where unit is 1
    """

    value: float
    scale: float = 1.0
    unit: float = 1.0
    zero: float = 0.0

    def features(self, features: Matrix) -> Matrix:
        """What the learner sees of arms. Shapes: (n, d) -> (n, d + 1)."""
        seen = np.empty((len(features), features.shape[1] + 1))
        np.multiply(features, self.scale, out=seen[:, :-1], dtype=np.float64)
        seen[:, -1] = self.value
        return seen

    def query(self, query: Vector) -> Vector:
        """The query among the features of the catalogue, or queries. Shapes: (d + 1, …) -> (d, …)."""
        return query[:-1] if self.scale == 1.0 else query[:-1] * self.scale

    def mean_square(self, square: float) -> float:
        """The mean squared length of what the learner sees, from that of the features."""
        return self.scale**2 * square + self.value**2

    def observed(self, hits: TopK) -> TopK:
        """Scores in the scale of the rewards that users give."""
        if self.unit == 1.0:
            return hits
        return TopK(hits.rows, self.unit * hits.scores + self.zero, hits.exact)

    def observed_theta(self, theta: Vector) -> tuple[Vector, float]:
        """(theta, offset) of a prediction x.theta + offset of such rewards. Shapes: (d + 1,) -> (d,), ()."""
        observed = self.query(theta)
        offset = self.unit * self.value * float(theta[-1]) + self.zero
        return observed if self.unit == 1.0 else self.unit * observed, offset

    def observed_weights(self, weights: Matrix) -> Matrix:
        """The weights of a context for such rewards. Shapes: (p, m) -> (p, m)."""
        return (self.unit * self.scale) * weights


class ConstantSnapshot(msgspec.Struct, frozen=True, eq=False):
    """A snapshot of d dimensions, whose features and queries have d + 1. One is made for every choice."""

    plain: Snapshot
    constant: ConstantCoordinate

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
        return math.sqrt(self.constant.mean_square(self.plain.largest_norm**2))

    def search(self, query: Vector, k: int, exclude: Rows = NO_ROWS) -> TopK:
        """Shapes: query (d + 1,). Otherwise as ``Snapshot.search``."""
        return self._joint(self.plain.search(self.constant.query(query), k, exclude), query)

    def search_exact(self, query: Vector, k: int, exclude: Rows = NO_ROWS) -> TopK:
        return self._joint(self.plain.search_exact(self.constant.query(query), k, exclude), query)

    def catalogue_query(self, query: Vector) -> Vector:
        """The query among the features of the catalogue, or queries. Shapes: (d + 1, …) -> (d, …)."""
        return self.constant.query(query)

    def constant_score(self, query: Vector) -> Any:
        """What the query gives every arm alike, besides its features. Shapes: (d + 1, …) -> (…)."""
        return query[-1] * self.constant.value

    def features_of(self, rows: Rows) -> Matrix:
        """Shapes: rows (m,) -> (m, d + 1)."""
        return self.constant.features(self.plain.features_of(rows))

    def rows_of(self, ids: Iterable[str]) -> Rows:
        return self.plain.rows_of(ids)

    def id_of(self, row: int) -> str:
        return self.plain.id_of(row)

    def revision_of(self, row: int) -> int:
        return self.plain.revision_of(row)

    def eligible(self, exclude: Rows = NO_ROWS) -> Rows:
        return self.plain.eligible(exclude)

    def _joint(self, result: TopK, query: Vector) -> TopK:
        return TopK(result.rows, result.scores + query[-1] * self.constant.value, result.exact)
