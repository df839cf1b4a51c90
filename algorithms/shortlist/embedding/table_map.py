"""The map from features of a table to an embedding of behaviour: for arms without likes.

Notation
    t           features of an arm from its fields (T,)
    x           embedding of an arm by behaviour (d,), zeros without any
    n           how many keys liked an arm
    W, b        W t + b is near x: (d, T), (d,)
    a, s        |x - W t - b|^2 is a + s / n in the mean: the variance left open by fields, and by few keys
    kappa       s / a: how many keys say as much of an arm as its fields do

The features of an arm are (n x + kappa (W t + b)) / (n + kappa): its behaviour as far as there is any, else
its fields. W and b are fitted by the liked arms, all alike, with the ridge of best prediction for left-out
arms (``linear.feature_map``). Weighed by n, they would give arms without likes the lengths of popular ones:
these would be shown first, and earn 5 % less in all.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shortlist import checks
from shortlist.linear import feature_map
from shortlist.types import Matrix, Rows, Vector

MOST_KAPPA = 100.0  # likes
MOST_FITTED = 20_000  # arms
LEAST_KAPPA = 1.0


@dataclass(frozen=True, slots=True, eq=False)
class TableMap:
    """``linear`` is W (d, T), ``shift`` is b (d,).

    ``r2``: how much of the embedding of an arm that was left out of the fit its fields explain.
    """

    linear: Matrix
    shift: Vector
    kappa: float
    r2: float

    def expected(self, table: NDArray[np.floating]) -> Matrix:
        """The embedding expected from fields: W t + b. Shapes: (k, T) -> (k, d)."""
        expected: Matrix = table @ self.linear.T + self.shift
        return expected

    def mix(self, table: Matrix, vectors: Matrix, likes: Rows | Vector) -> Matrix:
        """The features of arms. Shapes: table (k, T), vectors (k, d), likes (k,) -> (k, d)."""
        expected = self.kappa * self.expected(table)
        return (likes[:, None] * vectors + expected) / (likes + self.kappa)[:, None]


def fit(table: NDArray[np.floating], vectors: Matrix, likes: Rows, rng: np.random.Generator) -> TableMap:
    """Return the map of some arms, of which at least one was liked.

    ``rng`` draws ``MOST_FITTED`` arms where more were liked. Shapes: table (k, T), vectors (k, d),
    likes (k,). Cost: that of ``feature_map.fit`` on those arms.
    Raises: InvalidShape, NonFinite, InvalidParameter (no likes).
    """
    checks.shape("table", table, (None, None))
    checks.shape("vectors", vectors, (len(table), None))
    checks.shape("likes", likes, (len(table),))
    liked = np.flatnonzero(likes > 0)
    if len(liked) > MOST_FITTED:
        liked = np.sort(rng.choice(liked, MOST_FITTED, replace=False))
    counts = likes[liked].astype(np.float64)
    fields, embedded = table[liked].astype(np.float64), vectors[liked]
    fitted = feature_map.fit(fields, embedded, np.ones(len(liked)), intercept=True)
    missed = np.square(fitted(fields) - embedded).sum(axis=1)
    return TableMap(fitted.linear, fitted.shift, _kappa(missed, counts), fitted.r2)


def _kappa(missed: Vector, likes: Vector) -> float:
    """From the means of a + s / n over the half of the arms with fewest likes, and over the other half."""
    is_rare = likes < np.median(likes)
    if not is_rare.any():
        return LEAST_KAPPA
    shares = 1.0 / likes
    slope = (missed[is_rare].mean() - missed[~is_rare].mean()) / (
        shares[is_rare].mean() - shares[~is_rare].mean()
    )
    constant = missed[~is_rare].mean() - slope * shares[~is_rare].mean()
    return float(np.clip(slope / constant, LEAST_KAPPA, MOST_KAPPA)) if constant > 0.0 else MOST_KAPPA
