"""The unit of rewards and that of features, from a learner's own sums: noise, ridge, how much to explore.

Notation
    d, n            dimension of what is learned; sum of the weights of the decisions
    x, r            features of a chosen arm (d,), its reward
    V, theta^       precision ridge * I + gram (d, d), and estimate (d,), see ``ridge``
    S               sum of squared rewards, ``RidgeSums.squares``
    sigma           noise: the standard deviation of a reward about x.theta
    spread, a0      sigma as it is taken for before there are rewards, and as how many rewards that counts
    c               ridge / mean squared length of x: how large sigma^2 is beside the variance of x.theta

Model
    r = x.theta + sigma * standard normal; theta, given sigma, is N(0, sigma^2 / ridge I); 1 / sigma^2 is
    Gamma with shape a0 / 2 and rate a0 spread^2 / 2. This prior is conjugate: theta, given sigma and the
    rewards, is N(theta^, sigma^2 V^-1), and 1 / sigma^2 is Gamma with shape (a0 + n) / 2 and rate
    (a0 spread^2 + R) / 2, where R = S - moment.theta^ = sum (r - x.theta^)^2 + ridge |theta^|^2. ``noise`` is
    the sigma whose 1 / sigma^2 is the mean of that.

So a draw theta^ + exploration * sigma * V^-1/2 xi is in the unit of rewards, and the arm that it chooses does
not depend on units: where all features, or all rewards and the spread, are multiplied by a power of two,
every number here is multiplied by its power to the bit.

Everything follows from sums, so it is the same however a log is cut into batches, and a replay has it.
Weights of rewards, of discounting or of a pooled prior, are their powers in the likelihood.

Source: Bishop, "Pattern Recognition and Machine Learning" (2006), section 3.3; Gelman et al., "Bayesian Data
Analysis", chapter 14. As a bandit: Riquelme, Tucker and Snoek, "Deep Bayesian Bandits Showdown" (2018), where
linear regression with this prior does best of all linear methods. The constants are measured:
``shortlist bench defaults``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from shortlist import checks
from shortlist.linear import ridge as regression
from shortlist.linear.ridge import Posterior
from shortlist.linear.ridge_sums import RidgeSums
from shortlist.types import Vector

PRIOR_REWARDS = 1.0
TEMPERATURE = 0.2  # of softmax, times sigma
GAMMA = 3.0  # of inverse-gap weighting, times n / sigma for n candidates
RADIUS = 2.0  # of elimination, times the spread
_LEAST_SHARE = 2.0**-40  # of S that is taken for noise where rounding leaves less


def mean_square(sums: RidgeSums) -> float:
    """Return trace(gram) / n, the mean squared length of what was chosen; 0 without observations.

    Cost: O(d).
    """
    row = np.arange(sums.dim)
    trace = float(sums.total[row * (row + 3) // 2].sum())
    return max(trace / sums.weight, 0.0) if sums.weight > 0.0 else 0.0


def ridge(sums: RidgeSums, *, otherwise: float) -> float:
    """Return c trace(gram) / n; ``otherwise`` where that is not positive: without observations.

    Sums are taken as they are, discounted, or with a pooled prior. A learner without any draws theta from
    N(0, sigma^2 / ridge I), and every ``otherwise`` > 0 gives it the same choice; only widths depend on it.

    Cost: O(d). Raises: InvalidParameter (otherwise <= 0).
    """
    checks.in_range("otherwise", otherwise, above=0.0)
    found = ridge_share(sums.dim) * mean_square(sums)
    return found if 0.0 < found < math.inf else otherwise


def noise(sums: RidgeSums, theta: Vector, *, spread: float | None = None) -> float:
    """Return sigma; ``theta`` is the estimate from these sums.

    ``spread``: half of the largest reward less the least, None: unknown, then a0 = 0. Where nothing says how
    large rewards are, all were 0 or their squares are unknown, it is the spread, else 1.

    Shapes: theta (d,). Cost: O(d). Raises: InvalidShape, InvalidParameter (spread <= 0).
    """
    checks.shape("theta", theta, (sums.dim,))
    if spread is not None:
        checks.in_range("spread", spread, above=0.0)
    squares = sums.squares - sums.squares_error
    return noise_of(squares, squares - float(sums.moment @ theta), sums.weight, spread=spread)


def noise_of(squares: float, left: float, weight: float, *, spread: float | None) -> float:
    """As ``noise``, for S = ``squares`` and R = ``left`` of rewards of this weight."""
    if not (0.0 < squares < math.inf and weight > 0.0):
        return 1.0 if spread is None else spread
    left = max(left, _LEAST_SHARE * squares)
    before = 0.0 if spread is None else PRIOR_REWARDS
    return math.sqrt((left + before * (spread or 0.0) ** 2) / (weight + before))


def ridge_share(dim: int) -> float:
    """Return c = d / 320: in more dimensions as many rewards say less of each."""
    return dim / 320.0


def exploration(dim: int) -> float:
    """Return 9 / (4 sqrt(d)), at most 9 / 16: the multiple of sigma V^-1/2 xi that Thompson sampling adds.

    The regret bounds of Abeille and Lazaric ask for one that grows as sqrt(d). It explores too much, and the
    more so in many dimensions, where most of what is drawn is of directions that no reward has shown yet.
    """
    return min(0.5625, 2.25 / math.sqrt(dim))


@dataclass(frozen=True, slots=True)
class Scales:
    """What a posterior depends on besides the sums.

    ``ridge``        None: that of the sums, see ``ridge``
    ``otherwise``    what it is then, without observations
    ``learns_noise``  whether sigma is that of the sums; else it is 1
    ``spread``       as for ``noise``
    """

    ridge: float | None
    otherwise: float = 1.0
    learns_noise: bool = False
    spread: float | None = None

    @property
    def begins_with(self) -> tuple[float, float]:
        """Ridge and noise without observations."""
        noise = (self.spread or 1.0) if self.learns_noise else 1.0
        return self.otherwise if self.ridge is None else self.ridge, noise

    def posterior(self, sums: RidgeSums) -> Posterior:
        """Return the posterior of these sums. Cost: O(d^3)."""
        known = regression.posterior(sums, ridge=self.ridge_of(sums))
        if not self.learns_noise:
            return known
        return regression.with_noise(known, noise(sums, known.theta, spread=self.spread))

    def ridge_of(self, sums: RidgeSums) -> float:
        """Return the ridge of these sums. Cost: O(d)."""
        return ridge(sums, otherwise=self.otherwise) if self.ridge is None else self.ridge
