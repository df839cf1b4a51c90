"""Bandits without a setting: what they use, and that it is in the unit of features and rewards."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from api_client import Api, Json
from oracle import ridge_of

pytestmark = [pytest.mark.anyio, pytest.mark.rest]

DIM, COUNT = 4, 30
FEATURES = np.random.default_rng(7).standard_normal((COUNT, DIM)).astype(np.float32)
AUTO: Json = {"exploration": "auto", "ridge": "auto"}
BOUNDS: Json = {"min": -8.0, "max": 8.0}


async def build(api: Api, name: str, *, by: float = 1.0, times: float = 1.0, **rest: Any) -> None:
    """Features are multiplied ``by``, rewards ``times``."""
    arms = {f"a{i}": (by * row).tolist() for i, row in enumerate(FEATURES)}
    await api.ok("PUT", f"/v1/catalogues/{name}", {"dim": DIM, "index": {"kind": "exact"}}, 201)
    await api.put_arms(name, arms)
    reward = rest.pop("reward", BOUNDS)
    reward = reward | {bound: times * value for bound, value in reward.items() if bound in BOUNDS}
    await api.bandit(name, name, **{**AUTO, "reward": reward, **rest})


RATIOS = 4.0 ** np.arange(1.0, 14.0)
VALUES = [1.0, -2.0, 4.0, 0.5]
SQUARE = float((FEATURES.astype(float) ** 2).sum(axis=1).mean())


def of_evidence(
    rows: np.ndarray, rewards: np.ndarray, spread: float, weights: np.ndarray | None = None
) -> tuple[float, float]:
    """Ridge and noise for which the rewards and the spread, in a direction of its own, are most probable.

    ``weights``: the powers of the rewards in the likelihood, None: all are 1.
    """
    roots = np.ones(len(rows)) if weights is None else np.sqrt(weights)
    count = (roots**2).sum()
    length = float(((roots[:, None] * rows) ** 2).sum()) / count
    whole = np.zeros((len(rows) + 1, rows.shape[1] + 1))
    whole[:-1, :-1], whole[-1, -1] = roots[:, None] * rows, np.sqrt(length)
    told, found = np.append(roots * rewards, spread), []
    for ratio in RATIOS:
        covariance = np.eye(len(told)) + ratio / length * whole @ whole.T
        left = float(told @ np.linalg.solve(covariance, told)) / (count + 1)
        value = (
            -np.linalg.slogdet(covariance)[1] - (count + 1) * np.log(left) - (np.log(ratio / 4.0) / 3.0) ** 2
        )
        found.append((value, length / ratio, np.sqrt(left)))
    _, ridge, noise = max(found)
    return ridge, noise


async def observe(api: Api, name: str) -> None:
    for place, value in enumerate(VALUES):
        await api.observe(name, {"id": f"o{place}", "arm": f"a{place}", "value": value})


async def test_a_bandit_says_what_it_uses(api: Api):
    await build(api, "b", policy="linear_ts")
    begins = {"ridge": pytest.approx(SQUARE / 4), "noise": 8.0, "exploration": 0.5}
    bandit = await api.ok("GET", "/v1/bandits/b")
    assert bandit["used"] == begins
    assert (await api.learner("b"))["used"] == begins
    await observe(api, "b")
    X, r = FEATURES[: len(VALUES)].astype(float), np.array(VALUES)
    ridge, noise = of_evidence(X, r, 8.0)
    learner = await api.learner("b")
    assert learner["theta"] == pytest.approx(ridge_of(X, r, ridge=ridge)[1])
    expected = {"ridge": pytest.approx(ridge), "noise": pytest.approx(noise), "exploration": 0.5}
    assert learner["used"] == expected
    assert (await api.ok("GET", "/v1/bandits/b"))["used"] == begins
    answer = await api.ok("PATCH", "/v1/bandits/b", {"exploration": 0.5, "ridge": 2})
    assert answer["used"] == {"ridge": 2, "noise": 1, "exploration": 0.5}
    assert (await api.learner("b"))["used"] == answer["used"]


async def test_of_one_hot_arms_a_decision_says_something_of_few_numbers(api: Api):
    """The prior of a weight of the context is no narrower than that of one arm alone."""
    for name, arms in (("hot", np.eye(10)), ("full", np.ones((10, 10)) + np.eye(10))):
        await api.catalogue(name, {f"a{i}": row.tolist() for i, row in enumerate(arms)})
        body = {"catalogue": name, "policy": "linear_ts", "context": {"dim": 3}}
        used = (await api.ok("PUT", f"/v1/bandits/{name}", body, 201))["used"]
        numbers = 1 + 3 + 1 if name == "hot" else 10 + 30 + 1
        square = float((arms**2).sum()) / 10
        assert used["ridge"] == pytest.approx(numbers / 320 * (square + square / 10))
        assert used["exploration"] == pytest.approx(min(0.5, 2.25 / numbers**0.5))


async def test_where_only_the_ridge_is_a_number_the_noise_is_that_of_the_rewards(api: Api):
    ridge = 0.5
    await build(api, "b", policy="linear_ts", ridge=ridge)
    assert (await api.learner("b"))["used"] == {"ridge": ridge, "noise": 8.0, "exploration": 0.5}
    await observe(api, "b")
    X, r = FEATURES[: len(VALUES)].astype(float), np.array(VALUES)
    theta = ridge_of(X, r, ridge=ridge)[1]
    share = 1.0 / (1.0 + (X**2).sum() / len(VALUES) / ridge)
    noise = np.sqrt((r @ r - r @ X @ theta + share * 8.0**2) / (len(VALUES) + 1))
    learner = await api.learner("b")
    assert learner["theta"] == pytest.approx(theta)
    assert learner["used"] == {"ridge": ridge, "noise": pytest.approx(noise), "exploration": 0.5}


async def test_a_temperature_is_in_the_unit_of_what_is_unknown(api: Api):
    """The deviation of a reward that was not seen yet: its noise, and what is unknown of theta."""
    await build(api, "b", policy="softmax", temperature="auto")
    await observe(api, "b")
    learner = await api.learner("b", precision=True)
    widths = np.linalg.inv(np.array(learner["precision"]))
    length = float((FEATURES[: len(VALUES)].astype(float) ** 2).sum()) / len(VALUES)
    unit = learner["used"]["noise"] * np.sqrt(1 + length * np.trace(widths) / DIM)
    scores = FEATURES.astype(float) @ learner["theta"] / (0.15 * unit)
    shares = np.exp(scores - scores.max()) / np.exp(scores - scores.max()).sum()
    for arm in (await api.choose("b", k=1, seed=1))["arms"]:
        assert arm["propensity"] == pytest.approx(shares[int(arm["id"][1:])], rel=1e-4)


async def test_the_bounds_of_rewards_are_the_noise_of_learners_without_any(api: Api):
    await build(api, "b", policy="linear_ts", reward={}, scope="per_key")
    assert (await api.ok("GET", "/v1/bandits/b"))["used"]["noise"] == 1
    choice = (await api.choose("b", key="ann", seed=1))["arms"]
    answer = await api.ok("PATCH", "/v1/bandits/b", {"reward": {"min": 0, "max": 6}})
    assert answer["used"]["noise"] == 3
    (arm,) = (await api.choose("b", key="ann", seed=1))["arms"]
    assert (arm["id"], arm["score"]) == (choice[0]["id"], pytest.approx(3 * choice[0]["score"]))


async def test_elimination_keeps_ridge_and_radius_while_it_learns(api: Api):
    await build(api, "b", policy="sub_elim")
    square = float((FEATURES.astype(float) ** 2).sum(axis=1).mean())
    used = {"ridge": pytest.approx(DIM / 320 * square), "noise": 1, "exploration": 16}
    assert (await api.learner("b"))["used"] == used
    await api.observe("b", {"id": "o", "arm": "a1", "value": 5.0})
    assert (await api.learner("b"))["used"] == used


async def test_the_radius_of_theory_needs_a_number_as_ridge(api: Api):
    """Where it is absent it is 1."""
    path, body = "/v1/bandits/b", {"catalogue": "c", "policy": "sub_ts", "exploration": "theory"}
    await api.catalogue("c", {"a": [1.0, 2.0]})
    await api.refused("PUT", path, {**body, "ridge": "auto"}, loc=["body", "ridge"])
    assert (await api.ok("PUT", path, body, 201))["ridge"] == 1
    assert (await api.ok("PATCH", path, {"exploration": None, "ridge": None}))["ridge"] == "auto"
    await api.refused("PATCH", path, {"exploration": "theory", "ridge": "auto"}, loc=["body", "ridge"])
    assert (await api.ok("PATCH", path, {"exploration": "theory"}))["ridge"] == 1
