"""What the log keeps of the candidates of a request, and explanations that are made of it."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from api_client import Api, Json
from waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.rest]

DIM = 3
ARMS = {f"a{place}": row for place, row in enumerate(np.random.default_rng(3).normal(size=(30, DIM)))}


def own(arm: str, row: Any, **rest: Any) -> Json:
    return {"id": arm, "features": [float(number) for number in row], **rest}


def as_float32(row: Any) -> list[float]:
    return np.asarray(row, dtype=np.float32).astype(float).tolist()


OWN = [own(f"n{n}", row) for n, row in enumerate(np.random.default_rng(4).normal(size=(4, DIM)))]


async def ready(api: Api, name: str, **settings: Any) -> None:
    await api.catalogue(name, ARMS)
    await api.bandit(name, name, log={}, **settings)
    await api.observe(name, {"id": "o", "arm": "a3", "value": 1.0})


async def logged(api: Api, name: str, count: int = 1) -> list[Json]:
    """All rows, once there are so many, the oldest first."""

    async def found() -> list[Json]:
        rows: list[Json] = (await api.ok("GET", f"/v1/bandits/{name}/log"))["items"]
        return rows if len(rows) == count else []

    return await wait_until(found, what=f"{count} rows")


async def explained(api: Api, name: str, choice: Json) -> Json:
    await logged_once(api, name, choice)
    answer: Json = await api.ok("POST", f"/v1/bandits/{name}/log/explain", {"decision": choice["decision"]})
    return answer


async def logged_once(api: Api, name: str, choice: Json) -> Json:
    async def found() -> Json | None:
        rows = (await api.ok("GET", f"/v1/bandits/{name}/log?order=desc"))["items"]
        return next((row for row in rows if row["decision"] == choice["decision"]), None)

    return await wait_until(found, what="the row")  # type: ignore[return-value]


async def test_a_row_has_the_candidates_as_they_were_sent(shared: Api):
    """Also those that the catalogue lacks; the numbers of own arms as float32. Without: it is absent."""
    await ready(shared, "sent")
    choice = await shared.choose("sent", candidates=["a7", OWN[0], "gone", OWN[1], "a2"], k=2)
    without = await shared.choose("sent")
    row = await logged_once(shared, "sent", choice)
    assert row["candidates"] == [
        {"id": "a7"},
        {"id": "n0", "features": as_float32(OWN[0]["features"])},
        {"id": "gone"},
        {"id": "n1", "features": as_float32(OWN[1]["features"])},
        {"id": "a2"},
    ]
    assert "barred" not in row
    assert "candidates" not in await logged_once(shared, "sent", without)


@pytest.mark.parametrize("waits", [True, False])
async def test_a_row_keeps_its_candidates_when_its_reward_is_faster(shared: Api, waits: bool):
    """A reward makes the row of its decision where it is not written yet, and knows no candidates."""
    name = f"fast-{waits}"
    await ready(shared, name, reward={"wait_s": 60} if waits else {})
    choices = [await shared.choose(name, candidates=["a7", OWN[n % 4], "a2"], k=2) for n in range(8)]
    for choice in choices:
        item = {"decision": choice["decision"], "arm": choice["arms"][0]["id"], "value": 1.0}
        assert (await shared.reward(item, wait=False))["accepted"] == 1

    async def have_candidates() -> list[Json]:
        rows: list[Json] = (await shared.ok("GET", f"/v1/bandits/{name}/log"))["items"]
        return rows if len(rows) == 8 and all(row["candidates"] for row in rows) else []

    rows = await wait_until(have_candidates, what="all rows have their candidates")
    found = {row["decision"]: [each["id"] for each in row["candidates"]] for row in rows}
    assert found == {choice["decision"]: ["a7", f"n{n % 4}", "a2"] for n, choice in enumerate(choices)}
    assert [[reward["value"] for reward in row["rewards"]] for row in rows] == [[1.0]] * 8


async def test_what_is_too_large_is_null_and_so_is_what_was_activated_later(shared: Api):
    await ready(shared, "large")
    rng = np.random.default_rng(1)
    brought = [own(rng.bytes(30).hex(), [1.0, 2.0, 3.0]) for _ in range(1_000)]
    large = await shared.choose("large", candidates=brought)
    small = await shared.choose("large", candidates=["a1", *(f"b{n}" for n in range(999))])
    deferred = await shared.choose("large", candidates=["a1", "a2"], activate=False)
    await shared.ok("POST", "/v1/decisions/activate", {"decisions": [deferred["decision"]]})
    assert (await logged_once(shared, "large", large))["candidates"] is None
    assert len((await logged_once(shared, "large", small))["candidates"]) == 1_000
    assert (await logged_once(shared, "large", deferred))["candidates"] is None
    for choice in (large, deferred):
        found = await explained(shared, "large", choice)
        assert (found["repeated"], found["changed"], found["candidates"]) == (None, ["candidates"], [])


@pytest.mark.parametrize("policy", ["sub_ts", "linucb", "softmax", "igw", "epsilon_greedy"])
async def test_a_choice_among_candidates_is_made_again(shared: Api, policy: str):
    """With what filters, rules and exclusions read of the request's own arms; and not of others."""
    name = f"again-{policy}"
    await ready(shared, name, policy=policy)
    brought = [own(f"s{n}", arm["features"], metadata={"shop": n % 2}) for n, arm in enumerate(OWN)]
    bodies: list[Json] = [
        {"candidates": ["a1", *OWN, "a5", "gone"]},
        {"candidates": ["a9", "a1", "a5"], "exclude": ["a1"]},
        {"candidates": ["a9", *brought], "filter": {"shop": 1}},
        {"candidates": ["a9", *brought], "rules": {"at_most": [{"field": "shop", "count": 1}]}},
        {"candidates": ["a9", *brought], "rules": {"pin": [{"arm": "s3", "place": 1}]}},
    ]
    for body in bodies:
        choice = await shared.choose(name, k=3, **body)
        found = await explained(shared, name, choice)
        assert (found["changed"], found["repeated"]) == ([], True), body
        sent = {each if isinstance(each, str) else each["id"] for each in body["candidates"]}
        assert {each["id"] for each in found["candidates"]} <= sent
        places = {each["id"]: each["place"] for each in found["candidates"] if each["place"]}
        assert places == {arm["id"]: place for place, arm in enumerate(choice["arms"], 1)}


async def test_rewards_of_own_arms_are_named_as_reasons(shared: Api):
    """Of a key whose only rewarded arm was brought by a request: its numbers are those of the token."""
    await ready(shared, "why", scope="per_key")
    first = await shared.choose("why", key="ann", candidates=[OWN[0]])
    await shared.reward({"decision": first["decision"], "value": 2.0})
    choice = await shared.choose("why", key="ann", candidates=[OWN[0], "a1"], k=2)
    found = await explained(shared, "why", choice)
    own_arm = next(each for each in found["candidates"] if each["id"] == "n0")
    [reason] = own_arm["because"]
    assert (reason["arm"], reason["value"]) == ("n0", 2.0)
    assert reason["share"] == pytest.approx(own_arm["estimate"], rel=1e-9)


async def test_exports_have_candidates(shared: Api):
    await ready(shared, "out")
    bodies: list[Json] = [{"candidates": ["a7", OWN[0]]}, {}, {"candidates": ["a1"], "activate": False}]
    choices = [await shared.choose("out", **body) for body in bodies]
    await shared.ok("POST", "/v1/decisions/activate", {"decisions": [choices[2]["decision"]]})
    rows = {row["decision"]: row.get("candidates", []) for row in await logged(shared, "out", 3)}
    answer = await shared.call("GET", "/v1/bandits/out/log/export?format=parquet")
    table = pq.read_table(io.BytesIO(answer.content))
    found = {row["decision"]: row["candidates"] for row in table.to_pylist()}
    of_own = {"id": "n0", "features": as_float32(OWN[0]["features"])}
    first = [{"id": "a7", "features": None, "match": None}, {**of_own, "match": None}]
    assert [found[choice["decision"]] for choice in choices] == [first, [], None]
    assert [rows[choice["decision"]] for choice in choices] == [
        [{"id": "a7"}, {"id": "n0", "features": as_float32(OWN[0]["features"])}],
        [],
        None,
    ]
