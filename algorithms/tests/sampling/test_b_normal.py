"""B_Normal: the printed table, brute force over simulated walks, and its behaviour at the edges."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from shortlist.sampling.b_normal import b_normal


def walks(share, runs, seed):
    """The means of normal populations read without replacement, standardised; the last check is left out."""
    rng = np.random.default_rng(seed)
    pi, y = [share], [rng.standard_normal(runs)]
    while 2 * pi[-1] < 1:
        pi.append(2 * pi[-1])
        rho = math.sqrt(pi[-2] * (1 - pi[-1]) / (pi[-1] * (1 - pi[-2])))
        y.append(rho * y[-1] + math.sqrt(1 - rho * rho) * rng.standard_normal(runs))
    return np.array(y)


@pytest.mark.parametrize(("delta", "share"), [(0.1, 0.01), (0.3, 0.003), (0.02, 0.06)])
def test_the_walk_crosses_with_probability_delta(delta, share):
    """False alarm below 1e-6 a case: five standard deviations of 200,000 walks."""
    runs = 200_000
    y = walks(share, runs, seed=2)
    noise = 5.0 * math.sqrt(delta / runs)
    crossed = (y > b_normal(delta, share)).any(axis=0).mean()
    assert abs(crossed - delta) < noise
    assert abs((y > b_normal(2 * delta, share)).any(axis=0).mean() - delta) > noise


@pytest.mark.rest
def test_the_walk_is_that_of_a_finite_population():
    """Cov(mean_s, mean_t) for s < t is that of sd_t^2: the correlation used is that of real samples."""
    rng, size, runs = np.random.default_rng(1), 64, 40_000
    population = rng.standard_normal(size)
    order = np.argsort(rng.random((runs, size)), axis=1)
    means = np.cumsum(population[order], axis=1) / np.arange(1, size + 1)
    for s, t in ((8, 16), (16, 32), (8, 32)):
        pi_s, pi_t = s / size, t / size
        rho = math.sqrt(pi_s * (1 - pi_t) / (pi_t * (1 - pi_s)))
        assert np.corrcoef(means[:, s - 1], means[:, t - 1])[0, 1] == pytest.approx(rho, abs=0.03)


@pytest.mark.rest
def test_it_lies_between_one_check_and_the_union_over_checks():
    checks = len(walks(0.001, 1, 0))
    for delta in (1e-8, 1e-3, 0.05):
        union = stats.norm.isf(delta / checks)
        assert stats.norm.isf(delta) < b_normal(delta, 0.001) < union
