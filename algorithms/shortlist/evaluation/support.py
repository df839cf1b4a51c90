"""Support of another policy in a log: whether its choices are shown, and how evenly.

For notation see ``logged``. All numbers are for each place, with the weights of the list down to there.
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
        """The number of decisions."""
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
        sizes: Vector = np.divide(self.weights**2, squares, out=np.zeros_like(squares), where=squares > 0.0)
        return sizes

    @property
    def unused_share(self) -> Vector:
        """Share of the decisions that the target would never have made: they tell nothing of it (k,)."""
        return self.zeros / max(self.moments.total, 1.0)

    @property
    def missing_share(self) -> Vector:
        """About the target's probability of decisions which the log could not hold (k,).

        The share is 1 - the mean weight, with mean 0 where every arm of the target could be drawn, and at
        least 0. No estimator here can tell the earnings of such decisions.
        """
        if not self.decisions:
            return np.zeros_like(self.zeros)
        missing: Vector = np.maximum(1.0 - self.moments.mean, 0.0)
        return missing


def nothing(places: int) -> Support:
    """The support without decisions."""
    return Support(moments.nothing(places), np.zeros(places))


def of(logged: Logged) -> Support:
    """The support in some decisions. Cost: O(m k^2)."""
    s = np.ones(logged.decisions) if logged.stands_for is None else logged.stands_for
    zeros: Vector = s @ (logged.weights == 0.0)
    return Support(moments.of(logged.weights, logged.stands_for), zeros)


def widened(one: Support, places: int) -> Support:
    """The support for lists of more places, of which the last were always missing: they repeat the place
    before.
    """
    more = np.minimum(np.arange(places), len(one.zeros) - 1)
    return Support(moments.mapped(one.moments, np.eye(len(one.zeros))[more]), one.zeros[more])


def joined(one: Support, other: Support) -> Support:
    """The support in the decisions of both."""
    return Support(moments.joined(one.moments, other.moments), one.zeros + other.zeros)
