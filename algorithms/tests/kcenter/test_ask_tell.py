"""Campaigns from noisy distances: any order, late, twice, never; continued to the bit; greedy's centres."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from center_brute_force import best_radius, greedy, radius, squared
from frozen_states import frozen, thawed
from shortlist.errors import InvalidParameter, NonFinite
from shortlist.kcenter import ask_tell, noise, ns_tands, ns_ts, ns_ucb
from shortlist.kcenter.ask_tell import answer, tell

MODULES = {"ns_ts": ns_ts, "ns_ucb": ns_ucb, "ns_tands": ns_tands}


def seeded(start):
    return lambda *, seed, **options: start(rng=np.random.default_rng(seed), **options)


METHODS = {name: seeded(module.start) for name, module in MODULES.items()}
everywhere = pytest.mark.parametrize("start", METHODS.values(), ids=METHODS)
OPTIONS = {"delta": 0.05, "seed": 3, "noise_std": 0.05, "first": 0, "epsilon": 0.0}


def ask(state, count, **limits):
    return ask_tell.ask(state, count, rng=np.random.default_rng((3, state.asks)), **limits)


def spread(n, seed=0):
    """Normalised squared distances of points whose greedy order is clear."""
    rng = np.random.default_rng(seed)
    reach = np.concatenate((np.linspace(1.0, 0.5, min(n, 6)), rng.uniform(0.05, 0.3, max(n - 6, 0))))
    points = rng.choice((-0.5, 0.5), (n, 400)) * reach[:, None]
    return squared(points) / 400


def measured(matrix, queries, rng, std=0.05):
    return [(query.number, matrix[query.pair] + std * rng.standard_normal()) for query in queries]


def finished(state, matrix, *, count=50, std=0.05, limit=100_000, seed=1):
    rng = np.random.default_rng(seed)
    while not state.done and state.observed < limit:
        state, queries = ask(state, count)
        state = tell(state, measured(matrix, queries, rng, std))
    return state


@everywhere
@pytest.mark.parametrize("k", [2, 4])
def test_the_centres_are_those_of_greedy(start, k):
    matrix = spread(12)
    state = finished(start(n=12, k=k, **OPTIONS), matrix)
    found = answer(state)
    assert found.done
    assert list(found.centers) == greedy(matrix, k, 0)
    assert (found.guarantee.kind, found.guarantee.delta) == ("pac", 0.05)
    assert found.observed == found.issued == state.counts.sum()
    assert found.radius >= radius(matrix, found.centers) - 0.1
    assert ask(state, 5)[1] == ()


@everywhere
def test_no_queries_are_needed_where_there_is_no_choice(start):
    assert start(n=1, k=1, **OPTIONS).done
    lonely = answer(start(n=1, k=1, **OPTIONS | {"noise_std": None, "epsilon": None}))
    assert (lonely.centers, lonely.guarantee.epsilon) == ((0,), 0.0)
    for n in (2, 3):
        state, queries = ask(start(n=n, k=1, **OPTIONS), 3)
        assert (state.centers, queries) == ((0,), ())
    state, queries = ask(start(n=2, k=2, **OPTIONS), 3)
    assert (state.centers, queries) == ((0, 1), ())
    assert answer(start(n=2, k=2, **OPTIONS)).centers == (0, 1)


@pytest.mark.rest
@everywhere
@pytest.mark.parametrize("std", [0.05, None], ids=["given", "estimated"])
def test_equal_points_end_with_the_usual_tolerance_and_never_without(start, std):
    matrix = np.where(np.eye(4, dtype=bool), 0.0, 0.4)
    options = OPTIONS | {"noise_std": std}
    exact = finished(start(n=4, k=2, **options), matrix, count=500, limit=5000)
    assert exact.centers == (0,)
    assert not answer(exact).done
    usual = finished(start(n=4, k=2, **options | {"epsilon": None}), matrix, count=500, limit=400_000)
    assert answer(usual).guarantee.epsilon == pytest.approx(0.005, rel=0.3)
    wide = finished(start(n=4, k=2, **options | {"epsilon": 0.1}), matrix, count=50)
    assert answer(wide).guarantee.epsilon == 0.1
    assert wide.observed < usual.observed
    assert usual.done


@pytest.mark.rest
@everywhere
@pytest.mark.parametrize("seed", range(8))
def test_the_radius_is_within_the_factor_and_the_tolerance(start, seed):
    """Answers are root distances, which satisfy the triangle inequality: r <= 2 OPT + epsilon."""
    rng = np.random.default_rng(seed)
    matrix = np.sqrt(squared(rng.random((9, 2))))
    k, epsilon = int(rng.integers(2, 5)), 0.05
    state = start(n=9, k=k, **OPTIONS | {"delta": 1e-4, "epsilon": epsilon, "seed": seed})
    state = finished(state, matrix, count=100, limit=400_000)
    assert state.done
    assert radius(matrix, state.centers) <= 2.0 * best_radius(matrix, k) + epsilon


@pytest.mark.rest
@everywhere
def test_judgements_of_zero_and_one(start):
    matrix = np.clip(spread(8) * 2.0, 0.0, 1.0)
    options = {**OPTIONS, "noise": "bernoulli", "noise_std": None}
    state, rng = start(n=8, k=3, **options), np.random.default_rng(2)
    while not state.done and state.observed < 100_000:
        state, queries = ask(state, 200)
        state = tell(state, [(q.number, float(rng.random() < matrix[q.pair])) for q in queries])
    assert list(state.centers) == greedy(matrix, 3, 0)
    for outside in (-0.01, 1.01):
        state, queries = ask(start(n=8, k=3, **options), 1)
        with pytest.raises(InvalidParameter, match="results"):
            tell(state, [(queries[0].number, outside)])


@pytest.mark.rest
@everywhere
def test_an_unknown_variance_is_bounded_before_anything_is_decided(start):
    matrix, options = spread(12), {**OPTIONS, "noise_std": None}
    state, rng = start(n=12, k=3, **options), np.random.default_rng(5)
    while not noise.is_calibrated(state):
        assert state.centers == (0,)
        state, queries = ask(state, 10)
        assert all(query.pair[1] == 0 for query in queries)
        state = tell(state, measured(matrix, queries, rng))
    assert 128 < state.observed <= 160
    assert 0.05**2 <= noise.variance(state) <= 2.5 * 0.05**2
    assert list(finished(state, matrix).centers) == greedy(matrix, 3, 0)


@pytest.mark.rest
def test_the_calibration_is_the_sum_of_squared_residuals_of_the_first_answers():
    state, rng = METHODS["ns_ts"](n=4, k=2, delta=0.1, seed=0, first=1), np.random.default_rng(0)
    values = {point: [] for point in (0, 2, 3)}
    while not noise.is_calibrated(state):
        state, queries = ask(state, 9)
        results = [(query.number, float(rng.normal(100.0, 2.0))) for query in queries]
        for query, (_, value) in zip(queries, results, strict=True):
            values[query.pair[0]].append(value)
        state = tell(state, results)
    most = noise.repeats(state)
    wanted = [np.var(values[point][:most]) * most for point in (0, 2, 3)]
    np.testing.assert_allclose(state.calibration[2], wanted, rtol=1e-9)
    np.testing.assert_array_equal(noise.calibration_points(state), [0, 2, 3])


def actions():
    """Steps of a campaign: ask some, answer some of the open queries in some order, repeat some answers."""
    return st.lists(
        st.tuples(st.integers(1, 30), st.integers(0, 2**32), st.floats(0.0, 1.0), st.booleans()), max_size=12
    )


@pytest.mark.rest
@everywhere
@settings(max_examples=25)
@given(steps=actions(), is_estimated=st.booleans(), seed=st.integers(0, 1000))
def test_a_campaign_continues_to_the_bit_after_a_round_trip(start, steps, is_estimated, seed):
    """One campaign lives in memory, its twin is written to JSON and read again at every step."""
    options = {**OPTIONS, "seed": seed, "first": None, "noise_std": None if is_estimated else 0.05}
    twins = [start(n=7, k=4, **options)] * 2
    matrix, waiting, told = spread(7), [], []
    for count, draw, share, again in steps:
        rng = np.random.default_rng(draw)
        asked = [ask(state, count) for state in twins]
        assert asked[0][1] == asked[1][1]
        waiting += asked[0][1]
        order = rng.permutation(len(waiting))[: round(share * len(waiting))]
        results = measured(matrix, [waiting[i] for i in order], rng)
        waiting = [query for i, query in enumerate(waiting) if i not in set(order.tolist())]
        if again:
            results += told[:5]
        told += results
        twins = [tell(state, results) for state, _ in asked]
        assert frozen(twins[0]) == frozen(twins[1])
        twins[1] = thawed(twins[1])
        assert answer(twins[0]) == answer(twins[1])
        assert twins[0].observed == len({number for number, _ in told})
        assert twins[0].open.shape == (3, len(waiting))


@pytest.mark.rest
@everywhere
@settings(max_examples=25)
@given(seed=st.integers(0, 2**32), parts=st.integers(1, 8))
def test_the_order_and_the_grouping_of_answers_do_not_matter(start, seed, parts):
    rng = np.random.default_rng(seed)
    state, queries = ask(start(n=6, k=3, **OPTIONS), 60)
    results = [(query.number, float(rng.integers(-8, 9)) / 8.0) for query in queries]
    whole = tell(state, results)
    shuffled = [results[i] for i in rng.permutation(60)]
    for piece in range(parts):
        state = tell(state, shuffled[piece::parts] + shuffled[: piece * 3])
    np.testing.assert_array_equal(state.counts, whole.counts)
    np.testing.assert_array_equal(state.sums, whole.sums)
    assert state.observed == whole.observed == 60


@pytest.mark.rest
@everywhere
def test_an_answer_counts_once(start):
    state, queries = ask(start(n=5, k=2, **OPTIONS), 4)
    once = tell(state, [(queries[2].number, 0.3)])
    twice = tell(once, [(queries[2].number, 0.9), (queries[1].number, 0.1), (queries[1].number, 0.7)])
    assert twice.observed == 2
    assert tell(twice, [(queries[1].number, 0.2)]) is twice
    assert tell(twice, []) is twice
    assert twice.sums.sum() == pytest.approx(0.4)


@pytest.mark.rest
def test_forgotten_queries_are_the_oldest():
    state, queries = ask(METHODS["ns_ts"](n=5, k=2, **OPTIONS), 14, most_open=10)
    state = tell(state, [(query.number, 0.5) for query in queries])
    assert state.observed == 10


@pytest.mark.rest
def test_stages_share_what_they_learned():
    """A new centre's pairs are asked only for points that the older centres have not ruled out."""
    matrix = spread(40)
    matrix[6:, 0] = matrix[0, 6:] = 0.02
    state = finished(METHODS["ns_ucb"](n=40, k=4, **OPTIONS), matrix, count=5)
    assert (state.counts[0, 1:] > 0).all()
    assert (state.counts[1, 6:] > 0).sum() < 17
    assert not state.counts[3].any()


@pytest.mark.rest
def test_the_largest_upper_bound_alone_stalls_and_the_two_candidates_do_not(monkeypatch):
    """The winner's rivals settle just under it, and no cap makes it exact: Algorithm 1 without its cap."""
    matrix = spread(6)
    finish = finished(METHODS["ns_ucb"](n=6, k=2, **OPTIONS), matrix, count=1).observed
    monkeypatch.setattr(ns_ts._Plan, "candidate", lambda plan: int(plan.high.argmax()))
    stalled = finished(METHODS["ns_ucb"](n=6, k=2, **OPTIONS), matrix, count=1, limit=3 * finish)
    assert not stalled.done


@pytest.mark.rest
def test_the_posterior_counts_every_answer_once():
    """The printed update makes the variance shrink like t^-2. False alarm 1e-7: chi-square of 4000 draws."""
    state = METHODS["ns_ts"](n=3, k=2, **{**OPTIONS, "noise_std": 0.5})
    for value in (0.2, 0.4, 0.6, 0.8):
        state, queries = ask(state, 2)
        state = tell(state, [(query.number, value) for query in queries])
    t = state.counts[0, 1]
    draws = np.array([noise.draw(state, 1, np.random.default_rng(seed))[0] for seed in range(4000)])
    variance = 1.0 / (2.0 + t / 0.25)
    assert abs(draws.var() / variance - 1.0) < 5.4 * np.sqrt(2 / 4000)
    assert abs(draws.mean() - variance * state.sums[0, 1] / 0.25) < 5.4 * np.sqrt(variance / 4000)


@pytest.mark.rest
def test_the_heuristic_threshold_asks_less_and_says_that_it_promises_nothing():
    matrix, options = spread(10), {**OPTIONS, "noise_std": 0.1}
    proven = finished(METHODS["ns_tands"](n=10, k=3, **options), matrix, std=0.1)
    heuristic = finished(METHODS["ns_tands"](n=10, k=3, **options, threshold="heuristic"), matrix, std=0.1)
    assert heuristic.observed < proven.observed
    assert answer(heuristic).guarantee.kind == "none"
    assert answer(proven).guarantee.kind == "pac"


@pytest.mark.rest
def test_forced_exploration_keeps_every_arm_going():
    """Every arm of a stage has at least sqrt(T) - arms / 2 answers, whatever the proportions say."""
    matrix = np.array([[0.0, 0.5, 0.49, 0.01], [0.5, 0, 0, 0], [0.49, 0, 0, 0], [0.01, 0, 0, 0]])
    state = finished(
        METHODS["ns_tands"](n=4, k=2, **{**OPTIONS, "noise_std": 1.0}), matrix, std=1.0, limit=3000
    )
    counts = state.counts[0, 1:]
    assert not state.done
    assert counts.min() >= np.sqrt(counts.sum()) - 3 / 2 - 1
    assert counts[2] < counts[1] / 3


@pytest.mark.rest
@everywhere
def test_bad_answers_change_nothing_and_are_named(start):
    state, queries = ask(start(n=5, k=2, **OPTIONS), 3)
    good = (queries[0].number, 0.5)
    for bad, error in [
        ((3, 0.5), InvalidParameter),
        ((-1, 0.5), InvalidParameter),
        ((1, np.nan), NonFinite),
        ((1, np.inf), NonFinite),
    ]:
        with pytest.raises(error, match="results"):
            tell(state, [good, bad])
    assert state.observed == 0
    assert tell(state, []).observed == 0
    for count in (0, 10_001):
        with pytest.raises(InvalidParameter, match="count"):
            ask(state, count)
