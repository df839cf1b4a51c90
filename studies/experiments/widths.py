"""`shortlist reproduce widths-without-replacement`: bounds for samples without replacement, side by side.

Notation
    N, t        size of the population, of the sample; values in [0, 1], so R = 1 and w = 1/2 about the middle
    mu_i        mean of what is left before draw i: (N mu - S_(i-1)) / (N - i + 1), S_i the sum of the first i
    mu^_i       mean of the first i draws, with half a draw of 1/2
    lambda_i    a bet, known before draw i

Every width is one-sided, with probability exp(-level) of failing, at one t fixed beforehand. The newest one,
of Waudby-Smith and Ramdas, is a running product with E <= 1,
exp(sum of lambda_i (X_i - mu_i) - (X_i - mu^_(i-1))^2 (-log(1 - lambda_i) - lambda_i)), solved for mu; it
looks at the draws in order, where the others need two sums.

Sources: Bardenet and Maillard, Bernoulli 2015; Waudby-Smith and Ramdas, "Confidence sequences for sampling
without replacement", NeurIPS 2020, and "Estimating means of bounded random variables by betting", JRSSB 2024.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from shortlist.finite_population import (
    bernstein_serfling,
    empirical_bernstein_serfling,
    hoeffding_serfling,
    root_mean_square,
)
from shortlist.types import Vector
from studies.measurement import report

SEED = 3
SIZE = 16_384
SHARES = (1 / 64, 1 / 16, 1 / 4, 1 / 2, 3 / 4)
# What one of the events of a race over 10,000 arms gets.
LEVEL = math.log(1e7)
POPULATIONS = ("uniform", "gaussian", "rare")
RUNS, QUICK_RUNS = 20, 3


def run(name: str, quick: bool, data: Path | None) -> dict[str, Any]:  # noqa: ARG001 - as all reproductions
    """Print mean widths, one row a population and t."""
    rng = np.random.default_rng(SEED)
    rows = []
    for kind in POPULATIONS:
        values = population(kind, SIZE, rng)
        for share in SHARES:
            t = round(share * SIZE)
            drawn = [rng.permutation(values) for _ in range(QUICK_RUNS if quick else RUNS)]
            found = np.mean([list(widths(order[:t], SIZE).values()) for order in drawn], axis=0)
            names = widths(drawn[0][:t], SIZE)
            rows.append({"population": kind, "t / N": share, **dict(zip(names, found.tolist(), strict=True))})
    return report(name, rows, seed=SEED)


def population(kind: str, size: int, rng: np.random.Generator) -> Vector:
    """Values in [0, 1]: uniform; products of normal numbers; one in a hundred is 1, the others 0."""
    if kind == "uniform":
        return rng.random(size)
    if kind == "rare":
        return np.repeat((1.0, 0.0), (size // 100, size - size // 100))
    products: Vector = rng.standard_normal(size) * rng.standard_normal(size)
    products -= products.min()
    products /= products.max()
    return products


def widths(sample: Vector, size: int, level: float = LEVEL) -> dict[str, float]:
    """How far the mean of the population can be above what each bound takes for it. Shapes: sample (t,)."""
    t, centered = len(sample), sample - 0.5
    root = root_mean_square(t, np.array([np.mean(centered**2)]), largest=0.5, level=level + math.log(2.0))
    own = bernstein_serfling(t, size, root=root, largest=0.5, level=level + math.log(2.0))
    deviation = np.array([sample.std()])
    theirs = empirical_bernstein_serfling(t, size, deviation=deviation, spread=1.0, level=level)
    return {
        "hoeffding_serfling": hoeffding_serfling(t, size, spread=1.0, level=level),
        "empirical_bernstein_serfling": float(theirs[0]),
        "second_moment": float(own[0]),
        "waudby_smith_ramdas": betting(sample, size, level)[1],
    }


def betting(sample: Vector, size: int, level: float) -> tuple[float, float]:
    """Return (estimate, width): P(mu < estimate - width) <= exp(-level). Shapes: sample (t,) in order."""
    t = len(sample)
    before = np.concatenate(([0.0], np.cumsum(sample)[:-1]))
    counts = np.arange(t)
    means = (before + 0.25) / (counts + 0.5)
    squares = np.concatenate(([0.0], np.cumsum((sample - means) ** 2)[:-1]))
    variance = (squares + 0.125) / (counts + 0.5)
    bets = np.minimum(np.sqrt(2.0 * level / (t * variance)), 0.75)
    costs = (sample - means) ** 2 * (-np.log1p(-bets) - bets)
    left = size - counts
    total = float((bets * size / left).sum())
    estimate = float((bets * (sample + before / left)).sum()) / total
    return estimate, (level + float(costs.sum())) / total
