"""Inverse-gap weighting: the printed formula, the lemma's constant, and draws as frequent as they claim."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frequencies import furthest_sigma
from shortlist.linear import igw

DRAWS = 20_000
ESTIMATES = np.array([0.3, 0.9, 0.75, 0.1, 0.9, 0.88])
GAMMA = 12.0

Weigh = Callable[[list[float]], list[float]]


def printed(estimates: list[float], gamma: float = GAMMA) -> list[float]:
    """The formula, one arm after the other."""
    best = max(range(len(estimates)), key=lambda arm: (estimates[arm], -arm))
    found = [1.0 / (len(estimates) + gamma * (estimates[best] - value)) for value in estimates]
    found[best] = 1.0 - sum(value for arm, value in enumerate(found) if arm != best)
    return found


def of_lists(k: int, weigh: Weigh) -> Mapping[tuple[int, ...], float]:
    """The probability of every ordered list."""
    found = {}
    for order in permutations(range(len(ESTIMATES)), k):
        left, product = list(range(len(ESTIMATES))), 1.0
        for arm in order:
            product *= weigh(ESTIMATES[left].tolist())[left.index(arm)]
            left.remove(arm)
        found[order] = product
    return found


def all_as_before(estimates: list[float]) -> list[float]:
    """Broken: n stays that of the first place, so the best gets too much."""
    best = int(np.argmax(estimates))
    found = [1.0 / (len(ESTIMATES) + GAMMA * (estimates[best] - value)) for value in estimates]
    found[best] = 1.0 - sum(value for arm, value in enumerate(found) if arm != best)
    return found


def boltzmann(estimates: list[float]) -> list[float]:
    """Broken: another policy's propensities."""
    mass = np.exp(np.array(estimates) * 3.0)
    return (mass / mass.sum()).tolist()


def uniform(estimates: list[float]) -> list[float]:
    return [1.0 / len(estimates)] * len(estimates)


estimates = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30)


@given(estimates, st.floats(0, 1e9))
def test_propensities_are_the_printed_formula(values: list[float], gamma: float):
    found = igw.propensities(np.array(values), gamma=gamma)
    assert found == pytest.approx(printed(values, gamma), rel=1e-12)
    assert found.sum() == pytest.approx(1.0)
    assert found[np.argmax(values)] >= max(found.max(), 1.0 / len(values)) - 1e-12
    assert (found > 0.0).all()


@pytest.mark.rest
def test_without_gamma_all_are_alike_and_of_equal_ones_the_first_is_the_best():
    assert igw.propensities(ESTIMATES, gamma=0.0) == pytest.approx(1.0 / 6.0)
    found = igw.propensities(np.array([1.0, 2.0, 2.0]), gamma=9.0)
    assert found == pytest.approx([1 / 12, 1 - 1 / 12 - 1 / 3, 1 / 3])


def excess(values: np.ndarray, p: np.ndarray, gamma: float) -> float:
    """Largest, over f* and a* of regret - gamma / 4 E (f_a - f*_a)^2; for each a* it is quadratic in f*.

    The best f* is f_a - 2 / gamma for a other than a*, and f_a* + 2 (1 - p_a*) / (p_a* gamma).
    """
    worst = values + (1.0 - p) / gamma + np.square(1.0 - p) / (p * gamma)
    return float((worst - p @ values).max())


@given(st.lists(st.floats(0, 1), min_size=2, max_size=40), st.floats(0.1, 1e4))
def test_the_regret_of_a_draw_is_within_the_lemma(values: list[float], gamma: float):
    """Foster and Rakhlin, Lemma 3."""
    found = np.array(values)
    p = igw.propensities(found, gamma=gamma)
    assert excess(found, p, gamma) <= 2.0 * len(values) / gamma * (1.0 + 1e-9)


@pytest.mark.parametrize(
    ("k", "broken"), [(1, [boltzmann, uniform]), (3, [boltzmann, uniform, all_as_before])]
)
def test_lists_are_drawn_as_often_as_their_propensities_say(k: int, broken: list[Weigh]):
    rng = np.random.default_rng(20)
    counts: Counter[tuple[int, ...]] = Counter()
    claimed = {}
    for _ in range(DRAWS):
        drawn = igw.choose(ESTIMATES, k=k, gamma=GAMMA, rng=rng)
        order = tuple(drawn.places.tolist())
        counts[order] += 1
        claimed[order] = float(drawn.propensities.prod())
    right = of_lists(k, printed)
    assert claimed == pytest.approx({order: right[order] for order in claimed})
    assert furthest_sigma(counts, right) < 4.0
    for weigh in broken:
        assert furthest_sigma(counts, of_lists(k, weigh)) > 8.0


@pytest.mark.rest
def test_all_are_drawn_when_more_are_asked_for():
    drawn = igw.choose(ESTIMATES, k=9, gamma=GAMMA, rng=np.random.default_rng(0))
    assert sorted(drawn.places.tolist()) == list(range(6))
    assert drawn.propensities[-1] == 1.0
