"""Rewards and observations: counted once, for the arm as it was chosen, or refused with a word for it."""

import asyncio
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from api_client import Api, Json
from oracle import ridge_estimate, ridge_of

pytestmark = pytest.mark.anyio

ARMS = {f"a{i}": [1.0, float(i)] for i in range(5)}


@pytest.fixture
async def api_with_bandits(api: Api) -> Api:
    await api.catalogue("c", ARMS)
    await api.bandit("first", "c")
    await api.bandit("sum", "c", reward={"aggregate": "sum"})
    await api.bandit("keys", "c", scope="per_key")
    return api


def receipt(accepted: int = 0, duplicate: int = 0, *rejected: tuple[int, str]) -> Json:
    items = [{"index": index, "code": code} for index, code in rejected]
    return {"accepted": accepted, "duplicate": duplicate, "rejected": items}


async def test_a_reward_is_counted_once(api_with_bandits: Api):
    token = (await api_with_bandits.choose("first"))["decision"]
    reward = {"decision": token, "value": 1.0}
    assert await api_with_bandits.reward(reward) == receipt(1)
    for again in (reward, {**reward, "value": -3.0}, {**reward, "reward_id": "x"}):
        assert await api_with_bandits.reward(again) == receipt(0, 1)
    learner = await api_with_bandits.learner("first")
    assert (learner["observations"], learner["version"]) == (1, 1)


async def test_a_reward_twice_in_one_call_or_in_many_at_once(api_with_bandits: Api):
    token = (await api_with_bandits.choose("first"))["decision"]
    reward = {"decision": token, "value": 1.0}
    assert await api_with_bandits.reward(reward, reward, reward) == receipt(1, 2)
    token = (await api_with_bandits.choose("first"))["decision"]
    answers = await asyncio.gather(
        *(api_with_bandits.reward({"decision": token, "value": 1.0}) for _ in range(50))
    )
    assert sum(answer["accepted"] for answer in answers) == 1
    assert sum(answer["duplicate"] for answer in answers) == 49
    assert (await api_with_bandits.learner("first"))["observations"] == 2


@pytest.mark.rest
async def test_the_arm_is_named_when_there_were_several(api_with_bandits: Api):
    choice = await api_with_bandits.choose("first", k=3, exclude=["a4"])
    token = choice["decision"]
    assert await api_with_bandits.reward({"decision": token, "value": 1}) == receipt(
        0, 0, (0, "arm_required")
    )
    assert await api_with_bandits.reward({"decision": token, "value": 1, "arm": "a4"}) == receipt(
        0, 0, (0, "unknown_arm")
    )
    arms = [item["id"] for item in choice["arms"]]
    assert await api_with_bandits.reward(
        *({"decision": token, "value": 1, "arm": arm} for arm in arms)
    ) == receipt(3)
    assert await api_with_bandits.reward({"decision": token, "value": 1, "arm": arms[1]}) == receipt(0, 1)
    single = await api_with_bandits.choose("first")
    named = {"decision": single["decision"], "value": 1, "arm": single["arms"][0]["id"]}
    assert await api_with_bandits.reward(named) == receipt(1)
    assert await api_with_bandits.reward({"decision": single["decision"], "value": 1}) == receipt(0, 1)


@pytest.mark.rest
async def test_values_have_a_range(api_with_bandits: Api):
    for name, rule in (("both", {"min": -1, "max": 1}), ("least", {"min": 0}), ("most", {"max": 0.5})):
        await api_with_bandits.bandit(name, "c", reward=rule)
    cases = {"both": [(-1, 1), (1, 1), (1.0000001, 0), (-1.5, 0)], "least": [(0, 1), (-1e-300, 0), (1e9, 1)],
             "most": [(0.5, 1), (0.6, 0), (-1e9, 1)]}  # fmt: skip
    for name, values in cases.items():
        for number, (value, good) in enumerate(values):
            token = (await api_with_bandits.choose(name))["decision"]
            expected = receipt(1) if good else receipt(0, 0, (0, "out_of_range"))
            assert await api_with_bandits.reward({"decision": token, "value": value}) == expected, (
                name,
                value,
            )
            observation = {"id": f"o{number}", "arm": "a1", "value": value}
            assert await api_with_bandits.observe(name, observation) == expected
            if not good:
                fixed = {"decision": token, "value": 0}
                assert await api_with_bandits.reward(fixed) == receipt(1), (
                    "a refused reward takes nothing away"
                )
    assert (await api_with_bandits.learner("both"))["observations"] == 6


@pytest.mark.parametrize(
    "change", ["replaced", "deleted", "re-added", "metadata", "deleted and re-added alike"]
)
async def test_what_is_learned_from_is_the_arm_as_it_was_chosen(api_with_bandits: Api, change: str):
    await api_with_bandits.put_arms("c", {"x": [2.0, -3.0]})
    out = [f"a{i}" for i in range(5)]
    token = (await api_with_bandits.choose("first", exclude=out))["decision"]
    path = "/v1/catalogues/c/arms"
    if change in {"deleted", "re-added", "deleted and re-added alike"}:
        await api_with_bandits.ok("DELETE", f"{path}/x", status=204)
    if change in {"replaced", "re-added"}:
        await api_with_bandits.put_arms("c", {"x": [7.0, 7.0]})
        await api_with_bandits.put_arms("c", {"x": [8.0, 8.0]})
    if change == "metadata":
        await api_with_bandits.ok("PUT", path, {"arms": [{"id": "x", "features": [2, -3], "tags": ["new"]}]})
    if change == "deleted and re-added alike":
        await api_with_bandits.put_arms("c", {"x": [2.0, -3.0]})
    assert await api_with_bandits.reward({"decision": token, "value": 1.5}) == receipt(1)
    learner = await api_with_bandits.learner("first")
    np.testing.assert_allclose(learner["theta"], ridge_estimate([([2.0, -3.0], 1.5)]), rtol=1e-8)


async def test_wait_applied_answers_when_it_is_visible(api_with_bandits: Api):
    for number in range(30):
        key = f"u{number % 3}"
        token = (await api_with_bandits.choose("keys", key=key))["decision"]
        path = "/v1/rewards?wait=applied"
        await api_with_bandits.ok("POST", path, {"rewards": [{"decision": token, "value": 1}]}, 200)
        expected = number // 3 + 1
        assert (await api_with_bandits.learner("keys", key))["version"] == expected
        assert (await api_with_bandits.choose("keys", key=key))["learner_version"] == expected


@pytest.mark.rest
async def test_without_waiting_it_is_durable_and_applied_soon(api_with_bandits: Api):
    token = (await api_with_bandits.choose("first"))["decision"]
    assert await api_with_bandits.reward({"decision": token, "value": 1}, wait=False) == receipt(1)
    assert await api_with_bandits.reward({"decision": token, "value": 1}) == receipt(0, 1)
    assert (await api_with_bandits.learner("first"))["observations"] == 1, (
        "waiting for a duplicate waits for the first"
    )


@pytest.mark.rest
async def test_observations_are_counted_once_by_id(api_with_bandits: Api):
    one = {"id": "o1", "key": "ann", "arm": "a1", "value": 1.0}
    assert await api_with_bandits.observe("keys", one, {**one, "id": "o2"}, {**one, "value": 5.0}) == receipt(
        2, 1
    )
    assert await api_with_bandits.observe("keys", one, {**one, "arm": "a2"}) == receipt(0, 2)
    assert await api_with_bandits.observe("keys", {**one, "id": "o3", "arm": "none"}) == receipt(
        0, 0, (0, "unknown_arm")
    )
    assert await api_with_bandits.observe("keys", {**one, "id": "o3"}) == receipt(1)
    learner = await api_with_bandits.learner("keys", "ann")
    assert learner["observations"] == 3
    np.testing.assert_allclose(learner["theta"], ridge_estimate([(ARMS["a1"], 1.0)] * 3), rtol=1e-8)


VALUES = st.floats(-1e9, 1e9, allow_nan=False)
ROWS = st.lists(st.floats(-1e3, 1e3, allow_nan=False, width=32), min_size=3, max_size=3)
ITEMS = st.lists(
    st.tuples(st.integers(0, 5), st.lists(VALUES, min_size=1, max_size=3), st.booleans()),
    min_size=1,
    max_size=25,
)


async def sendings(api: Api, arms: list[list[float]], items: list[Any]) -> list[tuple[bool, Json]]:
    """Each item as an observation, or as a decision with one or more rewards: (is it a reward, body)."""
    sends: list[tuple[bool, Json]] = []
    for number, (arm, values, decided) in enumerate(items):
        name = f"a{arm % len(arms)}"
        if not decided:
            sends.append((False, {"id": f"o{number}", "arm": name, "value": values[0]}))
            continue
        out = [f"a{i}" for i in range(len(arms)) if f"a{i}" != name]
        token = (await api.choose("b", exclude=out))["decision"]
        parts = enumerate(values)
        sends += [(True, {"decision": token, "value": v, "reward_id": f"r{part}"}) for part, v in parts]
    return sends


@settings(max_examples=15)  # an application each; the sums themselves: test_ridge_sums.py
@given(
    ridge=st.sampled_from([1e-3, 1.0, 50.0]),
    arms=st.lists(ROWS, min_size=1, max_size=6),
    items=ITEMS,
    seed=st.integers(0, 2**32),
)
async def test_theta_is_the_closed_form_whatever_the_order_and_the_batches(
    api: Api, ridge: float, arms: list[list[float]], items: list[Any], seed: int
):
    """Theta and V to 1e-8, relative to what the data allow, after rewards and observations cut anyhow."""
    for path in ("bandits/b", "catalogues/c"):
        await api.call("DELETE", f"/v1/{path}")
    await api.catalogue("c", {f"a{i}": row for i, row in enumerate(arms)})
    await api.bandit("b", "c", ridge=ridge, reward={"aggregate": "sum"})
    sends = await sendings(api, arms, items)
    rng = np.random.default_rng(seed)
    order = list(rng.permutation(len(sends)))
    while order:
        count = int(rng.integers(1, len(order) + 1))
        now, order = [sends[i] for i in order[:count]], order[count:]
        rewards = [body for is_reward, body in now if is_reward]
        observations = [body for is_reward, body in now if not is_reward]
        if rewards:
            assert await api.reward(*rewards, rewards[0]) == receipt(len(rewards), 1)
        if observations:
            assert await api.observe("b", *observations) == receipt(len(observations))
    learner = await api.learner("b", precision=True)
    assert (learner["observations"], learner["version"]) == (len(items), len(sends))
    X = np.array([arms[arm % len(arms)] for arm, _, _ in items])
    r = np.array([sum(values) if decided else values[0] for _, values, decided in items])
    V, exact = ridge_of(X, r, ridge=ridge)
    np.testing.assert_allclose(learner["precision"], V, rtol=1e-8, atol=1e-12 * abs(V).max())
    # Backward error: V theta = moment, to rounding. theta itself is known no better than cond(V) allows.
    theta = np.array(learner["theta"])
    parts = sum(abs(X[i]) * sum(map(abs, values)) for i, (_, values, _) in enumerate(items))
    assert (abs(V @ theta - X.T @ r) <= 1e-10 * (abs(V).max() * abs(theta).max() + parts) + 1e-300).all()
    if np.linalg.cond(V) < 1e5:
        np.testing.assert_allclose(theta, exact, rtol=1e-8, atol=1e-8 * abs(exact).max() + 1e-9)
