"""What BoundedME reads and returns on tables that are wide, equal or tiny."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_bounded_me import SEARCHES

from finite_arms import LAYOUTS, in_blocks, in_rows, spread_out
from shortlist.errors import InvalidParameter
from shortlist.finite_population import rho
from shortlist.mips import bounded_me as bounded
from shortlist.mips import columns
from shortlist.mips import racing as raced
from shortlist.mips.bounded_me import bounded_me
from shortlist.mips.racing import racing
from shortlist.mips.read_costs import ReadCosts

pytestmark = pytest.mark.rest


@pytest.mark.parametrize("plan", ["sampled", "printed"])
def test_reads_are_those_of_the_plan(plan):
    vectors, query = spread_out(300, 6000, 5)
    rewards = LAYOUTS["rows"](vectors, query)
    options = {"k": 3, "epsilon": 0.5, "delta": 0.05, "plan": plan}
    found = bounded_me(rewards, **options)
    expected, before, left = 0, 0, 300
    for step in bounded.rounds(rewards, **options):
        expected += left * (step.t - before)
        before, left = step.t, step.kept
    # The last few arms are read to the end where that costs less than deciding again.
    assert expected <= found.reads <= expected + 3 * (6000 - before) + found.exhaustive_reads / 64


@given(
    n=st.integers(1, 5000),
    k=st.integers(1, 50),
    dim=st.integers(1, 10**6),
    epsilon=st.floats(1e-3, 10.0),
    delta=st.floats(1e-6, 0.9),
    costs=st.builds(ReadCosts, picked=st.floats(1.0, 5.0), whole=st.floats(1.0, 5.0)),
)
def test_one_sample_spends_no_more_than_it_has(*, n, k, dim, epsilon, delta, costs):
    """The lemma of a round: K best arms estimated epsilon / 2 too low, or f + 1 others too high."""
    steps = bounded.sample_once(n, dim, k=k, epsilon=epsilon, delta=delta, spread=1.0, costs=costs)
    if n <= k:
        assert steps == []
        return
    sample, rest = steps
    assert rest == bounded.Round(dim, k)
    assert k <= sample.kept < n
    if sample.t < dim:
        eta = math.exp(-2.0 * sample.t * (epsilon / 2) ** 2 / rho(math.ceil(sample.t), dim))
        assert (k + (n - k) / (sample.kept - k + 1)) * eta <= delta * (1 + 1e-9)


@given(
    n=st.integers(2, 5000),
    k=st.integers(1, 50),
    dim=st.integers(1, 10**6),
    epsilon=st.floats(1e-3, 10.0),
    delta=st.floats(1e-6, 0.9),
)
def test_the_schedule_spends_what_it_has(n, k, dim, epsilon, delta):
    """Each round's sample is large enough for its share, and the shares sum to epsilon and delta."""
    left, share, rest, spent_epsilon, spent_delta, before = n, epsilon / 4, delta / 2, 0.0, 0.0, 0
    for step in bounded.schedule(n, dim, k=k, epsilon=epsilon, delta=delta, spread=1.0):
        assert step.kept == left - math.ceil((left - k) / 2)
        assert before <= step.t <= dim
        # Hoeffding-Serfling: one mean is off by share / 2 with probability eta.
        eta = math.exp(-2.0 * step.t * (share / 2) ** 2 / rho(step.t, dim)) if step.t < dim else 0.0
        bad = (left - k) * eta / (step.kept - k + 1)
        spent_delta += min(1.0, k * eta + bad)
        spent_epsilon += share
        before, left, share, rest = step.t, step.kept, 0.75 * share, rest / 2
    assert left == k or before == dim or n <= k
    assert spent_epsilon <= epsilon
    assert spent_delta <= delta * (1 + 1e-9)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("search", SEARCHES)
def test_a_range_that_does_not_hold_withdraws_the_guarantee(search, layout):
    for dim in (5, 4000):
        vectors, query = spread_out(50, dim, 1)
        rewards = LAYOUTS[layout](vectors, query, value_range=(-0.2, 0.2))
        found = SEARCHES[search](rewards, k=2, epsilon=0.4, delta=0.1)
        assert found.guarantee.kind == "none"
        assert "value_range" in found.guarantee.reason


def test_racing_follows_the_variance_and_bounded_me_the_range():
    """One coordinate in a thousand is large: the range says nothing of most of them."""
    rng = np.random.default_rng(1)
    vectors = rng.uniform(-0.01, 0.01, (200, 32_000)).astype(np.float32)
    vectors[:, ::2000] = rng.uniform(-1, 1, (200, 16))
    vectors += (0.2 * np.linspace(0, 1, 200)[:, None]).astype(np.float32)
    query = np.ones(32_000)
    fast, slow = (
        search(in_blocks(vectors, query), k=2, epsilon=0.02, delta=0.05) for search in (racing, bounded_me)
    )
    assert fast.reads < 0.5 * slow.reads
    wide = racing(in_blocks(vectors, query), k=2, epsilon=0.02, delta=0.05, width="empirical_bernstein")
    assert fast.reads < wide.reads


def wide_arm(n=100, dim=4096):
    """Arms of zeros but one, which is 1 and -1 in turn.

    Its rewards range over 1.98 R, where R is the range of any one coordinate over the arms.
    """
    vectors = np.zeros((n, dim), dtype=np.float32)
    vectors[7, ::2], vectors[7, 1::2] = 1.0, -1.0
    return vectors, np.ones(dim)


@pytest.mark.parametrize("objective", ["inner_product", "nearest"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_empirical_bernstein_bound_is_given_the_range_of_an_arm(layout, objective, monkeypatch):
    """And deviations that are no smaller than those of the sample, rounding included."""
    vectors, query = wide_arm()
    rewards = LAYOUTS[layout](vectors, query, objective)
    terms = columns.term(vectors.astype(np.float64), query, objective)
    base = columns.term(columns.of(vectors).center, query, objective)
    rewarded = terms - (0.0 if layout == "rows" else base)
    given_to_the_bound = []
    original = raced.empirical_bernstein_serfling

    def seen(t, population, *, deviation, spread, level):
        given_to_the_bound.append((t, deviation, spread))
        return original(t, population, deviation=deviation, spread=spread, level=level)

    monkeypatch.setattr(raced, "empirical_bernstein_serfling", seen)
    # So fine an epsilon that no arm is decided on before everything was read.
    racing(rewards, k=1, epsilon=1e-6, delta=0.05, width="empirical_bernstein")
    order = rewards.arms.order if layout == "blocked" else rewards.coordinate_order
    assert given_to_the_bound
    largest = np.ptp(rewarded, axis=1).max()
    if layout != "rows" and objective == "inner_product":
        assert largest > 1.97 * rewards.bounds.spread
    for t, deviation, spread in given_to_the_bound:
        assert spread >= largest
        if len(deviation) == len(vectors):
            assert (deviation >= rewarded[:, order[:t]].std(axis=1)).all()


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize(
    ("name", "value"),
    [("k", 0), ("epsilon", 0.0), ("epsilon", -1.0), ("epsilon", math.nan), ("epsilon", math.inf),
     ("delta", 0.0), ("delta", 1.0), ("delta", math.nan)],
)  # fmt: skip
def test_bad_parameters_are_named(search, name, value):
    options = {"k": 1, "epsilon": 0.1, "delta": 0.1, name: value}
    with pytest.raises(InvalidParameter, match=name):
        SEARCHES[search](in_blocks(np.eye(4), np.ones(4)), **options)


@pytest.mark.parametrize("search", [bounded_me, racing])
def test_a_range_that_only_the_answer_violates_promises_nothing(search):
    """In a coordinate that is not among those that were sampled."""
    vectors, query = spread_out(200, 4096, seed=5)
    rewards = in_rows(vectors, query, seed=2, value_range=(-2.5, 2.5))
    options = {"k": 1, "epsilon": 0.2, "delta": 0.1}
    found = search(rewards, **options)
    assert found.guarantee.kind == "pac"
    assert found.reads < 0.9 * found.exhaustive_reads
    vectors[found.rows[0], rewards.coordinate_order[-1]] = 3.0
    violating = search(in_rows(vectors, query, seed=2, value_range=(-2.5, 2.5)), **options)
    assert violating.rows == found.rows
    assert violating.guarantee.kind == "none"
