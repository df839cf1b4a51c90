"""Noise of the answers of every pair so far: variance, confidence bounds, draws from the posterior.

Notation
    t, mean     number and mean of the answers of a pair
    sigma^2     variance of an answer: given, at most 1/4 for answers in [0, 1], or bounded from calibration
    R, f        sum of squared residuals of the calibration, its degrees of freedom
    delta'      share of delta for one side of one pair's interval
    epsilon     tolerance: as given, else sigma / 10, or a tenth of sigma's bound when sigma is not given

An unknown variance is at most R / q with probability 1 - delta / 2, where q is the delta / 2 quantile of
chi-square(f). This needs pairs and numbers of answers fixed in advance: the calibration takes the first few
answers of some pairs.

Source: Jali, Karamchandani, Moharir, "Greedy k-Center from Noisy Distance Samples", section VII.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
from scipy.special import gammaincinv

from shortlist.kcenter import intervals
from shortlist.kcenter.intervals import Bounds, Counts
from shortlist.kcenter.noisy_state import CALIBRATION, NoisyState
from shortlist.types import Matrix, Rows

_PRIOR_VARIANCE = 0.5
_TOLERANCE = 0.1
_PATIENCE = 1000


def repeats(state: NoisyState) -> int:
    """Return how many first answers of each calibration pair are used."""
    pairs = state.calibration.shape[1]
    return 1 + math.ceil(CALIBRATION / pairs) if pairs else 0


def is_calibrated(state: NoisyState) -> bool:
    """Return whether the variance is given, or all answers for its bound are there."""
    return bool((state.calibration[0] >= repeats(state)).all())


def calibration_points(state: NoisyState) -> Rows:
    """Return the points whose distance to the first centre is the calibration's. Shapes: -> (c,)."""
    others: Rows = np.delete(np.arange(state.settings.n), state.centers[0])
    return others[: state.calibration.shape[1]]


def confidence(state: NoisyState) -> float:
    """Return the part of delta that is left for the intervals."""
    return state.settings.delta / 2.0 if state.settings.is_estimated else state.settings.delta


def variance(state: NoisyState) -> float:
    """Return sigma^2, or its bound of probability 1 - delta / 2; the state must be calibrated."""
    if state.settings.noise == "bernoulli":
        return 0.25
    if state.settings.noise_std is not None:
        return state.settings.noise_std**2
    freedom = state.calibration.shape[1] * (repeats(state) - 1)
    if not freedom:  # a single point: there is nothing to measure
        return 0.0
    return float(state.calibration[2].sum()) / noise_quantile(freedom, state.settings.delta / 2.0)


@cache
def noise_quantile(freedom: int, probability: float) -> float:
    """Return the quantile of chi-square(``freedom``)."""
    return 2.0 * float(gammaincinv(freedom / 2.0, probability))


def tolerance(state: NoisyState) -> float:
    """Return epsilon; the state must be calibrated.

    It may depend on the calibration, because the intervals do not depend on it: delta is shared by the same
    n (n - 1) one-sided events for every tolerance above 0.
    """
    epsilon = state.settings.epsilon
    return _TOLERANCE * math.sqrt(variance(state)) if epsilon is None else epsilon


def expected(state: NoisyState) -> Counts:
    """Return the number of answers of every pair once those under way are in. Shapes: -> (p, n).

    A query that is still open after many later ones counts as lost, so that its pair is asked again.
    """
    counts = state.counts[: len(state.centers)].copy()
    patience = _PATIENCE + state.observed // 2
    _, points, rows = state.open[:, state.open[0] >= state.issued - patience]
    np.add.at(counts, (rows, points), 1)
    return counts


def means(state: NoisyState) -> Matrix:
    """Return the mean answer of every pair with a centre found, 0 where there is none. Shapes: -> (p, n)."""
    center_count = len(state.centers)
    mean: Matrix = state.sums[:center_count] / np.maximum(state.counts[:center_count], 1)
    return mean


def bounds(state: NoisyState, mean: Matrix, counts: Counts) -> Bounds:
    """Return bounds of d for pairs of these means and counts; infinite where the count is 0.

    The counts need not be those of the state: a plan adds the answers that it waits for.
    Shapes: mean and counts have one shape, any, and so have the bounds.
    """
    settings = state.settings
    share = confidence(state) / intervals.sides(settings.n, settings.k, tolerance(state))
    t = np.maximum(counts, 1)
    if settings.noise == "bernoulli":
        lower, upper = intervals.kl(mean, t, t, share)
    else:
        lower, upper = intervals.gaussian(mean, t, variance(state), share)
    unseen = counts == 0
    return np.where(unseen, -np.inf, lower), np.where(unseen, np.inf, upper)


def draw(state: NoisyState, point: int, rng: np.random.Generator) -> Matrix:
    """Return a draw of d(point, s) from its posterior for every centre s found. Shapes: -> (p,).

    Gaussian answers: prior N(0, v), v the larger of 1/2 and sigma^2. Answers in [0, 1]: prior Beta(1, 1).
    """
    center_count = len(state.centers)
    t, total = state.counts[:center_count, point], state.sums[:center_count, point]
    if state.settings.noise == "bernoulli":
        return rng.beta(1.0 + total, 1.0 + t - total)
    sigma = max(variance(state), np.finfo(np.float64).tiny)
    # DEVIATION (Eq. 16): a variance of at least sigma^2, so that the prior weighs at most one answer.
    prior = max(_PRIOR_VARIANCE, sigma)
    # DEVIATION (Eq. 17): every answer enters the posterior once; the print adds all t + 1 of them every time.
    precision = 1.0 / prior + t / sigma
    return rng.normal(total / sigma / precision, 1.0 / np.sqrt(precision))
