"""Every constant of the promises of slate campaigns, against the statements proved in the paper's page.

Nothing here is drawn, or it does not matter what is: a dropped union, a one-sided bound or an index of looks
that stands still changes a number, and the test fails always.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from shortlist.slates import ask_tell, icb, saqm
from shortlist.slates.certified_bounds import upper_bound
from shortlist.slates.densest_k_subgraph import densest_k_subgraph, peeling_ratio
from shortlist.slates.excess import Excess
from shortlist.slates.widths import Look, arm_width, exchange_widths, slate_interval, slate_width
from slate_instances import METHODS, fits, indicators, start

pytestmark = pytest.mark.rest

SIZES = [(2, 1), (5, 4), (7, 3), (12, 5), (40, 10)]
LOOKS = [
    Look(sigma, delta, "certified", 17, index)
    for sigma, delta, index in itertools.product((0.2, 1.0, 30.0), (0.4, 0.05, 1e-6), (1, 2, 60))
]


def events(width, look):
    """How many one-sided events a multiplier serves, each with its share of 6 delta / (pi^2 j^2)."""
    once = math.exp(-((width / look.sigma) ** 2) / 2)
    return 6 * look.delta / (math.pi * look.index) ** 2 / once


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize(("n", "k"), SIZES)
def test_a_width_serves_as_many_one_sided_events_as_its_method_needs(n, k, look):
    slates = math.comb(n, k)
    assert events(slate_width(look, n, k), look) == pytest.approx(slates + 1), (
        "all from above, the best below"
    )
    assert events(slate_interval(look, n, k), look) == pytest.approx(2 * slates), "both sides of all slates"
    assert events(arm_width(look, n), look) == pytest.approx(2 * n), "both sides of all arms"
    sizes = range(1, min(k, n - k) + 1)
    counts = [math.comb(k, size) * math.comb(n - k, size) for size in sizes]
    found = [events(width, look) for width in exchange_widths(look, n, k)]
    assert found == pytest.approx([len(counts) * count for count in counts])
    assert sum(count / serves for count, serves in zip(counts, found, strict=True)) == pytest.approx(1.0)


def test_the_shares_of_all_looks_are_delta():
    one = [Look(1.0, 0.05, "certified", 9, index) for index in range(1, 20_000)]
    spent = sum(20 * math.exp(-(arm_width(look, 10) ** 2) / 2) for look in one)
    left = 6 / math.pi**2 * 0.05 / 20_000
    assert spent + left == pytest.approx(0.05, rel=1e-6)


@pytest.mark.parametrize("observed", [1, 2, 50, 10**6])
def test_printed_widths_are_those_of_proposition_1(observed):
    """C_t = c sqrt(log(c' t^2 K / delta)), c = 2 sqrt 2 sigma, c' = 6 / pi^2; at least three directions."""
    for n, k in SIZES:
        look = Look(0.7, 0.1, "paper", observed, 3)

        def printed(directions):
            log = math.log(6 / math.pi**2 * observed**2 * max(directions, 3) / 0.1)
            return math.sqrt(8) * 0.7 * math.sqrt(log)

        slates = printed(math.comb(n, k))
        for found in (slate_width, slate_interval):
            assert found(look, n, k) == pytest.approx(slates)
        assert exchange_widths(look, n, k) == pytest.approx([slates] * min(k, n - k))
        assert arm_width(look, n) == pytest.approx(printed(n))


LOOK, PRINTED = Look(0.8, 0.05, "certified", 200, 7), Look(0.8, 0.05, "paper", 200, 7)


@pytest.mark.parametrize(("n", "k"), [(5, 2), (8, 3), (9, 6)])
def test_the_tests_are_those_of_their_equations(n, k):
    """Equation 4 with both norms, the largest one bounded or approximated; and a sum over exchanged arms."""
    x = indicators(n, k)
    for found in fits(n, k, 0):
        values = x @ found.theta
        second = np.sort(values)[-2]
        for look, largest in (
            (LOOK, math.sqrt(upper_bound(found.W, k))),
            (PRINTED, approximated(found.W, k)),
        ):
            # theta^(M^) - C ||M^|| >= theta^(M) + C largest - epsilon
            C = slate_width(look, n, k)
            expected = second + C * largest - (values.max() - C * found.norm)
            assert saqm.excess(found, look).value == pytest.approx(expected)
            v = x - found.inside
            reach = arm_width(look, n) * np.sqrt(np.diag(found.W))
            assert icb.excess(found, look).value == pytest.approx((v @ found.theta + abs(v) @ reach).max())


def approximated(W, k):
    """Z / alpha: the norm of Algorithm 1's slate over its share of the largest norm, Theorem 1."""
    slate = densest_k_subgraph(W, k)
    chi = np.isin(np.arange(len(W)), slate).astype(float)
    spectrum = np.linalg.eigvalsh(W)
    of_squares = peeling_ratio(len(W), k) / (k - 1) * spectrum[0] / spectrum[-1]
    return math.sqrt(chi @ W @ chi) / math.sqrt(of_squares)


@pytest.mark.parametrize("method", METHODS)
def test_looks_are_numbered_and_have_the_noise_and_delta_of_their_campaign(method, monkeypatch):
    seen = []

    def excess(_, look):
        seen.append(look)
        return Excess(1.0, 1.0, 2.0)

    monkeypatch.setitem(ask_tell._TESTS, method, excess)
    state = start(method, n=5, k=2, epsilon=1e-3, delta=0.02, noise_std=3.5)
    state, pulls = ask_tell.ask(state, 60)
    state = ask_tell.tell(state, [(pull.number, math.sin(pull.number)) for pull in pulls])
    assert state.looks == len(seen) > 10
    at = 10
    for index, look in enumerate(seen, start=1):
        assert look == Look(3.5, 0.02, "certified", at, index)
        assert 1.1 * at <= ask_tell.next_look(at) < 1.1 * at + 1.001
        at = ask_tell.next_look(at)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("value", "stops"), [(0.5, True), (math.nextafter(0.5, 1), False)])
def test_a_campaign_stops_when_no_slate_can_exceed_its_own_by_more_than_epsilon(
    method, value, stops, monkeypatch
):
    monkeypatch.setitem(ask_tell._TESTS, method, lambda *_: Excess(value, 0.0, value))
    state, pulls = ask_tell.ask(start(method, n=5, k=2, epsilon=0.5), 10)
    assert ask_tell.tell(state, [(pull.number, 0.0) for pull in pulls]).stopped is stops


def test_a_report_has_the_interval_of_all_slates_and_the_farthest_residual():
    n, k, sigma, delta = 7, 3, 0.6, 0.04
    state = start("icb", n=n, k=k, epsilon=1e-6, delta=delta, noise_std=sigma, reach=1.5)
    state, pulls = ask_tell.ask(state, 14)
    state = ask_tell.tell(state, [(pull.number, math.sin(pull.number)) for pull in pulls])
    report, W = state.report, np.linalg.inv(state.A)
    C = sigma * math.sqrt(2 * math.log(2 * math.comb(n, k) * math.pi**2 / (6 * delta)))
    chi = np.isin(np.arange(n), report.best).astype(float)
    value, half = chi @ report.theta, C * math.sqrt(chi @ W @ chi)
    assert (report.lower, report.upper) == pytest.approx((value - half, value + half))
    assert report.tolerance == pytest.approx(1.5 + C * math.sqrt(k * np.linalg.eigvalsh(W)[-1]))
    x = indicators(n, k)
    assert report.tolerance >= 1.5 + C * math.sqrt(((x @ W) * x).sum(axis=1).max())


def test_the_first_look_comes_after_two_results_an_arm():
    for n in (2, 9):
        assert start("icb", n=n, k=1).next_look == 2 * n
