"""The few types that algorithms exchange.

Notation
    K, d        number of arms, dimension of their features
    row         position of an arm in the arrays of one catalogue snapshot, 0 <= row < K
    score       inner product of a query with an arm's features, in float64
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
Rows = NDArray[np.int64]

NO_ROWS: Rows = np.empty(0, dtype=np.int64)
NO_ROWS.setflags(write=False)


@dataclass(frozen=True, slots=True)
class TopK:
    """The arms of largest score, best first; ties in ascending row order.

    Shapes: rows (m,), scores (m,), with m = min(k, eligible arms) when ``exact``.
    ``exact`` is true when every eligible arm was compared, or provably could not be among them.
    """

    rows: Rows
    scores: Vector
    exact: bool


class MipsSolver(Protocol):
    """Anything that finds the arms of largest inner product with a query."""

    def search(self, query: Vector, k: int, exclude: Rows = NO_ROWS) -> TopK:
        """Return the ``k`` arms of largest score among those whose row is not in ``exclude``.

        Shapes: query (d,), exclude (e,) distinct rows.
        """
        ...
