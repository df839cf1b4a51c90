"""Slates under rules: the oracle, what is shown, and every test of a look, against all bases."""

import math

import numpy as np
import pytest

from matroid_instances import MATROIDS, bases
from shortlist.errors import InvalidParameter
from shortlist.slates import allocation, ask_tell, exhaustive, icb, saqm
from shortlist.slates.allocation import UNIFORM, design_of, g_optimal, slates
from shortlist.slates.certified_bounds import upper_bound
from shortlist.slates.least_squares import as_observations, fit
from shortlist.slates.matroids import PartitionMatroid, UniformMatroid, lead, spanning, unseen
from shortlist.slates.widths import Look, arm_width, exchange_widths, slate_width
from slate_instances import play, start

pytestmark = pytest.mark.rest

matroids = pytest.mark.parametrize("matroid", MATROIDS.values(), ids=MATROIDS)
LOOK = Look(0.8, 0.05, "certified", 60, 4)


def vectors(rows, n):
    x = np.zeros((len(rows), n))
    np.put_along_axis(x, rows, 1.0, axis=1)
    return x


def sums(matroid, pulls, theta, seed=3):
    """A and b of the first totals that are asked for, without noise."""
    x = vectors(slates(UNIFORM, matroid, seed, np.arange(pulls)), matroid.n)
    return x.T @ x, x.T @ (x @ theta)


def fits(matroid):
    rng = np.random.default_rng(5)
    for pulls in (2 * matroid.n, 12 * matroid.n):
        for scale in (0.01, 1.0):
            found = fit(*sums(matroid, pulls, scale * rng.standard_normal(matroid.n)), matroid)
            assert found is not None
            yield found


@matroids
def test_the_oracle_finds_the_best_base(matroid):
    every, rng = bases(matroid), np.random.default_rng(1)
    for _ in range(60):
        weights = rng.integers(-3, 4, matroid.n) + rng.choice([0.0, 1e-3]) * rng.standard_normal(matroid.n)
        found = matroid.best(weights)
        chi = np.isin(np.arange(matroid.n), found).astype(float)
        assert (every == chi).all(axis=1).any()
        assert (np.diff(found) > 0).all()
        assert chi @ weights == pytest.approx((every @ weights).max())


@matroids
def test_it_knows_its_bases(matroid):
    sets = exhaustive.all_slates(matroid.n, matroid.k)
    assert sets[matroid.has(sets > 0)].tolist() == bases(matroid).tolist()
    assert exhaustive.bases(matroid).tolist() == bases(matroid).tolist()


@matroids
def test_a_few_slates_span_all_and_the_rest_is_never_seen(matroid):
    every = bases(matroid)
    found = spanning(matroid, tuple(matroid.best(np.arange(matroid.n) % 3 * 1.0).tolist()))
    x = vectors(found.slates, matroid.n)
    assert all((every == row).all(axis=1).any() for row in x)
    assert np.linalg.matrix_rank(x) == len(x) == np.linalg.matrix_rank(every)
    hidden = unseen(matroid)
    assert hidden.shape[1] == matroid.n - len(x)
    assert hidden.T @ hidden == pytest.approx(np.eye(hidden.shape[1]))
    assert every @ hidden == pytest.approx(np.zeros((len(every), hidden.shape[1])), abs=1e-12)
    for component in np.unique(found.components):  # equally many of its arms are in every slate
        assert len(set(every[:, found.components == component].sum(axis=1).tolist())) == 1


@matroids
@pytest.mark.parametrize("allocation_name", ["uniform", "g", "xy"])
def test_every_slate_that_is_shown_is_allowed_and_together_they_tell_all(matroid, allocation_name):
    design, every = design_of(allocation_name, matroid, 7), bases(matroid)
    shown = slates(design, matroid, 7, np.arange(3_000))
    x = vectors(shown, matroid.n)
    known = {tuple(row) for row in every.tolist()}
    assert {tuple(row) for row in x.tolist()} <= known
    if allocation_name == "uniform":
        assert {tuple(row) for row in x.tolist()} == known, "every slate has some probability"
        dimension = matroid.n - unseen(matroid).shape[1]
        assert np.linalg.matrix_rank(x[:dimension]) == dimension
    order = np.random.default_rng(1).permutation(3_000)
    assert (slates(design, matroid, 7, order) == shown[order]).all(), "whatever else is asked"
    assert (slates(design, matroid, 7, np.array([1_500]))[0] == shown[1_500]).all()


@matroids
def test_the_estimate_is_that_of_the_pseudo_inverse(matroid):
    theta = np.random.default_rng(2).standard_normal(matroid.n)
    A, b = sums(matroid, 6 * matroid.n, theta)
    found = fit(A, b, matroid)
    assert pytest.approx(np.linalg.pinv(A), abs=1e-9) == found.W
    every = bases(matroid)
    assert every @ found.theta == pytest.approx(every @ theta), "totals of slates are told, if arms are not"
    assert (every @ theta)[(every == found.inside).all(axis=1)] == pytest.approx((every @ theta).max())
    assert fit(np.zeros_like(A), np.zeros(matroid.n), matroid) is None


@matroids
def test_icb_is_the_largest_gap_over_all_bases(matroid):
    """And, where arms leave their intervals nowhere, no base exceeds M^ by more; some theta attains it."""
    every, rng = bases(matroid), np.random.default_rng(3)
    for found in fits(matroid):
        v = every - found.inside
        reach = arm_width(LOOK, matroid.n) * np.sqrt(np.maximum(np.diag(found.W), 0.0))
        value = icb.excess(found, LOOK).value
        gaps = v @ found.theta + np.abs(v) @ reach
        assert value == pytest.approx(gaps.max())
        for _ in range(20):
            truth = found.theta + reach * rng.uniform(-1.0, 1.0, matroid.n)
            assert (v @ truth).max() <= value + 1e-9
        worst = found.theta + reach * np.sign(v[gaps.argmax()])
        assert (v @ worst).max() == pytest.approx(value)


@matroids
def test_saqm_and_exhaustive_are_those_of_their_equations(matroid):
    every = bases(matroid)
    for found in fits(matroid):
        values = every @ found.theta
        second = np.sort(values)[-2]
        assert lead(matroid, found.theta, found.best) == pytest.approx(values.max() - second)
        C = slate_width(LOOK, matroid.n, matroid.k)
        longest = math.sqrt(upper_bound(found.W, matroid.k))
        assert longest >= np.sqrt(np.maximum(((every @ found.W) * every).sum(axis=1), 0.0)).max() - 1e-12
        expected = second + C * longest - (values.max() - C * found.norm)
        assert saqm.excess(found, LOOK).value == pytest.approx(expected)
        v = every - found.inside
        v = v[np.abs(v).sum(axis=1) > 0]
        widths = exchange_widths(LOOK, matroid.n, matroid.k)[(v > 0).sum(axis=1) - 1]
        norms = np.sqrt(np.maximum(((v @ found.W) * v).sum(axis=1), 0.0))
        assert exhaustive.excess(found, LOOK).value == pytest.approx((v @ found.theta + widths * norms).max())


@pytest.mark.parametrize("method", ["icb", "saqm", "exhaustive"])
@pytest.mark.parametrize("name", ["two of each", "one of each", "every group full"])
@pytest.mark.parametrize("allocation_name", ["uniform", "g", "xy"])
def test_a_campaign_under_rules_finds_the_best_allowed_slate(method, name, allocation_name):
    matroid, every = MATROIDS[name], bases(MATROIDS[name])
    theta = np.arange(matroid.n)[::-1] / 2.0
    state = start(
        method,
        n=matroid.n,
        k=matroid.k,
        matroid=matroid,
        epsilon=0.3,
        noise_std=0.2,
        allocation=allocation_name,
    )
    state = play(state, theta, 1, noise=0.2)
    chi = np.isin(np.arange(matroid.n), state.report.best)
    assert matroid.has(chi[np.newaxis])[0]
    assert (chi @ theta) >= (every @ theta).max() - 0.3
    assert state.report.lower <= chi @ theta <= state.report.upper


@matroids
def test_identify_runs_icb_on_any_matroid(matroid):
    theta, rng = np.arange(matroid.n) % 4 * 1.0, np.random.default_rng(8)
    asked = []

    def totals(rows):
        asked.extend(rows.tolist())
        return theta[rows].sum(axis=1) + 0.1 * rng.standard_normal(len(rows))

    found = icb.identify(matroid, totals, epsilon=0.5, delta=0.05, noise_std=0.1, seed=4)
    assert found.done
    assert found.observed == len(asked)
    assert asked == slates(UNIFORM, matroid, 4, np.arange(len(asked))).tolist()
    assert theta[found.best].sum() >= (bases(matroid) @ theta).max() - 0.5
    assert found.excess <= 0.5
    given_up = icb.identify(matroid, totals, epsilon=1e-9, delta=0.05, noise_std=1.0, seed=4, most=100)
    assert not given_up.done
    assert given_up.observed <= 100


@pytest.mark.parametrize("epsilon", [0.3, 1.0])
@pytest.mark.parametrize("name", ["two of each", "every group full"])
def test_identify_ends_as_a_campaign_does(name, epsilon):
    """At the same look, with the same excess: the looks are numbered, and it stops at epsilon."""
    matroid, noise = MATROIDS[name], np.random.default_rng(3).standard_normal(10_000)
    theta, told = np.linspace(0.0, 1.0, matroid.n), 0

    def totals(rows):
        nonlocal told
        told += len(rows)
        return theta[rows].sum(axis=1) + noise[told - len(rows) : told]

    found = icb.identify(matroid, totals, epsilon=epsilon, delta=0.1, noise_std=1.0, seed=6)
    state = start(
        "icb", n=matroid.n, k=matroid.k, matroid=matroid, epsilon=epsilon, delta=0.1, noise_std=1.0, seed=6
    )
    state, pulls = ask_tell.ask(state, 10_000)
    results = [(pull.number, float(theta[list(pull.slate)].sum() + noise[pull.number])) for pull in pulls]
    report = ask_tell.tell(state, results).report
    assert (found.observed, found.best.tolist()) == (report.observed, report.best.tolist())
    assert found.excess == pytest.approx(report.excess)


@pytest.mark.parametrize(
    ("option", "value"), [("epsilon", 0.0), ("delta", 1.0), ("noise_std", -1.0), ("noise_std", np.nan)]
)
def test_identify_names_what_is_wrong(option, value):
    options = {"epsilon": 0.5, "delta": 0.05, "noise_std": 1.0, "seed": 1} | {option: value}
    with pytest.raises(InvalidParameter) as raised:
        icb.identify(UniformMatroid(4, 2), lambda rows: rows.sum(axis=1) * 1.0, **options)
    assert raised.value.argument == option


@pytest.mark.parametrize(
    ("change", "loc"),
    [
        ({"matroid": PartitionMatroid((0, 0, 0, 0, 1, 1, 1, 1), (1, 1), 3)}, "rules"),
        ({"matroid": PartitionMatroid((0,) * 6 + (1, 2), (1, 1, 1), 4), "k": 4}, "rules"),
        ({"matroid": PartitionMatroid((0, 0, 0, 0, 1, 1, 1, 1), (3, 0), 3)}, "limits"),
        ({"matroid": PartitionMatroid((0, 0, 0, 0, 1, 1, 1, 2), (3, 2), 3)}, "groups"),
        ({"matroid": PartitionMatroid((0, 0, 0, 0, 1, 1, 1, -1), (3, 2), 3)}, "groups"),
        ({"method": "sa_foa"}, "method"),
        ({"method": "saqm", "bound": "paper"}, "bound"),
    ],
)
def test_what_cannot_be_kept_is_refused(change, loc):
    options = {
        "method": "icb",
        "n": 8,
        "k": 3,
        "matroid": PartitionMatroid((0, 0, 0, 0, 1, 1, 1, 1), (2, 2), 3),
    }
    options |= change
    method = options.pop("method")
    with pytest.raises(InvalidParameter) as raised:
        start(method, **options)
    assert raised.value.argument == loc


def test_one_slate_is_refused_and_two_are_not():
    only = PartitionMatroid((0, 1, 1, 2), (1, 2, 1), 4)
    with pytest.raises(InvalidParameter):
        start("icb", n=4, k=4, matroid=only)
    two = PartitionMatroid((0, 1, 1), (1, 1), 2)
    state = play(start("icb", n=3, k=2, matroid=two, noise_std=0.1), np.array([0.0, 1.0, 2.0]), 1, noise=0.1)
    assert state.report.best.tolist() == [0, 2]


@matroids
def test_observations_of_features_have_the_sums_of_all_totals(matroid):
    rng = np.random.default_rng(6)
    A, b = sums(matroid, 40, rng.standard_normal(matroid.n))
    for dim in (2, matroid.n + 3):
        X = rng.standard_normal((matroid.n, dim))
        rows, values = as_observations(A, b, X, matroid)
        assert len(rows) == len(values) <= min(matroid.n, dim)
        assert rows.T @ rows == pytest.approx(X.T @ A @ X / matroid.k, abs=1e-9)
        assert rows.T @ values == pytest.approx(X.T @ b / matroid.k, abs=1e-9)


def criterion(support, n, weights, hidden):
    x = vectors(support, n)
    W = np.linalg.pinv((x * weights[:, None]).T @ x)
    v = x[:, None] - x
    return float(((v @ W) * v).sum(axis=2).max())


def test_xy_and_g_are_refused_for_many_arms():
    for name, most in (("g", allocation.MOST_G_ARMS), ("xy", allocation.MOST_XY_ARMS)):
        with pytest.raises(InvalidParameter) as raised:
            design_of(name, UniformMatroid(most + 1, 3), 1)
        assert raised.value.argument == "allocation"


def test_identify_takes_no_more_totals_than_it_may():
    """The first look comes after 2 n totals."""
    matroid = UniformMatroid(4, 2)
    options = {"epsilon": 1e-6, "delta": 0.05, "noise_std": 1.0, "seed": 1}

    def totals(rows):
        return rows.sum(axis=1) * 1.0

    none = icb.identify(matroid, totals, most=7, **options)
    assert (none.observed, none.excess, none.done, none.best.tolist()) == (0, math.inf, False, [0, 1])
    assert icb.identify(matroid, totals, most=8, **options).observed == 8
    assert icb.identify(matroid, totals, most=9, **options).observed == 9  # ceil(1.1 * 8)


@pytest.mark.parametrize(("least", "is_fit"), [(1.1e-10, True), (0.9e-10, False)])
@pytest.mark.parametrize("size", [1.0, 1e4])
def test_a_matrix_without_digits_left_is_as_good_as_singular(least, is_fit, size):
    A = size * np.diag([1.0, least])
    assert (fit(A, np.zeros(2), UniformMatroid(2, 1)) is not None) == is_fit


@matroids
def test_weights_of_any_sign_have_a_lead(matroid):
    every = bases(matroid)
    for shift in (-3.0, 0.0, 5.0):
        weights = np.random.default_rng(7).permutation(matroid.n) * 0.7 + shift
        values = np.sort(every @ weights)
        assert lead(matroid, weights, matroid.best(weights)) == pytest.approx(values[-1] - values[-2])


@matroids
def test_g_reaches_the_dimension_that_the_slates_span(matroid):
    """The least G-criterion is that dimension, by Kiefer and Wolfowitz: n, or less under rules."""
    n, hidden = matroid.n, unseen(matroid)
    support = np.unique(slates(UNIFORM, matroid, 1, np.arange(2 * n)), axis=0)  # few: they count unequally
    weights, value = g_optimal(support, n, hidden)
    x, dimension = vectors(support, n), np.linalg.matrix_rank(bases(matroid))
    W = np.linalg.pinv((x * weights[:, None]).T @ x, hermitian=True)
    assert weights.sum() == pytest.approx(1.0)
    assert value == pytest.approx(((x @ W) * x).sum(axis=1).max())
    assert dimension - 1e-9 <= value <= 1.02 * dimension
