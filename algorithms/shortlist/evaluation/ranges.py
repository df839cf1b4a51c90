"""Between which bounds lies what decisions were weighed with: so much one more decision could add to a value.

For notation see ``logged``. Bounds of the rewards that are known beforehand are given at the start; all
others are those that were seen.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shortlist.evaluation.logged import Logged
from shortlist.types import Matrix, Vector

_REWARDS, _PREDICTED, _EXPECTED = range(3)


@dataclass(frozen=True, slots=True, eq=False)
class Ranges:
    """Rows: of rewards, predictions and expected predictions. Shapes: low, high (3, k), largest (k,).

    ``largest`` is the largest weight of each place. ``bounds``: of the reward of an arm, as they were given
    at the start; None: nobody knows any. Then nothing says how far a mean can lie from what was seen.
    """

    low: Matrix
    high: Matrix
    largest: Vector
    bounds: tuple[float, float] | None = None

    @property
    def rewards(self) -> tuple[Vector, Vector]:
        """Smallest and largest (k,)."""
        return self.low[_REWARDS], self.high[_REWARDS]

    @property
    def residuals(self) -> tuple[Vector, Vector]:
        """The range of a reward less its prediction (k,)."""
        return self.low[_REWARDS] - self.high[_PREDICTED], self.high[_REWARDS] - self.low[_PREDICTED]

    @property
    def expected(self) -> tuple[Vector, Vector]:
        """Smallest and largest (k,)."""
        return self.low[_EXPECTED], self.high[_EXPECTED]


def start(places: int, rewards: tuple[float, float] | None) -> Ranges:
    """The ranges without decisions. ``rewards``: smallest and largest reward of an arm; None: unknown."""
    low, high = np.full((3, places), np.inf), np.full((3, places), -np.inf)
    if rewards is not None:
        low[_REWARDS], high[_REWARDS] = rewards
    return Ranges(low, high, np.zeros(places), rewards)


def of(logged: Logged) -> Ranges:
    """The ranges of some decisions. Cost: O(m k)."""
    columns = (logged.rewards, logged.predicted, logged.expected)
    filled = [np.zeros((1, logged.places)) if column is None else column for column in columns]
    low = np.array([column.min(axis=0, initial=np.inf) for column in filled])
    high = np.array([column.max(axis=0, initial=-np.inf) for column in filled])
    if logged.least is not None and logged.most is not None:
        low[_PREDICTED] = np.minimum(low[_PREDICTED], logged.least.min(axis=0, initial=np.inf))
        high[_PREDICTED] = np.maximum(high[_PREDICTED], logged.most.max(axis=0, initial=-np.inf))
    return Ranges(low, high, logged.weights.max(axis=0, initial=0.0))


def widened(one: Ranges, places: int) -> Ranges:
    """The ranges for lists of more places, of which the last were always missing."""
    more = places - one.low.shape[1]
    least, most = np.zeros((3, more)), np.zeros((3, more))
    if one.bounds is not None:
        least[_REWARDS], most[_REWARDS] = min(one.bounds[0], 0.0), max(one.bounds[1], 0.0)
    low, high = np.hstack((one.low, least)), np.hstack((one.high, most))
    return Ranges(low, high, np.concatenate((one.largest, np.repeat(one.largest[-1:], more))), one.bounds)


def joined(one: Ranges, other: Ranges) -> Ranges:
    """The ranges of the decisions of both."""
    low, high = np.minimum(one.low, other.low), np.maximum(one.high, other.high)
    return Ranges(low, high, np.maximum(one.largest, other.largest), one.bounds or other.bounds)
