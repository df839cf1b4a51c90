"""A hashed solver finds an arm with the stated probability, on an instance where the promise is tight.

The arm has norm 1 and the product r with a point of the net, which is a little longer than 1: no arm that the
contract speaks of is further away. Rates are rejected beyond the binomial quantiles at 1e-8.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from shortlist.mips.epsilon_net import nearest_point
from shortlist.mips.screening import lsh_mips
from shortlist.mips.screening.lsh_mips import LshMips, solver_for

pytestmark = pytest.mark.rest

ALARM = 1e-8
RUNS = 400
C, R, EPSILON = 0.5, 0.6, 0.1


def tight(dim=4):
    """A net point longer than 1; an arm that is as far from it as the contract allows, and 49 short ones."""
    rng = np.random.default_rng(3)
    query = np.zeros(dim)
    while np.linalg.norm(query) < 1.0 + 0.3 * EPSILON / (2.0 * math.sqrt(dim)):
        drawn = rng.standard_normal(dim)
        query = nearest_point(drawn / np.linalg.norm(drawn), epsilon=EPSILON)
    norm = np.linalg.norm(query)
    side = rng.standard_normal(dim)
    side -= (side @ query) / norm**2 * query
    arm = R / norm**2 * query + math.sqrt(1.0 - (R / norm) ** 2) * side / np.linalg.norm(side)
    others = rng.standard_normal((49, dim))
    return np.vstack((arm, 0.2 * others / np.linalg.norm(others, axis=1, keepdims=True))), query


def found(arms, query, runs=RUNS):
    """In how many runs arm 0 is a candidate; and the last solver. Each run has hyperplanes of its own."""
    times = 0
    for seed in range(runs):
        solver = solver_for(arms, c=C, r=R, epsilon=EPSILON, rng=np.random.default_rng((5, seed)))
        times += 0 in solver.candidates(query).rows
    return times, solver


def test_the_promise_of_nine_in_ten_is_kept_and_the_rate_is_the_stated_one():
    arms, query = tight()
    assert arms[0] @ query == pytest.approx(R)
    times, solver = found(arms, query)
    assert RUNS - times <= stats.binom.isf(ALARM, RUNS, 0.1)
    rate = lsh_mips.success_probability(R / np.linalg.norm(query), bits=solver.bits, tables=solver.tables)
    assert 0.9 <= rate < 0.92
    assert stats.binom.ppf(ALARM, RUNS, rate) <= times <= stats.binom.isf(ALARM, RUNS, rate)


def test_half_of_the_tables_do_not_keep_it(monkeypatch):
    """As if the probability of one table were twice what it is."""
    original = lsh_mips.tables_needed
    monkeypatch.setattr(lsh_mips, "tables_needed", lambda *args, **named: -(-original(*args, **named) // 2))
    times, _ = found(*tight())
    assert RUNS - times > stats.binom.isf(ALARM, RUNS, 0.1)


def test_tables_that_share_their_hyperplanes_do_not_keep_it(monkeypatch):
    class OneTable:
        def __init__(self, rng):
            self._rng = rng

        def standard_normal(self, shape):
            return np.broadcast_to(self._rng.standard_normal(shape[1:]), shape).copy()

    original = LshMips.build
    monkeypatch.setattr(
        LshMips, "build", lambda vectors, *, rng, **named: original(vectors, rng=OneTable(rng), **named)
    )
    times, _ = found(*tight())
    assert RUNS - times > stats.binom.isf(ALARM, RUNS, 0.1)


@pytest.mark.parametrize(("cosine", "bits", "tables"), [(0.3, 3, 5), (0.8, 6, 4), (-0.2, 2, 2)])
def test_candidates_come_at_the_stated_rate(cosine, bits, tables):
    """Also without a contract, for LSH-MIPS itself: 2,000 draws each, arms of different norms."""
    query = np.array([1.0, 0.0, 0.0])
    arms = np.array([[cosine * 2.0, 0.1, 0.0], [0.0, 0.0, 2.0]])
    rate = lsh_mips.success_probability(cosine, bits=bits, tables=tables)
    rngs = (np.random.default_rng((6, seed)) for seed in range(2_000))
    times = sum(
        0 in LshMips.build(arms, bits=bits, tables=tables, rng=rng).candidates(query).rows for rng in rngs
    )
    assert stats.binom.ppf(ALARM, 2_000, rate) <= times <= stats.binom.isf(ALARM, 2_000, rate)
    wrong = lsh_mips.success_probability(cosine, bits=bits + 1, tables=tables)
    assert not stats.binom.ppf(ALARM, 2_000, wrong) <= times <= stats.binom.isf(ALARM, 2_000, wrong)
