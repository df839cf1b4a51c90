"""Whatever the layout, pulling returns the sums of the rewards, and what is said of them is true."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from finite_arms import LAYOUTS, in_blocks, truth
from shortlist.errors import InvalidParameter, InvalidShape, NonFinite
from shortlist.mips import blocked, columns
from shortlist.mips.read_costs import READS_ALONE, ReadCosts

pytestmark = pytest.mark.rest

OBJECTIVES = ("inner_product", "nearest")


def made(n, dim, dtype, offset, seed=3):
    rng = np.random.default_rng(seed)
    vectors = (rng.standard_normal((n, dim)) + offset * rng.standard_normal(dim)).astype(dtype)
    return vectors, rng.standard_normal(dim)


@settings(max_examples=60)
@given(
    n=st.integers(1, 300),
    dim=st.sampled_from([1, 2, 63, 64, 65, 500, 3000]),
    dtype=st.sampled_from([np.float32, np.float64]),
    offset=st.sampled_from([0.0, 5.0, 1000.0]),
    objective=st.sampled_from(OBJECTIVES),
    layout=st.sampled_from(sorted(LAYOUTS)),
    data=st.data(),
)
def test_a_pull_is_the_sum_of_rewards(*, n, dim, dtype, offset, objective, layout, data):
    vectors, query = made(n, dim, dtype, offset)
    rewards = LAYOUTS[layout](vectors, query, objective)
    terms = columns.term(vectors.astype(np.float64), query, objective)
    cut = rewards.rounded(data.draw(st.integers(0, dim)))
    places = np.flatnonzero(np.random.default_rng(n).random(n) < 0.4)
    whole = rewards.pull(0, dim, None)
    halves = rewards.pull(0, cut, None) + (rewards.pull(cut, dim, None) if cut < dim else 0.0)
    # The rewards are the terms less a constant for each coordinate.
    constants = terms.sum(axis=1) - whole
    slack = 2.0 * rewards.sum_noise + 1e-9 * np.abs(terms).sum(axis=1).max()
    assert np.ptp(constants) <= slack
    np.testing.assert_allclose(halves, whole, rtol=0, atol=slack)
    if len(places):
        some, squares = rewards.pull_squares(0, cut, places)
        every = rewards.pull(0, cut, None)
        np.testing.assert_allclose(some, every[places], rtol=0, atol=slack)
        assert (squares >= some**2 / cut * (1 - 1e-6) - slack).all()
        assert (squares <= cut * rewards.bounds.largest**2 * (1 + 1e-3) + slack).all()
        np.testing.assert_allclose(rewards.pull(0, cut, places), every[places], rtol=0, atol=slack)
        sums = terms[places].sum(axis=1)
        exact = 1e-12 * np.abs(terms).sum(axis=1).max()
        assert np.ptp(sums - rewards.whole(places)) <= 2.0 * rewards.whole_noise + exact
    rows, scores = rewards.scores(np.arange(n))
    assert rows.tolist() == list(range(n))
    np.testing.assert_allclose(scores, terms.sum(axis=1), rtol=1e-12, atol=1e-9)


def test_the_noise_of_whole_arms_is_below_that_of_plain_products():
    """Sums are taken in parts, so the bound is below that of 9,000 products and sums in float32."""
    vectors, query = made(300, 9000, np.float32, 1.0)
    rewards, places = in_blocks(vectors, query), np.arange(300)
    error = truth(vectors, query, "inner_product") - rewards.whole(places)
    assert 0.0 < np.ptp(error) <= 2.0 * rewards.whole_noise
    norms = np.linalg.norm(vectors, axis=1)
    assert rewards.whole_noise <= 9000 * 2.0**-24 * norms.max() * np.linalg.norm(query)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_the_bounds_are_those_of_the_rewards(objective):
    vectors, query = made(40, 90, np.float32, 3.0)
    known = columns.of(vectors)
    terms = columns.term(vectors.astype(np.float64), query, objective)
    rewards = terms - columns.term(known.center, query, objective)
    found = columns.bounds(known, query, objective, None)
    spread = np.ptp(terms, axis=0).max()
    # A square is least inside of the interval, where perhaps no arm is.
    assert spread <= found.spread * (1 + 1e-12) <= (1.3 if objective == "nearest" else 1.0 + 1e-6) * spread
    assert np.abs(rewards).max() <= found.largest * (1 + 1e-12)


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("scale", [1.0, 1e-3, 1e-25, 1e5])
@pytest.mark.parametrize("offset", [0.0, 3.0])
def test_root_mean_squares_are_bounded_before_anything_is_read(objective, scale, offset):
    """And not by much: a fourth root of the kurtoses for products, three times that for distances."""
    vectors, query = made(30, 700, np.float64, offset)
    vectors, query = scale * vectors, scale * query
    vectors[3] = vectors.mean(axis=0)
    vectors[4, 5] += 40 * scale
    rewards = in_blocks(vectors, query, objective)
    terms = columns.term(vectors, query, objective)
    center = columns.of(vectors).center
    true = np.sqrt(((terms - columns.term(center, query, objective)) ** 2).mean(axis=1))
    found = rewards.root_mean_squares()
    assert (found >= true).all()
    if scale > 1e-25 and not (offset and objective == "nearest"):
        assert (found[5:] <= 6.0 * true[5:] + 2.0 * rewards.noise).all()


@pytest.mark.parametrize("scale", [1.0, 1e-25, 1e5])
def test_squares_that_are_kept_bound_those_of_the_rewards(scale):
    vectors, query = made(200, 6400, np.float32, 1.0)
    vectors, query = vectors * np.float32(scale), query * scale
    rewards = in_blocks(vectors, query)
    arms = rewards.arms
    stop = arms.squared_to
    assert 6400 / 32 <= stop < 6400 / 16
    z = (vectors.astype(np.float64) - arms.columns.center)[:, arms.order[:stop]]
    true = ((query[arms.order[:stop]] * z) ** 2).sum(axis=1)
    for places in (None, np.array([0, 7, 8, 199])):
        _, found = rewards.pull_squares(0, stop, places)
        some = true if places is None else true[places]
        assert (found >= some).all()
        if scale > 1e-25:
            np.testing.assert_allclose(found, some, rtol=2e-3)


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_range_that_does_not_hold_is_seen_where_it_is_read(layout, objective):
    vectors, query = made(20, 300, np.float32, 0.0)
    terms = np.abs(columns.term(vectors.astype(np.float64), query, objective))
    most = float(terms.max())
    low = -most if objective == "inner_product" else 0.0
    fits = LAYOUTS[layout](vectors, query, objective, value_range=(low, most))
    fits.pull(0, 300, None)
    assert not fits.violated
    tight = LAYOUTS[layout](vectors, query, objective, value_range=(low, 0.9 * most))
    tight.pull(0, 300, None)
    assert tight.violated or (objective == "inner_product" and (vectors * query).max() <= 0.9 * most)


def test_in_rows_only_what_is_read_is_compared():
    vectors, query = np.zeros((4, 1000)), np.ones(1000)
    vectors[2, 17] = 9.0
    rewards = LAYOUTS["rows"](vectors, query, value_range=(0.0, 1.0))
    place = int(np.flatnonzero(rewards.coordinate_order == 17)[0])
    start = rewards.rounded(place + 1) - rewards.rounded(1)
    rewards.pull(0, start, None) if start else None
    assert not rewards.violated
    rewards.pull(start, rewards.rounded(place + 1), None)
    assert rewards.violated


def test_the_order_is_a_permutation_that_the_generator_draws():
    vectors, _ = made(3, 500, np.float32, 0.0)
    orders = [blocked.build(vectors, rng=np.random.default_rng(seed)).order for seed in range(3)]
    assert all(sorted(order.tolist()) == list(range(500)) for order in orders)
    assert len({tuple(order.tolist()) for order in orders}) == 3


@pytest.mark.parametrize(
    ("vectors", "error"),
    [
        (np.ones(3), InvalidShape),
        (np.ones((0, 3)), InvalidParameter),
        (np.ones((3, 0)), InvalidParameter),
        (np.array([[1.0, np.nan]]), NonFinite),
        (np.array([[1.0, -np.inf]]), NonFinite),
        (np.array([[1.0, 1e10]]), InvalidParameter),
    ],
)
def test_bad_vectors_are_named(vectors, error):
    with pytest.raises(error, match="vectors"):
        blocked.build(vectors, rng=np.random.default_rng(0))


@pytest.mark.parametrize(
    ("query", "options", "error", "name"),
    [
        (np.ones(4), {}, InvalidShape, "query"),
        (np.array([1.0, 2.0, np.nan]), {}, NonFinite, "query"),
        (np.array([1.0, 2.0, 1e10]), {}, InvalidParameter, "query"),
        (np.ones(3), {"objective": "cosine"}, InvalidParameter, "objective"),
        (np.ones(3), {"value_range": (1.0, 0.0)}, InvalidParameter, "value_range"),
        (np.ones(3), {"value_range": (0.0, np.inf)}, InvalidParameter, "value_range"),
        (np.ones(3), {"value_range": (np.nan, 1.0)}, InvalidParameter, "value_range"),
    ],
)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_bad_query_is_named(layout, query, options, error, name):
    with pytest.raises(error, match=name):
        LAYOUTS[layout](np.eye(3), query, **{"value_range": (0.0, 1.0), **options})


@pytest.mark.parametrize(
    ("n", "dim", "costs", "widths"),
    [
        # An eighth of all; then as wide as all before it.
        (10**5, 1_024, READS_ALONE, [128, 128, 256, 512]),
        # No wider than 2,048: what is summed in float32.
        (10**5, 20_000, READS_ALONE, [2_048] * 9 + [1_568]),
        # At least 65,536 numbers of all arms together.
        (100, 1_024, READS_ALONE, [656, 368]),
        # The least sample that is worth its overhead, 2.4 * 50, in grains of 16; and a 32nd at least.
        (10**5, 1_024, ReadCosts(query=5e6), [128, 128, 256, 512]),
        (10**5, 1_024, ReadCosts(query=1e6), [32, 32, 64, 128, 256, 512]),
        (10**5, 1_024, ReadCosts(query=1.0), [32, 32, 64, 128, 256, 512]),
    ],
)
def test_where_blocks_begin(n, dim, costs, widths):
    starts = blocked.block_starts(n, dim, blocked.grain_of(dim), costs)
    assert np.diff(starts).tolist() == widths
    assert (starts[0], starts[-1]) == (0, dim)


def test_norms_are_bounded_closely():
    """Of the longest arm, of the mean, and the fourth roots of the sums of z^4."""
    vectors, _ = made(30, 500, np.float64, 2.0)
    arms = blocked.build(vectors, rng=np.random.default_rng(0))
    z = vectors - arms.columns.center
    longest, fourths = np.linalg.norm(z, axis=1).max(), (z**4).sum(axis=1) ** 0.25
    assert longest <= arms.largest_norm <= longest * (1 + 3e-4)
    assert (arms.root_fourth >= fourths).all()
    assert (arms.root_fourth <= fourths * (1 + 1e-4)).all()
    assert arms.center_norm == pytest.approx(np.linalg.norm(vectors.mean(axis=0)), rel=1e-6)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_root_mean_squares_are_those_of_cauchy_schwarz_and_minkowski(objective):
    vectors, query = made(30, 700, np.float64, 1.0)
    rewards = in_blocks(vectors, query, objective)
    center = rewards.arms.columns.center
    slope, z = query if objective == "inner_product" else 2 * (query - center), vectors - center
    expected = ((slope**4).sum() * (z**4).sum(axis=1)) ** 0.25 / np.sqrt(700)
    if objective == "nearest":
        expected += np.sqrt((z**4).sum(axis=1) / 700)
    np.testing.assert_allclose(
        rewards.root_mean_squares(), expected * (1 + 2.0**-12) + rewards.noise, rtol=1e-4
    )


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_squares_of_rewards_are_theirs_and_little_more(layout, objective):
    """Also beyond what is kept, of all arms and of some, over parts that begin anywhere."""
    vectors, query = made(70, 3_000, np.float64, 1.0)
    rewards = LAYOUTS[layout](vectors, query, objective)
    order = rewards.arms.order if layout == "blocked" else rewards.coordinate_order
    terms = columns.term(vectors, query, objective)
    if layout == "rows":
        base = np.full(3_000, sum(rewards.reward_range) / 2)
    else:
        base = columns.term(columns.of(vectors).center, query, objective)
    for start, stop in ((0, 46), (0, 92), (46, 2_990), (0, 3_000)):
        true = ((terms - base)[:, order[start:stop]] ** 2).sum(axis=1)
        every = slice(None)
        for places in (None, np.array([0, 7, 8, 69])):
            _, found = rewards.pull_squares(start, stop, places)
            some = true[every if places is None else places]
            np.testing.assert_allclose(found, some, rtol=2e-3)
            if layout == "blocked":
                assert (found >= some * (1 - 1e-6)).all()


def test_bounds_of_a_range_that_the_arms_keep_to():
    """The range that was given counts where it is narrower, and is violated by one term beyond it."""
    vectors, query = np.array([[0.0, 1.0], [2.0, 3.0], [1.0, 2.0]]), np.array([1.0, 2.0])
    known = columns.of(vectors)
    wide = columns.bounds(known, query, "inner_product", (-5.0, 50.0))
    assert (wide.spread, wide.violated) == (4.0, False)
    assert wide.largest == 2.0
    just = columns.bounds(known, query, "inner_product", (0.0, 6.0))
    assert not just.violated
    for ends in ((0.1, 6.0), (0.0, 5.9)):
        tight = columns.bounds(known, query, "inner_product", ends)
        assert tight.violated
        assert tight.spread == tight.largest == pytest.approx(ends[1] - ends[0], rel=1e-4)
    near = columns.bounds(known, np.array([1.0, 3.0]), "nearest", (0.0, 4.0))
    assert (near.spread, near.largest, near.violated) == (4.0, 3.0, False)
    assert columns.bounds(known, np.array([1.0, 3.0]), "nearest", (0.0, 3.9)).violated
