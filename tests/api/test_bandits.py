"""Bandits: made once, deleted with all that they learned, and whose key a request needs."""

import asyncio
import re
from typing import Any

import pytest

from api_client import Api, Json
from app.api.bandits import changed_record
from app.platform.errors import NotChangeable

pytestmark = pytest.mark.anyio

FULL: Json = {
    "catalogue": "c", "policy": "sub_ts", "scope": "global", "ridge": "auto", "exploration": "auto",
    "delta": 0.05, "horizon": 20_000, "shortlist": 30, "eta": None,
    "reward": {"min": None, "max": None, "aggregate": "first", "wait_s": None, "default": None},
    "prior": "plain", "half_life_s": None, "idle_ttl_s": None,
    "temperature": None, "gamma": None,
    "solver": "shortlist", "filter": None, "holdout": None, "log": None,
    "context": None, "interactions": None, "repeats": None, "signals": None, "guardrails": None,
    "position": None, "intercept": True, "epsilon": None, "alpha": None,
    "arm_effects": "off", "options": None, "constraints": None, "match": None,
}  # fmt: skip


@pytest.fixture
async def api(api: Api) -> Api:
    await api.catalogue("c", {f"a{i}": [1.0, float(i)] for i in range(4)})
    await api.catalogue("d", {"a": [1.0, 0.0]})
    return api


# Another value of each setting, and what has to be set with it.
OTHER: Json = {
    "catalogue": "d", "policy": "linear_ts", "scope": "per_key", "ridge": 2, "exploration": "theory",
    "delta": 0.1, "horizon": 9, "shortlist": 31, "eta": 0.5, "reward": {"min": 0},
    "prior": "learned", "half_life_s": 60, "idle_ttl_s": 60,
    "solver": "adaptive", "filter": {"stock": True},
    "holdout": {"share": 0.5}, "context": {"dim": 2}, "log": {}, "repeats": {"most": 1, "within_s": 60},
    "position": {"examination": [1.0, 0.5]}, "intercept": False,
    "match": {"fields": [{"name": "km", "kind": "number"}]},
}  # fmt: skip
WITH: Json = {
    "prior": {"scope": "per_key"}, "exploration": {"ridge": 1},
    "eta": {"solver": "adaptive"},
}  # fmt: skip
# Options of other policies, of a context, of signals, effects and plug-ins, which have their own tests.
TESTED_ELSEWHERE = {
    "options", "constraints", "arm_effects", "temperature", "gamma", "epsilon", "alpha", "interactions",
    "signals", "guardrails",
}  # fmt: skip


async def test_a_bandit_is_made_once(api: Api):
    created = await api.ok("PUT", "/v1/bandits/b", {"catalogue": "c", "policy": "sub_ts"}, 201)
    used = {"ridge": pytest.approx((1 + 14 / 4) * 3 / 2 / 4), "noise": 1, "exploration": 0.5}
    assert created == {"id": "b", **FULL, "version": 1, "used": used}
    before = await api.stored()
    for same in (FULL, {"catalogue": "c", "policy": "sub_ts", "reward": {}}):
        assert await api.ok("PUT", "/v1/bandits/b", same, 200) == created

    assert OTHER.keys() == FULL.keys() - TESTED_ELSEWHERE
    record = (await api.app.service.bandits.get("b")).record
    for name, value in OTHER.items():
        body = {**FULL, **WITH.get(name, {}), name: value}
        problem = await api.refused("PUT", "/v1/bandits/b", body, status=409, code="conflict")
        assert re.search(rf"exists and has another ([\w, ]*, )?{name}\b", problem["detail"])
        try:
            changed_record(record, {**WITH.get(name, {}), name: value})
        except NotChangeable:
            assert re.search(rf"\b{name}\b.* cannot be changed|another {name}$", problem["detail"])
        else:
            assert re.search(rf": PATCH changes (it$|.*\b{name}\b)", problem["detail"])
    for rule in ({"max": 1}, {"aggregate": "sum"}):
        await api.refused("PUT", "/v1/bandits/b", {**FULL, "reward": rule}, status=409, code="conflict")

    assert await api.stored() == before
    assert await api.ok("GET", "/v1/bandits/b") == created
    assert await api.listed("/v1/bandits") == [created]


@pytest.mark.parametrize(
    ("fields", "name", "said"),
    [
        ({"prior": "pooled"}, "prior", 'use "learned"'),
        ({"auto": 2}, "auto", "Leave the field out"),
        ({"prior_strength": 3}, "prior_strength", '"prior": "learned"'),
        ({"shift_rewards": True}, "shift_rewards", '"intercept"'),
        ({"explore": {"centers": 2}}, "explore", '"prior": "learned"'),
    ],
    ids=str,
)
async def test_a_setting_that_is_gone_is_refused_with_what_to_use(
    api: Api, fields: Json, name: str, said: str
):
    await api.bandit("b", "c", scope="per_key")
    body = {"catalogue": "c", "policy": "sub_ts", "scope": "per_key", **fields}
    for asked in (("PUT", "/v1/bandits/other", body), ("PATCH", "/v1/bandits/b", fields)):
        problem = await api.refused(*asked, loc=["body", name])
        assert re.match(rf"{name}: (is gone|must be)", problem["detail"])
        assert said in problem["detail"]


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
        ({"prior": "learned"}, ["prior"]), ({"prior": "none"}, ["prior"]),
        ({"policy": "sub_elim", "half_life_s": 60, "intercept": False}, ["half_life_s"]),
        ({"policy": "linear_elim", "scope": "per_key", "prior": "learned", "intercept": False}, ["prior"]),
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
