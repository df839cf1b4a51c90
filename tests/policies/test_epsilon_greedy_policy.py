"""Epsilon-greedy as the target of an evaluation: which arms it may draw, and about how many of each."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.indexes.live import LiveIndex
from app.policies.epsilon_greedy import EpsilonGreedyTarget, KnownSituation
from app.policies.targets import EvaluationBatch, Lists
from shortlist.types import Rows

ARMS, PLACES = 6, 2


def prepared(epsilon: float, exclude: list[int]) -> tuple[EpsilonGreedyTarget, EvaluationBatch, Any]:
    """Of arms whose estimates are their rows."""
    index = LiveIndex(1)
    index.upsert([f"a{row}" for row in range(ARMS)], np.arange(float(ARMS))[:, None], range(ARMS))
    bandit: Any = SimpleNamespace(context=None, theta_and_offset=lambda theta: (theta, 0.0))
    posterior: Any = SimpleNamespace(theta=np.ones(1))
    excluded: Rows = np.array(exclude, dtype=np.int64)
    situations = EvaluationBatch(bandit, ["one"], [posterior], np.zeros(1, np.int64), None, [excluded])
    target = EpsilonGreedyTarget(index.snapshot(), epsilon, PLACES)
    (known,) = target.prepare(situations, lambda: None)
    return target, situations, known


@pytest.mark.parametrize(
    ("epsilon", "exclude", "least", "most"),
    [(0.0, [], 4.0, 5.0), (0.0, [5], 3.0, 4.0), (0.3, [], 0.0, 5.0), (0.3, [0, 5], 1.0, 4.0)],
)
def test_what_is_predicted_is_that_of_arms_that_it_may_draw(
    epsilon: float, exclude: list[int], least: float, most: float
) -> None:
    """Where it never explores these are the best ones: other arms would widen intervals for nothing."""
    known: KnownSituation = prepared(epsilon, exclude)[2]
    assert (known.least, known.most) == (least, most)


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0])
def test_each_place_of_a_list_may_show_any_arm(epsilon: float) -> None:
    target, situations, known = prepared(epsilon, [5])
    rows, counts = target.drawn(situations, known, 0)
    found = dict(zip(rows.tolist(), counts.tolist(), strict=True))
    share = epsilon * PLACES / 5
    wanted = {row: share + (1.0 - epsilon) * (row >= 3) for row in range(5)}
    assert found == pytest.approx({row: count for row, count in wanted.items() if count})
    assert sum(found.values()) == pytest.approx(PLACES)


@given(
    st.sampled_from([0.0, 0.3, 1.0]),
    st.lists(st.permutations(range(ARMS)).map(lambda order: order[:PLACES]), min_size=1, max_size=4),
)
def test_lists_are_weighed_as_their_arms_are_drawn(epsilon: float, orders: list[list[int]]) -> None:
    """Estimates are the rows of arms; 0 is excluded, and stands for an arm that is not in the pool."""
    target, situations, known = prepared(epsilon, [0])
    rows = np.array(orders) - (np.array(orders) == 0)
    lists = Lists(np.zeros(len(orders), np.int64), rows, np.maximum(rows, 0).astype(np.float64))
    weighed = target.weigh(situations, [known], lists)
    for order, propensities, expected in zip(orders, weighed.propensities, weighed.expected, strict=True):
        left = set(range(1, ARMS))
        for arm, propensity, mean in zip(order, propensities, expected, strict=True):
            chance = {one: epsilon / len(left) + (1 - epsilon) * (one == max(left)) for one in left}
            assert propensity == pytest.approx(chance.get(arm, 0.0))
            assert mean == pytest.approx(sum(one * share for one, share in chance.items()))
            left -= {arm}
