"""The units of rewards and of features, from a learner's own sums: noise and ridge.

Notation
    d, n            dimension of the parameters; sum of the weights of the decisions
    x, r            features of a chosen arm (d,), its reward
    V, theta^       precision ridge * I + gram (d, d), and estimate (d,), see ``ridge``
    S               sum of squared rewards, ``RidgeSums.squares``
    sigma           noise: the standard deviation of a reward about x.theta
    spread, a0      sigma assumed before there are rewards, and its weight in rewards
    c               ridge / mean squared length of x: how large sigma^2 is beside the variance of x.theta

Model
    r = x.theta + sigma * standard normal; theta, given sigma, is N(0, sigma^2 / ridge I); 1 / sigma^2 is
    Gamma with shape a0 / 2 and rate a0 spread^2 / 2. This prior is conjugate: theta, given sigma and the
    rewards, is N(theta^, sigma^2 V^-1), and 1 / sigma^2 is Gamma with shape (a0 + n) / 2 and rate
    (a0 spread^2 + R) / 2, where R = S - moment.theta^ = sum (r - x.theta^)^2 + ridge |theta^|^2. ``noise`` is
    the sigma whose 1 / sigma^2 is the mean of this Gamma.

So a draw theta^ + exploration * sigma * V^-1/2 xi is in the unit of rewards, and its chosen arm does not
depend on units: where all features, or all rewards and the spread, are multiplied by a power of two, every
number here is multiplied by its power to the bit.

All follows from sums: the same however a log is cut into batches, and in a replay. Weights of rewards, as of
discounting, are their powers in the likelihood.

Source: Bishop, "Pattern Recognition and Machine Learning" (2006), section 3.3; Gelman et al., "Bayesian Data
Analysis", chapter 14. As a bandit: Riquelme, Tucker and Snoek, "Deep Bayesian Bandits Showdown" (2018), where
linear regression with this prior does best of all linear methods. The constants are measured:
``shortlist bench defaults``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from shortlist import checks
from shortlist.linear import evidence
from shortlist.linear import ridge as regression
from shortlist.linear.ridge import Posterior
from shortlist.linear.ridge_sums import RidgeSums
from shortlist.types import Rows, Vector

PRIOR_REWARDS = 1.0
TEMPERATURE = 0.2  # of softmax, times sigma
TEMPERATURE_BY_EVIDENCE = 0.15  # the same, times the unit of a posterior of maximum evidence, which is larger
GAMMA = 3.0  # of inverse-gap weighting, times n / sigma for n candidates
RADIUS = 2.0  # of elimination, times the spread


def mean_square(sums: RidgeSums) -> float:
    """Return trace(gram) / n, the mean squared length of what was chosen; 0 without observations.

    Cost: O(d).
    """
    trace = float(sums.total[_diagonal(sums.dim)].sum())
    return max(trace / sums.weight, 0.0) if sums.weight > 0.0 else 0.0


@lru_cache(maxsize=64)
def _diagonal(dim: int) -> Rows:
    """Slots of the diagonal in the packed lower triangle. Shape: (d,)."""
    row = np.arange(dim)
    return row * (row + 3) // 2


def ridge(sums: RidgeSums, *, otherwise: float) -> float:
    """Return c trace(gram) / n; ``otherwise`` where not positive: without observations.

    Sums are taken as they are, or discounted. A learner without any draws theta from
    N(0, sigma^2 / ridge I), and every ``otherwise`` > 0 gives it the same choice; only widths depend on it.

    Cost: O(d). Raises: InvalidParameter (otherwise <= 0).
    """
    checks.in_range("otherwise", otherwise, above=0.0)
    estimate = ridge_share(sums.dim) * mean_square(sums)
    return estimate if 0.0 < estimate < math.inf else otherwise


def noise(
    sums: RidgeSums, theta: Vector, *, spread: float | None = None, share: float | None = None
) -> float:
    """Return sigma; ``theta`` is the estimate from these sums.

    ``spread``: half of the largest reward less the least, None: unknown, then a0 = 0. Where the size of
    rewards is unknown, since all were 0 or their squares are unknown, sigma is the spread, else 1. ``share``:
    by maximum evidence how much of spread^2 counts beside R, also for an unknown spread; None: all.

    Shapes: theta (d,). Cost: O(d). Raises: InvalidShape, InvalidParameter (spread <= 0).
    """
    checks.shape("theta", theta, (sums.dim,))
    if spread is not None:
        checks.in_range("spread", spread, above=0.0)
    squares = sums.squares - sums.squares_error
    left = squares - float(sums.moment @ theta)
    return noise_of(squares, left, sums.weight, spread=spread, share=share)


def noise_of(
    squares: float, left: float, weight: float, *, spread: float | None, share: float | None = None
) -> float:
    """As ``noise``, for S = ``squares`` and R = ``left`` of rewards of this weight."""
    if not (0.0 < squares < math.inf and weight > 0.0):
        return 1.0 if spread is None else spread
    left = max(left, evidence.LEAST_SHARE * squares)
    if share is not None:
        square = evidence.UNKNOWN_SPREAD**2 * squares / weight if spread is None else spread**2
        return math.sqrt((left + share * square) / (weight + PRIOR_REWARDS))
    before = 0.0 if spread is None else PRIOR_REWARDS
    return math.sqrt((left + before * (spread or 0.0) ** 2) / (weight + before))


def ridge_share(dim: float) -> float:
    """Return c = d / 320: in more dimensions as many rewards say less of each."""
    return dim / 320.0


class Fit(NamedTuple):
    """The scales from the sums of a learner.

    ``ridge``   of V
    ``share``   1 / (1 + u), as ``noise`` takes it; None: not by maximum evidence
    ``length``  L, for the unit of a posterior; 0: the unit is the noise
    """

    ridge: float
    share: float | None = None
    length: float = 0.0


@dataclass(frozen=True, slots=True)
class Scales:
    """The parameters of a posterior besides the sums.

    ``ridge``        None: from the sums, see ``ridge`` and ``least_ratio``
    ``otherwise``    the ridge then, without observations
    ``learns_noise``  True for sigma from the sums; else 1
    ``spread``       as for ``noise``
    ``least_ratio``  the ridge is by maximum evidence (``evidence``), where rho L is at least this, or as
                     given, and the noise follows from it; None: the ridge is c L, or as given
    ``spreads``      of each signal, as ``evidence.ratio`` takes them
    """

    ridge: float | None
    otherwise: float = 1.0
    learns_noise: bool = False
    spread: float | None = None
    least_ratio: float | None = None
    spreads: tuple[float | None, ...] = ()

    def posterior(self, sums: RidgeSums) -> Posterior:
        """Return the posterior of these sums. Cost: O(d^3)."""
        fit = self.fit(sums)
        posterior = regression.posterior(sums, ridge=fit.ridge)
        if not self.learns_noise:
            return posterior
        sigma = noise(sums, posterior.theta, spread=self.spread, share=fit.share)
        return regression.with_noise(posterior, sigma, length=fit.length)

    def fit(self, sums: RidgeSums) -> Fit:
        """Return ridge and unit of these sums. Cost: O(d); of maximum evidence that of ``evidence.ratio``."""
        if self.least_ratio is None:
            return Fit(ridge(sums, otherwise=self.otherwise) if self.ridge is None else self.ridge)
        if self.ridge is not None:
            length = self.length(sums)
            return Fit(self.ridge, 1.0 / (1.0 + length / self.ridge), length)
        length, ratio = mean_square(sums), evidence.START
        if is_told := 0.0 < length < math.inf:
            ratio = evidence.ratio(sums, mean_square=length, spreads=self.spreads)
        # DEVIATION (Bishop, section 3.5.1): of many weights of a context most are small, not a new arm's.
        ratio = max(ratio, self.least_ratio)
        length = length if is_told else self.otherwise * ratio
        return Fit(length / ratio, 1.0 / (1.0 + ratio), length)

    def length(self, sums: RidgeSums) -> float:
        """Return L of maximum evidence, before observations that of the arms; else 0. Cost: O(d)."""
        if self.least_ratio is None:
            return 0.0
        return mean_square(sums) or self.otherwise * max(evidence.START, self.least_ratio)
