"""Choices in a context: what is refused, batches, events, rules and late rewards."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_choosing_in_context import ARMS, assert_learned, build, contexts, phi, play

from api_client import Api, Json

pytestmark = [pytest.mark.anyio, pytest.mark.rest]

FIELDS: list[Json] = [
    {"name": "device", "kind": "category", "values": ["mobile", "desktop"]},
    {"name": "hour", "kind": "cycle", "period": 24},
    {"name": "age", "kind": "number", "mean": 35, "scale": 12},
    {"name": "query", "kind": "hash", "size": 4},
]


M = 9


async def test_named_fields_are_encoded_and_shown(api: Api):
    await build(api, context={"fields": FIELDS}, interactions=1)
    made = await api.ok("GET", "/v1/bandits/b")
    assert made["context"] == {"fields": FIELDS}
    assert made["interactions"] == 1
    assert "directions" not in made
    choice = await api.choose("b", context={"device": "mobile", "hour": 6, "age": 47})
    await api.reward({"decision": choice["decision"], "value": 2.0})
    learner = await api.ok("GET", "/v1/bandits/b/learners/_global?include=directions")
    assert learner["context"]["dim"] == M
    assert learner["context"]["fields"] == FIELDS
    assert learner["context"]["columns"][:5] == [
        "device=mobile",
        "device=desktop",
        "hour.cos",
        "hour.sin",
        "age",
    ]
    u = [1.0, 0.0, float(np.float32(np.cos(np.pi / 2))), 1.0, 1.0, 0.0, 0.0, 0.0, 0.0]
    row = phi(ARMS[choice["arms"][0]["id"]], u, learner["directions"])
    assert_learned(learner, [row], [2.0], m=M)


async def test_absent_fields_are_zeros(api: Api):
    """The same choice, to the bit of the score, as with nulls and values that are not listed."""
    await build(api, context={"fields": FIELDS})
    await api.observe("b", *[
        {"id": f"{n}", "arm": f"a{n}", "value": 1.0, "context": {"device": "mobile", "query": "red"}}
        for n in range(9)
    ])  # fmt: skip
    nothing = dict.fromkeys(("device", "hour", "age", "query"))
    answers = [
        (await api.choose("b", context=context, seed=3, k=5))["arms"]
        for context in ({}, nothing, {"device": "tablet", "query": ""})
    ]
    assert answers[0] == answers[1] == answers[2]


async def test_a_campaign_teaches_what_all_contexts_share(api: Api):
    await build(api)
    arms = list(ARMS)[:8]
    body = {"id": "s", "arms": arms, "k": 2, "method": "saqm", "noise_std": 1e-3, "delta": 0.1, "seed": 1}
    await api.ok("POST", "/v1/slates", body, 201)
    while (await api.ok("GET", "/v1/slates/s"))["state"] != "done":
        pulls = (await api.ok("POST", "/v1/slates/s/ask", {"count": 200}))["pulls"]
        results = [{"pull": p["pull"], "total": float(sum(ARMS[a][0] for a in p["slate"]))} for p in pulls]
        await api.ok("POST", "/v1/slates/s/tell", {"results": results})
    await api.ok("POST", "/v1/slates/s/teach?wait=applied", {"bandit": "b"})
    learner = await api.learner("b")
    assert not np.array(learner["weights"]).any()
    assert learner["theta"][0] > 0.3
    answer = await api.choose("b", context=[1, 1, 1], baseline="s", k=2)
    assert len(answer["arms"]) == 2


async def test_a_changed_bandit_keeps_its_context_and_its_directions(api: Api):
    """What a learner's sums depend on stays; decisions of before the change are rewarded in their context."""
    await build(api, interactions=2)
    await play(api, rounds=5)
    before = await api.ok("GET", "/v1/bandits/b/learners/_global?include=directions")
    choice = await api.choose("b", context=[1, 2, 3], seed=1)
    await api.put_arms("c", {"far": [50.0, 0.0, 0.0, 1.0]})  # it would change the directions
    made = await api.ok("GET", "/v1/bandits/b")
    changed = await api.ok("PATCH", "/v1/bandits/b", {"exploration": 0.0, "policy": "igw"})
    assert (changed["context"], changed["interactions"]) == (made["context"], 2)
    before["used"]["exploration"] = 0
    assert await api.ok("GET", "/v1/bandits/b/learners/_global?include=directions") == before
    await api.reward({"decision": choice["decision"], "value": 1.0})
    after = await api.ok("GET", "/v1/bandits/b/learners/_global?include=directions")
    assert after["observations"] == before["observations"] + 1
    assert after["directions"] == before["directions"]
    assert (await api.choose("b", context=[1, 2, 3]))["policy"] == "igw"
    for change in ({"context": {"dim": 2}}, {"context": None}, {"interactions": 3}, {"interactions": "all"}):
        await api.refused(
            "PATCH", "/v1/bandits/b", change, status=409, code="not_changeable", loc=["body", *change]
        )
    await api.refused("PATCH", "/v1/bandits/b", {"policy": "sub_elim"}, loc=["body", "context"])


async def test_a_token_of_64_numbers_is_below_4_kb(api: Api):
    await build(api, context={"dim": 64})
    token = (await api.choose("b", context=contexts(1, 64)[0]))["decision"]
    assert len(token) < 4_000
    plain = "plain"
    await api.bandit(plain, "c")
    assert len((await api.choose(plain))["decision"]) < len(token) - 340


WRONG: list[tuple[str, Any, list[str | int]]] = [
    ("absent", None, ["context"]),
    ("text", "mobile", ["context"]),
    ("number", 3, ["context"]),
    ("too short", [1, 2], ["context"]),
    ("too long", [1, 2, 3, 4], ["context"]),
    ("empty", [], ["context"]),
    ("object", {"a": 1}, ["context"]),
    ("null inside", [1, None, 3], ["context", 1]),
    ("text inside", [1, "2", 3], ["context", 1]),
    ("bool inside", [1, True, 3], ["context", 1]),
    ("list inside", [1, [2], 3], ["context", 1]),
    ("too large", [1, 2, 1e7], ["context", 2]),
    ("far too large", [1, 2, 10**400], ["context", 2]),
]


async def test_a_bad_vector_is_refused_everywhere(api: Api):
    await build(api)
    before = await api.stored()
    for wrong, loc in [(w, loc) for _, w, loc in WRONG]:
        code = "dimension_mismatch" if isinstance(wrong, list) and len(wrong) != 3 else "invalid"
        given = {} if wrong is None else {"context": wrong}
        path = "/v1/bandits/b"
        await api.refused("POST", f"{path}/choose", given, code=code, loc=["body", *loc])
        batch = {"requests": [{"context": [1, 2, 3]}, given]}
        await api.refused("POST", f"{path}/choose/batch", batch, code=code, loc=["body", "requests", 1, *loc])
        good = {"id": "o1", "arm": "a1", "value": 1.0, "context": [1, 2, 3]}
        items = [good, {"id": "o2", "arm": "a1", "value": 1.0, **given}]
        body = {"observations": items}
        await api.refused(
            "POST", f"{path}/observations", body, code=code, loc=["body", "observations", 1, *loc]
        )
        assert await api.stored() == before


BAD_FIELDS: list[Any] = [
    ({"colour": "red"}, "colour"),
    ({"device": 1}, "device"),
    ({"hour": "noon-canary"}, "hour"),
    ({"age": True}, "age"),
    ({"age": 1e99}, "age"),
    ({"age": 1e9}, "age"),
    ({"query": ["red"]}, "query"),
    ({"query": "q" * 1_025}, "query"),
    ({"device": {"a": {"b": 1}}}, "device"),
    ({"<canary>": 1}, "?"),
]


async def test_a_bad_field_is_named_and_not_repeated(api: Api):
    await build(api, context={"fields": FIELDS})
    before = await api.stored()
    for wrong, name in BAD_FIELDS:
        body = {"context": {"device": "mobile", **wrong}}
        await api.refused(
            "POST", "/v1/bandits/b/choose", body, loc=["body", "context", name], canary="canary"
        )
        batch = {"requests": [body]}
        loc = ["body", "requests", 0, "context", name]
        await api.refused("POST", "/v1/bandits/b/choose/batch", batch, loc=loc, canary="canary")
        assert await api.stored() == before


async def test_a_context_is_refused_where_there_is_none(api: Api):
    await api.catalogue("c", ARMS)
    await api.bandit("b", "c")
    loc = ["body", "context"]
    for context in ([1.0], {"a": 1}, []):
        await api.refused("POST", "/v1/bandits/b/choose", {"context": context}, loc=loc)
    await api.choose("b", context=None)
    items = [{"id": "x", "arm": "a1", "value": 1, "context": [1]}]
    await api.refused(
        "POST",
        "/v1/bandits/b/observations",
        {"observations": items},
        loc=["body", "observations", 0, "context"],
    )
    learner = await api.ok("GET", "/v1/bandits/b/learners/_global?include=directions")
    assert {"weights", "context", "directions"} & set(learner) == set()


RULES: list[tuple[Any, list[str | int]]] = [
    ({}, ["context"]),
    ({"dim": 2, "fields": FIELDS}, ["context"]),
    ({"dim": 0}, ["context", "dim"]),
    ({"dim": 1_024}, ["context", "dim"]),
    ({"dim": "3"}, ["context", "dim"]),
    ({"dim": True}, ["context", "dim"]),
    ({"fields": []}, ["context", "fields"]),
    ({"fields": [{"name": "a", "kind": "vector"}]}, ["context", "fields", 0, "kind"]),
    ({"fields": [{"name": "", "kind": "number"}]}, ["context", "fields", 0, "name"]),
    ({"fields": [{"name": "a", "kind": "category"}]}, ["context", "fields", 0, "values"]),
    ({"fields": [{"name": "a", "kind": "category", "values": []}]}, ["context", "fields", 0, "values"]),
    (
        {"fields": [{"name": "a", "kind": "category", "values": ["x", "x"]}]},
        ["context", "fields", 0, "values"],
    ),
    ({"fields": [{"name": "a", "kind": "category", "values": [1]}]}, ["context", "fields", 0, "values", 0]),
    ({"fields": [{"name": "a", "kind": "cycle", "period": 0}]}, ["context", "fields", 0, "period"]),
    ({"fields": [{"name": "a", "kind": "number", "scale": -1}]}, ["context", "fields", 0, "scale"]),
    ({"fields": [{"name": "a", "kind": "number", "size": 3}]}, ["context", "fields", 0, "size"]),
    ({"fields": [{"name": "a", "kind": "hash", "size": 1e3}]}, ["context", "fields", 0, "size"]),
    ({"fields": [FIELDS[1], FIELDS[1]]}, ["context", "fields", 1, "name"]),
    ({"fields": [{"name": "a", "kind": "number", "unit": "s"}]}, ["context", "fields", 0, "unit"]),
    ("dim", ["context"]),
]


async def test_a_bandit_with_a_bad_context_is_not_made(api: Api):
    await api.catalogue("c", ARMS)
    for rule, loc in RULES:
        body = {"catalogue": "c", "policy": "sub_ts", "context": rule}
        await api.refused("PUT", "/v1/bandits/b", body, loc=["body", *loc])
        await api.refused("GET", "/v1/bandits/b", status=404, code="not_found")


async def test_elimination_takes_no_context_and_says_why(api: Api):
    await api.catalogue("c", ARMS)
    for policy in ["sub_elim", "linear_elim"]:
        body = {"catalogue": "c", "policy": policy, "context": {"dim": 2}}
        document = await api.refused("PUT", "/v1/bandits/b", body, loc=["body", "context"])
        assert "may be the best one in another" in document["errors"][0]["message"]


TOO_LARGE: list[tuple[int, int, str, Any, int]] = [
    (32, 32, "global", None, 31),
    (32, 32, "global", "all", 31),
    (32, 64, "global", 16, 15),
    (32, 32, "per_key", 8, 7),
    (4, 2, "global", 5, 4),
    (64, 2, "global", 65, 64),
]


async def test_the_largest_interactions_that_fits_is_named(api: Api):
    for dim, m, scope, interactions, largest in TOO_LARGE:
        name = f"{dim}-{m}-{scope}-{interactions}"
        await api.catalogue(name, {"a": [1.0] * dim})
        body: Json = {"catalogue": name, "policy": "sub_ts", "scope": scope, "context": {"dim": m}}
        if interactions is not None:
            body["interactions"] = interactions
        document = await api.refused("PUT", f"/v1/bandits/{name}", body, loc=["body", "interactions"])
        assert document["errors"][0]["message"].endswith(f"the largest interactions that fits is {largest}")
        await api.ok("PUT", f"/v1/bandits/{name}", {**body, "interactions": largest}, 201)
        key = {"key": "ann"} if scope == "per_key" else {}
        choice = await api.choose(name, context=[0.5] * m, **key)
        await api.reward({"decision": choice["decision"], "value": 1.0})


async def test_a_context_that_never_fits_is_refused_itself(api: Api):
    await api.catalogue("wide", {"a": [1.0] * 200})
    body = {"catalogue": "wide", "policy": "sub_ts", "scope": "per_key", "context": {"dim": 57}}
    await api.refused("PUT", "/v1/bandits/b", body, loc=["body", "context"])


async def test_interactions_are_a_number_or_all(api: Api):
    await api.catalogue("c", ARMS)
    for wrong in [0, -1, 1.5, "some", True, 4_097]:
        body = {"catalogue": "c", "policy": "sub_ts", "context": {"dim": 2}, "interactions": wrong}
        await api.refused("PUT", "/v1/bandits/b", body, loc=["body", "interactions"])


async def test_interactions_need_a_context_and_directions_need_arms(api: Api):
    await api.catalogue("empty", {}, dim=3)
    body: Json = {"catalogue": "empty", "policy": "sub_ts", "interactions": 2}
    document = await api.refused("PUT", "/v1/bandits/b", body, loc=["body", "interactions"])
    assert "needs a context" in document["detail"]
    body["context"] = {"dim": 2}
    document = await api.refused("PUT", "/v1/bandits/b", body, loc=["body", "interactions"])
    assert "add arms first" in document["detail"]
    await api.ok("PUT", "/v1/bandits/b", {**body, "interactions": "all"}, 201)
