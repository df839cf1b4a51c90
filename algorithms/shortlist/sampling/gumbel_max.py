"""Exact draws from a discrete distribution: the arm of largest log p + Gumbel noise.

Notation
    D           number of states
    w_i         log p(i) up to a constant
    g_i         independent standard Gumbel variables
    Z_j         sum of exp(w_i) over the states that are left at place j

argmax w_i + g_i is a draw from p. The k largest, in order, are k draws without replacement, each from what is
left: place j is state i with probability exp(w_i) / Z_j (Plackett and Luce).

Source: Chen and Ghahramani, "Scalable Discrete Sampling as a Multi-Armed Bandit Problem", Equation 2.
"""

from __future__ import annotations

import numpy as np

from shortlist import checks
from shortlist.sampling.factors import Draws, Factors, check
from shortlist.types import Rows, Vector


def gumbel_max(
    factors: Factors, *, rng: np.random.Generator, log_prior: Vector | None = None, draws: int = 1
) -> Draws:
    """Return exact draws. Shapes: log_prior (D,), the log f_0 -> rows (draws,).

    Cost: D N reads, whatever the number of draws. Raises: InvalidShape, NonFinite, InvalidParameter (draws <
    1, no states).
    """
    log_prior = check(factors, log_prior, draws)
    rows = from_weights(log_prior + factors.sums(), draws=draws, rng=rng)
    return Draws(rows, factors.exhaustive_reads, factors.exhaustive_reads, raced=0)


def from_weights(weights: Vector, *, draws: int, rng: np.random.Generator) -> Rows:
    """Return independent draws from p proportional to exp(w). Shapes: weights (D,) -> (draws,).

    One draw is Gumbel-max; for more the distribution function is inverted, at O(log D) a draw instead of
    O(D).
    """
    if draws == 1:
        return np.array([np.argmax(weights + rng.gumbel(size=len(weights)))])
    total = np.cumsum(np.exp(weights - weights.max()))
    uniform = rng.random(draws) * total[-1]
    rows: Rows = np.minimum(np.searchsorted(total, uniform, side="right"), len(weights) - 1)
    return rows


def top_k(weights: Vector, k: int, *, rng: np.random.Generator) -> tuple[Rows, Vector]:
    """Draw min(k, D) states without replacement; return them in order, and log of exp(w_i) / Z_j.

    The sum of the logarithms is that of the probability of the whole ordered list.
    Shapes: weights (D,) -> rows (m,), log_probabilities (m,). Cost: O(D + k log k).
    Raises: InvalidShape, NonFinite, InvalidParameter (k < 1).
    """
    checks.shape("weights", weights, (None,))
    checks.finite("weights", weights)
    checks.in_range("k", k, least=1)
    noisy = weights + rng.gumbel(size=len(weights))
    if k == 1 and len(weights):
        rows = noisy.argmax(0, keepdims=True)
    else:
        rows = np.arange(len(weights)) if k >= len(weights) else np.argpartition(-noisy, k - 1)[:k]
        rows = rows[np.lexsort((rows, -noisy[rows]))]
    return rows, _log_probabilities(weights, rows)


def _log_probabilities(weights: Vector, rows: Rows) -> Vector:
    """Log of exp(w_i) / Z_j, where Z_j is summed from the last place on: nothing is subtracted."""
    if not len(rows):
        return np.empty(0)
    others = np.delete(weights, rows)
    outside = -np.inf
    if len(others):
        largest = float(others.max())  # of these alone, so that none is lost beside a chosen one
        outside = float(np.log(np.exp(others - largest).sum())) + largest
    with np.errstate(under="ignore"):
        left = np.logaddexp.accumulate(np.concatenate(([outside], weights[rows[::-1]])))[1:]
    log_shares: Vector = np.minimum(weights[rows] - left[::-1], 0.0)
    return log_shares
