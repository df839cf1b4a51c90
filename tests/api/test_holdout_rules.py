"""Holdouts: what is refused, explained and assigned."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections import Counter
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from test_holdouts import ALARM, KEYS, in_share

from api_client import Api, Json, running
from app.bandits.settings import HoldoutRule
from app.selection.holdout import group_of

pytestmark = [pytest.mark.anyio, pytest.mark.rest]

ARMS = {name: [1.0, float(place)] for place, name in enumerate("abcdef")}


async def build(api: Api, holdout: Json | None, **rest: Any) -> None:
    await api.catalogue("c", {}, dim=2)
    rows = [
        {"id": arm, "features": row, "metadata": {"kind": "ab"[place % 2]}}
        for place, (arm, row) in enumerate(ARMS.items())
    ]
    await api.ok("PUT", "/v1/catalogues/c/arms", {"arms": rows})
    await api.bandit("b", "c", **({} if holdout is None else {"holdout": holdout}), **rest)


async def many(api: Api, requests: list[Json]) -> list[Json]:
    found: list[Json] = []
    for start in range(0, len(requests), 500):
        body = {"requests": requests[start : start + 500]}
        found += (await api.ok("POST", "/v1/bandits/b/choose/batch", body))["results"]
    return found


def test_who_is_in_stays_in_while_the_share_grows_and_bandits_differ():
    held: set[str] = set()
    for share in (0.0, 0.05, 0.1, 0.3, 1.0):
        now = {key for key in KEYS if group_of("home", key, HoldoutRule(share)) == "holdout"}
        assert held <= now
        held = now
    assert held == set(KEYS)
    one, two = [
        {key for key in KEYS if group_of(name, key, HoldoutRule(0.5)) == "holdout"} for name in ("a", "b")
    ]
    assert in_share(len(one & two), len(KEYS), 0.25)


def snippet() -> str:
    page = (Path(__file__).parents[2] / "docs/changing.md").read_text()
    (found,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len([line for line in found.splitlines() if line]) == 4
    return str(found)


async def test_anybody_can_compute_the_groups(store_url: str, tmp_path: Path):
    """By the five lines of the page: the same on a process that starts later, with keys and events."""
    names: dict[str, Any] = {}
    exec(snippet(), names)
    in_holdout = names["in_holdout"]
    async with running(store_url, tmp_path / "1") as api:
        await build(api, {"share": 0.3}, scope="per_key")
        before = await many(api, [{"key": key} for key in KEYS[:300]])
    async with running(store_url, tmp_path / "2", empty=False) as api:
        after = await many(api, [{"key": key} for key in KEYS[:300]])
        expected = ["holdout" if in_holdout("b", key, 0.3) else "policy" for key in KEYS[:300]]
        assert [choice["group"] for choice in before] == expected
        assert [choice["group"] for choice in after] == expected
        assert in_share(expected.count("holdout"), 300, 0.3)
        await api.ok(
            "PUT", "/v1/bandits/g", {"catalogue": "c", "policy": "sub_ts", "holdout": {"share": 0.3}}, 201
        )
        for number in range(20):
            choice = await api.choose("g", event_id=f"e{number}")
            assert choice["group"] == ("holdout" if in_holdout("g", f"e{number}", 0.3) else "policy")
            assert await api.choose("g", event_id=f"e{number}") == choice
            seeded = await api.choose("g", seed=number)
            assert seeded["group"] == ("holdout" if in_holdout("g", f"seed {number}", 0.3) else "policy")
            again = await api.choose("g", seed=number)
            assert (again["group"], again["arms"]) == (seeded["group"], seeded["arms"])


async def test_a_seed_draws_the_same_arms_after_a_restart(store_url: str, tmp_path: Path):
    """The rows of arms that died are gone then."""
    async with running(store_url, tmp_path / "1") as api:
        await build(api, {"share": 1})
        for _ in range(3):
            await api.put_arms("c", {"b": [2.0, 2.0], "e": [1.0, 3.0]})
        before = [(await api.choose("b", k=2, seed=number))["arms"] for number in range(20)]
    async with running(store_url, tmp_path / "2", empty=False) as api:
        after = [(await api.choose("b", k=2, seed=number))["arms"] for number in range(20)]
    assert [[arm["id"] for arm in arms] for arms in after] == [[arm["id"] for arm in arms] for arms in before]


@pytest.mark.parametrize("policy", ["sub_ts", "linear_ts", "sub_elim", "linear_elim", "softmax", "igw"])
async def test_every_policy_can_have_a_holdout(api: Api, policy: str):
    await build(api, {"share": 0.5}, policy=policy, scope="per_key")
    choices = await many(api, [{"key": key, "k": 2} for key in KEYS[:200]])
    for choice in choices:
        known = [arm.get("propensity") for arm in choice["arms"]]
        if choice["group"] == "holdout":
            assert known == [pytest.approx(1 / 6), pytest.approx(1 / 5)]
            assert choice["policy"] == policy
        else:
            assert (known[0] is None) == (policy not in {"softmax", "igw"})
    held = [choice for choice in choices if choice["group"] == "holdout"]
    receipt = await api.reward({"decision": held[0]["decision"], "arm": held[0]["arms"][0]["id"], "value": 1})
    assert receipt["accepted"] == 1
    key = KEYS[choices.index(held[0])]
    assert (await api.learner("b", key))["observations"] == 1, "it teaches like any decision"


@pytest.mark.parametrize(
    ("request_", "eligible", "seeded"),
    [
        ({"k": 3}, "abcdef", False), ({"k": 2, "exclude": ["a", "none", "a"]}, "bcdef", True),
        ({"k": 2, "filter": {"kind": "a"}, "exclude": ["a", "b"]}, "ce", False),
        ({"k": 9, "exclude": ["a", "b", "c"]}, "def", True),
    ],
    ids=str,
)  # fmt: skip
async def test_lists_are_drawn_as_often_as_their_propensities_say(
    api: Api, request_: Json, eligible: str, seeded: bool
):
    """Every way of drawing, filters and many arms: ``tests/policies/test_uniform_draws.py``."""
    await build(api, {"share": 1})
    await api.ok("POST", "/v1/catalogues/c/arms/delete", {"ids": ["f"]})
    await api.put_arms("c", {"f": [9.0, 9.0]})  # a dead row in the table
    count = 1_000
    choices = await many(api, [request_ | ({"seed": n} if seeded else {}) for n in range(count)])
    k = min(request_["k"], len(eligible))
    lists = list(permutations(eligible, k))
    drawn = Counter(tuple(arm["id"] for arm in choice["arms"]) for choice in choices)
    assert set(drawn) <= set(lists)
    assert stats.chisquare([drawn[each] for each in lists]).pvalue > ALARM
    expected = [pytest.approx(1 / (len(eligible) - place)) for place in range(k)]
    assert all([arm["propensity"] for arm in choice["arms"]] == expected for choice in choices)
    assert all(choice["group"] == "holdout" for choice in choices)


async def test_rules_hold_and_propensities_are_among_what_they_allow(api: Api):
    await build(api, {"share": 1})
    rules = {"pin": [{"arm": "a", "place": 2}], "at_most": [{"field": "kind", "count": 2}]}
    choices = await many(api, [{"k": 4, "rules": rules, "seed": n} for n in range(500)])
    firsts: Counter[str] = Counter()
    for choice in choices:
        arms = choice["arms"]
        assert (arms[1]["id"], arms[1]["pinned"], arms[1]["propensity"]) == ("a", True, 1.0)
        own = [arm for arm in arms if arm["id"] != "a"]
        assert Counter("abcdef".index(arm["id"]) % 2 for arm in own) == {0: 1, 1: 2}
        left = set("bcdef")
        for arm in own:
            assert arm["propensity"] == pytest.approx(1 / len(left))
            left.discard(arm["id"])
            taken = [each["id"] for each in own[: own.index(arm) + 1]]
            if "abcdef".index(arm["id"]) % 2 == 0:  # with the pinned one, two of this kind
                left -= set("ace")
            elif sum("abcdef".index(each) % 2 for each in taken) == 2:
                left -= set("bdf")
        firsts[own[0]["id"]] += 1
    assert stats.chisquare([firsts[arm] for arm in "bcdef"]).pvalue > ALARM


async def test_named_arms_are_served_for_certain(api: Api):
    await build(api, {"share": 1, "serve": {"arms": ["e", "gone", "b", "a"]}})
    choice = await api.choose("b", k=2)
    assert [(arm["id"], arm["propensity"]) for arm in choice["arms"]] == [("e", 1.0), ("b", 1.0)]
    assert choice["group"] == "holdout"
    choice = await api.choose("b", k=3, exclude=["e"], rules={"pin": [{"arm": "f", "place": 1}]})
    assert [arm["id"] for arm in choice["arms"]] == ["f", "b", "a"]
    assert {arm["propensity"] for arm in choice["arms"]} == {1.0}
    pinned = await api.choose("b", k=1, rules={"pin": [{"arm": "f", "place": 1}]})
    assert [(arm["id"], arm["propensity"]) for arm in pinned["arms"]] == [("f", 1.0)]


async def test_where_no_arm_of_the_list_is_eligible_arms_are_drawn(api: Api):
    """As on the page of a category. The draw has propensities, a row, and an explanation."""
    await build(api, {"share": 1, "serve": {"arms": ["a", "gone"]}}, scope="per_key", log={})
    assert (await api.ok("GET", "/v1/bandits/b"))["holdout"]["else"] == "random"
    elsewhere = {"key": "ann", "filter": {"kind": "b"}, "k": 2}
    choices = [await api.choose("b", **elsewhere, seed=seed) for seed in range(40)]
    assert all([arm["propensity"] for arm in choice["arms"]] == [1 / 3, 1 / 2] for choice in choices)
    assert {arm["id"] for choice in choices for arm in choice["arms"]} == set("bdf")
    assert {choice["group"] for choice in choices} == {"holdout"}
    assert [arm["id"] for arm in (await api.choose("b", key="ann", k=2))["arms"]] == ["a"]
    preview = await api.ok("POST", "/v1/bandits/b/choose", {**elsewhere, "dry_run": True})
    assert (preview["group"], {arm["id"] for arm in preview["arms"]} <= set("bdf")) == ("holdout", True)
    drawn = choices[0]
    found = await api.ok("POST", "/v1/bandits/b/log/explain", {"decision": drawn["decision"]})
    assert (found["repeated"], found["changed"]) == (True, [])
    for rule in ({"else": "refuse"}, {"serve": {"arms": ["a"]}, "else": "refuse"}):
        changed = await api.ok("PATCH", "/v1/bandits/b", {"holdout": rule})
        assert changed["holdout"]["else"] == "refuse"
        document = await api.refused("POST", "/v1/bandits/b/choose", elsewhere, status=409, code="no_arms")
        assert "no arm of the holdout's list is eligible, 3 others may be" in document["detail"]
    await api.refused(
        "POST", "/v1/bandits/b/choose", {"key": "a", "exclude": list(ARMS)}, status=409, code="no_arms"
    )


async def test_a_bandit_without_a_holdout_has_no_groups(api: Api):
    await build(api, None)
    first = await api.choose("b", event_id="e")
    assert "group" not in first
    changed = await api.ok("PATCH", "/v1/bandits/b", {"holdout": {"share": 1}})
    assert changed["holdout"] == {"share": 1, "serve": "random", "else": None}
    assert (await api.choose("b"))["group"] == "holdout"
    assert await api.choose("b", event_id="e") == first, "an event keeps its choice"
    changed = await api.ok("PATCH", "/v1/bandits/b", {"holdout": {"serve": {"arms": ["a"]}}})
    assert changed["holdout"] == {"share": 1, "serve": {"arms": ["a"]}, "else": "random"}
    for serve in ("random", "candidates"):  # a list takes what it says with it, and only a list says it
        lists = {"share": 1, "serve": {"arms": ["a"]}, "else": "random"}
        assert (await api.ok("PATCH", "/v1/bandits/b", {"holdout": lists}))["holdout"] == lists
        changed = await api.ok("PATCH", "/v1/bandits/b", {"holdout": {"serve": serve}})
        assert changed["holdout"] == {"share": 1, "serve": serve, "else": None}
        for rule in ({"else": "refuse"}, {"serve": serve, "else": "random"}):
            body = {"holdout": rule}
            await api.refused("PATCH", "/v1/bandits/b", body, loc=["body", "holdout", "else"])
    await api.ok("PATCH", "/v1/bandits/b", {"holdout": {"share": 0}})
    assert (await api.choose("b"))["group"] == "policy"
    assert (await api.ok("PATCH", "/v1/bandits/b", {"holdout": None}))["holdout"] is None
    assert "group" not in await api.choose("b")


IMPOSSIBLE: list[Any] = [
        ({"share": 1.5}, ["share"]), ({"share": -0.1}, ["share"]), ({"share": "0.1"}, ["share"]),
        ({"share": True}, ["share"]), ({}, ["share"]), ({"share": None}, ["share"]), (0.1, []), ([], []),
        ({"share": 0.1, "serve": "best"}, ["serve"]), ({"share": 0.1, "serve": {}}, ["serve", "arms"]),
        ({"share": 0.1, "serve": {"arms": []}}, ["serve", "arms"]),
        ({"share": 0.1, "serve": {"arms": ["?"]}}, ["serve", "arms", 0]),
        ({"share": 0.1, "serve": {"arms": ["a", "a"]}}, ["serve"]), ({"share": 0.1, "of": 1}, ["of"]),
        ({"share": 0.1, "serve": {"arms": ["a"], "x": 1}}, ["serve", "x"]),
        ({"share": 0.1, "serve": 1}, ["serve"]), ({"share": 0.1, "else": "policy"}, ["else"]),
    ]  # fmt: skip


async def test_what_a_holdout_cannot_be(api: Api):
    await build(api, None)
    before = await api.stored()
    for holdout, loc in IMPOSSIBLE:
        body = {"catalogue": "c", "policy": "sub_ts", "holdout": holdout}
        await api.refused("PUT", "/v1/bandits/new", body, loc=["body", "holdout", *loc])
        await api.refused("PATCH", "/v1/bandits/b", {"holdout": holdout}, loc=["body", "holdout", *loc])
        assert await api.stored() == before


def test_the_group_is_a_keyed_hash_of_the_unit():
    digest = hmac.new(b"home", b"user-42", hashlib.sha256).digest()
    number = int.from_bytes(digest[:6], "big") / 2**48
    assert group_of("home", "user-42", HoldoutRule(np.nextafter(number, 1))) == "holdout"
    assert group_of("home", "user-42", HoldoutRule(number)) == "policy"
