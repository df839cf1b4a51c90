"""Evaluations of decisions whose requests named their candidates: the policy has these alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from api_client import Api, Json
from waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.rest]

DIM, DECISIONS = 3, 60
ARMS = {f"a{place}": row for place, row in enumerate(np.random.default_rng(3).normal(size=(30, DIM)))}
THETA = np.array([0.8, -0.5, 0.3])


async def ready(api: Api, name: str, **settings: Any) -> None:
    await api.ok("PUT", f"/v1/catalogues/{name}", {"dim": DIM}, 201)
    arms = [
        {"id": arm, "features": row.tolist(), "metadata": {"even": int(arm[1:]) % 2 == 0}}
        for arm, row in ARMS.items()
    ]
    await api.ok("PUT", f"/v1/catalogues/{name}/arms", {"arms": arms})
    await api.bandit(name, name, log={}, **settings)
    more: Json = {"context": [0.5, -0.2]} if "context" in settings else {}
    for n in range(9):
        choice = await api.choose(name, candidates=[f"a{n}"], **more)
        await api.reward({"decision": choice["decision"], "value": float(ARMS[f"a{n}"] @ THETA)})
    await logged(api, name, 9)


def brought(rng: np.random.Generator, count: int) -> list[Json]:
    """Arms of a request, one of them under the id of an arm of the catalogue."""
    names = ["a2", *(f"n{n}" for n in range(1, count))]
    return [{"id": arm, "features": rng.normal(size=DIM).tolist()} for arm in names]


async def logged(api: Api, name: str, count: int, *, unkept: int = 0) -> list[Json]:
    """The last rows, of which ``unkept`` have no candidates.

    A reward may write a row before its choice does, which has no candidates until then.
    """

    async def found() -> list[Json]:
        rows = await api.listed(f"/v1/bandits/{name}/log")
        is_whole = sum(row.get("candidates", ()) is None for row in rows) == unkept
        return rows[len(rows) - count :] if is_whole and len(rows) in {count, 9 + count} else []

    return await wait_until(found, what="the rows")


def features_of(candidates: list[Any], filtered: bool) -> dict[str, np.ndarray]:
    """Of those that there are, as float32 where they were brought."""
    found = dict[str, np.ndarray]()
    for each in candidates:
        arm = each["id"] if isinstance(each, dict) else each
        if isinstance(each, dict) and "features" in each:
            found[arm] = np.array(each["features"], np.float32).astype(float)
        elif arm in ARMS and (not filtered or int(arm[1:]) % 2 == 0):
            found[arm] = ARMS[arm]
    return found


def _with_match(candidate: Any, km: float) -> Json:
    return {**(candidate if isinstance(candidate, dict) else {"id": candidate}), "match": {"km": km}}


MATCH: Json = {"match": {"fields": [{"name": "km", "kind": "number"}]}}


@pytest.mark.parametrize(
    "settings",
    [{}, {"intercept": True}, {"context": {"dim": 2}}, MATCH, {**MATCH, "intercept": True}],
    ids=str,
)
async def test_estimates_are_those_of_a_plain_loop_over_the_candidates(shared: Api, settings: Json):
    """Ids, some unknown, and arms of the request, with an exclusion; ids with a filter; and all arms."""
    name = f"among-{'-'.join(settings)}"
    await ready(shared, name, policy="softmax", temperature=0.5, **settings)
    rng, asked = np.random.default_rng(7), dict[str, Json]()
    for number in range(DECISIONS):
        ids = ["a4", *(f"a{place}" for place in rng.choice(range(5, 30), 7, replace=False).tolist())]
        body: Json = [
            {"candidates": [*ids, "gone", *brought(rng, 3)]},
            {"candidates": ids, "filter": {"even": True}},
            {"candidates": [*ids, *brought(rng, 2)], "exclude": ids[:2]},
            {"candidates": list(ARMS)},
        ][number % 4]
        if "match" in settings and number % 8 < 4:
            body["candidates"] = [_with_match(each, float(rng.normal())) for each in body["candidates"]]
        if "context" in settings:
            body["context"] = rng.normal(size=2).tolist()
        choice = await shared.choose(name, seed=number, k=2, **body)
        asked[choice["decision"]] = body
        for arm in choice["arms"]:
            item = {"decision": choice["decision"], "arm": arm["id"], "value": float(rng.normal())}
            await shared.reward(item, wait=False)
    rows = await logged(shared, name, DECISIONS)
    began = rows[0]["time"]
    await wait_until(lambda: _learned(shared, name, 9 + 2 * DECISIONS), what="all is learned")
    answer = await evaluate(shared, name, {"temperature": 1.5}, **{"from": began / 1e3})
    before = await evaluate(shared, name, {"temperature": 1.5}, learners="before")
    said = before["logged"]
    assert said["decisions"] >= DECISIONS // 2  # but of the first block, of which nothing was known
    assert said["decisions"] + said["left_out"] == 9 + DECISIONS
    learner = await shared.learner(name)
    value = 0.0
    for row in rows:
        body = asked[row["decision"]]
        theta = np.array(learner["theta"])
        if "context" in body:
            theta = theta + np.array(learner["weights"]) @ np.array(row["context"])
        left = {
            arm: float(x @ theta[: len(x)])
            for arm, x in features_of(body["candidates"], "filter" in body).items()
            if arm not in body.get("exclude", ())
        }
        for each in body["candidates"]:
            if isinstance(each, dict) and "match" in each and each["id"] in left:
                left[each["id"]] += float(np.float32(each["match"]["km"]) * theta[DIM])
        product, rewards = 1.0, {reward["arm"]: reward["value"] for reward in row["rewards"]}
        for arm in row["arms"]:
            weights = {each: np.exp(score / 1.5) for each, score in left.items()}
            product *= weights[arm["id"]] / sum(weights.values()) / arm["propensity"]
            value += product * rewards[arm["id"]] / DECISIONS
            del left[arm["id"]]
    assert answer["logged"]["decisions"] == DECISIONS
    assert answer["estimates"][0]["value"] == pytest.approx(value, rel=1e-9)


async def evaluate(api: Api, name: str, policy: Json, **rest: Any) -> Json:
    body = {"policy": policy, "learners": "now", "estimators": ["ips"], **rest}
    answer: Json = await api.ok("POST", f"/v1/bandits/{name}/evaluations", body)
    return answer


async def _learned(api: Api, name: str, rewards: int) -> bool:
    return bool((await api.learner(name))["observations"] >= rewards)


@pytest.mark.parametrize("policy", ["igw", "epsilon_greedy"])
async def test_the_same_policy_has_weights_of_one(shared: Api, policy: str):
    """Also of decisions of an arm that the request brought alone."""
    name = f"same-{policy}"
    await ready(shared, name, policy=policy)
    rng = np.random.default_rng(2)
    for number in range(11):
        candidates = [*(["a1", "a5", "a9"] if number % 3 else []), *brought(rng, 4)]
        await shared.choose(name, seed=number, candidates=candidates)
    await logged(shared, name, 11)
    answer = await evaluate(shared, name, {"policy": policy})
    assert answer["support"]["largest_weight"] == pytest.approx(1.0)
    assert answer["estimates"][0]["effective_sample_size"] == pytest.approx(20.0)  # with those that taught
    assert answer["support"]["unshown_arms"] == 0


async def test_what_is_not_known_is_left_out_and_counted(shared: Api):
    """Candidates that are not kept, and own arms whose metadata a filter read."""
    await ready(shared, "left", policy="softmax")
    rng = np.random.default_rng(4)
    large = [{"id": rng.bytes(30).hex(), "features": [1.0, 2.0, 3.0]} for _ in range(1_000)]
    own = [{**arm, "metadata": {"even": True}} for arm in brought(rng, 3)]
    bodies: list[Json] = [{"candidates": ["a1", "a3"]}, {"candidates": large}, {}]
    bodies += [{"candidates": [*own, "a4"], "filter": {"even": True}}, {"candidates": own}]
    for body in bodies:
        await shared.choose("left", **body)
    await logged(shared, "left", len(bodies), unkept=1)
    answer = await evaluate(shared, "left", {"policy": "softmax", "temperature": 2.0})
    assert (answer["logged"]["decisions"], answer["logged"]["left_out"]) == (9 + 3, 2)
    assert any("candidates" in warning for warning in answer["warnings"])
