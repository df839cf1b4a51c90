"""When so much of what a policy does was never done that chance does not explain it."""

from __future__ import annotations

import numpy as np
import pytest

from shortlist.evaluation import off_policy
from shortlist.evaluation.logged import Logged
from shortlist_evaluation.evaluation_warnings import MUCH_MISSING
from shortlist_evaluation.evaluator import TOO_MUCH_MISSING

pytestmark = pytest.mark.rest


def state(decisions: int, weights: np.ndarray) -> off_policy.OffPolicyState:
    """Of decisions with these weights, all others 0."""
    p = np.full((decisions, 1), 1e-3)
    t = np.zeros((decisions, 1))
    t[: len(weights), 0] = weights * 1e-3
    return off_policy.add(off_policy.start(["ips"], places=1), Logged(p, t, np.ones((decisions, 1))))


@pytest.mark.parametrize("count", [1, 3, 10, 100])
def test_a_mean_weight_of_a_seventh_is_no_chance(count: int):
    """As on a log of 1,060 decisions, 86 % of what the policy did missing, however many decisions it used."""
    weights = np.full(count, 0.14 * 1_060 / count)
    assert state(1_060, weights).lacking(TOO_MUCH_MISSING).tolist() == [True]
    assert state(1_060, np.zeros(0)).lacking(TOO_MUCH_MISSING).tolist() == [True]


def test_half_is_chance_where_few_decisions_count_and_none_where_many_do():
    for count, is_lacking in ((1, False), (5, False), (50, True)):
        weights = np.full(count, 0.5 * 1_000 / count)
        assert state(1_000, weights).lacking(TOO_MUCH_MISSING).tolist() == [is_lacking]


def test_what_is_there_is_not_lacking():
    rng = np.random.default_rng(3)
    found = [state(200, rng.gamma(0.2, 5.0, size=200)).lacking(MUCH_MISSING)[0] for _ in range(1_000)]
    assert np.mean(found) <= 0.05
    assert off_policy.start(["ips"], places=2).lacking(TOO_MUCH_MISSING).tolist() == [False, False]
    one = Logged(np.ones((3, 1)), np.ones((3, 1)), np.ones((3, 1)))
    assert not off_policy.add(off_policy.start(["ips"], places=1), one).lacking(TOO_MUCH_MISSING).any()
