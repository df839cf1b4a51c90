"""Every constant of the promises of BoundedME and racing, against the papers' statements in another form.

Nothing here is drawn, or it does not matter what is: a dropped union, a factor of two or a bound on the wrong
side changes a number, and the test fails always.
"""

from __future__ import annotations

import itertools
import math
from types import SimpleNamespace

import numpy as np
import pytest

from finite_arms import LAYOUTS, spread_out
from shortlist import finite_population as bounds
from shortlist.mips import bounded_me as bounded
from shortlist.mips import columns
from shortlist.mips import racing as raced
from shortlist.mips.adaptive import AdaptiveSolver, Ladder, rung_of
from shortlist.mips.racing import racing
from shortlist.mips.read_costs import READS_ALONE
from shortlist.types import TopK

pytestmark = pytest.mark.rest

LEVELS = (0.4, 3.0, 17.0)
SAMPLES = [(t, size) for size in (1, 2, 9, 1_000) for t in (1, 2, 4, 5, 8, 400, 500, 501, 999) if t <= size]


# Sampling without replacement


def test_rho_is_what_bardenet_and_maillard_print_in_two_cases():
    for t, size in SAMPLES:
        expected = 1 - (t - 1) / size if t <= size / 2 else (1 - t / size) * (1 + 1 / t)
        assert bounds.rho(t, size) == pytest.approx(expected, abs=1e-15)


def serfling(rest, size):
    """The sum of docs/papers/bounded-me.md, each term bounded as there: N r^2 sum of 1 / ((m-1) m (m+1))."""
    terms = (1 / ((m - 1) * m * (m + 1)) for m in range(rest, size))
    return math.inf if rest < 2 else size * rest**2 * sum(terms)


def test_the_variance_factor_is_the_least_of_the_four():
    for t, size in [(t, size) for t, size in SAMPLES if t < size]:
        expected = min(t, size - t, serfling(size - t, size), serfling(t, size))
        assert bounds.variance_factor(t, size) == pytest.approx(expected)
        for rest in (size - t, t):
            exact = size * rest**2 * sum(1 / (m**2 * (m + 1)) for m in range(rest, size))
            assert serfling(rest, size) >= exact


def test_radii_are_those_of_the_theorems():
    for t, size in [(t, size) for t, size in SAMPLES if t < size]:
        ones = np.ones(1)
        for level, spread in itertools.product(LEVELS, (0.5, 1.0, 6.0)):
            rho = bounds.rho(t, size)
            found = bounds.hoeffding_serfling(t, size, spread=spread, level=level)
            assert math.exp(-2 * t * (found / spread) ** 2 / rho) == pytest.approx(math.exp(-level))
            (found,) = bounds.bernstein_serfling(t, size, root=0.3 * ones, largest=spread, level=level)
            chernoff = 0.3 * math.sqrt(2 * bounds.variance_factor(t, size) * level) + spread * level / 3
            assert found == pytest.approx(chernoff / t)
            (found,) = bounds.root_mean_square(t, 0.2 * ones, largest=spread, level=level)
            if found < spread:  # q - q^ = r with exp(-t r^2 / (2 w^2 q)) = exp(-level)
                assert t * (found**2 - 0.2) ** 2 / (2 * (spread * found) ** 2) == pytest.approx(level)
            (found,) = bounds.empirical_bernstein_serfling(
                t, size, deviation=0.3 * ones, spread=spread, level=level
            )
            share = math.log(5 * math.exp(level))
            kappa = (14 + 9 * math.sqrt(2)) / 6
            assert found == pytest.approx(0.3 * math.sqrt(2 * rho * share / t) + kappa * spread * share / t)


# BoundedME: Algorithm 1 and its Equation 6


def printed_size(u, size):
    return min((u + 1) / (1 + u / size), (u + u / size) / (1 + u / size))


def rewards_of(n, dim, *, spread=1.0, noise=0.0):
    """Of BoundedME's plan: nothing is read."""
    return SimpleNamespace(
        size=n,
        dim=dim,
        bounds=SimpleNamespace(spread=spread),
        noise=noise,
        costs=READS_ALONE,
        rounded=lambda t: t,
    )


GRID = list(itertools.product((40, 1_000), (1, 7), (0.3, 0.02), (0.3, 1e-4), (1.0, 2.5), (0.0, 1e-3)))


def test_the_printed_rounds_are_those_of_algorithm_1():
    """Rounding takes 2 e from each round's share of epsilon: e for the arm that goes, e for the one kept."""
    for n, k, epsilon, delta, spread, noise in GRID:
        dim, sizes = 10**6, [n]
        while sizes[-1] > k:
            sizes.append(k + (sizes[-1] - k) // 2)
        rounds = len(sizes) - 1
        own = [(epsilon - 2 * noise * rounds) / 4 * 0.75**i for i in range(rounds)]
        assert sum(own) + 2 * noise * rounds <= epsilon
        expected = []
        for i, (left, kept) in enumerate(itertools.pairwise(sizes)):
            bad = (left - k) / ((left - k) // 2 + 1)
            t = dim  # where nothing of epsilon is left
            if own[i] > 0:
                u = 2 * spread**2 / own[i] ** 2 * math.log((k + bad) / (delta / 2 ** (i + 1)))
                t = math.ceil(printed_size(u, dim))
            expected.append((t, kept))
            if expected[-1][0] >= dim:
                break
        found = bounded.rounds(
            rewards_of(n, dim, spread=spread, noise=noise), k=k, epsilon=epsilon, delta=delta, plan="printed"
        )
        assert [tuple(step) for step in found] == expected


def test_one_sample_has_all_of_epsilon_and_delta_and_no_more():
    for n, k, epsilon, delta, spread, noise in GRID:
        dim = 10**7
        sample, _ = bounded.rounds(
            rewards_of(n, dim, spread=spread, noise=noise), k=k, epsilon=epsilon, delta=delta
        )
        bad = (n - k) / (sample.kept - k + 1)
        u = 2 * (spread / (epsilon - 2 * noise)) ** 2 * math.log((k + bad) / delta)
        assert sample.t == math.ceil(printed_size(u, dim))


# Racing


def by_the_definition(means, radius, k, epsilon):
    """The two rules of docs/papers/bounded-me.md, arm by arm."""
    best = sorted(sorted(range(len(means)), key=lambda arm: (-means[arm], arm))[:k])
    others = [arm for arm in range(len(means)) if arm not in best]
    least = min(means[arm] - radius[arm] for arm in best)
    if all(means[arm] + radius[arm] - least <= epsilon for arm in others):
        return best, True
    lower = sorted((means[arm] - radius[arm] for arm in range(len(means))), reverse=True)
    stay = [arm for arm in range(len(means)) if arm in best or means[arm] + radius[arm] >= lower[k - 1]]
    return stay, False


def test_racing_stops_and_drops_by_the_bounds_of_both_sides():
    """All numbers are multiples of 1/8, so bounds often meet, and epsilon is often met exactly."""
    counts = {True: 0, False: 0}
    for seed in range(300):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(3, 9))
        k = int(rng.integers(1, n - 1))
        means = rng.integers(0, 24, n) / 8
        radius = rng.integers(0, 6, n) / 8
        for epsilon in (0.125, 0.5, 1.0, 2.0):
            found, done = raced.decided(means, radius, k, epsilon)
            assert (found.tolist(), done) == by_the_definition(means.tolist(), radius.tolist(), k, epsilon)
            counts[done] += 1
    assert min(counts.values()) > 100


@pytest.mark.parametrize("width", ["second_moment", "empirical_bernstein"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_race_shares_delta_among_arms_looks_and_sides_and_decides_by_its_epsilon(
    layout, width, monkeypatch
):
    n, delta, epsilon, levels, radii, decisions = 60, 0.03, 1e-3, [], [], []

    def keeping(name, kept):
        original = getattr(raced, name)

        def seen(*args, **named):
            kept.append((args, named, original(*args, **named)))
            return kept[-1][2]

        monkeypatch.setattr(raced, name, seen)

    for name in ("bernstein_serfling", "empirical_bernstein_serfling", "root_mean_square"):
        keeping(name, levels)
    original = raced.radii

    def radii_seen(*args):
        found, roots = original(*args)
        radii.append(found.copy())
        return found, roots

    monkeypatch.setattr(raced, "radii", radii_seen)
    keeping("decided", decisions)
    vectors, query = spread_out(n, 4_096, 3)
    rewards = LAYOUTS[layout](vectors, query)
    racing(rewards, k=2, epsilon=epsilon, delta=delta, width=width)
    looks = len(raced.schedule(rewards))
    assert looks >= 6
    assert len(decisions) >= 2
    for _, named, _ in levels:
        assert 2 * n * looks * math.exp(-named["level"]) == pytest.approx(delta)
    for (args, _, _), radius in zip(decisions, radii, strict=True):
        assert args[2:] == (2, epsilon)
        np.testing.assert_allclose(args[1] - radius, rewards.noise, rtol=1e-2)


def test_what_is_read_is_rounded():
    """The means, mean squares and deviations of a sample are off by a rounding error, to the safe side."""
    noise, t = 0.25, 16
    squares, sums = np.array([16.0, 64.0]), np.array([8.0, 2.0])
    rewards = SimpleNamespace(
        noise=noise, dim=100, bounds=SimpleNamespace(largest=3.0), costs=READS_ALONE, size=2
    )
    partial = SimpleNamespace(rewards=rewards, t=t, squared=t, squares=squares, sums=sums)
    expected = [math.sqrt((1 + noise) ** 2 - (0.5 - noise) ** 2), math.sqrt((2 + noise) ** 2)]
    assert raced.deviations(partial) == pytest.approx(expected)
    radius, roots = raced.radii(partial, np.full(2, np.inf), 5.0, "second_moment")
    bound = bounds.root_mean_square(t, squares / t, largest=3.0, level=5.0) + noise
    assert roots == pytest.approx(bound)
    assert radius == pytest.approx(bounds.bernstein_serfling(t, 100, root=bound, largest=3.0, level=5.0))
    given, _ = raced.radii(partial, roots, 5.0, "empirical_bernstein")
    assert given == pytest.approx(
        bounds.empirical_bernstein_serfling(t, 100, deviation=np.array(expected), spread=6.0, level=5.0)
    )


# The ladder: Algorithms 1 and 4 of Yang et al.


class Answers:
    """A solver whose best arm has the same product with every query. It remembers the queries."""

    def __init__(self, score):
        self.score, self.asked = score, []

    def search(self, query, k, exclude):
        self.asked.append(query)
        return TopK(np.array([7]), np.array([self.score]), exact=True)


@pytest.mark.parametrize(("c", "r"), [(1.0, 0.5), (0.5, 0.5), (0.75, 0.25)])
def test_an_adaptive_solver_is_null_below_c_r(c, r):
    for score, row in ((c * r, 7), (c * r * (1 - 1e-12), None), (0.9 * r, 7 if c <= 0.9 else None)):
        assert AdaptiveSolver([Answers(score)], c, r, 1e-3).query(np.array([0.6, 0.8])) == row


@pytest.mark.parametrize(("dim", "eta"), [(1, 1.0), (4, 0.5), (10, 0.3)])
def test_the_ladder_has_the_rungs_of_algorithm_4(dim, eta):
    """Rung i = 1 ... ceil(d / eta) has c = 1 - 1/(i + 1) and r = i eta / d."""
    rungs = math.ceil(dim / eta)
    least = {i: (1 - 1 / (i + 1)) * i * eta / dim for i in range(1, rungs + 1)}
    values = np.linspace(0.0, 2.0, 4_001)
    expected = [max((i for i, low in least.items() if low <= value), default=0) for value in values]
    assert rung_of(values, dim=dim, eta=eta).tolist() == expected
    assert expected[-1] == rungs


def test_the_net_of_a_ladder_is_that_of_epsilon_eta_over_d():
    """Algorithm 1, line 1: coordinates are multiples of epsilon / d, and epsilon is eta / d."""
    solver, eta, dim = Answers(0.9), 0.4, 5
    ladder = Ladder([solver], lambda rows: np.ones((len(rows), dim)), 1.0, eta)
    query = np.array([0.3, -0.1, 0.77, 0.2, 0.01])
    ladder.search(query, 1)
    step = eta / dim / dim
    expected = np.round(query / np.linalg.norm(query) / step) * step
    np.testing.assert_allclose(solver.asked[0], expected, atol=1e-12)


# Rounding


UNIT = float(np.finfo(np.float32).eps) / 2.0
UNDERFLOW = 2.0**-118


@pytest.mark.parametrize("objective", ["inner_product", "nearest"])
@pytest.mark.parametrize("scale", [1.0, 1e-3, 1e-33])
@pytest.mark.parametrize("offset", [0.0, 4.0])
def test_rounding_errors_are_bounded_by_products_of_norms(objective, scale, offset):
    """2,048 products and sums, and 16 more roundings: of sums over N and of N numbers that underflow."""
    rng = np.random.default_rng(6)
    vectors, query = scale * (rng.standard_normal((9, 300)) + offset), rng.standard_normal(300)
    found = LAYOUTS["blocked"](vectors, query, objective)
    center = columns.of(vectors).center
    slope = query if objective == "inner_product" else 2.0 * (query - center)
    reach = np.abs(vectors - center).max(axis=0)
    lost = UNDERFLOW * 2.0 ** math.frexp(np.abs(slope).max())[1]
    peak = np.abs(slope * reach).max() + lost + (reach.max() ** 2 if objective == "nearest" else 0.0)
    norm, steep, far = found.arms.largest_norm, np.linalg.norm(slope), np.linalg.norm(center)
    gamma, lost = 2_064 * UNIT, lost + UNDERFLOW * peak**0.5
    assert found.noise == pytest.approx(gamma * peak + lost, rel=1e-5, abs=0.0)
    squares = norm**2 if objective == "nearest" else 0.0
    expected = gamma * (steep * norm + squares) + 300 * lost
    assert found.sum_noise == pytest.approx(expected, rel=1e-5, abs=0.0)
    assert found.whole_noise == pytest.approx(expected + gamma * steep * far, rel=1e-5, abs=0.0)


@pytest.mark.parametrize("size", [2.0**-20, 2.0**20])
def test_rounding_errors_of_products_are_proportional_to_the_query(size):
    """However long the arms are beside it: no square of an arm is summed."""
    rng = np.random.default_rng(6)
    vectors, query = 1e3 * rng.standard_normal((9, 300)), rng.standard_normal(300)
    one, other = LAYOUTS["blocked"](vectors, query), LAYOUTS["blocked"](vectors, size * query)
    for name in ("noise", "sum_noise", "whole_noise"):
        assert getattr(other, name) == pytest.approx(size * getattr(one, name), rel=1e-6)


@pytest.mark.parametrize("size", [1.0, 3.7e8, 1e-3, 1e-40])
def test_products_in_float32_are_widened_by_four_roundings(size):
    vectors = np.random.default_rng(2).standard_normal((8, 50))
    query = size * np.random.default_rng(3).standard_normal(50)
    known, largest = columns.of(vectors), np.abs(query).max()
    weights, exponent = columns.scaled(query, largest)
    assert 0.5 <= np.abs(weights).max() <= 1.0
    found = columns.product_bounds(known, weights, exponent)
    for bound, width in ((found.spread, known.width), (found.largest, known.reach)):
        product = float((np.abs(weights) * width).max())
        assert bound == math.ldexp((1.0 + 4.0 * UNIT) * product + UNDERFLOW, exponent)
    assert found.spread >= np.ptp(query * vectors, axis=0).max()
    assert found.largest >= np.abs(query * (vectors - known.center)).max()


@pytest.mark.parametrize("ends", [(0.0, 1.0), (-3.0, 5.0), (2.0, 2.0), (1e-9, 4e8)])
def test_a_range_is_all_that_is_known_without_columns(ends):
    for objective in ("inner_product", "nearest"):
        found = columns.bounds(None, np.ones(3), objective, ends)
        widened = ends[1] - ends[0] + 2.0**-19 * max(map(abs, ends))
        assert found.spread == pytest.approx(widened, rel=1e-12)
        assert found.largest == found.spread / 2.0
        assert not found.violated
