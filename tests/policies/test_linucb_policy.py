"""LinUCB within limits, and as the target of an evaluation."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from app.indexes.live import LiveIndex
from app.policies.linucb import LinUcbTarget, UpperBounds
from app.policies.targets import EvaluationBatch
from app.selection.list_limits import AtMost, Limits
from shortlist.linear import ridge, ridge_sums
from shortlist.types import NO_ROWS

ARMS, DIM = 30, 4
RNG = np.random.default_rng(4)
FEATURES = RNG.normal(size=(ARMS, DIM))
SUMS = ridge_sums.add(ridge_sums.empty(DIM), FEATURES[:9], RNG.normal(size=9), np.ones(9, dtype=bool))
POSTERIOR = ridge.posterior(SUMS, ridge=0.5)


def catalogue() -> Any:
    """Of arms whose rows are their numbers, by two makers."""
    index = LiveIndex(DIM)
    names = [f"a{arm}" for arm in range(ARMS)]
    index.upsert(names, FEATURES, range(ARMS))
    index.describe(names, [([], {"maker": f"m{arm % 2}"}) for arm in range(ARMS)])
    snapshot = index.snapshot()
    return SimpleNamespace(
        eligible=snapshot.eligible, features_of=snapshot.features_of, plain=snapshot, table=snapshot.table
    )


@pytest.mark.parametrize("alpha", [0.0, 3.0])
def test_within_limits_the_arms_of_largest_bounds_are_taken(alpha: float):
    arms = catalogue()
    order = UpperBounds(arms, POSTERIOR, alpha).search(POSTERIOR.theta, ARMS).rows.tolist()
    wanted: list[int] = []
    for arm in order:
        if all(one % 2 != arm % 2 for one in wanted):
            wanted.append(arm)
    within = Limits([AtMost("maker", 1)], arms.plain, NO_ROWS)
    assert UpperBounds(arms, POSTERIOR, alpha, within).search(POSTERIOR.theta, 5).rows.tolist() == wanted
    assert order[:2] != wanted


def test_what_is_predicted_of_a_list_are_its_estimates():
    """Not its upper bounds, by which it is chosen."""
    arms = catalogue()
    bandit: Any = SimpleNamespace(context=None, theta_and_offset=lambda theta: (theta, 0.0))
    bandit.given = lambda posterior, _: posterior
    situations = EvaluationBatch(bandit, ["one"], [POSTERIOR], np.zeros(1, np.int64), None, [NO_ROWS])
    ((rows, predicted),) = LinUcbTarget(arms, arms, 3, draws=1, alpha=2.0).prepare(situations, lambda: None)
    best = UpperBounds(arms, POSTERIOR, 2.0).search(POSTERIOR.theta, 3)
    assert rows.tolist() == [best.rows.tolist()]
    assert predicted[0] == pytest.approx(FEATURES[best.rows] @ POSTERIOR.theta)
    assert (predicted[0] < best.scores).all()
