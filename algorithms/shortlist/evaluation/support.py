"""How much a log can tell about another policy: whether it shows what the other would show, and how evenly.

For notation see ``logged``. All of it is for each place, with the weights of the list down to it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shortlist.evaluation import moments
from shortlist.evaluation.logged import Logged
from shortlist.evaluation.moments import Moments
from shortlist.types import Vector


@dataclass(frozen=True, slots=True, eq=False)
class Support:
    """``moments``: of the weights w. ``zeros``: the sum of s over decisions with w = 0. Shape: (k,)."""

    moments: Moments
    zeros: Vector

    @property
    def decisions(self) -> int:
        """How many there were."""
        return self.moments.count

    @property
    def weights(self) -> Vector:
        """Sum of s w (k,)."""
        return self.moments.mean * self.moments.total

    @property
    def effective_sample_size(self) -> Vector:
        """(sum s w)^2 / sum (s w)^2: as many decisions of the target itself would tell about as much (k,).

        Source: Kish, "Survey Sampling" (1965), section 11.7.
        """
        squares = np.diag(self.moments.scatter) + self.moments.squares * self.moments.centre**2
        found: Vector = np.divide(self.weights**2, squares, out=np.zeros_like(squares), where=squares > 0.0)
        return found

    @property
    def unused_share(self) -> Vector:
        """Share of the decisions that the target would never have made: they tell nothing of it (k,)."""
        return self.zeros / max(self.moments.total, 1.0)

    @property
    def missing_share(self) -> Vector:
        """About the probability with which the target makes decisions that the log could not hold (k,).

        It is 1 - the mean weight, which has mean 0 where every arm that the target draws could be drawn, and
        varies around it. At least 0. What such decisions earn no estimator here can tell.
        """
        if not self.decisions:
            return np.zeros_like(self.zeros)
        found: Vector = np.maximum(1.0 - self.moments.mean, 0.0)
        return found


def nothing(places: int) -> Support:
    """That of no decision."""
    return Support(moments.nothing(places), np.zeros(places))


def of(logged: Logged) -> Support:
    """That of some decisions. Cost: O(m k^2)."""
    s = np.ones(logged.decisions) if logged.stands_for is None else logged.stands_for
    zeros: Vector = s @ (logged.weights == 0.0)
    return Support(moments.of(logged.weights, logged.stands_for), zeros)


def widened(one: Support, places: int) -> Support:
    """That of lists of more places, of which the last were always missing: they repeat the place before."""
    more = np.minimum(np.arange(places), len(one.zeros) - 1)
    return Support(moments.mapped(one.moments, np.eye(len(one.zeros))[more]), one.zeros[more])


def joined(one: Support, other: Support) -> Support:
    """That of the decisions of both."""
    return Support(moments.joined(one.moments, other.moments), one.zeros + other.zeros)
