"""What the age of an arm adds to its rewards, the same for all arms and keys: learned by sums of each age.

Notation
    j           a bin of ages: below a quarter of an hour, then octaves, the last without an end
    y           the reward of an arm in bin j: p (x.theta + b + f_j) + noise
    rho         y - p (x.E + b), what was expected of the arm by its features and its effect
    n_j, R_j    sum w p^2 and sum w p rho of the decisions with an arm in bin j, of one stretch of time
    A, r        of all stretches: A = sum diag(n) - n n' / (sum n), r = sum R - n (sum R) / (sum n)

Estimate
    f = (A + STRENGTH I + SMOOTH D'D)^-1 r, where D f are the differences of neighbouring bins: a bin of few
    rewards is like those beside it. Within a stretch what all ages have in common is left out: what is
    learned of the keys meanwhile, the time of day, or a level of the whole bandit changes no f. So f is 0
    while all arms are in one bin. The mean of all f is 0.

    All of f is taken times max(0, 1 - DOUBT m / T) with T = r' A^- r / s^2, of m dimensions, and the noise
    s^2 of a reward. Where no age matters T is some times m, since what is not known of an arm is in all of
    its rewards; and arms that are known well look better than new ones by a hundredth of a reward.

Source: Henderson, "Best Linear Unbiased Estimation and Prediction under a Selection Model" (1975),
with f random, and a fixed effect of each stretch that is absorbed; Eilers and Marx, "Flexible Smoothing with
B-splines and Penalties" (1996), section 2, for the penalty of differences; James and Stein, "Estimation with
Quadratic Loss" (1961), section 2, for the factor.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from shortlist import checks
from shortlist.types import Matrix, Rows, Vector

BINS = 14
FIRST_MS = 900_000  # of age in the first bin
FROM_S = (0, *(FIRST_MS // 1_000 * 2**octave for octave in range(BINS - 1)))
"""The least age of each bin, in seconds."""
STRENGTH = 100.0  # rewards that say 0, of each bin
SMOOTH = 1_000.0  # rewards that say that two neighbouring bins are alike
DOUBT = 4.0  # times what independent noise explains of T
STRETCH = 200.0  # rewards: of fewer more is lost for what they have in common
TINY = 1e-9
_EDGES_MS = np.array(FROM_S[1:]) * 1_000
_DIFFERENCES = np.diff(np.eye(BINS), axis=0)
_PENALTY = STRENGTH * np.eye(BINS) + SMOOTH * _DIFFERENCES.T @ _DIFFERENCES


class AgeNumbers(NamedTuple):
    """A and r of all stretches. Shapes: (BINS, BINS), (BINS,)."""

    A: Matrix
    r: Vector


def nothing() -> AgeNumbers:
    """What is known before any reward."""
    return AgeNumbers(np.zeros((BINS, BINS)), np.zeros(BINS))


def bin_of(age_ms: int) -> int:
    """The bin of an age; of one below 0, as clocks may say, the first."""
    return min((age_ms // FIRST_MS).bit_length(), BINS - 1) if age_ms > 0 else 0


def bins_of(ages_ms: NDArray[np.int64]) -> Rows:
    """``bin_of`` of each. Shapes: (n,) -> (n,)."""
    return _EDGES_MS.searchsorted(ages_ms, side="right")


def added(known: AgeNumbers, n: Vector, R: Vector) -> AgeNumbers:
    """What is known after one more stretch. Shapes: n, R (BINS,). Cost: O(BINS^2).

    Raises: InvalidShape, NonFinite.
    """
    for name, numbers in (("n", n), ("R", R)):
        checks.shape(name, numbers, (BINS,))
        checks.finite(name, numbers)
    total = n.sum()
    if total <= 0.0:
        return known
    A = np.diag(n) - np.outer(n, n) / total
    return AgeNumbers(known.A + A, known.r + R - n * (R.sum() / total))


def fit(known: AgeNumbers, noise: float) -> tuple[Vector, Vector]:
    """What each bin adds, f, and its standard deviation. ``noise``: the variance s^2 of a reward.

    Shapes: -> (BINS,), (BINS,). Cost: O(BINS^3). Raises: InvalidParameter.
    """
    checks.in_range("noise", noise, above=0.0)
    inverse = np.linalg.inv(known.A + _PENALTY)
    values, vectors = np.linalg.eigh(known.A)
    is_known = values > TINY * max(values[-1], 1.0)
    beyond = vectors.T[is_known] @ known.r
    T = (beyond**2 / values[is_known]).sum() / noise
    factor = max(0.0, 1.0 - DOUBT * is_known.sum() / T) if T > 0.0 else 0.0
    return factor * (inverse @ known.r), np.sqrt(noise * inverse.diagonal())
