"""How far noise and intervals of a learned prior hold, where keys differ in few directions or in all.

python -m studies.bench.prior_calibration

Keys have 1 to 25 rewards each, of arms that are drawn from N(0, I / 16); their tastes are one mean and normal
differences, of the same total variance in 3 directions or in all 16.

Columns, means of the draws
    noise       estimated, over the true one
    ellipsoid   share of the keys whose parameters are in the ellipsoid that should hold .9 of them
    error       root mean squared error of expected rewards, over that with the true prior
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.stats import chi2
from threadpoolctl import threadpool_limits

from app.platform.command_line import table
from shortlist.linear import ridge_sums
from shortlist.linear.learned_prior import LearnedPrior
from shortlist.types import Vector
from studies.bench import many_keys

SEED = 7_204
D, MOST = 16, 25
HELD = 0.9
KEYS, DIRECTIONS, DRAWS = (20, 60, 200), (3, 16), 6


def rows(
    keys: Sequence[int] = KEYS, directions: Sequence[int] = DIRECTIONS, draws: int = DRAWS
) -> list[dict[str, Any]]:
    found = []
    for count in keys:
        for varied in directions:
            figures = np.mean([figures_of(count, varied, draw) for draw in range(draws)], axis=0)
            names = ("noise", "ellipsoid", "error")
            found.append(
                {"keys": count, "directions": varied, **dict(zip(names, figures.tolist(), strict=True))}
            )
    return found


def figures_of(keys: int, varied: int, draw: int) -> Vector:
    """Noise, ellipsoid and error. Raises ValueError: fewer keys than a prior needs."""
    rng = np.random.default_rng((SEED, keys, varied, draw))
    directions = np.linalg.qr(rng.standard_normal((D, D)))[0][:, :varied] * np.sqrt(D / varied)
    mean = rng.standard_normal(D)
    thetas = mean + rng.standard_normal((keys, varied)) @ directions.T
    sums = []
    for theta in thetas:
        features = rng.standard_normal((rng.integers(1, MOST + 1), D)) / np.sqrt(D)
        rewards = features @ theta + rng.standard_normal(len(features))
        sums.append(ridge_sums.of(features, rewards, np.ones(len(features), dtype=np.bool_)))
    prior = many_keys.fitted(sums)
    if prior is None:
        raise ValueError(f"{keys} keys are too few for a prior")
    covariance = directions @ directions.T + 1e-6 * np.eye(D)
    true = LearnedPrior.of(
        mean[None],
        np.linalg.inv(covariance),
        np.eye(1),
        keys=keys,
        observations=1.0,
        variation=1.0,
    )
    known, best = ([each.posterior(own) for own in sums] for each in (prior, true))
    errors = np.array([posterior.theta for posterior in known]) - thetas
    squares = [
        np.square(np.linalg.solve(posterior.root, error)).sum()
        for posterior, error in zip(known, errors, strict=True)
    ]
    least = np.array([posterior.theta for posterior in best]) - thetas
    noise = float(np.sqrt(prior.residuals[0, 0]))
    held = float(np.mean(np.array(squares) <= chi2.ppf(HELD, D)))
    return np.array([noise, held, np.sqrt((errors**2).sum() / (least**2).sum())])


if __name__ == "__main__":
    with threadpool_limits(1):
        print(table(rows()))
