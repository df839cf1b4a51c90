"""The randomised decomposition, against numpy's and the paper's bound."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from shortlist.embedding.randomised_svd import OVERSAMPLING, PASSES, right_singular_vectors
from shortlist.errors import InvalidParameter, NonFinite


def matrix_of(values, rows=120, columns=90, seed=0):
    """A matrix with these singular values."""
    rng = np.random.default_rng(seed)
    left, right = (np.linalg.qr(rng.standard_normal((size, len(values))))[0] for size in (rows, columns))
    return sparse.csr_array((left * values @ right.T).astype(np.float32))


@pytest.mark.parametrize(("rows", "columns"), [(120, 90), (30, 70)])
def test_they_are_the_singular_vectors(rows, columns):
    given = matrix_of(0.8 ** np.arange(30), rows, columns)
    found = right_singular_vectors(given, 6, np.random.default_rng(3))
    _, values, vectors = np.linalg.svd(given.toarray())
    assert found.values == pytest.approx(values[:6], rel=1e-3)
    assert np.abs(found.vectors.T @ vectors[:6].T) == pytest.approx(np.eye(6), abs=0.02)


@pytest.mark.rest
def test_signs_do_not_depend_on_the_draw():
    given = matrix_of(0.5 ** np.arange(20))
    one, other = (right_singular_vectors(given, 4, np.random.default_rng(seed)).vectors for seed in (1, 2))
    assert one == pytest.approx(other, abs=1e-3)


def error(given, count, passes, seed):
    vectors = right_singular_vectors(given, count, np.random.default_rng(seed), passes=passes).vectors
    dense = given.toarray()
    return np.linalg.norm(dense - dense @ vectors @ vectors.T, 2)


def bound(values, count, passes, least):
    """Corollary 10.10 of the paper, of d + p columns, and what dropping p of them adds (section 9.4)."""
    p = OVERSAMPLING
    factor = 1 + np.sqrt(count / (p - 1)) + np.e * np.sqrt(count + p) / p * np.sqrt(least - count)
    return values[count] * (1 + factor ** (1 / (2 * passes + 1)))


@pytest.mark.rest
def test_the_error_is_within_the_papers_bound_and_without_passes_it_is_not():
    """Few large singular values over a flat tail, as of behaviour: what is drawn alone is of the tail."""
    values = np.concatenate((np.full(5, 3.3), np.full(995, 1.0)))
    given, most = matrix_of(values, 1_000, 1_000), bound(values, 5, PASSES, 1_000)
    assert np.mean([error(given, 5, PASSES, seed) for seed in range(3)]) <= most
    assert np.mean([error(given, 5, 0, seed) for seed in range(3)]) > most


@pytest.mark.rest
def test_more_than_the_rank_is_refused():
    given = matrix_of(np.ones(3))
    assert len(right_singular_vectors(given, 3, np.random.default_rng(0)).values) == 3
    for count in (4, 91):
        with pytest.raises(InvalidParameter, match="the rank of the matrix") as raised:
            right_singular_vectors(given, count, np.random.default_rng(0))
        assert raised.value.argument == "count"


@pytest.mark.rest
def test_what_is_not_finite_is_refused():
    given = matrix_of(np.ones(3))
    given.data[5] = np.nan
    with pytest.raises(NonFinite, match="matrix"):
        right_singular_vectors(given, 2, np.random.default_rng(0))
