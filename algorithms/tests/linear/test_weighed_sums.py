"""Signals: a weighted sum of rewards is as if it had been learned from the start."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from numpy.typing import NDArray

from shortlist.linear import ridge_sums, signals
from shortlist.linear.discounted_sums import minus, plus, scaled
from shortlist.linear.linear_ts import draw
from shortlist.linear.ridge_sums import RidgeSums
from shortlist.linear.scales import Scales
from shortlist.linear.signals import Weighing

AUTO = Scales(None, 0.01, learns_noise=True)


def rewards(seed: int, n: int, dim: int, count: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    rng = np.random.default_rng(seed)
    features = rng.standard_normal((n, dim))
    values = features @ rng.standard_normal((dim, count)) + rng.standard_normal((n, count))
    return features, values


def by_signal(
    features: NDArray[np.float64], values: NDArray[np.float64], seed: int
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_], NDArray[np.float64]]:
    """Rows as signals come: one at a time, in any order, those that have not come are 0."""
    rng, (n, count) = np.random.default_rng(seed), values.shape
    order = [(i, j) for i in range(n) for j in range(count)]
    rng.shuffle(order)
    seen, rows, added, first, before = dict[int, NDArray[np.float64]](), [], [], [], []
    for i, j in order:
        had = seen.get(i)
        rows.append(features[i])
        first.append(had is None)
        had = np.zeros(count) if had is None else had
        delta = np.zeros(count)
        delta[j] = values[i, j]
        before.append(had)
        added.append(delta)
        seen[i] = had + delta
    return np.array(rows), np.array(added), np.array(first), np.array(before)


def same(one: RidgeSums, other: RidgeSums) -> bool:
    return all(
        getattr(one, name).tobytes() == getattr(other, name).tobytes()
        for name in ("total", "error", "more", "more_error")
    ) and (one.squares, one.squares_error, one.weight, one.observations) == (
        other.squares,
        other.squares_error,
        other.weight,
        other.observations,
    )


@pytest.mark.parametrize("dim", [3, 130])
def test_the_sums_are_those_of_all_rewards(dim: int) -> None:
    features, values = rewards(1, 60, dim, 3)
    rows = by_signal(features, values, 2)
    sums = ridge_sums.add(ridge_sums.empty(dim), *rows[:3], before=rows[3])
    assert sums.observations == 60
    assert sums.signals == 3
    np.testing.assert_allclose(sums.gram, features.T @ features, atol=1e-11)
    np.testing.assert_allclose(sums.moments, values.T @ features, atol=1e-11)
    np.testing.assert_allclose(sums.products, values.T @ values, atol=1e-11)
    whole = ridge_sums.of(*rows[:3], before=rows[3])
    np.testing.assert_allclose(whole.more, sums.more, atol=1e-11)
    np.testing.assert_allclose(whole.total, sums.total, atol=1e-11)


@pytest.mark.parametrize("dim", [3, 130])
@pytest.mark.parametrize("discounted", [False, True])
def test_batches_do_not_matter(dim: int, discounted: bool) -> None:
    features, values, first, before = by_signal(*rewards(3, 20, dim, 2), 4)
    rng = np.random.default_rng(5)
    factors, weights = rng.uniform(0.5, 1, len(values)), rng.uniform(0.5, 1, len(values))

    def after(*borders: int) -> RidgeSums:
        sums = ridge_sums.empty(dim)
        for start, stop in pairwise(borders):
            part = slice(start, stop)
            discounts = (factors[part], weights[part]) if discounted else None
            sums = ridge_sums.add(
                sums, features[part], values[part], first[part], discounts, before=before[part]
            )
        return sums

    assert same(after(0, len(values)), after(0, 1, 7, 8, 30, len(values)))


@pytest.mark.rest
def test_several_learners_together_are_each_by_itself() -> None:
    features, values, first, before = by_signal(*rewards(6, 30, 4, 2), 7)
    owners = np.random.default_rng(8).integers(0, 3, len(values))
    known = [ridge_sums.empty(4), ridge_sums.empty(4).with_signals(2), ridge_sums.empty(4).with_signals(3)]
    together = ridge_sums.add_each(known, owners, features, values, first, before=before)
    for owner, sums in enumerate(together):
        own = owners == owner
        alone = ridge_sums.add(known[owner], features[own], values[own], first[own], before=before[own])
        assert same(sums, alone.with_signals(3))


def test_one_signal_is_as_none_to_the_bit() -> None:
    features, values = rewards(9, 40, 5, 1)
    first = np.ones(40, dtype=np.bool_)
    plain = ridge_sums.add(ridge_sums.empty(5), features, values[:, 0], first)
    sums = ridge_sums.add(ridge_sums.empty(5), features, values, first)
    assert same(plain, sums)
    weighed = signals.weighed(sums, AUTO, Weighing((1.0,), (None,), (None,)))
    posterior = AUTO.posterior(plain)
    assert posterior.sigma == weighed.sigma
    drawn = [draw(each, exploration=0.4, rng=np.random.default_rng(1)) for each in (posterior, weighed)]
    assert drawn[0].tobytes() == drawn[1].tobytes()


@pytest.mark.parametrize("weights", [(1.0, 20.0, -5.0), (0.0, 1.0, 0.0), (0.3, 0.0, 1e6)])
@pytest.mark.parametrize("spread", [None, 0.5])
def test_a_weighted_sum_is_as_if_it_had_been_learned(
    weights: tuple[float, ...], spread: float | None
) -> None:
    features, values = rewards(10, 200, 6, 3)
    rows = by_signal(features, values, 11)
    sums = ridge_sums.add(ridge_sums.empty(6), *rows[:3], before=rows[3])
    mixed = ridge_sums.add(ridge_sums.empty(6), features, values @ weights, np.ones(200, dtype=np.bool_))
    own = Weighing(weights, (None,) * 3, (spread,) * 3)
    whole = None if spread is None else spread * sum(map(abs, weights))
    expected = Scales(None, 0.01, learns_noise=True, spread=whole).posterior(mixed)
    found = signals.weighed(sums, AUTO, own)
    np.testing.assert_allclose(found.theta, expected.theta, rtol=1e-9, atol=1e-9 * max(map(abs, weights)))
    assert found.sigma == pytest.approx(expected.sigma, rel=1e-9)
    drawn = [draw(each, exploration=0.4, rng=np.random.default_rng(2)) for each in (found, expected)]
    np.testing.assert_allclose(drawn[0], drawn[1], rtol=1e-8, atol=1e-9 * max(map(abs, weights)))
    np.testing.assert_allclose(found.root, expected.root, rtol=1e-8, atol=1e-12 * max(map(abs, weights)))


@pytest.mark.rest
def test_noise_that_is_given_is_taken_as_independent() -> None:
    features, values = rewards(12, 300, 4, 2)
    sums = ridge_sums.add(ridge_sums.empty(4), features, values, np.ones(300, dtype=np.bool_))
    both = signals.known(sums, AUTO)
    alone = both.weighed(Weighing((2.0, 0.0), (None, None), (None, None)), AUTO).sigma
    mixed = both.weighed(Weighing((2.0, 3.0), (None, 0.5), (None, None)), AUTO).sigma
    assert mixed == pytest.approx(np.hypot(alone, 1.5))
    given = both.weighed(Weighing((2.0, 3.0), (0.1, 0.5), (None, None)), AUTO).sigma
    assert given == pytest.approx(np.hypot(0.2, 1.5))


@pytest.mark.rest
def test_a_signal_that_came_later_was_0_before() -> None:
    features, values = rewards(13, 50, 3, 2)
    first = np.ones(50, dtype=np.bool_)
    values[:25, 1] = 0.0
    sums = ridge_sums.add(ridge_sums.empty(3), features[:25], values[:25, 0], first[:25])
    sums = ridge_sums.add(sums, features[25:], values[25:], first[25:])
    np.testing.assert_allclose(sums.products, values.T @ values, atol=1e-12)
    # and what names fewer signals than are known adds 0 to the others
    more = ridge_sums.add(sums, features[:5], values[:5, 0], first[:5])
    assert more.more.tobytes()[: 3 * 8] == sums.more.tobytes()[: 3 * 8]


@pytest.mark.rest
def test_sums_of_signals_are_scaled_added_and_subtracted() -> None:
    features, values = rewards(14, 50, 3, 3)
    first = np.ones(50, dtype=np.bool_)
    one = ridge_sums.of(features[:20], values[:20], first[:20])
    other = ridge_sums.of(features[20:], values[20:, 0], first[20:])
    both = plus(one, other)
    expected = values.copy()
    expected[20:, 1:] = 0.0
    np.testing.assert_allclose(both.products, expected.T @ expected, atol=1e-12)
    np.testing.assert_allclose(minus(both, other).moments, one.moments, atol=1e-12)
    np.testing.assert_allclose(scaled(both, 0.5).moments, both.moments / 2)
