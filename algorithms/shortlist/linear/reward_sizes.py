"""Reward sizes: the usual size of keys' rewards, and the unit of one key's.

Keys share a prior because their rewards are alike. A company among shoppers, whose rewards are 20 times as
large, would decide alone how large noise and differences are taken for. So a key whose squares are far beyond
those of the others is counted in a unit of its own.

Notation
    N, J        keys, signals
    S, n        of a key: sum of squared rewards of each signal (J,), weight of its decisions
    q           mean squared reward of the usual keys
    phi         variance of S of the usual keys for each unit of weight; at least 2 q^2, as of normal rewards
    limit       max(4 q n, q n + 10 sqrt(phi n)): the bound of S
    rho, c      S / limit, limit / (q n)
    f           the factor of a key's rewards: f^2 = c^(1 / rho - 1) / rho where rho > 1, else 1

Usual are all keys but the one of largest mean square and a twentieth of the others, again the largest. f
falls from 1 on without a jump, until the mean square of the key is q. Where most rewards are 0, phi is large
beside q^2, so a key with one click is not far beyond. Where all usual rewards are 0, f is 1.

Units: f stays the same where all rewards are multiplied by a constant.

Source: winsorised moments (Huber and Ronchetti, "Robust Statistics", 2009, chapter 5).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shortlist import checks
from shortlist.types import Matrix, Vector

TRIMMED = 0.05
LEAST_RATIO = 4.0  # of the mean squares; below it nothing is far beyond
FAR = 10.0  # standard deviations
# Of one reward. Beside a key's many a single one is far only if it is larger than rare clicks are: of rewards
# that are 1 with probability p the bound of the square is about 1,000 sqrt(p), above 1 from p = 1e-6 on.
FAR_ALONE = 1_000.0
NORMAL = 2.0  # phi / q^2 of normal rewards with mean 0


@dataclass(frozen=True, slots=True, eq=False)
class UsualSizes:
    """q and phi of each signal. Shapes: (J,)."""

    mean_squares: Vector
    variances: Vector

    def factors(self, squares: NDArray[np.float64], weights: Vector | float) -> NDArray[np.float64]:
        """Return f of one key, or of several.

        Shapes: squares (J,) or (N, J), weights a number or (N,) -> as squares.
        """
        weight = np.asarray(weights, dtype=np.float64)[..., None]
        expected = self.mean_squares * weight
        limit = np.maximum(LEAST_RATIO * expected, expected + FAR * np.sqrt(self.variances * weight))
        # DEVIATION (Laird and Ware, section 3): keys far beyond have a unit of their own; see "Departures".
        result = np.ones_like(squares)
        is_far = (squares > limit) & (expected > 0.0)
        if is_far.any():
            beyond, ratio = squares[is_far] / limit[is_far], limit[is_far] / expected[is_far]
            result[is_far] = np.sqrt(ratio ** (1.0 / beyond - 1.0) / beyond)
        return result

    def is_far(self, value: float, signal: int = 0) -> bool:
        """Return whether one reward is far beyond all usual ones: its square above q + 1000 sqrt(phi).

        For normal rewards with mean 0 the bound is 38 times their root mean square.
        """
        mean, variance = float(self.mean_squares[signal]), float(self.variances[signal])
        return mean > 0.0 and value * value > mean + FAR_ALONE * math.sqrt(variance)


def usual_sizes(squares: Matrix, weights: Vector) -> UsualSizes:
    """Return what is usual of these keys, whose weights are positive.

    Shapes: squares (N, J), weights (N,). Cost: N J log N. Raises: InvalidShape, NonFinite.
    """
    count, signals = squares.shape
    checks.shape("weights", weights, (count,))
    for name, array in (("squares", squares), ("weights", weights)):
        checks.finite(name, array)
    mean_squares, variances = np.empty(signals), np.empty(signals)
    usual = count - 1 - int(TRIMMED * (count - 1))
    for signal, column in enumerate(squares.T):
        order = np.argsort(column / weights, kind="stable")[:usual]
        weight = weights[order].sum()
        mean = mean_squares[signal] = column[order].sum() / weight if usual else 0.0
        spread = ((column[order] - mean * weights[order]) ** 2).sum() / weight if usual else 0.0
        variances[signal] = max(spread, NORMAL * mean**2)
    return UsualSizes(mean_squares, variances)
