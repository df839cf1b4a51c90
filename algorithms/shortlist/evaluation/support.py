"""How much a log can tell about another policy: whether it shows what the other would show, and how evenly.

For notation see ``logged``. All of it is for each place, with the weights of the list down to it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shortlist.evaluation.logged import Logged
from shortlist.types import Vector


@dataclass(frozen=True, slots=True, eq=False)
class Support:
    """Sums over the weights of ``decisions``. Shapes: all (k,)."""

    decisions: int
    weights: Vector
    squares: Vector
    zeros: Vector

    @property
    def effective_sample_size(self) -> Vector:
        """(sum w)^2 / sum w^2: as many decisions of the target itself would tell about as much (k,).

        Source: Kish, "Survey Sampling" (1965), section 11.7.
        """
        found: Vector = np.divide(
            self.weights**2, self.squares, out=np.zeros_like(self.weights), where=self.squares > 0.0
        )
        return found

    @property
    def unused_share(self) -> Vector:
        """Share of the decisions that the target would never have made: they tell nothing of it (k,)."""
        return self.zeros / max(self.decisions, 1)

    @property
    def missing_share(self) -> Vector:
        """About the probability with which the target makes decisions that the log could not hold (k,).

        It is 1 - the mean weight, which has mean 0 where every arm that the target draws could be drawn, and
        varies around it. At least 0. What such decisions earn no estimator here can tell.
        """
        if not self.decisions:
            return np.zeros_like(self.weights)
        found: Vector = np.maximum(1.0 - self.weights / self.decisions, 0.0)
        return found


def nothing(places: int) -> Support:
    """That of no decision."""
    zero = np.zeros(places)
    return Support(0, zero, zero, zero)


def of(logged: Logged) -> Support:
    """That of some decisions. Cost: O(m k)."""
    weights = logged.weights
    return Support(
        logged.decisions,
        weights.sum(axis=0),
        np.square(weights).sum(axis=0),
        (weights == 0.0).sum(axis=0).astype(np.float64),
    )


def widened(one: Support, places: int) -> Support:
    """That of lists of more places, of which the last were always missing: they repeat the place before."""
    more = np.minimum(np.arange(places), len(one.weights) - 1)
    columns = (column[more] for column in (one.weights, one.squares, one.zeros))
    return Support(one.decisions, *columns)


def joined(one: Support, other: Support) -> Support:
    """That of the decisions of both."""
    return Support(
        one.decisions + other.decisions,
        one.weights + other.weights,
        one.squares + other.squares,
        one.zeros + other.zeros,
    )
