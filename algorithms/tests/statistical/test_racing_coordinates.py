"""A race over coordinates draws the arm that exact Gumbel-max draws, but for a share of at most delta.

As in ``test_racing_samplers``: errors are counted against the exact draw of the same Gumbel variables, over
fresh layouts, and rejected beyond the binomial quantile at 1e-8.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from shortlist.errors import InvalidArgument
from shortlist.mips import blocked
from shortlist.mips.rewards import blocked_rewards
from shortlist.sampling import coordinates
from shortlist.sampling.coordinates import race_coordinates

pytestmark = pytest.mark.rest

ALARM = 1e-8
DELTA = 0.1
RUNS = 120


def arms(kind, n=60, dim=1_024, seed=1):
    rng = np.random.default_rng(seed)
    query = rng.standard_normal(dim)
    vectors = rng.standard_normal((n, dim)) * np.exp(rng.normal(0.0, 0.5, (n, 1)))
    if kind == "large mean":
        vectors += 50.0
    elif kind == "sparse":
        vectors *= rng.random((n, dim)) < 0.2
    elif kind == "alike":
        vectors = vectors[0] + 1e-3 * vectors
    return vectors, query


def errors(kind, scale, runs=RUNS, **options):
    vectors, query = arms(kind)
    scores = vectors @ query
    query = query * (scale / scores.std())
    scores = vectors @ query
    wrong, reads = 0, 0
    for seed in range(runs):
        layout = blocked.build(vectors, rng=np.random.default_rng(1_000 + seed))
        rewards = blocked_rewards(layout, query)
        drawn = race_coordinates(rewards, delta=DELTA, rng=np.random.default_rng(seed), **options)
        assert drawn.reads <= drawn.exhaustive_reads == vectors.size
        wrong += drawn.rows[0] != (scores + np.random.default_rng(seed).gumbel(size=len(scores))).argmax()
        reads += drawn.reads
    return wrong, reads / (runs * vectors.size)


def allowed(runs=RUNS):
    return int(stats.binom.isf(ALARM, runs, DELTA))


@pytest.mark.parametrize(
    "kind",
    ["normal", "sparse", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("large mean", "alike"))],
)
@pytest.mark.parametrize(
    "options",
    [
        {"method": "racing_normal"},
        {"method": "racing_normal", "variance": "marginal"},
        {"method": "racing_ebs"},
    ],
    ids=["pairwise", "marginal", "ebs"],
)
@pytest.mark.parametrize("scale", [0.3, pytest.param(8.0, marks=pytest.mark.slow)])
def test_it_errs_at_most_delta(kind, options, scale):
    assert errors(kind, scale, **options)[0] <= allowed()


def test_a_third_of_the_width_errs_more(monkeypatch):
    monkeypatch.setattr(coordinates, "b_normal", lambda delta, share: 0.8)
    assert errors("normal", 0.3, method="racing_normal")[0] > allowed()


def test_an_arm_far_ahead_is_found_early_and_arms_alike_are_read_together():
    vectors, query = arms("normal")
    vectors[7] += query
    rewards = blocked_rewards(blocked.build(vectors, rng=np.random.default_rng(0)), query / 30.0)
    drawn = race_coordinates(rewards, method="racing_normal", delta=DELTA, rng=np.random.default_rng(0))
    assert drawn.rows.tolist() == [7]
    assert drawn.reads < 0.3 * drawn.exhaustive_reads
    pairwise, marginal = (
        errors("alike", 8.0, runs=20, method="racing_normal", variance=v)[1] for v in ("pairwise", "marginal")
    )
    assert pairwise <= marginal


def test_one_arm_and_bad_arguments():
    vectors, query = arms("normal", n=1)
    rewards = blocked_rewards(blocked.build(vectors, rng=np.random.default_rng(0)), query)
    rng = np.random.default_rng(0)
    drawn = race_coordinates(rewards, method="racing_ebs", delta=DELTA, rng=rng)
    assert (drawn.rows.tolist(), drawn.reads) == ([0], 0)
    for broken in ({"delta": 0.0}, {"delta": 1.0}, {"variance": "other"}):
        with pytest.raises(InvalidArgument):
            race_coordinates(rewards, **{"method": "racing_normal", "delta": DELTA, "rng": rng, **broken})
