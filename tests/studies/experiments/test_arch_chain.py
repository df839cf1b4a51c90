"""The ARCH experiment: derivatives, control variates, and that races decide as exact sums do."""

from __future__ import annotations

import numpy as np
import pytest

from shortlist.types import Vector
from studies.experiments import sampling_arch
from studies.experiments.arch_chain import Chain, Exact
from studies.experiments.arch_model import (
    LAGS,
    ORDERS,
    derivatives,
    gradient,
    log_likelihoods,
    log_prior,
    make,
    parameters,
    prior_gradient,
    scales,
)
from studies.experiments.sampling_arch import Scale, Setting, correlation, effective

pytestmark = pytest.mark.rest

STEP = 1e-5


@pytest.fixture(scope="module")
def setting() -> Setting:
    return Setting.of(make(1_500, 4))


def test_every_return_has_the_squares_before_it():
    series = make(200, 1)
    assert series.squares.shape == (200, LAGS)
    for t in (LAGS, 77, 199):
        assert series.squares[t] == pytest.approx(series.returns[t - LAGS : t][::-1] ** 2)


def slope(function, x: Vector) -> Vector:
    """Central differences."""
    steps = STEP * np.eye(len(x))
    return np.array([(function(x + step) - function(x - step)) / (2 * STEP) for step in steps])


def test_gradients_are_those_of_the_log_likelihood_and_the_prior():
    series, x = make(300, 2), np.random.default_rng(0).normal(-1.0, 0.4, 7)
    times = np.arange(0, 300, 3)
    found = gradient(series, x, times)
    assert found == pytest.approx(slope(lambda y: log_likelihoods(series, y, times).sum(), x), rel=1e-6)
    assert prior_gradient(x) == pytest.approx(slope(log_prior, x), rel=1e-6)
    assert log_prior(x) == pytest.approx(
        float((-parameters(x) + np.log(slope(lambda y: parameters(y).sum(), x))).sum()), rel=1e-6
    )


def test_the_likelihood_is_students_and_its_derivatives_are_right():
    from scipy import stats  # noqa: PLC0415 - for this test alone

    at = np.array([0.7, 0.5])

    def value(point: Vector) -> float:
        return float(derivatives(point[:1], point[1:], 4.0).value[0])

    found = derivatives(at[:1], at[1:], 4.0)
    assert value(at) == pytest.approx(stats.t.logpdf(0.7, 4.0, scale=np.sqrt(0.5)))
    assert slope(value, at) == pytest.approx([found.r[0], found.s[0]], rel=1e-7)

    def first(point: Vector) -> Vector:
        some = derivatives(point[:1], point[1:], 4.0)
        return np.array([some.r[0], some.s[0]])

    second = slope(first, at)
    assert second == pytest.approx(
        np.array([[found.rr[0], found.rs[0]], [found.rs[0], found.ss[0]]]), rel=1e-6
    )


def test_proxies_are_given_back_and_take_off_most_of_the_variance(setting):
    """At any parameters: the residual factors and what is added have the sums of the plain ones."""
    races, rng = setting.races(), np.random.default_rng(3)
    states = [one.draw(rng) for one in setting.pseudo]
    plain = races.plain(states)
    residual, constants = races.factors(setting.expansions, states)
    assert residual.sums() + constants == pytest.approx(plain.sums(), rel=1e-9)
    arms, times = np.arange(len(ORDERS)), np.arange(plain.size)
    assert (residual.read(arms, times).var(axis=1) < 0.02 * plain.read(arms, times).var(axis=1)).all()
    assert sorted([*setting.inside, *setting.outside]) == list(range(1_500))
    assert len(setting.outside) == 300


def test_an_expansion_is_exact_at_its_references_and_of_second_order(setting):
    # private: what the figure is drawn from
    expansion, x, series = setting.expansions[1], setting.pseudo[1].mode, setting.races()._raced
    times = np.arange(series.size)
    error = np.abs(expansion.values(series, x, times) - log_likelihoods(series, x, times))
    bins = expansion.bins
    away = np.abs(series.returns - expansion.returns[bins])
    away += np.abs(scales(series, x, times) - (scales_at(expansion, x))[bins])
    near = np.argsort(away)
    assert error[near[:100]].max() < 0.02 * error[near[-100:]].max()


def scales_at(expansion, x):
    alpha = parameters(x[:-1])
    return alpha[0] + expansion.squares @ alpha[1:]


def test_races_that_may_hardly_err_decide_as_exact_sums_do_and_read_less(setting):
    races, exact = setting.races(), Exact(setting.series)
    races.delta = 1e-9
    rng = np.random.default_rng(5)
    counted = 0
    for seed in range(20):
        states = [one.draw(rng) for one in setting.pseudo]
        weights = rng.normal(size=len(states)) - [
            log_likelihoods(setting.series, x, slice(None)).sum() for x in states
        ]
        assert races.model(states, weights, seed) == exact.model(states, weights, seed)
        place = seed % len(states)
        pair = states[place], setting.pseudo[place].draw(rng)
        assert races.accept(place, pair, np.zeros(2), seed) == exact.accept(place, pair, np.zeros(2), seed)
        counted += 8 * setting.series.size
    assert 0.2 * counted < races.evaluations < 0.8 * counted


class Told:
    """Decisions that are told, and remember what they were asked."""

    def __init__(self, moved):
        self.moved, self.evaluations, self.asked = moved, 0, []

    def model(self, states, weights, seed):
        self.asked.append((list(states), weights.copy()))
        return 2

    def accept(self, model, pair, weights, seed):
        self.asked.append((list(pair), weights.copy()))
        return self.moved

    def batch(self, rng):
        return slice(None)


@pytest.mark.parametrize("moved", [True, False])
def test_a_chain_weighs_models_by_prior_over_pseudo_prior_and_moves_by_both_proposals(setting, moved):
    told, priors, steps = Told(moved), np.arange(6.0), np.full(6, 0.3)
    chain = Chain(setting.series, setting.pseudo, told, np.random.default_rng(0), priors, steps)
    assert chain.step() is moved
    (states, weights), (pair, ratio) = told.asked
    for place, x in enumerate(states):
        expected = place + log_prior(x) - setting.pseudo[place].log_density(x)
        assert weights[place] == pytest.approx(expected)
    assert (states[0] == setting.pseudo[0].mode).all(), "the chosen model keeps its parameters"
    covariance = 0.3**2 * setting.pseudo[2].root @ setting.pseudo[2].root.T

    def density(there: Vector, here: Vector) -> float:
        drift = gradient(setting.series, here, slice(None)) + prior_gradient(here)
        away = there - here - 0.5 * covariance @ drift
        return float(-0.5 * away @ np.linalg.solve(covariance, away))

    x, y = pair
    forth, back = log_prior(x) + density(y, x), log_prior(y) + density(x, y)
    # Each state has the proposal from itself in its factor f_0: Equation 12.
    assert ratio == pytest.approx([forth, back], rel=1e-6)
    assert chain.accepted == moved


def test_priors_fall_where_the_chain_is_and_steps_follow_what_is_accepted(setting):
    chain = Chain(
        setting.series, setting.pseudo, Told(True), np.random.default_rng(0), np.zeros(6), np.ones(6)
    )
    chain.adapt()
    assert chain.priors.argmin() == 2
    assert chain.priors.max() == 0.0
    assert chain.priors[2] == pytest.approx(-1 / 1.01)
    assert chain.steps[2] > 1.0 == chain.steps[0]


def test_autocorrelations_and_effective_sizes():
    assert correlation(np.array([1, -1, 1, -1]), 2) == pytest.approx([1.0, -0.75, 0.5])
    assert effective(np.repeat(np.random.default_rng(0).integers(0, 2, 1_000), 4)) == pytest.approx(
        1_000, rel=0.2
    )


def test_the_command_compares_both_chains(monkeypatch, capsys):
    monkeypatch.setattr(sampling_arch, "can_draw", lambda: False)
    rows = sampling_arch.run("figure2-sampling", True, None, Scale(600, 20, 30, 2, 5))["rows"]
    exact, races = rows[-2:]
    assert (exact["chain"], races["chain"]) == ("exact", "races")
    assert exact["evaluations"] == 8 * 600
    assert races["evaluations"] < exact["evaluations"]
    orders = [row for row in rows if "order" in row]
    assert [row["order"] for row in orders] == list(ORDERS)
    for way in ("exact", "races"):
        assert sum(row[f"adjusted, {way}"] for row in orders) == pytest.approx(1.0)
    assert "ess per million" in capsys.readouterr().out
