"""Which bandits can be made, by whom, and what is refused."""

# ruff: noqa: F401, F811 - fixtures are imported

import asyncio
from pathlib import Path
from typing import Any

import pytest
from test_bandits import FULL, api

from api_client import Api, Json, running
from app.policies.base import Policy
from app.policies.registry import POLICIES

pytestmark = [pytest.mark.anyio, pytest.mark.rest]


@pytest.mark.parametrize("policy", sorted(POLICIES))
async def test_what_a_policy_does_not_read_promises_nothing(api: Api, policy: str):
    """``theory`` is of the policies that read ``exploration``, as ``GET /v1/policies`` lists them."""
    items = (await api.ok("GET", "/v1/policies"))["items"]
    listed = {each["name"]: each["options"]["properties"] for each in items}
    body = {"catalogue": "c", "policy": policy, "exploration": "theory", "delta": 1e-100}
    if "exploration" in listed[policy]:
        await api.ok("PUT", "/v1/bandits/b", body, 201)
    else:
        told = await api.refused("PUT", "/v1/bandits/b", body, loc=["body", "exploration"])
        assert policy in told["detail"]


async def test_a_bandit_keeps_what_it_was_made_with_and_has_no_effect(
    api: Api, monkeypatch: pytest.MonkeyPatch
):
    """As bandits of before: other settings of them change, and the same request finds them."""
    body = {"catalogue": "c", "policy": "softmax", "exploration": "theory"}
    with monkeypatch.context() as before:
        before.setattr(Policy, "check_unread", lambda *_: iter(()))
        await api.ok("PUT", "/v1/bandits/b", body, 201)
    await api.ok("PUT", "/v1/bandits/b", body, 200)
    assert (await api.ok("PATCH", "/v1/bandits/b", {"temperature": 2}))["exploration"] == "theory"
    await api.refused("PATCH", "/v1/bandits/b", {"policy": "linucb"}, loc=["body", "exploration"])
    await api.refused("PATCH", "/v1/bandits/b", {"eta": 0.5}, loc=["body", "eta"])
    await api.ok("PATCH", "/v1/bandits/b", {"policy": "linucb", "exploration": "auto"})


async def test_the_exploration_of_theory_depends_on_the_ridge(api: Api):
    """Without rewards theta~ is exploration * xi / sqrt(ridge), and a seed gives the same xi.

    The radius is sqrt(ridge) + sqrt(2 log(4 T / delta) + d log(1 + T / (d ridge))), with d = 16, T = 20,000
    and delta = 0.05.
    """
    await api.catalogue("wide", {"a": [1.0] + 15 * [0.0]})
    for policy in ["sub_ts", "linear_ts"]:
        for ridge, radius in [(0.01, 14.8088), (1.0, 12.9448), (100.0, 18.3794)]:
            scores = []
            for exploration in (1.0, "theory"):
                await api.bandit("b", "wide", policy=policy, ridge=ridge, exploration=exploration)
                scores.append((await api.choose("b", seed=7))["arms"][0]["score"])
                await api.ok("DELETE", "/v1/bandits/b", status=204)
            assert scores[1] / scores[0] == pytest.approx(radius, rel=1e-5)


KEYED = {"key": "ann"}


@pytest.mark.parametrize("scope", ["global", "per_key"])
async def test_who_needs_a_key_and_who_refuses_one(api: Api, scope: str):
    await api.bandit("b", "c", scope=scope)
    right, wrong = ({}, KEYED) if scope == "global" else (KEYED, {})
    choose, batch = "/v1/bandits/b/choose", "/v1/bandits/b/choose/batch"
    assert (await api.choose("b", **right))["arms"]
    await api.refused("POST", choose, wrong, loc=["body", "key"], canary="ann")
    await api.refused("POST", choose, {"key": None} if wrong == {} else wrong, loc=["body", "key"])
    await api.ok("POST", batch, {"requests": [right, right]})
    body = {"requests": [right, wrong]}
    await api.refused("POST", batch, body, loc=["body", "requests", 1, "key"], canary="ann")
    code = "key_not_used" if scope == "global" else "key_required"
    observations = [
        {"id": f"o{i}", "arm": "a1", "value": 1, **key} for i, key in enumerate((right, wrong, right))
    ]
    receipt = await api.observe("b", *observations)
    assert receipt == {"accepted": 2, "duplicate": 0, "rejected": [{"index": 1, "code": code}]}
    for learner in ("_global", "ann"):
        there = (learner == "_global") == (scope == "global")
        for method, status in (("GET", 200), ("DELETE", 204)):
            answer = await api.call(method, f"/v1/bandits/b/learners/{learner}")
            assert answer.status_code == (status if there else 404), answer.text


async def test_making_and_deleting_at_once_leaves_what_is_stored(store_url: str, tmp_path: Path):
    """Whoever wins: what is served afterwards is what a restart finds, and it works."""
    async with running(store_url, tmp_path / "1") as api:
        await api.catalogue("base", {"a": [1.0]})

        async def churn(number: int) -> None:
            name = f"n{number % 3}"
            for step in range(12):
                kind, body = ("bandits", {**FULL, "catalogue": "base"}), {"dim": 1}
                path, body = (
                    (f"/v1/bandits/{name}", kind[1]) if number % 2 else (f"/v1/catalogues/{name}", body)
                )
                if (number // 6 + step) % 2:
                    await api.call("PUT", path, body)
                else:
                    await api.call("DELETE", path)

        await asyncio.gather(*(churn(number) for number in range(36)))
        served = await everything(api)
        for name in (bandit["id"] for bandit in served["bandits"]):
            token = (await api.choose(name))["decision"]
            assert (await api.reward({"decision": token, "value": 1}))["accepted"] == 1
    async with running(store_url, tmp_path / "2", empty=False) as api:
        assert await everything(api) == served


async def everything(api: Api) -> dict[str, Any]:
    catalogues = [item["id"] for item in await api.listed("/v1/catalogues")]
    return {"catalogues": catalogues, "bandits": await api.listed("/v1/bandits")}


TOO_LARGE: list[tuple[int, Json, str | None, str]] = [
    (1_446, {}, None, ""),
    (1_447, {}, "16,785,240", "catalogue"),
    (4_096, {"half_life_s": 60}, "134,316,096", "catalogue"),
    (722, {"scope": "per_key", "half_life_s": 60}, None, ""),
    (723, {"scope": "per_key"}, "4,199,224", "scope"),
    (1_447, {"scope": "per_key"}, "16,785,240", "catalogue"),
]


async def test_learners_that_would_be_too_large_are_refused_with_their_size(api: Api):
    for number, (dim, change, size, field) in enumerate(TOO_LARGE):
        name = f"wide-{number}"
        path = f"/v1/bandits/{name}"
        await api.catalogue(name, {}, dim=dim)
        body: Json = {"catalogue": name, "policy": "linear_ts", **change}
        if size is None:
            await api.ok("PUT", path, body, 201)
            continue
        problem = await api.refused("PUT", path, body, loc=["body", field])
        most = "4,194,304" if change.get("scope") == "per_key" else "16,777,216"
        assert f"takes {size} bytes" in problem["detail"]
        assert f"at most {most}" in problem["detail"]
        await api.refused("GET", path, status=404, code="not_found")


async def test_a_bandit_with_larger_learners_that_exists_goes_on(store_url: str, tmp_path: Path):
    """It was made when the limit was another one."""
    async with running(store_url, tmp_path / "1") as api:
        await api.catalogue("c", {f"a{i}": [1.0, float(i)] for i in range(4)})
        await api.ok("PUT", "/v1/bandits/b", FULL, 201)
    async with running(store_url, tmp_path / "2", empty=False) as api:
        api.app.service.bandits.most_learner_bytes = 100
        await api.ok("PUT", "/v1/bandits/b", FULL, 200)
        await api.refused("PUT", "/v1/bandits/other", FULL)
        assert (await api.observe("b", {"id": "o", "arm": "a1", "value": 1.0}))["accepted"] == 1
        assert (await api.learner("b"))["version"] == 1
