"""Simulated bandits whose groups are alike, looked at whenever anything changed: how many ever show a lift.

Users differ, each keeps to its group, and makes one decision or a thousand. Of 1,000 runs at most 72 may find
a lift: the binomial quantile at 1e-3 for the 5 % that the intervals promise. Intervals change at looks only,
so whoever peeks after every hundredth of the decisions sees no more than these tests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import pytest
from scipy import stats

from app.measuring.outcomes import Terms
from app.measuring.report import ReportFold
from logged_rows import row
from shortlist.evaluation import clustered_t_sequence as sequence
from shortlist.evaluation.clustered_t_sequence import Looks, Summary

pytestmark = pytest.mark.rest

ALPHA = 0.05
Summarise = Callable[[np.ndarray, np.ndarray], Summary]


def most(runs: int) -> int:
    return int(stats.binom.ppf(1 - 1e-3, runs, ALPHA))


def shares_of(rng: np.random.Generator, keys: int, kind: str) -> np.ndarray:
    """What part of the decisions each key makes."""
    weights = {
        "equal": np.ones(keys),
        "lognormal": rng.lognormal(0.0, 1.5, keys),
        "pareto": 1.0 + rng.pareto(1.2, keys),
    }[kind]
    return weights / weights.sum()


def rates_of(rng: np.random.Generator, shares: np.ndarray, kind: str) -> np.ndarray:
    """How often each key clicks. ``busy``: the more, the more decisions it makes."""
    keys = len(shares)
    if kind == "busy":
        return 0.05 + 0.6 * shares * keys / (shares * keys + 3.0)
    return {
        "users": rng.beta(2.0, 8.0, keys),
        "rare": rng.beta(0.2, 19.8, keys),
        "alike": np.full(keys, 0.01),
    }[kind]


@dataclass(frozen=True)
class Case:
    keys: int
    each: int  # decisions of a key, on average
    spread: str = "equal"  # of decisions over keys
    order: str = "mixed"  # or keys come "in turn", each with all its decisions
    rates: str = "users"
    holdout: float = 0.1
    lift: float = 0.0


def looks(case: Case, rng: np.random.Generator) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Of one run at each look: who is in the holdout, and by key the decisions and clicks so far."""
    held = rng.random(case.keys) < case.holdout
    shares = shares_of(rng, case.keys, case.spread)
    rates = np.clip(rates_of(rng, shares, case.rates) + case.lift * ~held, 0.0, 1.0)
    whole = np.maximum(np.rint(shares * case.keys * case.each), 1.0).astype(np.int64)
    begins = whole.cumsum() - whole
    counts, clicks = np.zeros((2, case.keys), dtype=np.int64)
    last, total = 0, case.keys * case.each
    for look in (2**power for power in range(6, 40)):
        if look > total:
            return
        if case.order == "mixed":
            new = rng.multinomial(look - last, shares)
        else:
            new = np.clip(look - begins, 0, whole) - counts
        counts, clicks, last = counts + new, clicks + rng.binomial(new, rates), look
        yield held, counts, clicks


def finds_a_lift(case: Case, rng: np.random.Generator, summarise: Summarise, factor: float = 1.0) -> bool:
    """Whether any interval of one run is without 0."""
    past = Looks()
    for held, counts, clicks in looks(case, rng):
        there = counts > 0
        groups = [
            summarise(counts[there & of].astype(float), clicks[there & of].astype(float))
            for of in (~held, held)
        ]
        past = sequence.look(past, *groups)
        if past.interval is not None:
            low, high = past.interval
            if abs(low + high) / 2 > factor * (high - low) / 2:
                return True
    return False


def found(
    case: Case, runs: int, summarise: Summarise = sequence.summary, factor: float = 1.0, seed: int = 1
) -> int:
    rng = np.random.default_rng(seed)
    return sum(finds_a_lift(case, rng, summarise, factor) for _ in range(runs))


def of_decisions(counts: np.ndarray, sums: np.ndarray) -> Summary:
    """Broken: each decision is taken as drawn by itself."""
    decisions, mean = counts.sum(), sums.sum() / max(counts.sum(), 1.0)
    return Summary(int(decisions), mean, mean * (1 - mean) / max(decisions, 1.0), 0.01)


def of_any_keys(counts: np.ndarray, sums: np.ndarray) -> Summary:
    """Broken: nobody asks whether a few keys decide."""
    return replace(sequence.summary(counts, sums), largest=0.0)


SPREADS = list(product(["equal", "lognormal", "pareto"], ["mixed", "in turn"]))


@pytest.mark.parametrize(
    "case", [Case(100, 1_000, holdout=0.5), Case(1_000, 100), Case(1_000, 30, order="in turn")]
)
def test_a_lift_that_is_not_there_is_hardly_ever_found(case: Case):
    assert found(case, 200) <= most(200)


def test_a_lift_is_found_where_decisions_are_the_unit():
    assert found(Case(1_000, 100), 100, of_decisions) > most(100)


def test_a_lift_is_found_where_a_few_keys_decide():
    case = Case(1_000, 30, spread="lognormal", order="in turn", rates="busy")
    assert found(case, 150) <= most(150)
    assert found(case, 150, of_any_keys) > most(150)


@pytest.mark.parametrize("broken", ["every look at 5 %", "radius times .7"])
def test_a_lift_is_found_by_intervals_that_are_too_short(broken: str, monkeypatch: pytest.MonkeyPatch):
    factor = 0.7
    if broken == "every look at 5 %":
        factor = 1.0
        monkeypatch.setattr(sequence, "alpha_of", lambda look, alpha: alpha)
    assert found(Case(1_000, 100), 200, factor=factor) > most(200)


def test_a_lift_that_is_there_is_found():
    assert found(Case(1_000, 30, lift=0.1), 20) >= 18


@pytest.mark.slow
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize(("spread", "order"), SPREADS)
@pytest.mark.parametrize("each", [1, 10, 100, 1_000])
@pytest.mark.parametrize("keys", [50, 300, 1_000, 10_000])
def test_it_is_hardly_ever_found_however_decisions_are_spread_over_keys(
    keys: int, each: int, spread: str, order: str
):
    """50 keys never have an interval: one group has less than 30."""
    case = Case(keys, each, spread, order)
    assert found(case, 1_000) <= most(1_000)


@pytest.mark.slow
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize(("spread", "order"), SPREADS)
@pytest.mark.parametrize("rates", ["busy", "rare", "alike"])
@pytest.mark.parametrize("holdout", [0.1, 0.5])
def test_nor_whoever_clicks(rates: str, spread: str, order: str, holdout: float):
    case = Case(1_000, 100, spread, order, rates, holdout)
    assert found(case, 1_000) <= most(1_000)


def test_the_looks_of_these_tests_are_those_of_reports():
    """So what is shown of the runs here is shown of reports."""
    case, rng, fold = Case(500, 4, holdout=0.5), np.random.default_rng(3), ReportFold(unit="key")
    before, past = np.zeros((2, case.keys), dtype=np.int64), Looks()
    for held, counts, clicks in looks(case, rng):
        for key in rng.permutation(np.repeat(np.arange(case.keys), counts - before[0])).tolist():
            group = "holdout" if held[key] else "policy"
            clicked = [1.0] * int(before[1][key] < clicks[key])
            before[1][key] += len(clicked)
            fold.add([row(*clicked, key=f"user-{key}", group=group)], {1: Terms(0.0)})
        before[0] = counts
        there = counts > 0
        groups = [
            sequence.summary(counts[there & of] * 1.0, clicks[there & of] * 1.0) for of in (~held, held)
        ]
        past = sequence.look(past, *groups)
        report = fold.report()
        assert report.interval_decisions == counts.sum()
        assert report.lift.interval == (past.interval and pytest.approx(past.interval))
    assert past.interval is not None
