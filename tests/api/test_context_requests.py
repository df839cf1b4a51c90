"""Choices in a context: what is refused, batches, events, rules and late rewards."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_choosing_in_context import ARMS, DIM, POLICIES, RNG, assert_learned, build, contexts, phi, play

from api_client import Api, Json, running
from waiting import wait_until

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


async def test_one_hot_contexts_without_a_shared_part_are_learners_of_their_own(api: Api):
    """Each group is compared with a learner of its own.

    Theta cannot be switched off over HTTP, so that learner sees features [x ; x]: that is phi in its group,
    where the columns of the other groups are zeros. Rewards of one group move the columns of no other.
    """
    await build(api, context={"dim": 3}, policy="linear_ts", exploration=0.0)
    await api.catalogue("twice", {arm: [*row, *row] for arm, row in ARMS.items()})
    await api.bandit("alone", "twice", policy="linear_ts", exploration=0.0)
    history: list[Json] = [{"id": f"{n}", "arm": f"a{n}", "value": float(n % 3)} for n in range(30)]
    await api.observe("b", *[{**item, "context": [0, 1, 0]} for item in history])
    await api.observe("alone", *history)
    own = await api.learner("alone")
    learner = await api.learner("b")
    np.testing.assert_allclose(learner["theta"], own["theta"][:DIM], atol=1e-9)
    np.testing.assert_allclose(np.array(learner["weights"])[:, 1], own["theta"][DIM:], atol=1e-9)
    assert not np.array(learner["weights"])[:, [0, 2]].any()
    chosen = await api.choose("b", context=[0, 1, 0], k=9)
    assert [a["id"] for a in chosen["arms"]] == [a["id"] for a in (await api.choose("alone", k=9))["arms"]]


async def test_a_context_decides_what_is_best(api: Api):
    await build(api, exploration=0.0)
    truth = RNG.normal(size=(DIM, 3))
    history: list[Json] = []
    for n, context in enumerate(contexts(300)):
        arm = f"a{n % 40}"
        value = float(np.array(ARMS[arm]) @ truth @ np.array(context))
        history.append({"id": f"{n}", "arm": arm, "value": value, "context": context})
    await api.observe("b", *history)
    for context in contexts(20, seed=7):
        best = max(ARMS, key=lambda arm: float(np.array(ARMS[arm]) @ truth @ np.array(context)))
        assert (await api.choose("b", context=context))["arms"][0]["id"] == best


async def test_the_same_seed_and_event_give_the_same_choice(api: Api):
    await build(api, interactions=3)
    await play(api)
    one = await api.choose("b", context=[1, 2, 3], seed=5, k=4)
    assert (await api.choose("b", context=[1, 2, 3], seed=5, k=4))["arms"] == one["arms"]
    first = await api.choose("b", context=[1, 2, 3], event_id="e")
    assert await api.choose("b", context=[1, 2, 3], event_id="e") == first
    other = {"context": [-9, 0, 1], "event_id": "e"}
    await api.refused("POST", "/v1/bandits/b/choose", other, status=409, code="event_used")
    await api.refused("POST", "/v1/bandits/b/choose", {"event_id": "e"}, loc=["body", "context"])


async def test_filters_rules_exclusions_and_many_arms(api: Api):
    arms = [
        {"id": arm, "features": row, "metadata": {"half": int(arm[1:]) % 2, "group": int(arm[1:]) % 5}}
        for arm, row in ARMS.items()
    ]
    await api.ok("PUT", "/v1/catalogues/c", {"dim": DIM}, 201)
    await api.ok("PUT", "/v1/catalogues/c/arms", {"arms": arms})
    await build(api, exploration=0.0, interactions=2, filter={"half": 0})
    await api.observe("b", {"id": "x", "arm": "a0", "value": 1.0, "context": [1, 1, 1]})
    rules = {"pin": [{"arm": "a1", "place": 2}], "at_most": [{"field": "group", "count": 1}]}
    choice = await api.choose(
        "b", context=[1, 0, -1], k=4, exclude=["a2"], rules=rules, filter={"group": {"$ne": 3}}
    )
    ids = [arm["id"] for arm in choice["arms"]]
    assert ids[1] == "a1"
    assert choice["arms"][1]["pinned"]
    others = [int(arm[1:]) for arm in ids if arm != "a1"]
    assert all(n % 2 == 0 and n != 2 and n % 5 != 3 for n in others)
    assert len({n % 5 for n in [*others, 1]}) == len(ids)
    learner = await api.ok("GET", "/v1/bandits/b/learners/_global?include=directions")
    query = np.array(learner["theta"]) + np.array(learner["directions"]).T @ np.array(
        learner["weights"]
    ) @ np.array([1, 0, -1])
    for arm in choice["arms"]:
        assert arm["score"] == pytest.approx(float(np.dot(ARMS[arm["id"]], query)), abs=1e-9)
    await api.reward({"decision": choice["decision"], "arm": "a1", "value": 1.0})
    assert (await api.learner("b"))["version"] == 2


async def test_a_batch_has_a_context_for_each(api: Api):
    await build(api, exploration=0.0)
    await play(api)
    situations = contexts(5, seed=3)
    answer = await api.ok(
        "POST", "/v1/bandits/b/choose/batch", {"requests": [{"context": c} for c in situations]}
    )
    for context, found in zip(situations, answer["results"], strict=True):
        assert found["arms"] == (await api.choose("b", context=context))["arms"]


@pytest.mark.parametrize("aggregate", ["first", "sum"])
async def test_late_rewards_teach_in_the_context_of_their_decision(api: Api, aggregate: str):
    """A default is taken back for good, deferred decisions and several rewards count as without a context."""
    await build(api, reward={"wait_s": 0.05, "default": -1.0, "aggregate": aggregate})
    first = await api.choose("b", context=[1, 2, 3], seed=1)
    hidden = await api.choose("b", context=[3, 0, 1], seed=2, activate=False)
    row = phi(ARMS[first["arms"][0]["id"]], [1, 2, 3])

    async def defaulted() -> bool:
        return bool((await api.learner("b"))["version"])

    await wait_until(defaulted, what="the default counts")
    assert_learned(await api.learner("b", precision=True), [row], [-1.0])
    await api.choose("b", context=[9, 9, 9], seed=5, activate=False)
    await api.reward({"decision": first["decision"], "value": 0.25, "reward_id": "r1"})
    assert_learned(await api.learner("b", precision=True), [row], [0.25])
    await api.ok("POST", "/v1/decisions/activate", {"decisions": [hidden["decision"]]})

    async def both() -> bool:
        return bool((await api.learner("b"))["observations"] == 2)

    await wait_until(both, what="the default of the activated decision counts")
    rows = [row, phi(ARMS[hidden["arms"][0]["id"]], [3, 0, 1])]
    assert_learned(await api.learner("b", precision=True), rows, [0.25, -1.0])
    if aggregate == "sum":
        await api.reward({"decision": first["decision"], "value": 2.0, "reward_id": "r2"})
        assert_learned(await api.learner("b", precision=True), rows, [2.25, -1.0])


async def test_keys_discount_and_are_forgotten_as_ever(api: Api):
    await build(api, scope="per_key", half_life_s=3_600)
    for n, context in enumerate(contexts(20)):
        arm = f"a{n}"
        value = float(np.dot(ARMS[arm], [1, 0, 0, 0]) * context[0])
        await api.observe("b", {"id": f"{n}", "key": "ann", "arm": arm, "value": value, "context": context})
    ann = await api.learner("b", "ann")
    assert ann["observations"] == 20
    assert ann["weights"][0][0] > 0.2
    await api.ok("DELETE", "/v1/bandits/b/learners/ann", status=204)
    forgotten = await api.learner("b", "ann")
    assert (forgotten["version"], forgotten["observations"]) == (0, 0)
    assert not np.array(forgotten["weights"]).any()


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


@pytest.mark.parametrize("policy", POLICIES)
async def test_nothing_is_lost_by_a_restart(store_url: str, tmp_path: Path, policy: str):
    async with running(store_url, tmp_path) as api:
        await build(api, policy=policy, context={"fields": FIELDS}, interactions=2)
        context = {"device": "desktop", "hour": 3.5, "query": "red shoes"}
        for n in range(12):
            await api.observe("b", {"id": f"{n}", "arm": f"a{n}", "value": n % 3, "context": context})
        learner = await api.ok("GET", "/v1/bandits/b/learners/_global?include=directions")
        choice = await api.choose("b", seed=4, k=2, context=context)
        made = await api.ok("GET", "/v1/bandits/b")
        await api.put_arms("c", {"far": [30.0, 0.0, 0.0, 1.0]})  # it would change the directions
        same = {"catalogue": "c", "policy": policy, "context": {"fields": FIELDS}, "interactions": 2}
        assert await api.ok("PUT", "/v1/bandits/b", same, 200) == made
        await api.ok("DELETE", "/v1/catalogues/c/arms/far", status=204)
    async with running(store_url, tmp_path, empty=False) as api:
        assert await api.ok("GET", "/v1/bandits/b") == made
        assert await api.ok("GET", "/v1/bandits/b/learners/_global?include=directions") == learner
        again = await api.choose("b", seed=4, k=2, context=context)
        assert again["arms"] == choice["arms"]
        await api.reward({"decision": choice["decision"], "arm": choice["arms"][0]["id"], "value": -0.5})
        assert (await api.learner("b"))["version"] == learner["version"] + 1
        changed = {**same, "interactions": 3}
        await api.refused("PUT", "/v1/bandits/b", changed, status=409, code="conflict")


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


async def test_a_changed_token_is_worth_nothing(api: Api):
    await build(api)
    token = (await api.choose("b", context=[1, 2, 3]))["decision"]
    raw = bytearray(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
    place = raw.index(np.float32([1, 2, 3]).tobytes())
    raw[place + 3] ^= 1
    forged = base64.urlsafe_b64encode(bytes(raw)).decode().rstrip("=")
    answer = await api.ok("POST", "/v1/rewards", {"rewards": [{"decision": forged, "value": 1}]}, 202)
    assert answer["rejected"] == [{"index": 0, "code": "invalid_token"}]


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


async def test_numbers_that_are_none_are_refused(api: Api):
    await build(api)
    await build(api, "fields", context={"fields": FIELDS})
    for text in ["NaN", "Infinity", "-Infinity", "1e999", "-1e999"]:
        headers = {"content-type": "application/json"}
        for bandit, body in (
            ("b", f'{{"context": [1, 2, {text}]}}'),
            ("fields", f'{{"context": {{"age": {text}}}}}'),
        ):
            await api.refused("POST", f"/v1/bandits/{bandit}/choose", content=body, headers=headers)


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


async def test_large_bodies_of_contexts_are_refused_quickly(api: Api):
    await build(api, context={"fields": FIELDS})
    many = {f"f{n}": n for n in range(60_000)}
    await api.refused("POST", "/v1/bandits/b/choose", {"context": many}, loc=["body", "context"])
    batch = {"requests": [{"context": {}}] * 3 + [{"context": many}]}
    await api.refused("POST", "/v1/bandits/b/choose/batch", batch, loc=["body", "requests", 3, "context"])
    items = [{"id": "x", "arm": "a1", "value": 1, "context": many}]
    loc = ["body", "observations", 0, "context"]
    await api.refused("POST", "/v1/bandits/b/observations", {"observations": items}, loc=loc)


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
