"""Arms as a learner of shifted rewards sees them: x' = [x / sqrt 2, sqrt 2 / 2], over the index of x.

x'.q' = x.(q'_1..d / sqrt 2) + q'_(d+1) sqrt 2 / 2, so the order of the arms is that of one search among the
x, and no index of d + 1 dimensions is needed. See ``linear.shifted_rewards`` for the transformation.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from app.indexes.snapshot import Snapshot
from app.indexes.structure import Kind
from app.indexes.table import ArmView
from shortlist.linear.shifted_rewards import shift_features, unshift_scores
from shortlist.types import NO_ROWS, Matrix, Rows, TopK, Vector

_HALF_ROOT = math.sqrt(0.5)


@dataclass(frozen=True, slots=True, eq=False)
class ShiftedView:
    """A ``LearnerView`` over a snapshot of d dimensions. Its features and queries have d + 1."""

    plain: Snapshot

    @property
    def view(self) -> ArmView:
        return self.plain.view

    @property
    def size(self) -> int:
        return self.plain.size

    @property
    def kind(self) -> Kind:
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


def observed(found: TopK) -> TopK:
    """Scores in the scale of the rewards that users give."""
    return TopK(found.rows, unshift_scores(found.scores), found.exact)


def observed_theta(theta: Vector) -> tuple[Vector, float]:
    """(theta, offset) of the prediction x.theta + offset. Shapes: (d + 1,) -> (d,), ()."""
    root = math.sqrt(2.0)
    return theta[:-1] * root, float(theta[-1] * root - 1.0)


def observed_weights(weights: Matrix) -> Matrix:
    """The weights of a context on the scale of observed rewards. Shapes: (p, m) -> (p, m)."""
    return weights * math.sqrt(2.0)


def _joint(found: TopK, query: Vector) -> TopK:
    return TopK(found.rows, found.scores + query[-1] * _HALF_ROOT, found.exact)
