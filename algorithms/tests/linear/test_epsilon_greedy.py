"""Epsilon-greedy: propensities by hand, and draws as frequent as they claim.

Frequencies are compared beyond 4 standard errors of 20,000 seeded draws; what is broken is beyond 8.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import permutations

import numpy as np
import pytest

from frequencies import furthest_sigma
from shortlist.linear import epsilon_greedy

DRAWS = 20_000
SCORES = np.array([0.3, 0.9, 0.75, 0.1, 0.9, 0.88])
EPSILON = 0.4
TWINS = (4, 5)  # at most one of them, where there are limits

Weigh = Callable[[list[int]], list[float]]


def by_hand(left: list[int]) -> list[float]:
    best = max(left, key=lambda arm: (SCORES[arm], -arm))
    return [EPSILON / len(left) + (1.0 - EPSILON) * (arm == best) for arm in left]


def others_only(left: list[int]) -> list[float]:
    """Broken: exploring never takes the best arm."""
    best = max(left, key=lambda arm: (SCORES[arm], -arm))
    share = EPSILON / max(len(left) - 1, 1)
    return [1.0 - share * (len(left) - 1) if arm == best else share for arm in left]


def as_at_first(left: list[int]) -> list[float]:
    """Broken: the number of arms stays that of the first place."""
    best = max(left, key=lambda arm: (SCORES[arm], -arm))
    share = EPSILON / len(SCORES)
    return [1.0 - share * (len(left) - 1) if arm == best else share for arm in left]


def of_lists(k: int, weigh: Weigh, *, limited: bool) -> dict[tuple[int, ...], float]:
    """The probability of every ordered list."""
    found = {}
    for order in permutations(range(len(SCORES)), k):
        left, product = list(range(len(SCORES))), 1.0
        for arm in order:
            if arm not in left:
                break
            product *= weigh(left)[left.index(arm)]
            gone = TWINS if limited and arm in TWINS else (arm,)
            left = [other for other in left if other not in gone]
        else:
            found[order] = product
    return found


@pytest.mark.parametrize(
    ("k", "limited"),
    [
        (1, False),
        (3, True),
        pytest.param(1, True, marks=pytest.mark.slow),
        pytest.param(3, False, marks=pytest.mark.slow),
    ],
)
def test_lists_come_as_often_as_their_propensities_say(k: int, limited: bool):
    rng = np.random.default_rng(20)
    counts: Counter[tuple[int, ...]] = Counter()
    claimed = {}

    def take(place: int) -> np.ndarray:
        return np.array(TWINS if place in TWINS else [place])

    for _ in range(DRAWS):
        drawn = epsilon_greedy.choose(SCORES, k=k, epsilon=EPSILON, rng=rng, take=take if limited else None)
        order = tuple(drawn.places.tolist())
        counts[order] += 1
        claimed[order] = float(drawn.propensities.prod())
    right = of_lists(k, by_hand, limited=limited)
    assert claimed == pytest.approx({order: right[order] for order in claimed})
    assert furthest_sigma(counts, right) < 4.0
    for weigh in (others_only, as_at_first)[: 1 if k == 1 else 2]:
        assert furthest_sigma(counts, of_lists(k, weigh, limited=limited)) > 8.0


@pytest.mark.rest
def test_few_that_are_left_are_drawn_all_alike():
    """Of many arms all but three are barred: they are listed, not looked for."""
    scores, barred = np.zeros(1_000), np.ones(1_000, dtype=np.bool_)
    barred[[7, 500, 900]] = False
    rng = np.random.default_rng(2)
    counts = Counter(
        int(epsilon_greedy.choose(scores, k=1, epsilon=1.0, rng=rng, barred=barred).places[0])
        for _ in range(6_000)
    )
    assert set(counts) == {7, 500, 900}
    assert max(counts.values()) - min(counts.values()) < 224  # six standard errors
    drawn = epsilon_greedy.choose(scores, k=9, epsilon=1.0, rng=rng, barred=barred)
    assert sorted(drawn.places.tolist()) == [7, 500, 900]
    assert drawn.propensities == pytest.approx([1 / 3, 1 / 2, 1.0])


def test_without_epsilon_it_is_the_order_of_the_scores():
    rng = np.random.default_rng(1)
    drawn = epsilon_greedy.choose(SCORES, k=9, epsilon=0.0, rng=rng)
    assert drawn.places.tolist() == [1, 4, 5, 2, 0, 3]
    assert (drawn.propensities == 1.0).all()
    assert not len(epsilon_greedy.choose(np.zeros(0), k=1, epsilon=0.5, rng=rng).places)
