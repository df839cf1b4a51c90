"""The PAC promise of BoundedME and racing, over many seeded permutations of hard data.

Failures beyond the binomial quantile at 1e-8 are rejected: over all tests of this file the false-alarm
probability stays below 1e-6. Each promise has a broken variant that the test must reject.
"""

from __future__ import annotations

from functools import cache, partial

import numpy as np
import pytest
from scipy import stats

from finite_arms import in_blocks, in_rows, suboptimality
from shortlist.mips import bounded_me as bounded
from shortlist.mips import racing as raced
from shortlist.mips.bounded_me import bounded_me
from shortlist.mips.racing import racing

pytestmark = pytest.mark.rest

ALARM = 1e-8
RUNS, DELTA, EPSILON, K = 60, 0.1, 0.2, 10


SEARCHES = {
    "sampled": bounded_me,
    "printed": partial(bounded_me, plan="printed"),
    "second_moment": racing,
    "empirical_bernstein": partial(racing, width="empirical_bernstein"),
}


def allowed(runs, rate):
    return int(stats.binom.isf(ALARM, runs, rate))


def coins(seed, *, n=160, dim=4608, gap=1.02 * EPSILON, good=K):
    """Rewards 0 or 1, as far from their means as can be; ``good`` arms are better than all others by gap."""
    bits = packed_coins(seed, n, dim, gap, good)
    return np.unpackbits(bits, axis=1, count=dim).astype(np.float32), np.ones(dim)


@cache
def packed_coins(seed, n, dim, gap, good):
    """Eight rewards a byte: the tests play with the same arms, and to draw them takes long."""
    rng = np.random.default_rng((2, seed))  # another stream than that of the layout
    shares = np.full(n, 0.5 - gap / 2)
    shares[:good] += gap
    heads = np.zeros((n, dim), dtype=np.bool_)
    for row, share in enumerate(shares):
        heads[row, rng.choice(dim, size=round(share * dim), replace=False)] = True
    return np.packbits(heads[rng.permutation(n)], axis=1)


def failures(search, layout, *, runs=RUNS, objective="inner_product"):
    """How many runs break the promise. Arms and layout have seeds of their own."""
    failed = sampled = 0
    for seed in range(runs):
        vectors, query = coins(seed)
        rewards = layout(vectors, query, objective, seed=(seed, 1), value_range=(0.0, 1.0))
        found = search(rewards, k=K, epsilon=EPSILON, delta=DELTA)
        sampled += found.guarantee.kind == "pac" and found.reads < 0.9 * found.exhaustive_reads
        failed += suboptimality(vectors, query, objective, found.rows) > EPSILON
    assert sampled == runs
    return failed


@pytest.mark.parametrize("layout", [in_blocks, pytest.param(in_rows, marks=pytest.mark.slow)])
@pytest.mark.parametrize("objective", ["inner_product", pytest.param("nearest", marks=pytest.mark.slow)])
@pytest.mark.parametrize("search", SEARCHES)
def test_the_promise_is_kept(search, objective, layout):
    """The squared distance of a coin to 1 is 1 less the coin: the same arms, the same promise."""
    search = SEARCHES[search]
    assert failures(search, layout, objective=objective) <= allowed(RUNS, DELTA)


@pytest.mark.parametrize(("plan", "name"), [("sampled", "sample_once"), ("printed", "schedule")])
def test_a_plan_for_a_wrong_range_does_not_keep_it(plan, name, monkeypatch):
    """What public implementations do: they take the range to be 1, here as if it were 1000."""
    original = getattr(bounded, name)

    def careless(*args, spread, **options):
        return original(*args, spread=spread / 1000.0, **options)

    monkeypatch.setattr(bounded, name, careless)
    assert failures(partial(bounded_me, plan=plan), in_blocks) > allowed(RUNS, DELTA)


@pytest.mark.parametrize("width", ["second_moment", "empirical_bernstein"])
def test_radii_of_a_twentieth_do_not_keep_it(monkeypatch, width):
    original = raced.radii

    def narrow(*args):
        radius, roots = original(*args)
        return radius / 20.0, roots

    monkeypatch.setattr(raced, "radii", narrow)
    assert failures(partial(racing, width=width), in_blocks) > allowed(RUNS, DELTA)


def rare_failures(runs=60, dim=4608, ones=32):
    """Arm 0 is 1 in a few coordinates; all others have half of its mean everywhere, and never vary."""
    failed = 0
    for seed in range(runs):
        vectors = np.full((40, dim), 0.5 * ones / dim)
        vectors[0] = 0.0
        vectors[0, np.random.default_rng((1, seed)).choice(dim, size=ones, replace=False)] = 1.0
        rewards = in_rows(vectors, np.ones(dim), seed=seed, value_range=(0.0, 1.0))
        epsilon = 0.1 * ones / dim
        found = racing(rewards, k=1, epsilon=epsilon, delta=DELTA, width="empirical_bernstein")
        failed += suboptimality(vectors, np.ones(dim), "inner_product", found.rows) > epsilon
    return failed


def test_the_range_of_the_empirical_bernstein_bound_covers_what_is_rare(monkeypatch):
    """A sample that misses the few ones has no deviation, so only the range speaks for them.

    Half of the range would pass too: the bound's constant, 4.45, has room for it (docs/papers/bounded-me.md).
    """
    assert rare_failures() <= allowed(60, DELTA)
    original = raced.empirical_bernstein_serfling

    def narrow(*args, spread, **named):
        return original(*args, spread=0.0 * spread, **named)

    monkeypatch.setattr(raced, "empirical_bernstein_serfling", narrow)
    assert rare_failures() > allowed(60, DELTA)


def test_coordinates_in_their_own_order_do_not_keep_it():
    """The adversary of the paper: an order that the arms could foresee. The best arm's ones come last."""

    class Foreseen:
        def permutation(self, count):
            return np.arange(count)

    vectors, query = coins(0)
    vectors = np.sort(vectors, axis=1)[:, ::-1].copy()
    top = np.argsort(-vectors.sum(axis=1))[:K]
    vectors[top] = vectors[top, ::-1]
    for search in (bounded_me, racing):
        options = {"k": K, "epsilon": EPSILON, "delta": DELTA}
        rewards = in_rows(vectors, query, seed=1)
        found = search(rewards, **options)
        assert suboptimality(vectors, query, "inner_product", found.rows) <= EPSILON
        rewards.coordinate_order = Foreseen().permutation(len(query))
        found = search(rewards, **options)
        assert suboptimality(vectors, query, "inner_product", found.rows) > EPSILON
