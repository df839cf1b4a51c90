"""Intervals of another policy's value, from logs that were gathered by a policy that learned meanwhile.

All logs are simulated side by side: at each decision a context comes, an arm is drawn by inverse-gap
weighting from the present ridge estimates, and the learner is updated. True values are known, for there are
few contexts. Rewards are far from linear, so the model of ``dr`` is wrong: with a model that is right, wrong
propensities would do it no harm.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import permutations

import numpy as np
import pytest

from shortlist.evaluation import off_policy
from shortlist.evaluation.logged import Logged
from shortlist.linear import igw

pytestmark = pytest.mark.rest

LOGS, DECISIONS, CONTEXTS, ARMS, DIM = 300, 1_500, 4, 5, 3
LEVEL, LEAST_COVERED = 0.95, 0.93
NOISE, MISFIT = 0.5, 2.0


@dataclass(frozen=True)
class Logs:
    """Shapes: contexts, drawn, propensities, rewards (LOGS, DECISIONS), model (LOGS, CONTEXTS, ARMS)."""

    contexts: np.ndarray
    drawn: np.ndarray
    propensities: np.ndarray
    rewards: np.ndarray
    model: np.ndarray
    target: np.ndarray
    value: float


@pytest.fixture(scope="module")
def logs() -> Logs:
    rng = np.random.default_rng(31)
    features = rng.normal(size=(CONTEXTS, ARMS, DIM)) / np.sqrt(DIM)
    theta = rng.normal(size=DIM)
    means = features @ theta + MISFIT * rng.normal(size=(CONTEXTS, ARMS))
    sharp = np.exp(3.0 * rng.normal(size=(CONTEXTS, ARMS)))
    target = sharp / sharp.sum(axis=1, keepdims=True)
    value = float((target * means).sum(axis=1).mean())

    gram = np.broadcast_to(np.eye(DIM), (LOGS, DIM, DIM)).copy()
    moment = np.zeros((LOGS, DIM))
    shape = (DECISIONS, LOGS)
    contexts, drawn = rng.integers(CONTEXTS, size=shape), np.empty(shape, dtype=np.int64)
    propensities, rewards = np.empty(shape), np.empty(shape)
    every = np.arange(LOGS)
    for step in range(DECISIONS):
        estimate = np.linalg.solve(gram, moment[:, :, None])[:, :, 0]
        seen = features[contexts[step]]
        scores = np.einsum("lad,ld->la", seen, estimate)
        gamma = 2.0 + 0.02 * step
        p = 1.0 / (ARMS + gamma * (scores.max(axis=1, keepdims=True) - scores))
        best = scores.argmax(axis=1)
        p[every, best] += 1.0 - p.sum(axis=1)
        arm = (p.cumsum(axis=1) > rng.random((LOGS, 1))).argmax(axis=1)
        x = seen[every, arm]
        reward = means[contexts[step], arm] + NOISE * rng.normal(size=LOGS)
        gram += x[:, :, None] * x[:, None, :]
        moment += x * reward[:, None]
        drawn[step], propensities[step], rewards[step] = arm, p[every, arm], reward
    estimate = np.linalg.solve(gram, moment[:, :, None])[:, :, 0]
    model = np.einsum("cad,ld->lca", features, estimate)
    return Logs(contexts.T, drawn.T, propensities.T, rewards.T, model, target, value)


def covered(logs: Logs, name: str, propensities: np.ndarray) -> float:
    """Share of the logs whose interval holds the true value."""
    hits = 0
    for log in range(LOGS):
        context, arm = logs.contexts[log], logs.drawn[log]
        logged = Logged(
            propensities[log][:, None],
            logs.target[context, arm][:, None],
            logs.rewards[log][:, None],
            logs.model[log][context, arm][:, None],
            (logs.target * logs.model[log]).sum(axis=1)[context][:, None],
        )
        state = off_policy.add(off_policy.start([name], places=1), logged)
        low, high = state.estimates(name, level=LEVEL).whole.interval or (np.nan, np.nan)
        has_value = state.reached()[0] >= 0.8  # else the service gives none
        hits += has_value and low <= logs.value <= high
    return hits / LOGS


@pytest.mark.parametrize("name", off_policy.ESTIMATORS)
def test_intervals_cover_the_value_of_a_policy_from_logs_of_one_that_learned(logs: Logs, name: str):
    assert covered(logs, name, logs.propensities) >= LEAST_COVERED


@pytest.mark.parametrize("name", off_policy.ESTIMATORS)
def test_propensities_that_are_not_those_of_the_draws_fail(logs: Logs, name: str):
    """As if all arms had been as likely."""
    assert covered(logs, name, np.full_like(logs.propensities, 1.0 / ARMS)) < LEAST_COVERED - 0.1


def lists_of(weigh: Callable[[np.ndarray], np.ndarray], scores: np.ndarray) -> np.ndarray:
    """The probability of each arm at its place, given the arms before it, of every list in ``ORDERS``."""
    found = np.empty(ORDERS.shape)
    for row, order in enumerate(ORDERS.tolist()):
        left = list(range(len(scores)))
        for place, arm in enumerate(order):
            found[row, place] = weigh(scores[left])[left.index(arm)]
            left.remove(arm)
    return found


ORDERS = np.array(list(permutations(range(4), 3)))


@pytest.mark.parametrize("name", off_policy.ESTIMATORS)
def test_intervals_of_lists_cover_their_value_where_rewards_depend_on_the_arms_above(name: str):
    """And weights of each place alone, without those above, fail."""
    rng = np.random.default_rng(32)
    believed, wanted = rng.normal(size=4), rng.normal(size=4)
    propensities = lists_of(lambda scores: igw.propensities(scores, gamma=4.0), believed)
    targets = lists_of(lambda scores: np.exp(2 * scores) / np.exp(2 * scores).sum(), wanted)
    means = rng.normal(size=ORDERS.shape)  # of an arm at its place, whatever stands above and below
    for place in (1, 2):  # but for what stands right above
        means[:, place] += 2.0 * wanted[ORDERS[:, place - 1]]
    # What stands below does not matter: lists that begin alike have the same means down to there.
    for place in range(3):
        for prefix in {tuple(order[: place + 1]) for order in ORDERS.tolist()}:
            same = (ORDERS[:, : place + 1] == prefix).all(axis=1)
            means[same, place] = means[same, place][0]
    value = float(targets.prod(axis=1) @ means.sum(axis=1))
    hits = alone = 0
    for _ in range(LOGS):
        drawn = rng.choice(len(ORDERS), size=1_000, p=propensities.prod(axis=1))
        rewards = means[drawn] + NOISE * rng.normal(size=(1_000, 3))
        guess = np.zeros((1_000, 3))  # the model knows nothing
        logged = Logged(propensities[drawn], targets[drawn], rewards, guess, guess)
        state = off_policy.add(off_policy.start([name], places=3), logged)
        low, high = state.estimates(name, level=LEVEL).whole.interval or (np.nan, np.nan)
        hits += low <= value <= high
        separate = []
        for place in range(3):
            column = slice(place, place + 1)
            one = Logged(*(part[:, column] for part in (propensities[drawn], targets[drawn], rewards)))
            found = off_policy.add(off_policy.start(["ips"], places=1), one).estimates("ips").whole
            separate.append(found.value or 0.0)
        alone += low <= sum(separate) <= high
    assert hits / LOGS >= LEAST_COVERED
    assert alone / LOGS < LEAST_COVERED - 0.1
