"""Bandits with a context: what they learn and choose, everything else that a bandit can do, and bad input."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from api_client import Api, Json
from oracle import ridge_of

pytestmark = pytest.mark.anyio

RNG = np.random.default_rng(21)
DIM = 4
ARMS = {f"a{i}": [float(x) for x in row] for i, row in enumerate(RNG.uniform(-1, 1, size=(40, DIM)))}
POLICIES = ["sub_ts", "linear_ts", "softmax", "igw"]


async def build(api: Api, name: str = "b", **bandit: Any) -> None:
    if (await api.call("GET", "/v1/catalogues/c")).status_code == 404:
        await api.catalogue("c", ARMS)
    await api.bandit(name, "c", **{"context": {"dim": 3}, **bandit})


def phi(row: list[float], context: list[float], directions: Any = None) -> np.ndarray:
    """[x ; (P x) kron u] with u in float32, as the service has it."""
    x, u = np.array(row), np.array(context, dtype=np.float32).astype(float)
    interacting = x if directions is None else np.array(directions) @ x
    return np.concatenate((x, np.kron(interacting, u)))


def contexts(count: int, m: int = 3, seed: int = 1) -> list[list[float]]:
    return np.random.default_rng(seed).normal(size=(count, m)).tolist()


def assert_learned(learner: Json, rows: list[np.ndarray], values: list[float], *, m: int = 3) -> None:
    """Theta and W are those of ridge regression on explicit phi."""
    precision, wanted = ridge_of(rows, values)
    np.testing.assert_allclose(learner["theta"], wanted[:DIM], atol=1e-8)
    np.testing.assert_allclose(learner["weights"], wanted[DIM:].reshape(-1, m), atol=1e-8)
    if "precision" in learner:
        np.testing.assert_allclose(learner["precision"], precision, atol=1e-8)


async def play(
    api: Api, rounds: int = 30, **request: Any
) -> tuple[list[str], list[list[float]], list[float]]:
    """Choose in a context and reward, one after the other."""
    arms, values, situations = [], [], contexts(rounds)
    for number, context in enumerate(situations):
        choice = await api.choose("b", context=context, seed=number, **request)
        arms.append(choice["arms"][0]["id"])
        values.append(float(number % 5) - 1.0)
        await api.reward({"decision": choice["decision"], "value": values[-1]})
    return arms, situations, values


@pytest.mark.parametrize(
    ("policy", "interactions"), [("sub_ts", "all"), ("linear_ts", 2), ("softmax", "all"), ("igw", 2)]
)
async def test_learners_are_ridge_regressions_on_phi(api: Api, policy: str, interactions: Any):
    await build(api, policy=policy, interactions=interactions)
    arms, situations, values = await play(api)
    learner = await api.ok("GET", "/v1/bandits/b/learners/_global?include=directions")
    directions = learner.get("directions")
    assert (directions is None) == (interactions == "all")
    rows = [phi(ARMS[arm], context, directions) for arm, context in zip(arms, situations, strict=True)]
    assert_learned(await api.learner("b", precision=True), rows, values)
    assert learner["context"] == {"dim": 3}
    assert learner["observations"] == 30
    # The same history in another order, all at once, into another bandit.
    history = [
        {"id": f"o{n}", "arm": arm, "value": value, "context": context}
        for n, (arm, context, value) in enumerate(zip(arms, situations, values, strict=True))
    ]
    await build(api, "again", policy=policy, interactions=interactions)
    await api.observe("again", *history[::-1])
    again = await api.learner("again")
    np.testing.assert_allclose(again["theta"], learner["theta"], atol=1e-8)
    np.testing.assert_allclose(again["weights"], learner["weights"], atol=1e-8)


@pytest.mark.parametrize(
    ("policy", "intercept"), [*((policy, False) for policy in POLICIES), ("sub_ts", True), ("igw", True)]
)
async def test_scores_are_predictions_and_the_best_come_first(api: Api, policy: str, intercept: bool):
    await build(api, policy=policy, exploration=0.0, interactions=2, intercept=intercept)
    await play(api)
    learner = await api.ok("GET", "/v1/bandits/b/learners/_global?include=directions")
    context = np.array([0.5, -1.0, 2.0])
    W, P = np.array(learner["weights"]), np.array(learner["directions"])
    query = np.array(learner["theta"]) + P.T @ W @ context
    predicted = {arm: float(np.dot(row, query)) + learner.get("offset", 0.0) for arm, row in ARMS.items()}
    choice = await api.choose("b", context=context.tolist(), k=len(ARMS), seed=1)
    for arm in choice["arms"]:
        assert arm["score"] == pytest.approx(predicted[arm["id"]], abs=1e-9)
    if policy in {"sub_ts", "linear_ts"}:
        assert choice["exact"]
        order = sorted(predicted, key=lambda arm: -predicted[arm])
        assert [arm["id"] for arm in choice["arms"]] == order
    else:
        assert choice["arms"][0]["propensity"] > 0


# Bad input.
