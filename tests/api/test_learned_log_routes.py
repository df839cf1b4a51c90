"""GET …/log/rewards, …/log/arms, …/log/terms: all that learners are made of, each entry once."""

from typing import Any

import pytest

from api_client import Api, Json
from app.platform.cursors import decode_cursor, encode_cursor

pytestmark = [pytest.mark.anyio, pytest.mark.rest]

PATH = "/v1/bandits/b/log"


async def learned(api: Api, at: dict[int, str] | None = None, limit: int = 100) -> list[Json]:
    """What came since the cursors ``at``, which are moved on, of all partitions."""
    found: list[Json] = []
    at = {} if at is None else at
    for partition in range((await api.ok("GET", f"{PATH}/terms"))["partitions"]):
        more: Any = True
        while more:
            cursor = f"&cursor={at[partition]}" if partition in at else ""
            page = await api.ok(
                "GET", f"{PATH}/rewards?include=arms&partition={partition}&limit={limit}{cursor}"
            )
            assert len(page["items"]) <= limit
            known = {(arm["id"], arm["revision"]): arm["features"] for arm in page["arms"]}
            named = [row for row in page["items"] if row["arm"] is not None]
            found += [row | {"x": known[row["arm"], row["revision"]]} for row in named]
            found += [row for row in page["items"] if row["arm"] is None]
            at[partition], more = page["position"], page["next"]
    return found


async def test_rewards_say_what_they_are_of(api: Api):
    await api.catalogue("c", {"a0": [1.0, 0.0], "a1": [1.0, 1.0]})
    await api.bandit("b", "c", scope="per_key", log={}, context={"dim": 2}, reward={"aggregate": "sum"})
    choice = await api.choose("b", key="ann", k=2, context=[0.5, 2.0])
    at: dict[int, str] = {}
    assert await learned(api, at) == []
    arm = choice["arms"][1]["id"]
    await api.ok("PUT", "/v1/catalogues/c/arms", {"arms": [{"id": arm, "features": [9, 9]}]})
    for number, value in enumerate((0.25, 0.5)):
        reward = {"decision": choice["decision"], "arm": arm, "value": value, "reward_id": f"r{number}"}
        await api.ok("POST", "/v1/rewards", {"rewards": [reward]}, 202)
    seen = {"id": "o-1", "arm": "a0", "value": 3, "key": "bob", "context": [0, 1]}
    await api.ok("POST", "/v1/bandits/b/observations", {"observations": [seen]}, 202)
    rewards = await learned(api, at)
    first, second = [row for row in rewards if row["kind"] == "reward"]
    assert (first["value"], first["first"], first["before"]) == (0.25, True, 0.0)
    assert (second["value"], second["first"], second["before"]) == (0.5, False, 0.25)
    assert (first["key"], first["context"], first["logged"]) == ("ann", [0.5, 2.0], True)
    assert first["x"] == [1.0, float(arm[1])], "as it was when it was chosen"
    [observed] = [row for row in rewards if row["kind"] == "observation"]
    assert (observed["id"], observed["key"], observed["context"]) == ("o-1", "bob", [0.0, 1.0])
    assert await learned(api, at) == []


async def test_one_at_a_time_each_comes_once(api: Api):
    await api.catalogue("c", {f"a{i}": [1.0, float(i)] for i in range(4)})
    await api.bandit("b", "c", scope="per_key")
    items = [{"id": f"o{i}", "arm": f"a{i % 4}", "value": i, "key": f"k{i % 9}"} for i in range(40)]
    await api.ok("POST", "/v1/bandits/b/observations", {"observations": items}, 202)
    assert sorted(row["id"] for row in await learned(api, limit=1)) == sorted(item["id"] for item in items)
    for partition in range(16):
        assert (await api.ok("GET", f"{PATH}/rewards?partition={partition}"))["missing"] == 0


async def test_who_is_forgotten_begins_anew_and_takes_a_state(api: Api):
    await api.catalogue("c", {"a0": [1.0, 0.0]})
    await api.bandit("b", "c", scope="per_key")
    seen = [{"id": f"o{key}", "arm": "a0", "value": 1, "key": key} for key in ("ann", "bob")]
    await api.ok("POST", "/v1/bandits/b/observations?wait=applied", {"observations": seen})
    state = (await api.ok("GET", "/v1/bandits/b/learners?include=state"))["items"][0]["state"]
    await api.ok("DELETE", "/v1/bandits/b/learners/ann", status=204)
    await api.ok("PUT", "/v1/bandits/b/learners/carl", {"state": state}, 201)
    rows = {(row["kind"], row["key"]): row for row in await learned(api)}
    assert ("forget", "ann") in rows
    assert ("observation", "ann") not in rows, "they were erased"
    assert rows["state", "carl"]["state"] == state


async def test_arms_come_by_revision_and_changed_ones_come_again(api: Api):
    await api.catalogue("c", {f"a{i}": [1.0, float(i)] for i in range(5)})
    await api.bandit("b", "c")
    page = await api.ok("GET", f"{PATH}/arms?limit=3")
    rest = await api.ok("GET", f"{PATH}/arms?limit=3&cursor={page['next']}")
    assert [arm["id"] for arm in (*page["items"], *rest["items"])] == [f"a{i}" for i in range(5)]
    assert rest["next"] is None
    await api.ok("PUT", "/v1/catalogues/c/arms", {"arms": [{"id": "a1", "features": [7, 7]}]})
    page = await api.ok("GET", f"{PATH}/arms?cursor={rest['position']}")
    assert [(arm["id"], arm["features"]) for arm in page["items"]] == [("a1", [7.0, 7.0])]
    page = await api.ok("GET", f"{PATH}/arms?cursor={page['position']}")
    assert page == {"items": [], "next": None, "position": page["position"]}


async def test_what_is_no_cursor_of_this_bandit_is_refused(api: Api):
    await api.catalogue("c", {"a0": [1.0, 0.0]})
    await api.bandit("b", "c")
    position = (await api.ok("GET", f"{PATH}/rewards"))["position"]
    uid = decode_cursor(position).partition("/")[0]
    for entry in (f"{2**64}-1", f"1-{2**64}", "9" * 20 + "-1", "1-", "-1", "1", "1-1-1", "1-x"):
        query = {"cursor": encode_cursor(f"{uid}/{entry}")}
        await api.refused("GET", f"{PATH}/rewards", params=query, loc=["query", "cursor"])
    await api.ok("DELETE", "/v1/bandits/b", status=204)
    await api.bandit("b", "c")
    for query in (
        f"cursor={position}",
        "cursor=x",
        "cursor=eC95",
        "partition=1023",
        "partition=-1",
        "limit=0",
    ):
        answer = await api.ok("GET", f"{PATH}/rewards?{query}", status=422)
        assert answer["errors"], query
