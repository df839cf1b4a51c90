"""NS-TandS: greedy k-center from noisy distances by Track-and-Stop, stage by stage.

Notation
    p           number of centres found; the stage has the arms (i, j), i a point outside S, j a centre
    t_a, mean_a number and mean of the answers of arm a; T = sum of t_a over the stage
    i*          argmax over i of min over j of mean_(i, j): the box that looks best
    Z_ab        sign(l) l^2 / (2 sigma^2 (1/t_a + 1/t_b)), l = mean_a - mean_b + epsilon
    beta        threshold of Z_ab; x = log(1/delta'), delta' the share of delta of one comparison

beta is 2 C(x/2) + 2 log(4 + log t_a) + 2 log(4 + log t_b) (Kaufmann and Koolen, "Mixture martingales
revisited", Theorem 9; also for answers in [0, 1], which are 1/4-sub-Gaussian), or the usual heuristic
log((1 + log T) / delta), for which nothing is proven.

Source: Jali, Karamchandani, Moharir, "Greedy k-Center from Noisy Distance Samples", Algorithm 4.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Unpack

import numpy as np
from scipy.special import zeta

from shortlist.kcenter import noise
from shortlist.kcenter.intervals import Counts
from shortlist.kcenter.noisy_state import (
    NoisyOptions,
    NoisySettings,
    NoisyState,
    Threshold,
    begin,
    check_options,
)
from shortlist.kcenter.tracking_weights import weights
from shortlist.types import Matrix, Rows

_GROWTH = 0.005


def start(
    *,
    rng: np.random.Generator,
    first: int | None = None,
    threshold: Threshold = "proven",
    **options: Unpack[NoisyOptions],
) -> NoisyState:
    """Return a campaign as ``ns_ts.start`` does; ``threshold`` "heuristic" asks less and guarantees nothing.

    Raises: InvalidParameter (as ``ns_ts.start``, threshold).
    """
    check_options(options)
    return begin(NoisySettings("ns_tands", threshold=threshold, **options), first, rng)


def next_center(state: NoisyState) -> int | None:
    """Return i* if certain, else None.

    Certain: every other box has an arm below all arms of i* by more than beta allows.
    """
    others, counts, mean = _stage(state)
    if not counts.all():
        return None
    best = int(mean.min(axis=0).argmax())
    of_best, t = mean[:, [best]] + noise.tolerance(state), counts[:, [best]]
    others_mean, others_t = np.delete(mean, best, axis=1), np.delete(counts, best, axis=1)
    # DEVIATION (Eq. 21): the statistic has the variance of the answers in it; the print assumes variance 1.
    sigma, total = max(noise.variance(state), np.finfo(np.float64).tiny), int(counts.sum())
    margin = np.full(len(others) - 1, -np.inf)
    for their_mean, their_t in zip(others_mean, others_t, strict=True):
        lead = of_best - their_mean
        statistic = np.sign(lead) * lead**2 / (2.0 * sigma * (1.0 / t + 1.0 / their_t))
        np.maximum(margin, (statistic - stopping_threshold(state, t, their_t, total)).min(axis=0), out=margin)
    return int(others[best]) if margin.min() > 0.0 else None


def choose(state: NoisyState, count: int, _rng: np.random.Generator) -> tuple[Rows, Rows]:
    """Return ``count`` pairs to ask: points and rows of centres. Shapes: -> (count,), (count,).

    The choice is deterministic. An arm is asked in batches of 0.5 % of its answers.
    Cost: O(n p) for each batch, and O(n p^2) once for the proportions.
    """
    others, answered, mean = _stage(state)
    planned = noise.expected(state)[:, others].astype(np.float64)
    # DEVIATION (Alg. 4, line 11): the proportions are computed once a call, not for each pull.
    wanted = pull_proportions(mean, noise.tolerance(state)) if answered.all() else np.zeros_like(planned)
    total, arms = float(planned.sum()), planned.size
    tracked = np.flatnonzero(wanted)
    chosen: list[int] = []
    batches: list[int] = []
    left = count
    while left:
        # DEVIATION (Alg. 4, line 8): the least pulled arm of the stage's own (n - p) p arms decides.
        least = int(planned.argmin())
        behind = planned.flat[least] < max(1.0, math.sqrt(total) - arms / 2.0)
        lag = wanted.flat[tracked] * total - planned.flat[tracked]
        arm = least if behind or not answered.all() else int(tracked[lag.argmax()])
        batch = min(max(1, int(_GROWTH * planned.flat[arm])), left)
        chosen.append(arm)
        batches.append(batch)
        planned.flat[arm] += batch
        total, left = total + batch, left - batch
    rows, points = np.divmod(np.repeat(np.array(chosen, dtype=np.int64), batches), len(others))
    return others[points], rows


def _stage(state: NoisyState) -> tuple[Rows, Counts, Matrix]:
    """Return the points outside S, counts and means of their arms. Shapes: -> (n - p,), (p, n - p) twice."""
    # DEVIATION (Alg. 4, line 3): T counts all answers of the arms, line 5 and earlier stages included.
    center_count = len(state.centers)
    others: Rows = np.delete(np.arange(state.settings.n), state.centers)
    return others, state.counts[:center_count, others], noise.means(state)[:, others]


def pull_proportions(mean: Matrix, epsilon: float) -> Matrix:
    """Return the proportions of Equation 19 as an array over the arms; 0 for arms that need no pulls.

    With a tolerance the gap is gap + epsilon, the difference that the stop has to see. Otherwise near ties
    would take all pulls.
    """
    best = int(mean.min(axis=0).argmax())
    others = np.delete(np.arange(mean.shape[1]), best)
    nearest = mean[:, others].argmin(axis=0)
    gaps = (mean[:, [best]] - mean[nearest, others] + epsilon) ** 2 / 2.0
    wanted = np.zeros_like(mean)
    wanted[:, best], wanted[nearest, others] = weights(gaps)
    return wanted


def stopping_threshold(state: NoisyState, t_a: Counts, t_b: Counts, total: int) -> Matrix | float:
    """Return beta for comparing arms of t_a and t_b answers; ``total`` is T."""
    settings = state.settings
    if settings.threshold == "heuristic":
        return math.log((1.0 + math.log(total)) / settings.delta)
    x = math.log(comparisons(settings.n, settings.k, noise.tolerance(state)) / noise.confidence(state))
    # DEVIATION (Alg. 4, line 7): the proven threshold; the print says slightly above log(t / delta).
    beta: Matrix = 2.0 * exploration(x / 2.0) + 2.0 * np.log((4.0 + np.log(t_a)) * (4.0 + np.log(t_b)))
    return beta


def comparisons(n: int, k: int, epsilon: float) -> int:
    """Return how many comparisons share delta: those on greedy's path, or with a tolerance all."""
    return max(n * k * (k - 1) // 2, 1) if epsilon == 0.0 else max((n * (n - 1) // 2) ** 2, 1)


@cache
def exploration(x: float) -> float:
    """Return C(x), the least (g(l) + x) / l over 1/2 < l < 1.

    g(l) = 2 l - 2 l log(4 l) + log zeta(2 l) - log(1 - l) / 2. Source: Kaufmann and Koolen, Theorem 9.
    """

    def value(part: float) -> float:
        shape = 2.0 * part - 2.0 * part * math.log(4.0 * part) + math.log(zeta(2.0 * part))
        return (shape - 0.5 * math.log(1.0 - part) + x) / part

    from scipy.optimize import minimize_scalar  # noqa: PLC0415 - large, and a start need not wait for it

    minimum = minimize_scalar(value, bounds=(0.5 + 1e-9, 1.0 - 1e-9), method="bounded")
    return float(minimum.fun)
