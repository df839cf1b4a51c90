"""A holdout that is served the caller's own list: its order, within all that a choice must keep to."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from api_client import Api, Json

pytestmark = [pytest.mark.anyio, pytest.mark.rest]

ARMS = {f"a{place}": row for place, row in enumerate(np.random.default_rng(3).normal(size=(12, 3)))}
OWN: Json = {"id": "n1", "features": [1.0, 0.0, 2.0], "metadata": {"kind": 1, "shop": "x"}}
DAY, ALARM = 86_400, 1e-9
SHADOW: Json = {"share": 1.0, "serve": "candidates"}
LISTED = ["a7", OWN, "gone", "a2", "a11", "a4"]


def ids(answer: Json) -> list[str]:
    return [arm["id"] for arm in answer["arms"]]


async def ready(api: Api, name: str, **settings: Any) -> str:
    await api.ok("PUT", f"/v1/catalogues/{name}", {"dim": 3}, 201)
    rows = [
        {"id": arm, "features": row.tolist(), "metadata": {"kind": int(arm[1:]) % 2, "shop": f"s{arm[1:]}"}}
        for arm, row in ARMS.items()
    ]
    await api.ok("PUT", f"/v1/catalogues/{name}/arms", {"arms": rows})
    await api.bandit(name, name, **{"holdout": SHADOW, "log": {}} | settings)
    return f"/v1/bandits/{name}"


async def test_it_is_served_the_first_candidates_in_the_order_of_the_caller(shared: Api):
    """Whatever the policy; no arm has a propensity, in the answer and in the row."""
    for policy in ("sub_ts", "softmax", "linucb", "epsilon_greedy", "igw", "linear_ts"):
        await ready(shared, f"order-{policy}", policy=policy)
        answer = await shared.choose(f"order-{policy}", k=3, candidates=LISTED, include=["ranking"])
        assert ids(answer) == ["a7", "n1", "a2"]
        assert (answer["group"], answer["unknown"], answer["policy"]) == ("holdout", 1, policy)
        assert not any("propensity" in arm for arm in answer["arms"])
        assert not any("first" in each for each in answer["ranking"])
        dry = await shared.choose(f"order-{policy}", k=3, candidates=LISTED, dry_run=True)
        assert (ids(dry), dry["group"]) == (["a7", "n1", "a2"], "holdout")
        every = await shared.choose(f"order-{policy}", k=9, candidates=LISTED)
        assert ids(every) == ["a7", "n1", "a2", "a11", "a4"]


async def test_filters_rules_exclusions_quotas_and_caps_hold_for_it(shared: Api):
    path = await ready(shared, "within", scope="per_key", filter={"kind": {"$lte": 1}})
    ask: Json = {"key": "ann", "k": 3, "candidates": LISTED}
    assert ids(await shared.choose("within", **ask, filter={"kind": 1})) == ["a7", "n1", "a11"]
    assert ids(await shared.choose("within", **ask, exclude=["a7", "a2"])) == ["n1", "a11", "a4"]
    rules: Json = {"pin": [{"arm": "a4", "place": 2}], "at_most": [{"field": "kind", "count": 1}]}
    pinned = await shared.choose("within", **ask, rules=rules)
    assert ids(pinned) == ["a7", "a4"]
    assert not any("propensity" in arm for arm in pinned["arms"])
    every = {"pin": [{"arm": arm, "place": place} for place, arm in enumerate(("a4", "a2", "a7"), start=1)]}
    pinned = await shared.choose("within", **ask, rules=every)
    assert ids(pinned) == ["a4", "a2", "a7"]
    assert not any("propensity" in arm for arm in pinned["arms"])
    assert ids(await shared.choose("within", **ask, rules={"diverse": {"weight": 0.5}})) == ["a7", "n1", "a2"]
    for name, of in {"a7": {"arm": "a7"}, "x": {"filter": {"shop": "x"}}}.items():
        await shared.ok("PUT", f"{path}/quotas/{name}", {**of, "most": 2, "per_s": DAY}, 201)
    lists = [ids(await shared.choose("within", **ask)) for _ in range(3)]
    assert lists == [["a7", "n1", "a2"], ["a7", "n1", "a2"], ["a2", "a11", "a4"]]
    await ready(shared, "capped", scope="per_key", repeats={"most": 1, "within_s": DAY})
    lists = [ids(await shared.choose("capped", **ask | {"k": 2})) for _ in range(3)]
    assert lists == [["a7", "n1"], ["a2", "a11"], ["a4"]]
    document = await shared.refused("POST", "/v1/bandits/capped/choose", ask, status=409, code="no_arms")
    assert "candidates" in document["detail"]


async def test_who_is_held_must_name_candidates_and_the_others_need_not(shared: Api):
    path = await ready(shared, "named", scope="per_key", holdout={"share": 0.5, "serve": "candidates"})
    groups = dict[str, str]()
    for number in range(40):
        key = f"u{number}"
        groups[key] = (await shared.choose("named", key=key, candidates=LISTED))["group"]
        if groups[key] == "policy":
            assert len(ids(await shared.choose("named", key=key))) == 1
            continue
        for dry_run in (False, True):
            body = {"key": key, "dry_run": dry_run}
            await shared.refused("POST", f"{path}/choose", body, loc=["body", "candidates"])
    held = next(key for key, group in groups.items() if group == "holdout")
    free = next(key for key, group in groups.items() if group == "policy")
    requests = [{"key": free}, {"key": held}]
    batch = {"requests": requests}
    await shared.refused("POST", f"{path}/choose/batch", batch, loc=["body", "requests", 1, "candidates"])
    # Whoever is with the policy stays there when the share falls.
    for share in (0.2, 0.05):
        await shared.ok("PATCH", path, {"holdout": {"share": share}})
        now = {key: (await shared.choose("named", key=key, candidates=LISTED))["group"] for key in groups}
        assert all(now[key] == "policy" for key, group in groups.items() if group == "policy")


async def test_no_evaluation_takes_its_rows_for_random(shared: Api):
    """They are left out and counted: of propensities from the log, and of those that draws estimate."""
    rule = {"share": 0.5, "serve": "candidates"}
    for policy, propensities in (("softmax", "logged"), ("sub_ts", "draws")):
        name = f"judged-{policy}"
        path = await ready(shared, name, policy=policy, scope="per_key", holdout=rule)
        held = 0
        for number in range(60):
            ask: Json = {"key": f"u{number}", "candidates": ["a1", "a2", "a3"]}
            answer = await shared.choose(name, **ask, dry_run=True)
            if answer["group"] == "policy":
                del ask["candidates"]
            answer = await shared.choose(name, **ask)
            held += answer["group"] == "holdout"
            await shared.reward({"decision": answer["decision"], "value": 1.0})
        rows = await shared.listed(f"{path}/log")
        assert len(rows) == 60
        unknown = [row for row in rows if row["arms"][0]["propensity"] is None]
        if policy == "softmax":
            assert {row["group"] for row in unknown} == {"holdout"}
        body = {"policy": {"exploration": 0.3}, "propensities": propensities}
        body = body if policy == "sub_ts" else {"policy": {"temperature": 0.5}}
        found = await shared.ok("POST", f"{path}/evaluations", body)
        assert found["logged"]["decisions"] + found["logged"]["left_out"] == 60
        assert 0 < found["logged"]["decisions"] <= 60 - held
        assert any("no propensities and cannot be used" in each for each in found["warnings"])


async def test_what_cannot_serve_candidates_is_refused(shared: Api):
    await shared.ok("PUT", "/v1/catalogues/refused", {"dim": 3}, 201)
    for policy in ("sub_elim", "linear_elim"):
        body = {"catalogue": "refused", "policy": policy, "holdout": SHADOW}
        await shared.refused("PUT", "/v1/bandits/refused", body, loc=["body", "holdout", "serve"])
    body = {"catalogue": "refused", "policy": "sub_ts", "holdout": {**SHADOW, "else": "random"}}
    await shared.refused("PUT", "/v1/bandits/refused", body, loc=["body", "holdout", "else"])
    await shared.bandit("refused", "refused", holdout={**SHADOW, "else": None})
    body = {"policy": "sub_elim", "prior": "plain", "arm_effects": "off"}
    await shared.refused("PATCH", "/v1/bandits/refused", body, loc=["body", "holdout", "serve"])
