"""Policy softmax: what is drawn, and that its propensity is the probability with which it was drawn.

Frequencies are rejected beyond their 1e-7 quantile; decisions without a seed use the process's own generator,
so those tests fail by chance once in ten million runs.
"""

from __future__ import annotations

from collections import Counter
from itertools import permutations

import numpy as np
import pytest
from scipy import stats

from api_client import Api
from app.policies.base import Policy
from app.policies.registry import POLICIES

pytestmark = pytest.mark.anyio

ALARM = 1e-7
ARMS = {"a": [1.0, 0.0], "b": [0.0, 1.0], "c": [1.0, 1.0], "d": [-1.0, 0.5]}
TAU = 0.4


async def build(api: Api, name: str, **rest) -> np.ndarray:
    """A bandit that has learned something; returns theta."""
    await api.catalogue(name, ARMS)
    await api.bandit(name, name, policy="softmax", temperature=TAU, **rest)
    for number, (arm, value) in enumerate([("a", 1.0), ("b", 0.5), ("c", 0.9), ("d", -0.2)] * 3):
        await api.observe(name, {"id": f"o{number}", "arm": arm, "value": value})
    learner = await api.ok("GET", f"/v1/bandits/{name}/learners/_global")
    return np.array(learner["theta"])


def probability(theta, order, exclude=()):
    """Of an ordered list: Plackett and Luce."""
    mass = {arm: np.exp(np.dot(row, theta) / TAU) for arm, row in ARMS.items() if arm not in exclude}
    result = 1.0
    for arm in order:
        result *= mass[arm] / sum(mass.values())
        del mass[arm]
    return result


async def many(api: Api, name: str, count: int, **request):
    answers = []
    for _ in range(count // 500):
        body = {"requests": [request] * 500}
        answers += (await api.ok("POST", f"/v1/bandits/{name}/choose/batch", body))["results"]
    return answers


@pytest.mark.parametrize(("k", "exclude"), [(1, ()), (2, ()), (2, ("c",)), (9, ("a",))])
async def test_lists_are_drawn_as_often_as_their_propensities_say(shared: Api, k: int, exclude):
    name = f"drawn-{k}-{len(exclude)}"
    theta = await build(shared, name)
    left = [arm for arm in ARMS if arm not in exclude]
    lists = list(permutations(left, min(k, len(left))))
    answers = await many(shared, name, 2_000, k=k, exclude=list(exclude))
    counts = Counter(tuple(arm["id"] for arm in answer["arms"]) for answer in answers)
    expected = np.array([probability(theta, order, exclude) for order in lists])
    assert stats.chisquare([counts[order] for order in lists], 2_000 * expected).pvalue > ALARM
    for answer in answers[:200]:
        order = [arm["id"] for arm in answer["arms"]]
        product = np.prod([arm["propensity"] for arm in answer["arms"]])
        assert product == pytest.approx(probability(theta, order, exclude), rel=1e-9)
        for arm in answer["arms"]:
            assert arm["score"] == pytest.approx(float(np.dot(ARMS[arm["id"]], theta)), rel=1e-9)
        assert answer["exact"] is True
        assert answer["policy"] == "softmax"


async def test_inverse_propensities_estimate_what_another_policy_would_earn(shared: Api):
    """The use of a propensity: the mean of 1[arm] value / propensity is the value of always showing arm."""
    await build(shared, "ips")
    answers = await many(shared, "ips", 2_000)
    for arm in ARMS:
        weights = np.array(
            [(a["arms"][0]["id"] == arm) / a["arms"][0]["propensity"] for a in answers], dtype=float
        )
        noise = weights.std() / np.sqrt(len(weights))
        assert abs(weights.mean() - 1.0) < 6.0 * noise


async def test_a_seed_repeats_and_other_policies_have_no_propensity(shared: Api):
    await build(shared, "seeded")
    answers = [await shared.choose("seeded", k=3, seed=9) for _ in range(2)]
    assert answers[0]["arms"] == answers[1]["arms"]
    distinct = {
        tuple(a["id"] for a in (await shared.choose("seeded", k=3, seed=s))["arms"]) for s in range(20)
    }
    assert len(distinct) > 1
    await shared.bandit("plain-ts", "seeded")
    assert set((await shared.choose("plain-ts"))["arms"][0]) == {"id", "score"}


@pytest.mark.parametrize("row", POLICIES.values(), ids=POLICIES)
async def test_a_policy_gives_propensities_exactly_when_its_row_says_so(shared: Api, row: Policy):
    name = f"propensities-{row.name}"
    await shared.catalogue(name, ARMS)
    await shared.bandit(name, name, policy=row.name)
    answer = await shared.ok("POST", f"/v1/bandits/{name}/choose", {"k": 2})
    assert ["propensity" in arm for arm in answer["arms"]] == [row.has_propensities] * 2


async def test_an_event_keeps_its_arms_and_its_propensities(shared: Api):
    await build(shared, "events")
    first = await shared.choose("events", k=2, event_id="e")
    await shared.observe("events", {"id": "later", "arm": "d", "value": 50.0})
    assert await shared.choose("events", k=2, event_id="e") == first


async def test_a_reward_for_a_drawn_arm_is_learned(shared: Api):
    await build(shared, "learning")
    before = (await shared.ok("GET", "/v1/bandits/learning/learners/_global"))["observations"]
    token = (await shared.choose("learning"))["decision"]
    rewards = {"rewards": [{"decision": token, "value": 1.0}]}
    assert (await shared.ok("POST", "/v1/rewards?wait=applied", rewards))["accepted"] == 1
    after = (await shared.ok("GET", "/v1/bandits/learning/learners/_global"))["observations"]
    assert after == before + 1


async def test_the_temperature_is_kept_and_belongs_to_softmax(shared: Api):
    await shared.catalogue("kept", ARMS)
    path, body = "/v1/bandits/kept", {"catalogue": "kept", "policy": "softmax"}
    assert (await shared.ok("PUT", path, body, 201))["temperature"] == 1.0
    assert (await shared.ok("PUT", path, {**body, "temperature": 1}, 200))["temperature"] == 1.0
    assert (await shared.ok("GET", path))["temperature"] == 1.0
    await shared.refused("PUT", path, {**body, "temperature": 2.0}, status=409, code="conflict")
    for bad in (0, -1, 1e10, "1", True, 1e-10):
        await shared.refused("PUT", path, {**body, "temperature": bad}, loc=["body", "temperature"])
    for policy in ("sub_ts", "linear_ts"):
        other = {"catalogue": "kept", "policy": policy, "temperature": 1}
        await shared.refused("PUT", "/v1/bandits/other-kept", other, loc=["body", "temperature"])


async def test_extreme_temperatures_and_nothing_to_choose_from(shared: Api):
    await shared.catalogue("far", {"low": [-1e6], "high": [1e6], "middle": [0.0]})
    await shared.bandit("cold", "far", policy="softmax", temperature=1e-9)
    await shared.bandit("hot", "far", policy="softmax", temperature=1e9)
    for name in ("cold", "hot"):
        await shared.observe(name, {"id": "o", "arm": "high", "value": 1e9})
    cold = (await shared.choose("cold", k=3))["arms"]
    assert [arm["id"] for arm in cold] == ["high", "middle", "low"]
    assert [arm["propensity"] for arm in cold] == [1.0, 1.0, 1.0]
    hot = {(await shared.choose("hot"))["arms"][0]["id"] for _ in range(60)}
    assert hot == {"low", "middle", "high"}
    everything = ["low", "middle", "high"]
    await shared.refused(
        "POST", "/v1/bandits/hot/choose", {"exclude": everything}, status=409, code="no_arms"
    )


async def test_a_large_catalogue_is_scanned_beside_the_loop(shared: Api):
    rng = np.random.default_rng(0)
    arms = {f"x{i}": row for i, row in enumerate(rng.standard_normal((4_000, 64)).round(3).tolist())}
    await shared.catalogue("large-softmax", arms)
    await shared.bandit("large-softmax", "large-softmax", policy="softmax")
    answer = await shared.choose("large-softmax", k=5, seed=3)
    assert len({arm["id"] for arm in answer["arms"]}) == 5
    # Without rewards theta^ is zero, so all arms are alike.
    assert answer["arms"][0]["propensity"] == pytest.approx(1 / 4_000)
    assert answer["arms"][4]["propensity"] == pytest.approx(1 / 3_996)
