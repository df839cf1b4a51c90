"""Principal components about zero, against a singular value decomposition and brute force."""

from __future__ import annotations

import numpy as np
import pytest

from shortlist.errors import InvalidParameter
from shortlist.linear.principal_components import NEAREST, principal_components


def vectors(count=120, dim=9, rank=9, seed=0):
    rng = np.random.default_rng(seed)
    return (rng.normal(size=(count, rank)) * 0.7 ** np.arange(rank)) @ rng.normal(size=(rank, dim)) + 0.3


@pytest.mark.parametrize("count", [1, 4, 9])
def test_they_are_the_right_singular_vectors(count):
    given = vectors()
    found = principal_components(given, count, np.random.default_rng(1))
    values, rows = np.linalg.svd(given, full_matrices=False)[1:]
    assert found.basis.shape == (count, 9)
    assert np.allclose(found.basis @ found.basis.T, np.eye(count))
    assert np.allclose(found.basis.T @ found.basis, rows[:count].T @ rows[:count])
    assert found.share == pytest.approx(np.square(values[:count]).sum() / np.square(values).sum())


@pytest.mark.rest
def test_no_mean_is_taken_away():
    """All vectors are (5, x, 0) with a wide x of mean zero: about the mean nothing would be left of the 5."""
    given = np.column_stack((np.full(50, 5.0), np.linspace(-4.0, 4.0, 50), np.zeros(50)))
    found = principal_components(given, 1, np.random.default_rng(0)).basis[0]
    assert found == pytest.approx([1.0, 0.0, 0.0])


@pytest.mark.rest
def test_products_are_kept_by_all_components():
    given = vectors()
    found = principal_components(given, 9, np.random.default_rng(0))
    assert np.allclose((given @ found.basis.T) @ (found.basis @ given[3]), given @ given[3])
    assert (found.share, found.overlap) == (pytest.approx(1.0), 1.0)


@pytest.mark.rest
@pytest.mark.parametrize("count", [2, 5, 150])
def test_the_overlap_is_that_of_all_pairs_where_every_vector_is_a_probe(count):
    given = vectors(count)
    found = principal_components(given, 2, np.random.default_rng(3))
    common = []
    for row in range(count):
        lists = []
        for points in (given, given @ found.basis.T):
            distances = np.square(points - points[row]).sum(axis=1)
            distances[row] = np.inf
            lists.append(set(np.argsort(distances)[: min(NEAREST, count - 1)].tolist()))
        common.append(len(lists[0] & lists[1]) / min(NEAREST, count - 1))
    assert found.overlap == pytest.approx(np.mean(common))


@pytest.mark.rest
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_more_than_the_rank_is_refused_whatever_the_unit(dtype, scale):
    rng = np.random.default_rng(0)
    flat = (scale * rng.normal(size=(100, 4)) @ rng.normal(size=(4, 9))).astype(dtype)
    principal_components(flat, 4, rng)
    with pytest.raises(InvalidParameter, match="rank"):
        principal_components(np.vstack([flat[:3], flat[:3]]), 4, rng)
