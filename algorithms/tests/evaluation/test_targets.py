"""How likely a target is to draw logged lists: against plain walks over the arms that are left."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shortlist.errors import InvalidParameter, InvalidShape
from shortlist.evaluation import igw_target, off_policy, simulated_target, softmax_target
from shortlist.evaluation.logged import MAX_PLACES, Logged
from shortlist.evaluation.off_policy import ESTIMATORS
from shortlist.linear import igw

MATRICES = ("propensities", "targets", "rewards", "predicted", "expected", "least", "most")


def softmax(scores: np.ndarray, temperature: float) -> np.ndarray:
    weights = np.exp((scores - scores.max()) / temperature)
    return weights / weights.sum()


@given(st.integers(1, 40), st.integers(1, 6), st.integers(0, 10**6), st.floats(1e-3, 1e3), st.integers(1, 9))
def test_softmax_lists_are_those_of_a_walk(arms: int, k: int, seed: int, temperature: float, block: int):
    rng = np.random.default_rng(seed)
    features, queries = rng.normal(size=(arms, 3)), rng.normal(size=(4, 3))
    blocks = [features[start : start + block] for start in range(0, arms, block)]
    bounded = seed % 2 == 0
    norm = np.linalg.norm(features, axis=1).max() if bounded else np.inf
    scores = queries @ features.T
    bounds = (np.full(4, -0.5), np.full(4, 0.7)) if seed % 3 else None
    predicted = scores.clip(-0.5, 0.7) if bounds else scores
    totals = softmax_target.totals(blocks, queries, temperature=temperature, largest_norm=norm, bounds=bounds)
    np.testing.assert_allclose((totals.least, totals.most), (predicted.min(axis=1), predicted.max(axis=1)))
    if totals.top.any():
        np.testing.assert_allclose(totals.top, scores.max(axis=1))
    else:
        assert bounded
    which = np.array([0, 1, 2, 3, 3, 0])
    k = min(k, arms)
    lists = np.array([rng.permutation(arms)[:k] for _ in which])
    eligible = rng.random(lists.shape) < 0.9
    drawn = np.take_along_axis(scores[which], lists, axis=1)
    of_lists = None if bounds is None else (bounds[0][which], bounds[1][which])
    found = softmax_target.weigh(totals.of(which), drawn, eligible, temperature=temperature, bounds=of_lists)
    for i, situation in enumerate(which.tolist()):
        left = list(range(arms))
        places = np.where(eligible[i], lists[i], -1)
        walked = softmax_target.walk(
            scores[situation], places, temperature=temperature, bounds=bounds and (-0.5, 0.7)
        )
        for j in range(k):
            p = softmax(scores[situation][left], temperature) if left else np.zeros(0)
            t = p[left.index(lists[i, j])] if eligible[i, j] else 0.0
            mean = p @ predicted[situation][left]
            for propensities, expected in (walked, (found.propensities[i], found.expected[i])):
                if propensities is walked[0] or not found.lost[i]:
                    assert propensities[j] == pytest.approx(t, rel=1e-9, abs=1e-300)
                    assert expected[j] == pytest.approx(mean, rel=1e-9, abs=1e-9)
            if eligible[i, j]:
                left.remove(lists[i, j])


@pytest.mark.rest
@pytest.mark.parametrize("scale", [1.0, 30.0, 90.0])
def test_scores_that_are_bounded_give_the_same_totals_in_fewer_passes(scale: float):
    rng = np.random.default_rng(7)
    features, queries = rng.normal(size=(300, 4)), rng.normal(size=(20, 4))
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    queries *= scale / np.linalg.norm(queries, axis=1, keepdims=True)
    near = softmax_target.totals([features], queries, temperature=1.0, largest_norm=1.0)
    far = softmax_target.totals([features], queries, temperature=1.0)
    assert not near.top.any()
    assert far.top.all()
    np.testing.assert_allclose(np.log(near.mass), np.log(far.mass) + far.top, rtol=1e-12)
    np.testing.assert_allclose(near.moment / near.mass, far.moment / far.mass, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose((near.least, near.most), (far.least, far.most))


@given(st.integers(1, 12), st.integers(1, 5), st.integers(0, 10**6), st.sampled_from([0.0, 1.0, 50.0]))
def test_inverse_gap_lists_are_those_of_a_walk(candidates: int, k: int, seed: int, gamma: float):
    rng = np.random.default_rng(seed)
    estimates = np.round(rng.normal(size=(5, candidates)), 1)  # some are equal
    is_candidate = rng.random(estimates.shape) < 0.8
    is_candidate[:, 0] = True
    drawn = np.array([rng.permutation(candidates) for _ in range(5)])[:, : min(k, candidates)]
    drawn = np.where(np.take_along_axis(is_candidate, drawn, axis=1), drawn, -1)
    predicted = estimates.clip(-0.5, 0.5) if seed % 2 else estimates
    propensities, expected = igw_target.weigh(
        estimates, is_candidate, drawn, gamma=gamma, predicted=predicted if seed % 2 else None
    )
    for i in range(5):
        left = np.flatnonzero(is_candidate[i]).tolist()
        for j, place in enumerate(drawn[i].tolist()):
            p = igw.propensities(estimates[i][left], gamma=gamma) if left else np.zeros(0)
            assert propensities[i, j] == pytest.approx(p[left.index(place)] if place >= 0 else 0.0)
            assert expected[i, j] == pytest.approx(p @ predicted[i][left])
            if place >= 0:
                left.remove(place)


def test_simulated_lists_are_counted_by_what_they_begin_with():
    simulated = np.array([[[5, 1], [5, 2], [7, 1], [5, 1]], [[3, 3], [3, -2], [3, -2], [3, -2]]])
    scores = np.array([[[1.0, 0.5], [1.0, 0.2], [2.0, 0.5], [1.0, 0.5]], [[4.0, 1.0]] + [[4.0, 0.0]] * 3])
    which, drawn = np.array([0, 0, 1, 0]), np.array([[5, 1], [7, 2], [3, -1], [9, 5]])
    propensities, expected = simulated_target.weigh(simulated, scores, which, drawn)
    np.testing.assert_allclose(propensities, [[0.75, 2 / 3], [0.25, 0], [1, 0], [0, 0]])
    np.testing.assert_allclose(expected, [[1.25, 0.4], [1.25, 0.5], [4, 0.25], [1.25, 0]])


@pytest.mark.rest
def test_bad_input_is_named():
    with pytest.raises(InvalidParameter, match="temperature"):
        softmax_target.totals([], np.ones((1, 2)), temperature=0.0)
    with pytest.raises(InvalidShape, match="queries"):
        softmax_target.totals([], np.ones(2), temperature=1.0)
    with pytest.raises(InvalidParameter, match="gamma"):
        igw_target.weigh(np.ones((1, 1)), np.ones((1, 1), dtype=bool), np.zeros((1, 1), int), gamma=-1.0)
    with pytest.raises(InvalidShape, match="drawn"):
        igw_target.weigh(np.ones((1, 1)), np.ones((1, 1), dtype=bool), np.zeros((2, 1), int), gamma=1.0)
    with pytest.raises(InvalidShape, match="simulated"):
        simulated_target.weigh(
            np.ones((1, 1, 1), int), np.ones((1, 1, 1)), np.zeros(1, int), np.zeros((1, 2), int)
        )


@pytest.mark.rest
@given(st.integers(1, 3), st.integers(0, 2), st.integers(0, 10**6))
def test_lists_that_grow_longer_on_the_way(places: int, more: int, seed: int):
    """A state of short lists, widened, is that of the same lists filled up to the longer ones."""
    rng = np.random.default_rng(seed)

    def lists(width: int, filled: int) -> Logged:
        shape, rest = (20, width), filled - width
        p, t, *others = (rng.uniform(0.1, 1.0, shape) for _ in range(7))
        ones, zeros = np.ones((20, rest)), np.zeros((20, rest))
        columns = [np.hstack((p, ones)), np.hstack((t, ones))]
        return Logged(*columns, *(np.hstack((other, zeros)) for other in others))

    longest = places + more
    long = lists(longest, longest)
    short = lists(places, longest)
    cut = Logged(*(getattr(short, name)[:, :places] for name in MATRICES))
    at_once = off_policy.start(ESTIMATORS, places=longest)
    for each in (short, long):
        at_once = off_policy.add(at_once, each)
    state = off_policy.add(off_policy.start(ESTIMATORS, places=places), cut)
    state = off_policy.add(off_policy.widened(state, longest), long)
    for name in ESTIMATORS:
        np.testing.assert_allclose(state.moments[name].mean, at_once.moments[name].mean, atol=1e-12)
        np.testing.assert_allclose(state.moments[name].scatter, at_once.moments[name].scatter, atol=1e-9)
    np.testing.assert_allclose(state.earned.scatter, at_once.earned.scatter, atol=1e-9)
    for name in ("weights", "effective_sample_size", "zeros"):
        np.testing.assert_allclose(getattr(state.support, name), getattr(at_once.support, name))
    for name in ("low", "high", "largest"):
        np.testing.assert_allclose(getattr(state.ranges, name), getattr(at_once.ranges, name))
    for wrong in (longest - 1, MAX_PLACES + 1):
        with pytest.raises(InvalidParameter, match="places"):
            off_policy.widened(at_once, wrong)


@pytest.mark.parametrize("sizes", [(0, 3, 0, 0, 4, 0), (7, 0), (0, 7)])
def test_blocks_without_arms_are_passed_over(sizes):
    rng = np.random.default_rng(0)
    features, queries = rng.normal(size=(7, 2)), rng.normal(size=(3, 2))
    blocks = np.split(features, np.cumsum(sizes)[:-1])
    found = softmax_target.totals(blocks, queries, temperature=0.5)
    scores = queries @ features.T
    z = (scores - scores.max(axis=1)[:, None]) / 0.5
    np.testing.assert_allclose((found.least, found.most), (scores.min(axis=1), scores.max(axis=1)))
    np.testing.assert_allclose(found.top, scores.max(axis=1))
    np.testing.assert_allclose(found.mass, np.exp(z).sum(axis=1))
    np.testing.assert_allclose(found.moment, (scores * np.exp(z)).sum(axis=1))


def test_the_own_draw_makes_the_inverse_unbiased_but_for_what_is_rare():
    """E[(M + 1) / (c + 1)] = (1 - (1 - p)^(M + 1)) / p, from the whole binomial distribution."""
    draws, p = 40, 0.15
    binomial = np.array([1.0])
    for _ in range(draws):
        binomial = np.convolve(binomial, [1.0 - p, p])
    shares = np.arange(draws + 1)[:, None] / draws
    inverse = 1.0 / simulated_target.with_own_draw(shares, draws)[:, 0]
    assert binomial @ inverse == pytest.approx((1.0 - (1.0 - p) ** (draws + 1)) / p, rel=1e-12)
    lists = simulated_target.with_own_draw(np.array([[0.5, 0.1], [0.0, 0.0]]), draws)
    assert lists[0].tolist() == pytest.approx([21 / 41, 3 / 21])
    assert lists[1].tolist() == pytest.approx([1 / 41, 1.0])
    with pytest.raises(InvalidParameter, match="draws"):
        simulated_target.with_own_draw(shares, 0)
