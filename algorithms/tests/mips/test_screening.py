"""The baselines that screen: against plain references, at full budget, and at the ends of their ranges."""

from __future__ import annotations

import heapq

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shortlist.errors import InvalidArgument
from shortlist.mips.exact import exact
from shortlist.mips.screening.euclidean_reduction import last_coordinate, norms_of, on_the_sphere
from shortlist.mips.screening.greedy_mips import GreedyMips
from shortlist.mips.screening.lsh_mips import MOST_BITS, LshMips
from shortlist.mips.screening.pca_mips import PcaMips, principal_components

pytestmark = pytest.mark.rest

SIZES = {"n": st.integers(1, 60), "dim": st.integers(1, 40), "seed": st.integers(0, 2**32)}


def gaussian(n, dim, seed, dtype=np.float64):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, dim)).astype(dtype), rng.standard_normal(dim)


def by_a_heap(vectors, query, budget):
    """The candidates as printed: pop the largest product, take its arm if it is new, move on in its list."""
    lists = [
        sorted(range(len(vectors)), key=lambda i: (-vectors[i][j] * query[j], i)) for j in range(len(query))
    ]
    heap = [(-vectors[rows[0]][j] * query[j], rows[0], j, 0) for j, rows in enumerate(lists)]
    heapq.heapify(heap)
    found: list[int] = []
    while len(found) < budget:
        _, row, j, place = heapq.heappop(heap)
        if row not in found:
            found.append(row)
        if place + 1 < len(vectors):
            after = lists[j][place + 1]
            heapq.heappush(heap, (-vectors[after][j] * query[j], after, j, place + 1))
    return found


@settings(max_examples=40)
@given(
    **SIZES,
    dtype=st.sampled_from([np.float32, np.float64]),
    signs=st.sampled_from(["both", "below", "above"]),
)
def test_greedy_takes_the_arms_that_the_printed_heap_takes(n, dim, seed, dtype, signs):
    vectors, query = gaussian(n, dim, seed, dtype)
    if signs != "both":
        vectors, query = np.abs(vectors) * (-1 if signs == "below" else 1), np.abs(query)
    index = GreedyMips.build(vectors)
    for budget in {1, 2, n // 2, n - 1} & set(range(1, n)):
        expected = by_a_heap(vectors.astype(float).tolist(), query.tolist(), budget)
        assert index.candidates(query, budget).rows.tolist() == expected


@given(**SIZES)
def test_greedy_with_ties_and_zeros_takes_the_largest_products(n, dim, seed):
    """Whole numbers from -2 to 2 in arms and query: nearly all products are tied, and many are 0."""
    rng = np.random.default_rng(seed)
    vectors, query = rng.integers(-2, 3, (n, dim)).astype(float), rng.integers(-2, 3, dim).astype(float)
    largest = (vectors * query).max(axis=1)
    expected = sorted(range(n), key=lambda row: (-largest[row], row))
    for budget in {1, n // 2 + 1}:
        found = GreedyMips.build(vectors).candidates(query, budget).rows.tolist()
        assert found == (expected[:budget] if budget < n else list(range(n)))


@given(**SIZES)
def test_one_more_coordinate_makes_products_distances(n, dim, seed):
    vectors, query = gaussian(n, dim, seed)
    norms = norms_of(vectors)
    np.testing.assert_allclose(norms, np.linalg.norm(vectors, axis=1))
    arms = np.column_stack((vectors, last_coordinate(norms)))
    asked = np.append(on_the_sphere(query, norms.max()), 0.0)
    np.testing.assert_allclose(np.linalg.norm(arms, axis=1), norms.max())
    assert np.linalg.norm(asked) == pytest.approx(norms.max())
    distances = np.square(arms - asked).sum(axis=1)
    products = vectors @ query / np.linalg.norm(query)
    np.testing.assert_allclose(distances, 2.0 * norms.max() ** 2 - 2.0 * norms.max() * products, atol=1e-9)
    assert distances.argmin() == products.argmax()


def everything(vectors):
    """Each search where it leaves out nothing."""
    rng = np.random.default_rng(3)
    yield lambda query: GreedyMips.build(vectors).candidates(query, len(vectors))
    yield PcaMips.build(vectors, 0, rng).candidates
    yield LshMips.build(vectors, bits=1, tables=200, rng=rng).candidates


@settings(max_examples=30)
@given(**SIZES, k=st.integers(1, 8), dtype=st.sampled_from([np.float32, np.float64]))
def test_with_the_full_budget_each_is_brute_force(n, dim, seed, k, dtype):
    """All cosines are above 0, so 200 tables of one bit miss an arm with probability 2^-200 at most."""
    vectors, query = gaussian(n, dim, seed, dtype)
    vectors[:, 0], query[0] = np.abs(vectors[:, 0]) + 9.0, 9.0
    for search in everything(vectors):
        found = search(query)
        best = found.best(k, vectors, query)
        expected = exact(vectors, query, k=k)
        assert best.rows.tolist() == expected.rows.tolist()
        np.testing.assert_array_equal(best.scores, expected.scores)
        assert not best.exact


def plain_tree(along, rows, level=0):
    """The tree as a nest of medians and leaves."""
    if level == along.shape[1]:
        return sorted(rows)
    order = sorted(rows, key=lambda row: along[row, level])
    half = len(order) // 2
    median = along[order[half - 1], level] if half else -np.inf
    return median, plain_tree(along, order[:half], level + 1), plain_tree(along, order[half:], level + 1)


@settings(max_examples=50)
@given(n=st.integers(1, 60), seed=st.integers(0, 2**32), depth=st.integers(0, 5))
def test_a_query_gets_the_leaf_that_a_plain_tree_leads_to(n, seed, depth):
    vectors, query = gaussian(n, 6, seed)
    depth = min(depth, n)
    tree = PcaMips.build(vectors, depth, np.random.default_rng(seed))
    norms = norms_of(vectors)
    components = principal_components(vectors, last_coordinate(norms), depth, np.random.default_rng(seed))
    along = np.column_stack((vectors, last_coordinate(norms))) @ components.T
    asked = components @ np.append(on_the_sphere(query, norms.max()), 0.0)
    node = plain_tree(along, range(n))
    for level in range(depth):
        median, lower, upper = node
        node = upper if asked[level] > median else lower
    found = tree.candidates(query)
    assert found.rows.tolist() == node
    assert n // 2**depth <= len(node) <= -(-n // 2**depth)
    assert found.multiplications == depth * 6


def test_the_leaves_are_all_arms_once():
    vectors, _ = gaussian(100, 8, 5)
    tree = PcaMips.build(vectors, 4, np.random.default_rng(0))
    assert sorted(tree.order.tolist()) == list(range(100))
    assert set(np.bincount(tree.leaves).tolist()) == {6, 7}


def test_components_are_those_of_a_singular_value_decomposition():
    """Variances a factor of 4 apart: twelve steps leave an error of about 4^-12."""
    rng = np.random.default_rng(6)
    vectors = rng.standard_normal((400, 5)) * 2.0 ** -np.arange(5) + 3.0
    last = np.zeros(400)
    found = principal_components(vectors, last, 3, rng)
    _, _, expected = np.linalg.svd(vectors - vectors.mean(axis=0))
    np.testing.assert_allclose(np.abs(found[:, :5] @ expected[:3].T), np.eye(3), atol=1e-5)


def test_excluded_arms_are_not_found():
    vectors, query = gaussian(200, 4, 8)
    hashed = LshMips.build(vectors, bits=2, tables=4, rng=np.random.default_rng(0))
    first = hashed.search(query, 3)
    again = hashed.search(query, 3, exclude=first.rows)
    assert not set(first.rows) & set(again.rows)
    assert set(again.rows) <= set(hashed.candidates(query).rows)


def a_bucket_mate(hashed, row, query, table):
    """Whether an arm agrees with the query in all bits of one table, by the hyperplanes themselves."""
    norms = norms_of(hashed.vectors)
    arm = np.append(hashed.vectors[row], last_coordinate(norms)[row])
    return all((plane @ arm >= 0) == (plane[:-1] @ query >= 0) for plane in table)


def test_candidates_share_all_bits_of_a_table():
    """The hyperplanes are drawn again from the same seed, with their last coordinate."""
    vectors, query = gaussian(80, 5, 9)
    hashed = LshMips.build(vectors, bits=3, tables=4, rng=np.random.default_rng(2))
    planes = np.random.default_rng(2).standard_normal((4, 3, 6))
    np.testing.assert_array_equal(planes[..., :-1], hashed.hyperplanes)
    expected = [row for row in range(80) if any(a_bucket_mate(hashed, row, query, table) for table in planes)]
    assert 0 < len(expected) < 80
    found = hashed.candidates(query)
    assert found.rows.tolist() == expected
    assert found.multiplications == 4 * 3 * 5
    assert (hashed.bits, hashed.tables) == (3, 4)


BUILDS = {
    "greedy": GreedyMips.build,
    "lsh": lambda vectors: LshMips.build(vectors, bits=2, tables=2, rng=np.random.default_rng(0)),
    "pca": lambda vectors: PcaMips.build(vectors, 1, np.random.default_rng(0)),
}


@pytest.mark.parametrize("build", BUILDS.values(), ids=BUILDS)
def test_what_is_not_a_finite_matrix_is_refused(build):
    for bad in (np.array([1.0, 2.0]), np.array([[1.0, np.nan]])):
        with pytest.raises(InvalidArgument) as raised:
            build(bad)
        assert raised.value.argument == "vectors"


@pytest.mark.parametrize("build", BUILDS.values(), ids=BUILDS)
def test_what_is_no_query_is_refused(build):
    search = build(gaussian(9, 3, 1)[0])
    budget = {"budget": 2} if isinstance(search, GreedyMips) else {}
    for bad in (np.zeros(2), np.array([1.0, np.inf, 0.0])):
        with pytest.raises(InvalidArgument) as raised:
            search.candidates(bad, **budget)
        assert raised.value.argument == "query"


def test_all_bits_of_a_table_count():
    """With as many bits as there can be hardly any arm shares a bucket, but each is in its own."""
    vectors, _ = gaussian(300, 6, 4)
    hashed = LshMips.build(vectors, bits=MOST_BITS, tables=2, rng=np.random.default_rng(1))
    longest = int(norms_of(vectors).argmax())
    assert hashed.candidates(vectors[longest]).rows.tolist() == [longest]
