"""What a campaign of slates asks, refuses and ends with, case by case."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from test_campaign import told

from shortlist.errors import InvalidArgument, InvalidParameter, NonFinite
from shortlist.slates import ask_tell, sa_foa
from shortlist.slates.campaign_state import next_look
from shortlist.slates.excess import Excess
from shortlist.slates.least_squares import as_observations
from slate_instances import METHODS, means, play, start

pytestmark = pytest.mark.rest


@pytest.mark.slow
def test_samples_are_ordered_as_the_paper_says():
    """SA-FOA below ICB below SAQM, and near Exhaustive."""
    samples = {method: [] for method in METHODS}
    for seed in range(5):
        theta = means(12, 3, 0.4, seed)
        for method in METHODS:
            samples[method].append(play(start(method, n=12, k=3, seed=seed), theta, seed).report.observed)
    mean = {method: np.mean(found) for method, found in samples.items()}
    assert mean["exhaustive"] <= mean["sa_foa"] <= 1.3 * mean["exhaustive"]
    assert mean["sa_foa"] < mean["icb"] < mean["saqm"]


def test_the_first_total_of_a_pull_counts():
    state, pulls = ask_tell.ask(start("icb"), 1)
    once = ask_tell.tell(state, [(0, 1.0), (0, 99.0)])
    assert once.b[list(pulls[0].slate)].tolist() == [1.0, 1.0, 1.0]
    assert once.observed == 1


def test_sums_are_those_of_the_results():
    rng = np.random.default_rng(3)
    state, pulls = ask_tell.ask(start("saqm", epsilon=1e-3), 2_500)
    totals = rng.standard_normal(2_500)
    state = ask_tell.tell(state, [(p.number, float(t)) for p, t in zip(pulls, totals, strict=True)])
    x = np.zeros((2_500, 8))
    np.put_along_axis(x, np.array([p.slate for p in pulls]), 1.0, axis=1)
    assert (x.T @ x == state.A).all()
    np.testing.assert_allclose(state.b, x.T @ totals, atol=1e-10)
    assert ask_tell.was_told(state.told, np.arange(3_000)).sum() == 2_500


def test_looks_are_at_the_same_counts_always():
    looks, at = [], 16
    while at < 1_000:
        looks.append(at)
        at = next_look(at)
    state = start("icb", epsilon=1e-6)
    for _ in range(999):
        state = told(state, [0.5])
        assert state.looks == sum(look <= state.observed for look in looks)
    assert all(b > a and b <= 1.1 * a + 1 for a, b in pairwise(looks))


def test_missing_results_delay_the_first_look_and_nothing_else():
    """Only two slates are ever told: their matrix stays singular, and nobody is misled."""
    state, pulls = ask_tell.ask(start("icb", n=6, k=2), 2_000)
    for pull in pulls:
        if pull.slate in {pulls[0].slate, pulls[1].slate}:
            state = ask_tell.tell(state, [(pull.number, 1.0)])
    assert state.looks > 5
    assert state.report is None
    assert not state.done


def test_results_after_the_end_are_counted_and_change_nothing_else():
    theta = means(8, 3, 1.0, 1)
    state, pulls = ask_tell.ask(start("sa_foa", noise_std=0.1), 2_000)
    results = [(p.number, float(theta[list(p.slate)].sum())) for p in pulls]
    ended = ask_tell.tell(state, results[:1_000])
    assert ended.done
    later = ask_tell.tell(ended, results[1_000:])
    assert later.observed == 2_000
    assert (later.A == ended.A).all()
    assert later.report is ended.report
    same, pulls = ask_tell.ask(later, 5)
    assert same is later
    assert not list(pulls)


def test_totals_that_the_range_forbids_are_counted():
    theta = means(8, 3, 1.0, 1)
    state, pulls = ask_tell.ask(start("sa_foa", epsilon=1e-3, noise_std=0.3, reach=0.3), 400)
    rng = np.random.default_rng(1)
    results = [(p.number, float(theta[list(p.slate)].sum() + rng.uniform(-0.3, 0.3))) for p in pulls]
    quiet = ask_tell.tell(state, results)
    assert quiet.outside == 0
    wild = ask_tell.tell(ask_tell.tell(state, results[:390]), [(n, y + 1e4) for n, y in results[390:]])
    assert wild.outside == 10
    assert wild.observed == 400
    early = ask_tell.tell(state, [(results[0][0], 1e6), *results[1:]])
    assert early.outside >= 1, "also when it comes before there is any estimate"


OUT_OF_RANGE = [
        ("n", 1), ("k", 0), ("k", -1), ("k", 8), ("k", 9), ("epsilon", 0.0), ("epsilon", -1.0),
        ("epsilon", np.nan), ("delta", 0.0), ("delta", 1.0), ("delta", np.inf), ("noise_std", 0.0),
        ("noise_std", np.inf), ("reach", 0.0), ("seed", -1), ("allocation", "e"), ("bound", "tight"),
    ]  # fmt: skip


@pytest.mark.parametrize("method", METHODS)
def test_a_setting_out_of_range_is_named(method):
    for field, value in OUT_OF_RANGE:
        with pytest.raises(InvalidArgument) as raised:
            start(method, **{field: value})
        assert raised.value.argument == ("k" if field == "n" else field) or field == "n"


def test_exhaustive_is_refused_beyond_what_can_be_enumerated():
    with pytest.raises(InvalidParameter) as raised:
        start("exhaustive", n=40, k=8)
    assert raised.value.argument == "method"


@pytest.mark.parametrize("count", [0, -1, ask_tell.MOST_ASKED + 1])
def test_a_count_out_of_range_is_refused(count):
    with pytest.raises(InvalidParameter):
        ask_tell.ask(start("icb"), count)


@pytest.mark.parametrize("results", [[(5, 1.0)], [(-1, 1.0)], [(0, 1.0), (2**40, 1.0)]])
def test_a_pull_never_asked_for_is_refused(results):
    state, _ = ask_tell.ask(start("icb"), 5)
    with pytest.raises(InvalidParameter):
        ask_tell.tell(state, results)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_total_must_be_finite(bad):
    state, _ = ask_tell.ask(start("icb"), 5)
    with pytest.raises(NonFinite):
        ask_tell.tell(state, [(0, bad)])


@pytest.mark.parametrize(("n", "d"), [(6, 2), (6, 6), (5, 9), (2, 1)])
def test_a_few_observations_carry_all_that_the_totals_say(n, d):
    rng = np.random.default_rng(n * d)
    state = told(start("icb", n=n, k=1 if n == 2 else 2, epsilon=1e-6), rng.standard_normal(80))
    X, k = rng.standard_normal((n, d)), state.settings.k
    rows, values = as_observations(state.A, state.b, X, state.settings.slates)
    assert rows.shape == (min(n, d), d)
    np.testing.assert_allclose(rows.T @ rows, X.T @ state.A @ X / k, atol=1e-9)
    np.testing.assert_allclose(rows.T @ values, X.T @ state.b / k, atol=1e-9)


def test_the_sums_are_those_of_one_result_after_the_other():
    state, pulls = ask_tell.ask(start("icb", n=7, k=3), 11)
    told = ask_tell.tell(state, [(pull.number, pull.number / 7) for pull in pulls])
    A, b = np.zeros((7, 7)), np.zeros(7)
    for pull in pulls:
        for arm in pull.slate:
            b[arm] += pull.number / 7
            for other in pull.slate:
                A[arm, other] += 1
    np.testing.assert_array_equal(told.A, A)
    np.testing.assert_array_equal(told.b, b)


def test_the_limits_of_pulls():
    """10,000 at a time, and 10,000,000 of a campaign."""
    state, pulls = ask_tell.ask(start("icb"), 10_000)
    assert len(pulls) == 10_000
    with pytest.raises(InvalidParameter, match="count"):
        ask_tell.ask(state, 10_001)
    late = replace(state, issued=9_999_998)
    assert ask_tell.ask(late, 2)[0].issued == 10_000_000
    with pytest.raises(InvalidParameter, match="10,000,000"):
        ask_tell.ask(late, 3)


@pytest.mark.parametrize("bound", ["certified", "paper"])
@pytest.mark.parametrize("method", METHODS)
def test_each_method_has_its_own_test_of_a_look(method, bound, monkeypatch):
    """Algorithm 3 as printed where sa_foa has bound paper, over the slates that its support says."""
    asked = []

    def noted(name):
        def excess(*given):
            asked.append((name, *given[2:]))
            return Excess(1.0, 0.0, 1.0)

        return excess

    monkeypatch.setattr(sa_foa, "heuristic", noted("printed"))
    for name in METHODS:
        monkeypatch.setitem(ask_tell._TESTS, name, noted(name))
    for allocation in ("uniform", "g"):
        asked.clear()
        state = start(method, n=6, k=2, bound=bound, allocation=allocation)
        told(state, np.sin(np.arange(26.0)))
        (name, *support), *_ = asked
        assert name == ("printed" if (method, bound) == ("sa_foa", "paper") else method)
        if support:
            first = ask_tell.slates_of(state, np.arange(6, 24))
            expected = first if allocation == "uniform" else state.design.support
            assert support[0].tolist() == expected.tolist()


@pytest.mark.parametrize(("entries", "count"), [(10**9, 24), (64 * 5, 5), (64 * 5 - 1, 4), (3, 1)])
def test_a_support_of_many_arms_holds_no_more_numbers_than_there_is_room_for(entries, count):
    state = start("sa_foa", n=8, k=3)
    expected = ask_tell.slates_of(state, np.arange(8, 8 + count))
    assert ask_tell.support_of(state, entries).tolist() == expected.tolist()


def test_a_report_says_how_far_totals_are_from_their_estimates():
    state, pulls = ask_tell.ask(start("icb", n=6, k=2, epsilon=1e-3), 12)
    totals = np.sin(np.arange(12.0))
    report = ask_tell.tell(state, [(p.number, float(t)) for p, t in zip(pulls, totals, strict=True)]).report
    residuals = totals - [report.theta[list(pull.slate)].sum() for pull in pulls]
    assert report.observed == 12
    assert report.spread == pytest.approx((residuals**2).mean())
    assert report.excess > 1e-3
    assert report.more_pulls > 0
    assert report.tolerance is None


@pytest.mark.parametrize(("share", "outside"), [(0.99, 1), (1.01, 0)])
def test_totals_that_cannot_all_be_within_reach_are_counted_once(share, outside):
    """Before there is an estimate: where their mean squared residual is above the square of the reach."""
    totals = np.sin(np.arange(12.0))
    free = told(start("icb", n=6, k=2), totals).report.spread
    state = told(start("icb", n=6, k=2, reach=share * float(np.sqrt(free))), totals)
    assert state.looks == 1
    assert state.outside == outside


def test_exhaustive_takes_200_000_slates():
    assert start("exhaustive", n=20, k=10).settings.k == 10  # 184,756
    with pytest.raises(InvalidParameter, match="200,000"):
        start("exhaustive", n=21, k=8)  # 203,490
