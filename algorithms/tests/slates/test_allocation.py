"""Designs: invertible by construction, near the optimum of G, and the same pull by pull."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shortlist.slates.allocation import UNIFORM, basis, design_of, slates
from shortlist.slates.matroids import UniformMatroid


def vectors(rows, n):
    x = np.zeros((len(rows), n))
    np.put_along_axis(x, rows, 1.0, axis=1)
    return x


@given(
    st.integers(2, 30).flatmap(lambda n: st.tuples(st.just(n), st.integers(1, n - 1))), st.integers(0, 2**64)
)
@settings(max_examples=60)
def test_the_first_n_slates_are_a_basis(size, seed):
    n, k = size
    assert np.linalg.matrix_rank(vectors(basis(n, k), n)) == n
    shown = slates(UNIFORM, UniformMatroid(n, k), seed, np.arange(4 * n))
    assert all(len(set(row)) == k and min(row) >= 0 and max(row) < n for row in shown.tolist())
    assert np.linalg.matrix_rank(vectors(shown[:n], n)) == n
    assert (np.sort(shown, axis=1) == shown).all()


@pytest.mark.parametrize("design", [UNIFORM, design_of("g", UniformMatroid(9, 4), 5)], ids=["uniform", "g"])
def test_a_pull_has_its_slate_whatever_else_is_asked(design):
    together = slates(design, UniformMatroid(9, 4), 5, np.arange(3_000))
    order = np.random.default_rng(1).permutation(3_000)
    assert (slates(design, UniformMatroid(9, 4), 5, order) == together[order]).all()
    for pull in (0, 8, 9, 10, 2_999):
        assert (slates(design, UniformMatroid(9, 4), 5, np.array([pull]))[0] == together[pull]).all()
    assert (slates(design, UniformMatroid(9, 4), 6, np.arange(3_000)) != together).any()
