"""Choices: how many arms, which ones, in which order, and the same ones again when that is promised."""

import asyncio
import json
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom

from api_client import Api, Json, running
from app.policies import registry
from app.policies.base import PolicyDependencies
from app.policies.thompson import SubTs
from app.selection.selection import Selection, SelectionRequest

pytestmark = pytest.mark.anyio

ARMS = {
    f"a{i}": [float(x) for x in row] for i, row in enumerate(np.random.default_rng(3).normal(size=(40, 3)))
}


async def build(api: Api, **bandit: object) -> None:
    await api.catalogue("c", ARMS)
    await api.bandit("b", "c", **bandit)


def ids(choice: Json) -> list[str]:
    return [item["id"] for item in choice["arms"]]


POLICIES = ["sub_ts", "linear_ts", "sub_elim", "linear_elim"]


@pytest.mark.parametrize("policy", POLICIES)
async def test_arms_are_distinct_and_the_best_first(api: Api, policy: str):
    await build(api, policy=policy)
    for k in [1, 2, 39, 40, 41, 1_000]:
        choice = await api.choose("b", k=k)
        assert len(set(ids(choice))) == len(choice["arms"]) == min(k, 40)
        scores = [item["score"] for item in choice["arms"]]
        assert scores == sorted(scores, reverse=True)
        assert (choice["policy"], choice["exact"], choice["catalogue_version"]) == (policy, True, 1)
        assert choice["learner_version"] == 0
        versions = {"bandit_version", "learner_version", "catalogue_version"}
        assert set(choice) == {"decision", "arms", "policy", "exact", *versions}


async def test_a_number_of_arms_that_cannot_be(api: Api):
    await build(api)
    for k in [0, -1, 1_001]:
        await api.refused("POST", "/v1/bandits/b/choose", {"k": k}, loc=["body", "k"])


@pytest.mark.rest
async def test_a_choice_from_nothing_is_refused(api: Api):
    await build(api)
    await api.catalogue("empty", {}, dim=3)
    await api.bandit("none", "empty")
    before = await api.stored()
    everything = {"exclude": list(ARMS)}
    for path, body in (("none", {}), ("b", everything), ("b", {**everything, "event_id": "e"})):
        await api.refused(
            "POST", f"/v1/bandits/{path}/choose", body, status=409, code="no_arms", canary="a17"
        )
    batch = {"requests": [{}, everything]}
    await api.refused("POST", "/v1/bandits/b/choose/batch", batch, status=409, code="no_arms")
    assert await api.stored() == before
    assert len((await api.choose("b", event_id="e"))["arms"]) == 1


@pytest.mark.rest
async def test_a_greedy_choice_is_the_largest_product_with_the_estimate(api: Api):
    await build(api, exploration=0, ridge=0.5)
    rng = np.random.default_rng(5)
    for step in range(15):
        arm = f"a{rng.integers(40)}"
        await api.observe("b", {"id": f"o{step}", "arm": arm, "value": float(rng.normal())})
        theta = np.array((await api.learner("b"))["theta"])
        choice = await api.choose("b", k=5)
        products = {name: float(np.dot(row, theta)) for name, row in ARMS.items()}
        assert ids(choice) == sorted(products, key=lambda name: -products[name])[:5]
        for item in choice["arms"]:
            assert item["score"] == pytest.approx(products[item["id"]], rel=1e-9, abs=1e-12)
        assert choice["learner_version"] == step + 1


SEEDS = 3_000
FALSE_ALARM = 1e-6


async def wins(api: Api, bandit: str) -> int:
    """Choices of the first arm among two at right angles, over fixed seeds, from the prior."""
    requests = [{"seed": seed} for seed in range(SEEDS)]
    total = 0
    for start in range(0, SEEDS, 1_000):
        body = {"requests": requests[start : start + 1_000]}
        results = (await api.ok("POST", f"/v1/bandits/{bandit}/choose/batch", body))["results"]
        total += sum(ids(choice) == ["x"] for choice in results)
    return total


@pytest.mark.rest
async def test_the_prior_is_drawn_from(api: Api):
    """From a symmetric prior each of two arms wins half of the draws: two-sided binomial, 1e-6."""
    await api.catalogue("two", {"x": [1.0, 0.0], "y": [0.0, 1.0]})
    await api.bandit("fair", "two")
    await api.bandit("greedy", "two", exploration=0)
    low, high = binom.ppf(FALSE_ALARM / 2, SEEDS, 0.5), binom.isf(FALSE_ALARM / 2, SEEDS, 0.5)
    assert low <= await wins(api, "fair") <= high
    assert not low <= await wins(api, "greedy") <= high, "a bandit that does not draw must be found out"


@pytest.mark.rest
@pytest.mark.parametrize("policy", ["sub_ts", "linear_ts"])
@pytest.mark.parametrize("exploration", [1.0, "theory"])
async def test_a_seed_gives_the_same_arms_on_the_same_state(
    store_url: str, tmp_path: Path, policy: str, exploration: object
):
    async with running(store_url, tmp_path / "1") as api:
        await build(api, policy=policy, exploration=exploration, scope="per_key")
        await api.observe("b", {"id": "o", "key": "ann", "arm": "a1", "value": 1.0})
        requests = [
            {"key": key, "k": 5, "seed": seed} for key in ("ann", "bob") for seed in (0, 1, 2**63 - 1)
        ]
        first = [(await api.choose("b", **request))["arms"] for request in requests]
        for _ in range(3):
            await api.choose("b", key="ann")
            assert [(await api.choose("b", **request))["arms"] for request in requests] == first
        batch = await api.ok("POST", "/v1/bandits/b/choose/batch", {"requests": requests})
        assert [choice["arms"] for choice in batch["results"]] == first
        assert len({json.dumps(arms) for arms in first}) == len(first), "seeds and keys differ"
        decisions = {(await api.choose("b", **requests[0]))["decision"] for _ in range(3)}
        assert len(decisions) == 3, "each is a decision of its own, to be rewarded on its own"
    async with running(store_url, tmp_path / "2", empty=False) as api:
        assert [(await api.choose("b", **request))["arms"] for request in requests] == first


async def test_an_event_is_decided_once(store_url: str, tmp_path: Path):
    """Fifty at once, after other choices and rewards, and after a restart."""
    async with running(store_url, tmp_path / "1") as api:
        await build(api, scope="per_key")
        await api.bandit("other", "c", scope="per_key")
        body = {"key": "ann", "event_id": "e", "k": 3}
        answers = await asyncio.gather(*(api.choose("b", **body) for _ in range(50)))
        assert len({json.dumps(answer) for answer in answers}) == 1
        choice = answers[0]
        for bandit, key, event in (("b", "bob", "e"), ("b", "ann", "f"), ("other", "ann", "e")):
            assert (await api.choose(bandit, key=key, event_id=event))["decision"] != choice["decision"]
        for item in choice["arms"]:
            await api.reward({"decision": choice["decision"], "arm": item["id"], "value": 1.0})
        await api.put_arms("c", {"a1": [9.0, 9.0, 9.0]})
        batch = {"requests": [body] * 3}
        again = (await api.ok("POST", "/v1/bandits/b/choose/batch", batch))["results"]
        assert again == [choice] * 3
    async with running(store_url, tmp_path / "2", empty=False) as api:
        assert await api.choose("b", **body) == choice
        receipt = await api.reward({"decision": choice["decision"], "arm": ids(choice)[0], "value": 1.0})
        assert receipt["duplicate"] == 1


FULL = {
    "key": "ann",
    "event_id": "e",
    "k": 2,
    "exclude": ["a1", "a2"],
    "seed": 3,
    "activate": False,
    "filter": {"$and": [{"x": 1}, {"y": {"$exists": False}}]},
    "rules": {"pin": [{"arm": "a3", "place": 1}], "at_most": [{"field": "x", "count": 1}]},
    "context": [1.0, 2.0],
}


CHANGES: list[Json] = [
    {"k": 3},
    {"exclude": ["a1"]},
    {"seed": 4},
    {"seed": None},
    {"activate": True},
    {"filter": None},
    {"filter": {"x": 1}},
    {"rules": {"pin": [{"arm": "a3", "place": 2}], "at_most": [{"field": "x", "count": 1}]}},
    {"rules": {"pin": [{"arm": "a3", "place": 1}], "at_most": [{"field": "x", "count": 2}]}},
    {"rules": None},
    {"context": [1.0, 2.5]},
]


async def test_an_event_is_answered_to_the_same_request_alone(api: Api):
    """Whoever guesses the event of another user must guess the whole request as well."""
    await api.catalogue("c", {f"a{i}": [1.0, i] for i in range(9)})
    body = {"arms": [{"id": f"a{i}", "features": [1.0, i], "metadata": {"x": 1}} for i in range(3, 9)]}
    await api.ok("PUT", "/v1/catalogues/c/arms", body)
    await api.bandit("b", "c", scope="per_key", context={"dim": 2})
    made = await api.choose("b", **FULL)
    shuffled = {"exclude": ["a2", "a1"], "filter": {"y": {"$exists": False}, "x": 1}}
    await api.ok("PATCH", "/v1/bandits/b", {"policy": "softmax"})  # it is the same request all the same
    assert await api.choose("b", **{**FULL, **shuffled}) == made
    for change in CHANGES:
        other = {**FULL, **change}
        where = {"status": 409, "code": "event_used"}
        await api.refused("POST", "/v1/bandits/b/choose", other, loc=["body", "event_id"], **where)
        batch = {"requests": [{"key": "bob", "context": [0, 0]}, other]}
        loc = ["body", "requests", 1, "event_id"]
        await api.refused("POST", "/v1/bandits/b/choose/batch", batch, loc=loc, **where)
        assert await api.choose("b", **FULL) == made


@pytest.mark.rest
async def test_a_batch_is_its_requests_in_order(api: Api):
    await build(api, scope="per_key")
    requests = [{"key": f"u{i % 7}", "k": 1 + i % 4, "seed": i, "exclude": [f"a{i}"]} for i in range(40)]
    results = (await api.ok("POST", "/v1/bandits/b/choose/batch", {"requests": requests}))["results"]
    for request, choice in zip(requests, results, strict=True):
        single = await api.choose("b", **request)
        assert {**choice, "decision": ""} == {**single, "decision": ""}
    for choice in results:
        arm = ids(choice)[0]
        assert (await api.reward({"decision": choice["decision"], "arm": arm, "value": 1}))["accepted"] == 1
    assert (await api.learner("b", "u0"))["observations"] == 6


@pytest.mark.rest
@pytest.mark.parametrize("more", [{}, {"exclude": [f"x{n}" for n in range(9_000)]}])
async def test_the_arms_of_a_batch_are_bounded_together(api: Api, more: Json):
    """In a small body and in one that is read in pieces."""
    await build(api)
    path, most = "/v1/bandits/b/choose/batch", [{"k": 1_000, **more}, *[{"k": 1_000}] * 18, {"k": 999}, {}]
    found = await api.ok("POST", path, {"requests": most})
    assert [len(choice["arms"]) for choice in found["results"]] == [40] * 20 + [1]
    answer = await api.refused("POST", path, {"requests": [*most, {}]}, loc=["body", "requests"])
    assert "20,000" in answer["detail"]


@pytest.mark.rest
async def test_an_error_in_a_batch_names_its_place(api: Api):
    await build(api, scope="per_key")
    path, good = "/v1/bandits/b/choose/batch", {"key": "ann"}
    for bad, rest in (({}, ["key"]), ({"key": "ann", "k": 0}, ["k"]), ({"key": "ann", "x": 1}, ["x"])):
        await api.refused("POST", path, {"requests": [good, good, bad]}, loc=["body", "requests", 2, *rest])
    out = {"key": "ann", "exclude": list(ARMS)}
    document = await api.refused("POST", path, {"requests": [good, out]}, status=409, code="no_arms")
    assert document["errors"][0]["loc"] == ["body", "requests", 1]


@pytest.mark.rest
async def test_a_batch_that_fails_is_run_once(api: Api, monkeypatch: pytest.MonkeyPatch):
    """Only what found no arm is asked again, after a poll: another process may have just written some."""
    await build(api, scope="per_key")
    asked: list[str] = []

    class Counted(SubTs):
        async def choose(self, dependencies: PolicyDependencies, request: SelectionRequest) -> Selection:
            asked.append(request.learner.name)
            return await super().choose(dependencies, request)

    monkeypatch.setitem(registry.POLICIES, "sub_ts", Counted())
    path = "/v1/bandits/b/choose/batch"
    batch = [{"key": "ann"}, {"key": "bob"}, {"key": "eve", "exclude": list(ARMS)}, {"key": "joe"}]
    await api.refused("POST", path, {"requests": batch}, status=409, code="no_arms")
    assert asked == ["ann", "bob", "eve", "eve"]
    batch[2] = {"key": "eve", "baseline": "no-such-campaign"}
    await api.refused("POST", path, {"requests": batch}, status=404, code="not_found")
    assert asked == ["ann", "bob", "eve", "eve"]


@pytest.mark.rest
async def test_the_service_answers_others_during_a_large_batch(api: Api):
    await api.catalogue(
        "big", {f"x{i}": row for i, row in enumerate(np.random.default_rng(6).normal(size=(8_000, 32)))}
    )
    await api.bandit("b", "big")
    await api.choose("b")
    batch = asyncio.create_task(
        api.ok("POST", "/v1/bandits/b/choose/batch", {"requests": [{"k": 20}] * 1_000})
    )
    answered = 0
    while not batch.done():
        await asyncio.sleep(0)
        await api.ok("GET", "/healthz")
        answered += not batch.done()
    assert answered >= 5
    assert len((await batch)["results"]) == 1_000
