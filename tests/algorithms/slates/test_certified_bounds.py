"""Every bound against brute force over all slates, and every ratio against what is reached."""

import math

import numpy as np
import pytest
from slate_instances import designs, fits, indicators

from app.algorithms.slates import exhaustive, icb, sa_foa, saqm
from app.algorithms.slates.certified_bounds import row_bound, shifted_bound, top_of_perp, upper_bound
from app.algorithms.slates.densest_k_subgraph import densest_k_subgraph, peel, peeling_ratio, theorem_1_ratio
from app.algorithms.slates.gap_bounds import gap_bounds, weights
from app.algorithms.slates.widths import Look, arm_width, exchange_widths, slate_width

SIZES = [(2, 1), (5, 1), (5, 4), (6, 2), (7, 3), (8, 6), (10, 5), (11, 3)]
SEEDS = range(6)
CASES = [(n, k, seed) for n, k in SIZES for seed in SEEDS]
LOOK = Look(1.0, 0.05, "certified", 200, 7)


@pytest.mark.parametrize(("n", "k", "seed"), CASES)
def test_no_slate_exceeds_an_upper_bound(n, k, seed):
    x = indicators(n, k)
    for W in designs(n, k, seed):
        most = ((x @ W) * x).sum(axis=1).max()
        bounds = [upper_bound(W, k), row_bound(W, k), shifted_bound(W, k, 1), shifted_bound(W, k, 25)]
        assert min(bounds) >= most * (1.0 - 1e-12)
        assert upper_bound(W, k) <= min(bounds) * 1.01, "the least of them"


def test_the_upper_bound_is_near_for_the_designs_that_are_used():
    ratios = []
    for seed in range(20):
        *_, W, _ = designs(11, 4, seed)
        x = indicators(11, 4)
        ratios.append(upper_bound(W, 4) / ((x @ W) * x).sum(axis=1).max())
    assert max(ratios) < 1.35
    assert np.mean(ratios) < 1.12


def test_uniform_over_all_slates_is_exact():
    x = indicators(9, 4)
    W = np.linalg.inv(x.T @ x / len(x))
    assert upper_bound(W, 4) == pytest.approx(9.0, rel=1e-6)


@pytest.mark.parametrize(("n", "k", "seed"), CASES)
def test_no_gap_exceeds_its_bound(n, k, seed):
    x = indicators(n, k)
    widths = exchange_widths(LOOK, n, k)
    for fit in fits(n, k, seed):
        gaps, bounds = gap_bounds(fit, widths)
        v = x - fit.inside
        sizes = (v > 0).sum(axis=1)
        norms = np.sqrt(np.maximum(((v @ fit.W) * v).sum(axis=1), 0.0))
        for size in range(1, min(k, n - k) + 1):
            of_size = sizes == size
            values = v[of_size] @ fit.theta + widths[size - 1] * norms[of_size]
            assert bounds[size - 1] >= values.max() - 1e-9 * abs(values.max())
            assert gaps[size - 1] == pytest.approx((v[of_size] @ fit.theta).max())


@pytest.mark.parametrize(("n", "k", "seed"), CASES)
def test_the_weights_of_a_gap_bound_its_norm(n, k, seed):
    x = indicators(n, k)
    for fit in fits(n, k, seed):
        v = x - fit.inside
        sizes = (v > 0).sum(axis=1)
        squares = ((v @ fit.W) * v).sum(axis=1)
        for size, candidates in enumerate(weights(fit, min(k, n - k)), start=1):
            for q in candidates:
                rows = sizes == size
                assert (np.abs(v[rows]) @ q >= squares[rows] * (1.0 - 1e-9) - 1e-12).all()


@pytest.mark.parametrize(("n", "k", "seed"), CASES)
def test_each_test_bounds_the_exact_one(n, k, seed):
    """ICB's maximum is exact for its own widths; SA-FOA's is above Exhaustive's; the heuristic is below."""
    x = indicators(n, k)
    for fit in fits(n, k, seed):
        v = x - fit.inside
        exact = exhaustive.excess(fit, LOOK)
        assert sa_foa.excess(fit, LOOK).value >= exact.value - 1e-9
        found = sa_foa.heuristic(fit, LOOK, np.nonzero(x)[1].reshape(-1, k))
        assert found.value <= max(exact.value, 0.0) + 1e-9
        reach = arm_width(LOOK, n) * np.sqrt(np.diag(fit.W))
        assert icb.excess(fit, LOOK).value == pytest.approx(
            (v @ fit.theta + np.abs(v) @ reach).max(), abs=1e-9
        )
        C = slate_width(LOOK, n, k)
        upper = x @ fit.theta + C * np.sqrt(((x @ fit.W) * x).sum(axis=1))
        others = upper[(v != 0).any(axis=1)].max()
        assert saqm.excess(fit, LOOK).value >= others - fit.value + C * fit.norm - 1e-9
        paper = Look(1.0, 0.05, "paper", 200, 7)
        assert saqm.excess(fit, paper).value >= others - fit.value + C * fit.norm - 1e-9


def test_the_printed_test_of_sa_foa_would_stop_before_the_exact_one():
    """The reason for the certified bound: its value lies below the maximum, by much for few slates."""
    shares = []
    for seed in range(30):
        for fit in fits(9, 3, seed):
            look = Look(1.0, 0.05, "paper", 18, 1)
            support = np.array([[0, 1, 2], [3, 4, 5], [6, 7, 8]])
            shares.append(sa_foa.heuristic(fit, look, support).value / exhaustive.excess(fit, look).value)
    assert max(shares) <= 1.0 + 1e-9
    assert np.mean(np.array(shares) < 1.0 - 1e-6) > 0.2


def test_top_of_perp_is_the_largest_eigenvalue_there():
    for seed in range(20):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(2, 9))
        B = rng.standard_normal((n, n))
        B = (B + B.T) * (1.0 if seed % 2 else -1.0) - (50.0 * np.eye(n) if seed % 3 else 0.0)
        basis = np.linalg.svd(np.ones((1, n)))[2][1:]
        expected = np.linalg.eigvalsh(basis @ B @ basis.T)[-1]
        value, vector = top_of_perp(B)
        assert expected <= value <= expected + 1e-6 * (1.0 + abs(expected))
        assert abs(vector.sum()) < 1e-6


@pytest.mark.parametrize(("n", "k", "seed"), CASES)
def test_peeling_and_theorem_1_keep_their_ratios(n, k, seed):
    x = indicators(n, k)
    for W in designs(n, k, seed):
        pairs = W + np.diag(W) + np.diag(W)[:, np.newaxis]
        np.fill_diagonal(pairs, 0.0)
        assert pairs.min() >= -1e-12
        found = densest_k_subgraph(W, k)
        assert len(set(found.tolist())) == k
        densest = ((x @ pairs) * x).sum(axis=1).max()
        assert pairs[np.ix_(found, found)].sum() >= peeling_ratio(n, k) * densest - 1e-9
        most = ((x @ W) * x).sum(axis=1).max()
        assert W[np.ix_(found, found)].sum() >= theorem_1_ratio(W, k) * most - 1e-9
        spectrum = np.linalg.eigvalsh(W)
        assert theorem_1_ratio(W, k) <= spectrum[0] / spectrum[-1] + 1e-12 or k == 1, "any set is as good"


def test_peeling_takes_the_vertex_of_least_degree_step_by_step():
    for seed in range(20):
        rng = np.random.default_rng(seed)
        n, k = 9, 4
        W = rng.standard_normal((n, n))
        W = W + W.T
        scale, diagonal = rng.uniform(0.1, 2.0, 3), rng.standard_normal((3, n))
        for graph, kept in enumerate(peel(W, scale, diagonal, k)):
            pairs = scale[graph] * W + diagonal[graph] + diagonal[graph][:, np.newaxis]
            np.fill_diagonal(pairs, 0.0)
            alive = list(range(n))
            while len(alive) > k:
                alive.pop(int(pairs[np.ix_(alive, alive)].sum(axis=1).argmin()))
            assert kept.tolist() == alive
        shifted = peel(W, scale, diagonal + 100.0, k)
        assert (shifted == peel(W, scale, diagonal, k)).all(), "a shift changes nothing"


def test_widths_are_what_the_proof_asks_for():
    n, k, j = 10, 3, 7
    for size, width in enumerate(exchange_widths(LOOK, n, k), start=1):
        events = 3 * math.comb(k, size) * math.comb(n - k, size)
        assert events * math.exp(-(width**2) / 2) == pytest.approx(6 * 0.05 / (math.pi**2 * j**2))
    paper = Look(2.0, 0.05, "paper", 200, 7)
    expected = 4 * math.sqrt(2) * math.sqrt(math.log(6 / math.pi**2 * 200**2 * math.comb(n, k) / 0.05))
    assert exchange_widths(paper, n, k).tolist() == pytest.approx([expected] * 3)
    spent = sum(2 * 120 * math.exp(-(exchange_widths(Look(1, 0.9, "paper", t, 1), n, k)[0] ** 2) / 2)
                for t in range(1, 2_000))  # fmt: skip
    assert spent < 0.9, "the printed constant is valid"
