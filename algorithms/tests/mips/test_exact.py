"""The exact scan returns what sorting all float64 scores returns, whatever the numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from shortlist.errors import InvalidParameter, InvalidShape, NonFinite
from shortlist.mips import exact as module
from shortlist.mips.exact import (
    best,
    candidates,
    error_bound,
    error_line,
    exact,
    kth_largest_or_less,
    nearest,
    row_scores,
    unit_scale,
)

GRID = st.integers(-2, 2).map(float)


def brute_force(vectors, query, k, exclude=()):
    scores = [float(np.add.reduce(row * query)) for row in vectors]
    order = sorted(
        (row for row in range(len(vectors)) if row not in set(exclude)), key=lambda r: (-scores[r], r)
    )
    return order[:k], [scores[row] for row in order[:k]]


def awkward(draw, dim):
    """Vectors with ties, duplicates, zeros, and magnitudes that float32 cannot hold side by side."""
    pool = [draw(arrays(np.float64, dim, elements=GRID)) for _ in range(draw(st.integers(1, 5)))]
    rows = draw(
        st.lists(st.tuples(st.integers(0, len(pool) - 1), st.integers(-80, 80)), min_size=0, max_size=60)
    )
    exponents = draw(st.sampled_from([0, 1, 60]))
    vectors = [pool[i] * 2.0 ** (exponents and e // (60 // exponents + 1)) for i, e in rows]
    noise = draw(st.sampled_from([0.0, 1e-16, 1e-9, 1.0]))
    made = np.array(vectors).reshape(len(rows), dim)
    return made * (1.0 + noise * np.random.default_rng(draw(st.integers(0, 99))).standard_normal(made.shape))


@st.composite
def problems(draw):
    dim = draw(st.integers(1, 9))
    vectors = awkward(draw, dim)
    query = draw(arrays(np.float64, dim, elements=GRID)) * 2.0 ** draw(
        st.sampled_from([-300, -70, 0, 5, 200])
    )
    exclude = draw(st.lists(st.integers(0, max(len(vectors) - 1, 0)), unique=True, max_size=len(vectors)))
    return vectors, query, draw(st.integers(1, 70)), np.array(exclude, dtype=np.int64)


@given(problems())
def test_equals_sorting_all_scores(problem):
    vectors, query, k, exclude = problem
    found = exact(vectors, query, k=k, exclude=exclude)
    rows, scores = brute_force(vectors, query, k, exclude)
    assert found.rows.tolist() == rows
    assert found.scores.tolist() == scores
    assert found.exact


@given(st.integers(1, 400), st.integers(0, 2**32 - 1))
def test_a_row_scores_the_same_bits_wherever_it_stands(dim, seed):
    rng = np.random.default_rng(seed)
    vectors = rng.standard_normal((5, dim)) * np.exp(rng.normal(0.0, 4.0, (5, dim)))
    vectors[3] = vectors[1]
    query = rng.standard_normal(dim)
    together = row_scores(vectors, np.arange(5), query)
    assert together[1] == together[3]
    for row in range(5):
        assert row_scores(vectors, np.array((row,)), query)[0] == together[row]
        assert np.add.reduce(vectors[row] * query, keepdims=True)[0] == together[row]


@given(st.integers(1, 2_000), st.integers(0, 2**32 - 1), st.floats(-40, 25), st.floats(-30, 19))
def test_the_error_bound_holds_in_float32(dim, seed, size, query_size):
    rng = np.random.default_rng(seed)
    vectors = rng.standard_normal((8, dim)) * 10.0**size
    query, query_norm = unit_scale(rng.standard_normal(dim) * 2.0**query_size)
    approximate = vectors.astype(np.float32) @ query.astype(np.float32)
    truth = vectors.astype(np.longdouble) @ query.astype(np.longdouble)
    largest = float(np.linalg.norm(vectors, axis=1).max())
    bound = error_bound(dim, largest, query_norm, np.dtype(np.float32))
    assert (np.abs(approximate - truth) <= bound).all()


@pytest.mark.rest
@given(arrays(np.float32, st.integers(0, 300), elements=st.integers(-5, 5).map(float)), st.integers(1, 40))
def test_kth_largest_is_a_lower_bound_and_candidates_hold_the_best(scores, k):
    ordered = np.sort(scores)[::-1]
    kth = ordered[k - 1] if k <= len(scores) else -np.inf
    assert kth_largest_or_less(scores, k) <= kth
    rows = candidates(scores, 0.25, k)
    assert set(np.flatnonzero(scores >= kth - 0.5)) <= set(rows.tolist()) | set(
        np.flatnonzero(scores == -np.inf)
    )


@pytest.mark.rest
@pytest.mark.parametrize("k", [1, 5, 40])
def test_reads_few_rows_twice(k, monkeypatch):
    """On ordinary data the float64 pass is short: otherwise the scan would be slow, though right."""
    rng = np.random.default_rng(3)
    vectors, query = rng.standard_normal((20_000, 16)), rng.standard_normal(16)
    scored = []
    original = module.row_scores
    monkeypatch.setattr(
        module, "row_scores", lambda v, rows, q: scored.append(len(rows)) or original(v, rows, q)
    )
    approximate = vectors.astype(np.float32) @ query.astype(np.float32)
    error = error_bound(
        16, float(np.linalg.norm(vectors, axis=1).max()), np.linalg.norm(query), approximate.dtype
    )
    best(approximate, error, k, vectors, query)
    assert sum(scored) <= 4 * k


@pytest.mark.rest
def test_bad_arguments_raise_the_named_error():
    vectors, query = np.ones((3, 2)), np.ones(2)
    with pytest.raises(InvalidShape):
        exact(vectors, np.ones(3), k=1)
    with pytest.raises(InvalidShape):
        exact(np.ones(3), query, k=1)
    with pytest.raises(InvalidParameter):
        exact(vectors, query, k=0)
    with pytest.raises(NonFinite):
        exact(vectors, np.array([1.0, np.nan]), k=1)
    with pytest.raises(NonFinite):
        exact(np.full((3, 2), np.inf), query, k=1)


@pytest.mark.rest
@pytest.mark.parametrize("exponent", [-1_000, -300, -21, -20, -3, 0, 7, 20, 21, 300, 1_000])
def test_a_query_is_scaled_by_a_power_of_two_if_its_norm_is_far_from_1(exponent):
    for shape in ([1.0], [-1.0, 0.0], [0.5, -0.5, 0.5, 0.5]):  # norms of 1
        query = np.ldexp(shape, exponent)
        scaled, norm = unit_scale(query)
        assert norm == np.linalg.norm(scaled)
        if abs(exponent) <= 20:
            assert scaled is query
        else:
            assert 0.5 <= norm <= np.sqrt(len(query))
            factor = math.frexp(scaled[0] / shape[0])
            assert abs(factor[0]) == 0.5
            assert (scaled == np.ldexp(shape, factor[1] - 1)).all()


@pytest.mark.rest
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("dim", "largest"), [(1, 1.0), (17, 3.5), (2_000, 1e9)])
def test_the_error_is_that_of_the_products_and_sums_of_a_dimension(dtype, dim, largest):
    """gamma_(d + 4) |x||q|, gamma_n = n u / (1 - n u), and twice the least normal number for each product."""
    unit, tiny = np.finfo(dtype).eps / 2, 2 * dim * np.finfo(dtype).tiny
    gamma = (dim + 4) * unit / (1 - (dim + 4) * unit)
    slope, offset = error_line(dim, largest, np.dtype(dtype))
    assert slope == pytest.approx(gamma * largest + tiny, rel=1e-12, abs=0.0)
    assert offset == pytest.approx(tiny * (1 + largest), rel=1e-12, abs=0.0)
    for norm in (0.0, 0.3, 40.0):
        assert error_bound(dim, largest, norm, np.dtype(dtype)) == slope * norm + offset


@pytest.mark.rest
@pytest.mark.parametrize("k", [1, 2, 3, 9])
def test_candidates_are_all_within_twice_the_error_of_the_k_th_best(k):
    """Eighths, so that some are just at the bound; and at most one number further where they are many."""
    for size in (9, 40, 400):
        scores = (np.arange(size) * 37 % size / 8).astype(np.float32)
        for error in (0.0, 0.0625, 0.125, 0.5):
            kth = np.sort(scores)[-k]
            expected = np.flatnonzero(scores >= kth - 2 * error).tolist()
            found = candidates(scores.copy(), error, k).tolist()
            assert set(expected) <= set(found)
            assert found == sorted(found)
            if len(found) > 4 * k or k == 1:
                assert found == expected
            for least in (-np.inf, 0.0, float(kth), float(scores.max()), 1e6):
                enough = np.flatnonzero(scores >= least - error).tolist()
                found = candidates(scores.copy(), error, k, least).tolist()
                assert set(expected) & set(enough) <= set(found)
                assert len(found) <= max(4 * k, len(expected))
    alone = np.array([0.0, 3.0, 2.0], dtype=np.float32)
    assert candidates(alone, 0.5, 1).tolist() == [1, 2], "2 is just within reach"
    assert candidates(alone, 0.49, 1).tolist() == [1]
    assert alone.tolist() == [0.0, 3.0, 2.0]


@pytest.mark.rest
def test_a_bound_on_the_k_th_largest_is_near_it():
    """It is exact of few entries and for k = 1; else it is that of 16 k maxima, without the first entries."""
    scores = np.arange(2_000) * 7 % 2_000
    for k in (1, 3, 20):
        for size in (k, 31 * k, 32 * k - 1):
            some = scores[:size].astype(float)
            assert kth_largest_or_less(some, k) == np.sort(some)[-k]
        assert kth_largest_or_less(scores[: k - 1].astype(float), k) == -np.inf
        if 32 * k <= 2_000:
            length = 2_000 // (16 * k)
            maxima = scores[2_000 - 16 * k * length :].reshape(length, 16 * k).max(axis=0)
            assert kth_largest_or_less(scores.astype(float), k) == (
                2_000 - 1 if k == 1 else np.sort(maxima)[-k]
            )


@pytest.mark.rest
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_nearest_rows_are_found_whatever_is_rounded(dtype, monkeypatch):
    """Against all distances, with ties and excluded rows; and by the error that the docstring names."""
    vectors = np.round(np.sin(np.arange(120).reshape(40, 3)) * 4) / 4 + 100.0
    vectors[9] += 1e-7
    squares, errors = (vectors**2).sum(axis=1), []
    original = candidates

    def noted(closeness, error, k):
        errors.append(error)
        return original(closeness, error, k)

    monkeypatch.setattr(module, "candidates", noted)
    for query in (np.full(3, 100.0), vectors[9], 2.0**30 * np.ones(3), np.zeros(3)):
        distances = ((vectors - query) ** 2).sum(axis=1)
        for exclude in (np.empty(0, dtype=np.int64), np.array([3, 9, 30])):
            left = [row for row in range(40) if row not in exclude]
            for k in (1, 4, 60):
                found = nearest(vectors.astype(dtype), vectors, squares, query, k=k, exclude=exclude)
                expected = sorted(left, key=lambda row: (distances[row], row))[:k]
                assert found.rows.tolist() == expected
                assert found.scores.tolist() == distances[expected].tolist()
                assert found.exact
        scaled, norm = unit_scale(query)
        factor, longest = (query[0] / scaled[0] if norm else 0.0), math.sqrt(squares.max())
        of_products = 2 * factor * error_bound(3, longest, norm, np.dtype(dtype))
        of_sums = 11 * 2.0**-51 * (squares.max() + factor * longest * norm)
        assert errors[-1] == pytest.approx(of_products + of_sums, rel=1e-12, abs=0.0)
    nothing = nearest(np.empty((0, 3), dtype=dtype), np.empty((0, 3)), np.empty(0), np.ones(3), k=1)
    assert not len(nothing.rows)
