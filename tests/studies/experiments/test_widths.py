"""The widths that are compared hold, the newest too.

A failure rate of exp(-level) is rejected beyond the binomial quantile at 1e-8.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from studies.experiments import widths

pytestmark = pytest.mark.rest

RUNS, RATE = 2_000, 0.1


@pytest.mark.parametrize("kind", widths.POPULATIONS)
@pytest.mark.parametrize("share", [0.1, 0.6])
def test_the_newest_bound_holds_and_a_twentieth_of_it_does_not(kind, share):
    rng = np.random.default_rng(1)
    values = widths.population(kind, 500, rng)
    missed = {1.0: 0, 0.05: 0}
    for _ in range(RUNS):
        sample = rng.permutation(values)[: round(share * 500)]
        estimate, width = widths.betting(sample, 500, -math.log(RATE))
        for factor in missed:
            missed[factor] += values.mean() < estimate - factor * width
    allowed = stats.binom.isf(1e-8, RUNS, RATE)
    assert missed[1.0] <= allowed
    assert missed[0.05] > allowed
