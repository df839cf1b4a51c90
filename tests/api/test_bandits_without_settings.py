"""Bandits without a setting: what they use, and that it is in the unit of features and rewards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from api_client import Api, Json, running
from waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.rest]

DIM, COUNT = 4, 30
FEATURES = np.random.default_rng(7).standard_normal((COUNT, DIM)).astype(np.float32)
THETA = np.random.default_rng(8).standard_normal(DIM)
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


async def anew(api: Api, name: str, **settings: Any) -> None:
    """Seeds say the same of bandits of one name."""
    await api.ok("DELETE", f"/v1/bandits/{name}", status=204)
    await api.ok("DELETE", f"/v1/catalogues/{name}", status=204)
    await build(api, name, **settings)


async def played(api: Api, name: str, *, times: float = 1.0, rounds: int = 15, **request: Any) -> list[Any]:
    """The arms that are chosen, their scores as they would be otherwise, and their propensities."""
    rng, chosen = np.random.default_rng(9), list[Any]()
    for step in range(rounds):
        answer = await api.choose(name, k=3, seed=step, **request)
        arms = [(arm["id"], arm["score"] / times, arm.get("propensity")) for arm in answer["arms"]]
        chosen.append(arms)
        rewards = []
        for place in (0, 2):
            arm = arms[place][0]
            value = float(np.round(FEATURES[int(arm[1:])] @ THETA + rng.standard_normal(), 2).clip(-8, 8))
            rewards.append({"decision": answer["decision"], "arm": arm, "value": times * value})
        await api.reward(*rewards)
    return chosen


POLICIES: list[Json] = [
    {"policy": "linear_ts"},
    {"policy": "sub_ts", "scope": "per_key"},
    {"policy": "sub_ts", "reward": {}},
    {"policy": "linear_ts", "context": {"dim": 2}, "interactions": 3},
    {"policy": "softmax", "temperature": "auto"},
    {"policy": "igw", "gamma": "auto", "shortlist": 5},
    {"policy": "sub_elim"},
    {"policy": "linear_elim"},
]


@pytest.mark.parametrize("settings", POLICIES, ids=str)
async def test_choices_do_not_depend_on_units(api: Api, settings: Json):
    """To the bit, for powers of two."""
    request: Json = {"context": [1.0, -0.5]} if "context" in settings else {}
    if settings.get("scope") == "per_key":
        request["key"] = "ann"
    await build(api, "b", **settings)
    expected = await played(api, "b", **request)
    if settings.get("reward") == {}:  # before there is one, nothing says how large they are
        expected[0] = [arm for arm, *_ in expected[0]]
    await anew(api, "b", by=2.0**-20, times=2.0**7, **settings)
    found = await played(api, "b", times=2.0**7, **request)
    if settings.get("reward") == {}:
        found[0] = [arm for arm, *_ in found[0]]
    assert found == expected


@pytest.mark.parametrize("settings", POLICIES[:1] + POLICIES[4:6], ids=str)
async def test_other_factors_change_no_more_than_rounding_does(api: Api, settings: Json):
    await build(api, "b", **settings)
    expected = await played(api, "b", rounds=8)
    await anew(api, "b", by=0.3, times=7.0, **settings)
    for mine, told in zip(await played(api, "b", times=7.0, rounds=8), expected, strict=True):
        assert [arm for arm, _, _ in mine] == [arm for arm, _, _ in told]
        scores = [score for _, score, _ in told]
        np.testing.assert_allclose([score for _, score, _ in mine], scores, rtol=1e-4, atol=1e-4)


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
    assert learner["theta"] == pytest.approx(np.linalg.solve(ridge * np.eye(DIM) + X.T @ X, X.T @ r))
    expected = {"ridge": pytest.approx(ridge), "noise": pytest.approx(noise), "exploration": 0.5}
    assert learner["used"] == expected
    assert (await api.ok("GET", "/v1/bandits/b"))["used"] == begins
    answer = await api.ok("PATCH", "/v1/bandits/b", {"exploration": 0.5, "ridge": 2})
    assert answer["used"] == {"ridge": 2, "noise": 1, "exploration": 0.5}
    assert (await api.learner("b"))["used"] == answer["used"]


async def test_an_intercept_counts_in_ridge_and_noise(api: Api):
    """What all arms have in common is one number more."""
    await build(api, "b", policy="linear_ts", intercept=True)
    await observe(api, "b")
    constant = np.sqrt(SQUARE / DIM)
    X = np.column_stack((FEATURES.astype(float), np.full(COUNT, constant)))[: len(VALUES)]
    ridge, noise = of_evidence(X, np.array(VALUES), 8.0)
    used = (await api.learner("b"))["used"]
    assert used == {"ridge": pytest.approx(ridge), "noise": pytest.approx(noise), "exploration": 0.5}


async def test_little_noise_is_no_reason_to_stay_with_the_first_good_arm(api: Api):
    """Rewards x.theta of 200 arms, with a hundredth of that as noise: half of what is gained was lost."""
    rng = np.random.default_rng(11)
    arms, theta = rng.standard_normal((200, 8)), rng.standard_normal(8)
    await api.catalogue("c", {f"a{i}": row.tolist() for i, row in enumerate(arms)})
    await api.ok("PUT", "/v1/bandits/b", {"catalogue": "c", "policy": "sub_ts"}, 201)
    means, chosen = arms @ theta, []
    for seed in range(50):
        choice = await api.choose("b", seed=seed)
        chosen.append(int(choice["arms"][0]["id"][1:]))
        value = means[chosen[-1]] + 0.01 * means.std() * rng.standard_normal()
        await api.reward({"decision": choice["decision"], "value": float(value)})
    assert means[chosen[25:]].mean() > 0.95 * means.max()


async def test_of_many_numbers_less_is_drawn_until_rewards_show_little_noise(api: Api):
    """Most of what is drawn is of directions that no reward has shown yet."""
    rng = np.random.default_rng(12)
    arms = rng.standard_normal((120, 63)).round(3)
    await api.catalogue("c", {f"a{i}": row.tolist() for i, row in enumerate(arms)})
    for name, rest in (("b", {}), ("c", {}), ("given", {"exploration": 0.3})):
        await api.ok("PUT", f"/v1/bandits/{name}", {"catalogue": "c", "policy": "linear_ts", **rest}, 201)
    least, half = 2.25 / (63 + 1) ** 0.5, 64.0
    assert (await api.ok("GET", "/v1/bandits/b"))["used"]["exploration"] == pytest.approx(
        least + (0.5 - least) * 4 / (4 + half)
    )
    values = {"b": arms @ rng.standard_normal(63), "c": rng.standard_normal(120)}
    values["given"] = values["b"]
    for name, of_arms in values.items():
        for i, value in enumerate(of_arms):
            await api.observe(name, {"id": f"o{i}", "arm": f"a{i}", "value": float(value)})
    shown = {name: (await api.learner(name))["used"] for name in values}
    length = float((arms**2).sum()) / len(arms) * (1 + 1 / 63)
    for name in ("b", "c"):
        ratio = length / shown[name]["ridge"]
        expected = least + (0.5 - least) * ratio / (ratio + half)
        assert shown[name]["exploration"] == pytest.approx(expected, rel=1e-2)
    assert shown["b"]["exploration"] > 0.45
    assert shown["c"]["exploration"] < 0.3
    assert shown["given"]["exploration"] == 0.3


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
    theta = np.linalg.solve(ridge * np.eye(DIM) + X.T @ X, X.T @ r)
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


async def test_what_is_summed_is_the_noise_of_decisions(api: Api):
    """Rewards of 1 and 2 for one decision are a reward of 3."""
    noises = []
    for name, parts in (("summed", [1.0, 2.0]), ("whole", [3.0])):
        await build(api, name, policy="linear_ts", reward={"aggregate": "sum"})
        decision = (await api.choose(name, seed=3))["decision"]
        for place, value in enumerate(parts):
            await api.reward({"decision": decision, "value": value, "reward_id": f"{place}"})
        noises.append((await api.learner(name))["used"]["noise"])
    assert noises[0] == pytest.approx(noises[1], rel=1e-12)


async def test_a_default_that_a_reward_replaces_leaves_the_noise(api: Api):
    noises = []
    for name, waits in (("late", {"wait_s": 60.0, "default": -2.0}), ("none", {})):
        await build(api, name, policy="linear_ts", reward={**BOUNDS, **waits})
        decisions = [(await api.choose(name, seed=3))["decision"] for _ in range(2)]
        if waits:
            await api.due_now()
            await wait_until(lambda: observed(api, "late", 2), what="the defaults")
        for decision, value in zip(decisions, (1.0, 5.0), strict=True):
            await api.reward({"decision": decision, "value": value})
        noises.append((await api.learner(name))["used"]["noise"])
    assert noises[0] == pytest.approx(noises[1], rel=1e-14)


async def observed(api: Api, name: str, count: int) -> bool:
    answer = await api.call("GET", f"/v1/bandits/{name}/learners/_global")
    return bool(answer.status_code == 200 and answer.json()["observations"] == count)


async def test_a_service_that_starts_anew_uses_the_same_to_the_bit(api: Api, store_url: str, tmp_path: Path):
    await build(api, "b", policy="linear_ts")
    await played(api, "b", rounds=10)
    before, choice = await api.learner("b"), await api.choose("b", k=5, seed=1)
    async with running(store_url, tmp_path, empty=False) as other:
        assert await other.learner("b") == before
        again = await other.choose("b", k=5, seed=1)
    assert again["arms"] == choice["arms"]


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
