"""A new key is shown the centres first: in turn, once, whatever restarts, repeats and excludes do."""

import asyncio
from itertools import count
from pathlib import Path

import numpy as np
import pytest

from api_client import Api, Json, running
from center_brute_force import greedy, squared
from waiting import wait_until

pytestmark = pytest.mark.anyio

FEATURES = np.random.default_rng(3).normal(size=(40, 3))
ARMS = {f"a{i}": row for i, row in enumerate(FEATURES)}
CENTERS = [f"a{row}" for row in greedy(squared(FEATURES), 5, int(np.linalg.norm(FEATURES, axis=1).argmax()))]


async def build(api: Api, **bandit: object) -> None:
    await api.catalogue("c", ARMS)
    await api.bandit("b", "c", **{"scope": "per_key", "explore": {"centers": 5}, **bandit})


async def shown(api: Api, key: str | None = "ann", **body: object) -> list[str]:
    who = {} if key is None else {"key": key}
    return [arm["id"] for arm in (await api.choose("b", **who, **body))["arms"]]


@pytest.mark.parametrize("policy", ["sub_ts", "linear_ts"])
async def test_a_new_key_is_shown_the_centres_in_turn_and_then_the_policy_chooses(api: Api, policy: str):
    await build(api, policy=policy)
    first = [await api.choose("b", key="ann") for _ in range(5)]
    assert [choice["arms"][0]["id"] for choice in first] == CENTERS
    assert not any(choice["exact"] for choice in first)
    assert (await api.choose("b", key="ann"))["exact"]
    assert await shown(api, "bob") == CENTERS[:1]
    assert {(await shown(api, seed=seed))[0] for seed in range(40)} - set(CENTERS)


@pytest.mark.rest
async def test_with_a_filter_the_centres_are_those_of_the_arms_that_it_lets_in(api: Api):
    """And those of one filter are not taken for another's, nor for those of all arms."""
    await build(api)
    arms = [
        {"id": arm, "features": row.tolist(), "metadata": {"even": place % 2 == 0}}
        for place, (arm, row) in enumerate(ARMS.items())
    ]
    await api.ok("PUT", "/v1/catalogues/c/arms", {"arms": arms})
    for even, key in ((True, "ann"), (False, "bob")):
        some = FEATURES[0 if even else 1 :: 2]
        rows = greedy(squared(some), 5, int(np.linalg.norm(some, axis=1).argmax()))
        centers = [f"a{2 * row + (not even)}" for row in rows]
        found = [await shown(api, key, filter={"even": even}) for _ in centers]
        assert found == [[center] for center in centers]
    assert [await shown(api, "cyd") for _ in CENTERS] == [[center] for center in CENTERS]


@pytest.mark.rest
async def test_centres_come_before_better_arms_within_the_rules_too(api: Api):
    """The first two centres share a maker: the second gives its turn to the policy."""
    await build(api)
    arms = [
        {"id": arm, "features": row.tolist(), "metadata": {"maker": "one" if arm in CENTERS[:2] else arm}}
        for arm, row in ARMS.items()
    ]
    await api.ok("PUT", "/v1/catalogues/c/arms", {"arms": arms})
    rules = {"at_most": [{"field": "maker", "count": 1}]}
    for seed in range(10):
        ids = await shown(api, f"key-{seed}", k=3, seed=seed, rules=rules)
        assert {CENTERS[0], CENTERS[2]} <= set(ids)
        assert len(set(ids) - {CENTERS[1]}) == 3


@pytest.mark.rest
@pytest.mark.parametrize("k", [2, 3, 5, 7, 40])
async def test_several_arms_at_once_take_several_turns(api: Api, k: int):
    await build(api)
    seen: list[str] = []
    while len(seen) < 5:
        choice = await api.choose("b", key="ann", k=k)
        ids = [arm["id"] for arm in choice["arms"]]
        scores = [arm["score"] for arm in choice["arms"]]
        assert len(set(ids)) == k
        assert scores == sorted(scores, reverse=True)
        turn = CENTERS[len(seen) : len(seen) + k]
        assert set(turn) <= set(ids)
        seen += turn


@pytest.mark.rest
async def test_scores_are_of_one_draw_and_rewards_are_learned(api: Api):
    await build(api, exploration=0.0)
    for step in range(5):
        choice = await api.choose("b", key="ann")
        arm, theta = choice["arms"][0], (await api.learner("b", "ann"))["theta"]
        assert arm["score"] == pytest.approx(float(ARMS[arm["id"]] @ theta))
        receipt = await api.reward({"decision": choice["decision"], "value": float(step)})
        assert receipt["accepted"] == 1
    assert (await api.learner("b", "ann"))["observations"] == 5


@pytest.mark.rest
async def test_an_event_keeps_its_turn(api: Api):
    await build(api)
    once = await api.choose("b", key="ann", event_id="e1")
    again = await asyncio.gather(*(api.choose("b", key="ann", event_id="e1") for _ in range(5)))
    assert again == [once] * 5
    assert once["arms"][0]["id"] == CENTERS[0]
    many = await asyncio.gather(*(api.choose("b", key="ann", event_id="e2") for _ in range(5)))
    assert [choice["arms"] for choice in many] == [many[0]["arms"]] * 5
    assert many[0]["arms"][0]["id"] == CENTERS[1]
    assert await shown(api) == [CENTERS[2]]


@pytest.mark.rest
async def test_calls_at_once_take_different_turns(api: Api):
    await build(api)
    found = await asyncio.gather(*(shown(api) for _ in range(5)))
    assert sorted(arm for arms in found for arm in arms) == sorted(CENTERS)


@pytest.mark.rest
async def test_an_excluded_or_deleted_centre_gives_its_turn_to_the_policy(api: Api):
    await build(api)
    (arm,) = await shown(api, exclude=[CENTERS[0]])
    assert arm != CENTERS[0]
    assert await shown(api) == [CENTERS[1]]
    await api.ok("DELETE", f"/v1/catalogues/c/arms/{CENTERS[2]}", status=204)
    assert await shown(api) != [CENTERS[2]]
    assert await shown(api, exclude=[CENTERS[4]]) == [CENTERS[3]]
    ids = await shown(api, "bob", k=5, exclude=CENTERS[:2])
    assert {CENTERS[3], CENTERS[4]} <= set(ids)
    assert not {*CENTERS[:3]} & set(ids)


@pytest.mark.rest
async def test_a_seed_repeats_the_draw_and_not_the_turn(api: Api):
    await build(api)
    ann, bob = [await api.choose("b", key=key, seed=7) for key in ("ann", "bob")]
    assert ann["arms"][0]["id"] == bob["arms"][0]["id"] == CENTERS[0]
    assert ann["arms"][0]["score"] != bob["arms"][0]["score"]
    assert await shown(api, seed=7) == [CENTERS[1]]
    for _ in range(3):
        await shown(api)
    assert await shown(api, seed=7) == await shown(api, seed=7)


@pytest.mark.rest
async def test_turns_outlive_the_process(store_url: str, tmp_path: Path):
    async with running(store_url, tmp_path) as api:
        await build(api)
        before = [*await shown(api), *await shown(api)]
    async with running(store_url, tmp_path, empty=False) as api:
        after = [(await shown(api))[0] for _ in range(3)]
        assert (await api.choose("b", key="ann"))["exact"]
    assert before + after == CENTERS


@pytest.mark.rest
async def test_a_key_with_as_many_rewards_as_centres_does_not_explore(api: Api):
    await build(api)
    history = [{"id": f"o{i}", "key": "old", "arm": "a1", "value": 1} for i in range(5)]
    await api.observe("b", *history[:4])
    assert await shown(api, "old") == CENTERS[:1]
    await api.observe("b", history[4])
    assert (await api.choose("b", key="old"))["exact"]


@pytest.mark.rest
async def test_a_forgotten_key_is_new_again(api: Api):
    await build(api)
    assert [(await shown(api))[0] for _ in range(5)] == CENTERS
    await api.ok("DELETE", "/v1/bandits/b/learners/ann", status=204)
    assert await shown(api) == CENTERS[:1]


@pytest.mark.rest
async def test_a_global_bandit_explores_once(api: Api):
    await build(api, scope="global")
    assert [(await shown(api, None))[0] for _ in range(5)] == CENTERS
    assert (await api.choose("b"))["exact"]


@pytest.mark.rest
async def test_fewer_arms_than_centres_and_none(api: Api):
    await api.catalogue("c", {}, dim=3)
    await api.bandit("b", "c", scope="per_key", explore={"centers": 5})
    body = {"key": "ann"}
    await api.refused("POST", "/v1/bandits/b/choose", body, status=409, code="no_arms")
    await api.put_arms("c", {name: ARMS[name] for name in ("a0", "a1")})
    found = [(await shown(api))[0] for _ in range(2)]
    assert sorted(found) == ["a0", "a1"]
    assert (await api.choose("b", key="ann"))["exact"]


@pytest.mark.rest
async def test_centres_follow_the_catalogue(api: Api):
    api.app.service.covers.refresh_s = api.app.service.covers.cooldown = 0.0
    await build(api)
    assert await shown(api) == CENTERS[:1]
    await api.put_arms("c", {"far": [90.0, 0.0, 0.0]})
    keys = (f"new{number}" for number in count())

    async def is_far() -> bool:
        return await shown(api, next(keys)) == ["far"]

    await wait_until(is_far, what="new keys are shown the centres of the catalogue as it is now")


@pytest.mark.rest
async def test_a_large_catalogue_is_sampled(api: Api):
    api.app.service.covers.most_reads = 3 * 10 * 11
    await build(api)
    found = [(await shown(api))[0] for _ in range(5)]
    sample = FEATURES[::4]
    wanted = greedy(squared(sample), 5, int(np.linalg.norm(sample, axis=1).argmax()))
    assert found == [f"a{4 * row}" for row in wanted]


@pytest.mark.rest
async def test_explore_is_part_of_the_bandit_and_bad_values_are_named(api: Api):
    await build(api)
    assert (await api.ok("GET", "/v1/bandits/b"))["explore"] == {"centers": 5}
    body: Json = {"catalogue": "c", "policy": "sub_ts", "scope": "per_key"}
    await api.ok("PUT", "/v1/bandits/b", {**body, "explore": {"centers": 5}})
    await api.refused("PUT", "/v1/bandits/b", {**body, "explore": None}, status=409, code="conflict")
    for centers in (0, -1, 101, 1.5, "3", True, None):
        explore = {"centers": centers}
        await api.refused(
            "PUT", "/v1/bandits/n", {**body, "explore": explore}, loc=["body", "explore", "centers"]
        )
    await api.refused("PUT", "/v1/bandits/n", {**body, "explore": {}}, loc=["body", "explore", "centers"])
    for policy in ("sub_elim", "linear_elim", "softmax"):
        changed = {**body, "policy": policy, "explore": {"centers": 3}}
        await api.refused("PUT", "/v1/bandits/n", changed, loc=["body", "explore"])
