"""Logged decisions, as the estimators of another policy's value need them.

Notation
    m, k        decisions, places of a list (1 for a single arm)
    p_ij        propensity: the probability with which the logging policy drew the arm at place j of decision
                i, given the arms before it
    t_ij        the same under the evaluated policy, the target, given the same arms before
    r_ij        reward of the arm at place j
    s_i         how many decisions i stands for: 1 / the probability of being kept in the log
    w_ij        t_i1 ... t_ij / (p_i1 ... p_ij), the weight of the list down to place j
    q           a model of the mean reward of any arm

Means over decisions, of all estimators, count decision i s_i times.

A place counts with the weight of all places down to it. This is right if the reward of an arm depends on the
arms above it, but not on those below.

Source: Precup, Sutton, Singh, "Eligibility Traces for Off-Policy Policy Evaluation" (2000), section 3, the
per-decision weights, with the places of a list for the steps of an episode.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from shortlist import checks
from shortlist.errors import InvalidParameter, InvalidShape
from shortlist.types import Matrix, Vector

MAX_PLACES = 100
LARGEST_WEIGHT = 1e100  # the square of a larger one could not be summed


@dataclass(frozen=True, eq=False)
class Logged:
    """Some decisions, with the propensities of the logging policy and the target.

    ``propensities`` are p, ``targets`` t, ``rewards`` r. Only the doubly robust estimator needs the rest:
    ``predicted``, the model's prediction for the shown arm, and ``expected``, the mean of its predictions
    over the target's draws at this place, after the same arms before. ``least`` and ``most`` are the smallest
    and the largest prediction for any arm of the target there, shown in the log or not; None: intervals go by
    the shown arms.

    ``stands_for``: s, (m,); None: the log kept every decision.

    A place beyond the list: p = t = 1, and all else 0.

    Shapes: all others (m, k), k at most ``MAX_PLACES``.
    Raises: InvalidShape, NonFinite, InvalidParameter (p not in (0, 1], t not in [0, 1], s not above 0,
    weights too large).
    """

    propensities: Matrix
    targets: Matrix
    rewards: Matrix
    predicted: Matrix | None = None
    expected: Matrix | None = None
    least: Matrix | None = None
    most: Matrix | None = None
    stands_for: Vector | None = None

    def __post_init__(self) -> None:
        checks.shape("propensities", self.propensities, (None, None))
        if not 1 <= self.places <= MAX_PLACES:
            raise InvalidShape(f"propensities must have 1 to {MAX_PLACES} columns", argument="propensities")
        if (self.predicted is None) != (self.expected is None):
            raise InvalidParameter("expected must be given exactly when predicted is", argument="expected")
        if (self.least is None) != (self.most is None):
            raise InvalidParameter("most must be given exactly when least is", argument="most")
        for name in ("propensities", "targets", "rewards", "predicted", "expected", "least", "most"):
            column = getattr(self, name)
            if column is not None:
                checks.shape(name, column, self.propensities.shape)
                checks.finite(name, column)
        if self.stands_for is not None:
            checks.shape("stands_for", self.stands_for, (self.decisions,))
            checks.finite("stands_for", self.stands_for)
            if not (self.stands_for > 0.0).all():
                raise InvalidParameter("stands_for must be above 0", argument="stands_for")
        if not ((self.propensities > 0.0) & (self.propensities <= 1.0)).all():
            raise InvalidParameter("propensities must be in (0, 1]", argument="propensities")
        if not ((self.targets >= 0.0) & (self.targets <= 1.0)).all():
            raise InvalidParameter("targets must be in [0, 1]", argument="targets")
        if not (self.weights <= LARGEST_WEIGHT).all():
            raise InvalidParameter(
                f"targets / propensities must be at most {LARGEST_WEIGHT:g}", argument="targets"
            )

    @property
    def decisions(self) -> int:
        """The number of decisions."""
        return len(self.propensities)

    @property
    def places(self) -> int:
        """The number of places of a decision."""
        return int(self.propensities.shape[1])

    @cached_property
    def weights(self) -> Matrix:
        """The w (m, k)."""
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            return np.cumprod(self.targets / self.propensities, axis=1, dtype=np.float64)
