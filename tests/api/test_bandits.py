"""Bandits: made once, deleted with all that they learned, and whose key a request needs."""

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from api_client import Api, Json, running
from app.policies.base import Policy
from app.policies.registry import POLICIES

pytestmark = pytest.mark.anyio

FULL: Json = {
    "catalogue": "c", "policy": "sub_ts", "scope": "global", "ridge": "auto", "exploration": "auto",
    "delta": 0.05, "horizon": 20_000, "shortlist": 30, "eta": None,
    "reward": {"min": None, "max": None, "aggregate": "first", "wait_s": None, "default": None},
    "prior": "plain", "prior_strength": 0.3, "half_life_s": None, "idle_ttl_s": None,
    "temperature": None, "gamma": None, "explore": None,
    "shift_rewards": False, "solver": "shortlist", "filter": None, "holdout": None, "log": None,
    "context": None, "interactions": None, "repeats": None, "signals": None, "guardrails": None,
    "position": None, "intercept": True, "epsilon": None, "alpha": None,
    "auto": 2, "arm_effects": "off", "options": None, "constraints": None,
}  # fmt: skip


@pytest.fixture
async def api(api: Api) -> Api:
    await api.catalogue("c", {f"a{i}": [1.0, float(i)] for i in range(4)})
    await api.catalogue("d", {"a": [1.0, 0.0]})
    return api


async def test_a_bandit_is_made_once(api: Api):
    made = await api.ok("PUT", "/v1/bandits/b", {"catalogue": "c", "policy": "sub_ts"}, 201)
    used = {"ridge": pytest.approx((1 + 14 / 4) * 3 / 2), "noise": 1, "exploration": 0.5}
    assert made == {"id": "b", **FULL, "version": 1, "used": used}
    before = await api.stored()
    for same in (FULL, {"catalogue": "c", "policy": "sub_ts", "reward": {}}):
        assert await api.ok("PUT", "/v1/bandits/b", same, 200) == made
    changes: Json = {
        "catalogue": "d", "policy": "linear_ts", "scope": "per_key", "ridge": 2, "exploration": "theory",
        "delta": 0.1, "horizon": 9, "shortlist": 31, "eta": 0.5, "reward": {"min": 0},
        "prior": "pooled", "prior_strength": 3, "half_life_s": 60, "idle_ttl_s": 60,
        "explore": {"centers": 2},
        "shift_rewards": True, "solver": "adaptive", "filter": {"stock": True},
        "holdout": {"share": 0.5}, "context": {"dim": 2}, "log": {}, "repeats": {"most": 1, "within_s": 60},
        "position": {"examination": [1.0, 0.5]}, "intercept": False, "auto": 1,
    }  # fmt: skip
    # Options of other policies, of a context, of signals, effects and plug-ins, which have their own tests.
    others = {
        "options",
        "constraints",
        "arm_effects",
        "temperature",
        "gamma",
        "epsilon",
        "alpha",
        "interactions",
        "signals",
        "guardrails",
    }
    assert changes.keys() == FULL.keys() - others
    for name, value in changes.items():
        keyed = {"scope": "per_key"} if name == "prior" else {}
        fixed = {"ridge": 1} if value == "theory" else {}
        if name == "shift_rewards":
            fixed["intercept"] = False
        if name == "eta":
            fixed["solver"] = "adaptive"
        changed = {**FULL, **keyed, **fixed, name: value}
        told = await api.refused("PUT", "/v1/bandits/b", changed, status=409, code="conflict")
        assert re.search(rf"exists and has another ([\w, ]*, )?{name}\b.*: PATCH changes it", told["detail"])
    for rule in ({"max": 1}, {"aggregate": "sum"}):
        await api.refused("PUT", "/v1/bandits/b", {**FULL, "reward": rule}, status=409, code="conflict")
    assert await api.stored() == before
    assert await api.ok("GET", "/v1/bandits/b") == made
    assert await api.listed("/v1/bandits") == [made]


async def test_of_many_who_make_a_bandit_one_makes_it(api: Api):
    bodies = [{**FULL, "ridge": 1 + i % 2} for i in range(40)]
    answers = await asyncio.gather(*(api.call("PUT", "/v1/bandits/b", body) for body in bodies))
    assert sorted(a.status_code for a in answers) == [200] * 19 + [201] + [409] * 20


IMPOSSIBLE: list[Any] = [
        ({"policy": "elim"}, ["policy"]),
        ({"policy": "sub_elim", "exploration": 0, "intercept": False}, ["exploration"]),
        ({"policy": "linear_elim", "exploration": 0, "intercept": False}, ["exploration"]),
        ({"ridge": 0}, ["ridge"]), ({"ridge": -1}, ["ridge"]), ({"horizon": 0}, ["horizon"]),
        ({"delta": 0}, ["delta"]), ({"delta": 1}, ["delta"]), ({"shortlist": 0}, ["shortlist"]),
        ({"shortlist": 1_001}, ["shortlist"]), ({"eta": 0}, ["eta"]), ({"eta": 1}, ["eta"]),
        ({"exploration": -0.1}, ["exploration"]), ({"reward": {"min": 1, "max": 1}}, ["reward"]),
        ({"reward": {"min": 2, "max": 1}}, ["reward"]), ({"reward": {"default": 1}}, ["reward"]),
        ({"reward": {"wait_s": 0}}, ["reward", "wait_s"]),
        ({"reward": {"wait_s": 86_401}}, ["reward", "wait_s"]),
        ({"reward": {"wait_s": 1, "min": 1}}, ["reward"]),
        ({"reward": {"wait_s": 1, "default": 3, "max": 2}}, ["reward"]),
        ({"prior": "pooled"}, ["prior"]), ({"prior": "none"}, ["prior"]),
        ({"prior_strength": 0}, ["prior_strength"]),
        ({"policy": "sub_elim", "half_life_s": 60, "intercept": False}, ["half_life_s"]),
        ({"policy": "linear_elim", "scope": "per_key", "prior": "pooled", "intercept": False}, ["prior"]),
        ({"half_life_s": 0.5}, ["half_life_s"]), ({"idle_ttl_s": 0}, ["idle_ttl_s"]),
        ({"eta": 0.5}, ["eta"]), ({"policy": "linear_ts", "eta": 0.5}, ["eta"]),
        ({"policy": "softmax", "temperature": 1, "eta": 0.5}, ["eta"]),
        ({"policy": "softmax", "exploration": "theory", "ridge": 1}, ["exploration"]),
        ({"policy": "linucb", "exploration": "theory", "ridge": 1}, ["exploration"]),
    ]  # fmt: skip


async def test_what_a_bandit_cannot_be(api: Api):
    for change, field in IMPOSSIBLE:
        await api.refused("PUT", "/v1/bandits/b", {**FULL, **change}, loc=["body", *field])
        await api.refused("GET", "/v1/bandits/b", status=404, code="not_found")


@pytest.mark.rest
@pytest.mark.parametrize("policy", sorted(POLICIES))
async def test_what_a_policy_does_not_read_promises_nothing(api: Api, policy: str):
    """``theory`` is of the policies that read ``exploration``, as ``GET /v1/policies`` lists them."""
    items = (await api.ok("GET", "/v1/policies"))["items"]
    listed = {each["name"]: each["options"]["properties"] for each in items}
    body = {"catalogue": "c", "policy": policy, "exploration": "theory"}
    if "exploration" in listed[policy]:
        await api.ok("PUT", "/v1/bandits/b", body, 201)
    else:
        told = await api.refused("PUT", "/v1/bandits/b", body, loc=["body", "exploration"])
        assert policy in told["detail"]


@pytest.mark.rest
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


@pytest.mark.rest
async def test_a_bandit_needs_its_catalogue(api: Api):
    body = {**FULL, "catalogue": "none"}
    await api.refused("PUT", "/v1/bandits/b", body, status=404, code="not_found", canary="none")
    assert await api.listed("/v1/bandits") == []


@pytest.mark.rest
async def test_a_bandit_made_again_knows_nothing(api: Api):
    await api.bandit("b", "c")
    token = (await api.choose("b"))["decision"]
    await api.reward({"decision": token, "value": 1.0})
    await api.observe("b", {"id": "o", "arm": "a1", "value": 1.0})
    event = await api.choose("b", event_id="e", seed=1)
    await api.ok("DELETE", "/v1/bandits/b", status=204)
    for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/choose"), ("GET", "/learners/_global")):
        body = {} if method == "POST" else None
        await api.refused(method, f"/v1/bandits/b{path}", body, status=404, code="not_found")
    await api.bandit("b", "c")
    learner = await api.learner("b")
    assert (learner["version"], learner["observations"], learner["theta"]) == (0, 0, [0.0, 0.0])
    receipt = await api.reward({"decision": token, "value": 1.0, "arm": "a0"})
    assert receipt == {"accepted": 0, "duplicate": 0, "rejected": [{"index": 0, "code": "unknown_bandit"}]}
    assert (await api.choose("b", event_id="e"))["decision"] != event["decision"]
    assert (await api.observe("b", {"id": "o", "arm": "a1", "value": 1.0}))["accepted"] == 1


@pytest.mark.rest
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


@pytest.mark.rest
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


@pytest.mark.rest
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
    (1_446, {"shift_rewards": True}, "16,785,240", "catalogue"),
    (4_096, {"half_life_s": 60}, "134,316,096", "catalogue"),
    (722, {"scope": "per_key", "half_life_s": 60}, None, ""),
    (723, {"scope": "per_key"}, "4,199,224", "scope"),
    (1_447, {"scope": "per_key"}, "16,785,240", "catalogue"),
]


@pytest.mark.rest
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


@pytest.mark.rest
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
