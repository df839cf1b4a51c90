"""GET of the decision log: what a row says, spans of time, pages, and what is refused."""

from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pytest

from api_client import Api, Json
from waiting import wait_until

pytestmark = pytest.mark.anyio

PATH = "/v1/bandits/b/log"


@pytest.fixture
async def api(api: Api) -> Api:
    await api.catalogue("c", {f"a{i}": [1.0, float(i)] for i in range(4)})
    return api


async def rows(api: Api, count: int, query: str = "") -> list[Json]:
    """All rows, once there are so many."""

    async def found() -> list[Json]:
        items: list[Json] = (await api.ok("GET", PATH + query))["items"]
        return items if len(items) == count else []

    if count:
        return await wait_until(found, what=f"{count} rows")
    return (await api.ok("GET", PATH + query))["items"]


async def test_a_row_says_what_choose_answered_and_what_came_of_it(api: Api):
    await api.bandit(
        "b", "c", policy="softmax", temperature=1.0, scope="per_key", log={}, context={"dim": 2},
        holdout={"share": 0.0}, filter={"tags": {"$exists": False}},
    )  # fmt: skip
    choice = await api.choose("b", key="ann", k=2, context=[0.5, 2.0], filter={"price": {"$exists": False}})
    reward = {"decision": choice["decision"], "arm": choice["arms"][1]["id"], "value": 0.25}
    await api.ok("POST", "/v1/rewards", {"rewards": [reward]}, 202)
    [row] = await rows(api, 1)
    [came] = row.pop("rewards")
    assert came.pop("time") >= row["time"]
    assert came == {"arm": reward["arm"], "value": 0.25, "default": False}
    assert abs(row.pop("time") - datetime.now(UTC).timestamp() * 1_000) < 60_000
    arms = [{"place": place, "pinned": False, **arm} for place, arm in enumerate(choice.pop("arms"), 1)]
    del choice["exact"]
    assert row == {
        **choice, "key": "ann", "context": [0.5, 2.0], "arms": arms,
        "filter": {"$and": [{"tags": {"$exists": False}}, {"price": {"$exists": False}}]},
    }  # fmt: skip


@pytest.mark.rest
async def test_what_a_decision_does_not_have_is_null(api: Api):
    await api.bandit("b", "c", log={"keep_s": 60})
    await api.choose("b", rules={"pin": [{"arm": "a3", "place": 1}]})
    [row] = await rows(api, 1)
    assert [name for name, value in row.items() if value is None] == [
        "key", "group", "context", "filter", "eligible",
    ]  # fmt: skip
    [arm] = row["arms"]
    assert (arm["id"], arm["propensity"], arm["pinned"]) == ("a3", None, True)


async def test_pages_hold_every_row_once_in_order(api: Api):
    await api.bandit("b", "c", scope="per_key", log={})
    made = [(await api.choose("b", key=f"k{i % 5}"))["decision"] for i in range(23)]
    await rows(api, 23)
    found: list[Json] = []
    path = f"{PATH}?limit=4"
    while path:
        page = await api.ok("GET", path)
        assert len(page["items"]) <= 4
        found += page["items"]
        path = page["next"] and f"{PATH}?limit=4&cursor={page['next']}"
    assert sorted(row["decision"] for row in found) == sorted(made)
    assert all(one["time"] <= other["time"] for one, other in pairwise(found))
    newest, path = list[Json](), f"{PATH}?limit=4&order=desc"
    while path:
        page = await api.ok("GET", path)
        newest += page["items"]
        path = page["next"] and f"{PATH}?limit=4&order=desc&cursor={page['next']}"
    assert newest == found[::-1]
    early, late = found[5]["time"], found[15]["time"]
    between = f"{PATH}?from={early}&to={late}&order=desc"
    among = [row for row in newest if early <= row["time"] < late]
    assert (await api.ok("GET", between))["items"] == among
    first = (await api.ok("GET", f"{between}&limit=1"))["next"]
    for query in (
        f"limit=4&cursor={first}",
        f"order=desc&cursor={(await api.ok('GET', f'{PATH}?limit=1'))['next']}",
    ):
        await api.refused("GET", f"{PATH}?{query}", loc=["query", "cursor"])
    rest = await api.ok("GET", f"{between}&cursor={first}")
    assert (rest["items"], rest["next"]) == (among[1:], None)
    among = [row for row in found if early <= row["time"] < late]
    assert (await api.ok("GET", f"{PATH}?from={early}&to={late}"))["items"] == among
    iso = [datetime.fromtimestamp(ms / 1_000, UTC).isoformat()[:23] for ms in (early, late)]
    assert (await api.ok("GET", f"{PATH}?from={iso[0]}Z&to={iso[1]}"))["items"] == among


@pytest.mark.rest
async def test_a_bandit_that_logs_nothing_has_an_empty_log(api: Api):
    await api.bandit("b", "c")
    await api.choose("b")
    assert await api.ok("GET", PATH) == {"items": [], "next": None}
    await api.refused("GET", "/v1/bandits/no/log", status=404, code="not_found")


@pytest.mark.rest
async def test_a_log_that_is_switched_off_keeps_what_it_has(api: Api):
    await api.bandit("b", "c", log={})
    choice = await api.choose("b")
    await rows(api, 1)
    await api.ok("PATCH", "/v1/bandits/b", {"log": None})
    other = await api.choose("b")
    for each in (choice, other):
        await api.ok("POST", "/v1/rewards", {"rewards": [{"decision": each["decision"], "value": 1.0}]}, 202)
    [row] = await rows(api, 1)
    assert (row["decision"], len(row["rewards"])) == (choice["decision"], 1)


async def test_an_event_that_comes_again_and_a_deferred_decision_have_one_row(api: Api):
    await api.bandit("b", "c", log={})
    for _ in range(3):
        await api.choose("b", event_id="e")
    deferred = await api.choose("b", event_id="f", activate=False)
    await api.choose("b", event_id="f", activate=False)
    assert deferred["decision"] not in {row["decision"] for row in await rows(api, 1)}
    for _ in range(2):
        await api.ok("POST", "/v1/decisions/activate", {"decisions": [deferred["decision"]]})
    assert deferred["decision"] in {row["decision"] for row in await rows(api, 2)}


@pytest.mark.rest
async def test_the_row_of_a_decision_that_waits_is_there_with_the_answer(api: Api):
    await api.bandit("b", "c", log={}, reward={"wait_s": 600, "default": 0})
    choice = await api.choose("b")
    [row] = (await api.ok("GET", PATH))["items"]
    assert row["decision"] == choice["decision"]


async def test_a_share_of_the_decisions_is_logged(api: Api):
    """Of 400 decisions at a share of a quarter; the ids are random, so 7 sigma are allowed."""
    await api.bandit("b", "c", log={"share": 0.25}, reward={"wait_s": 600})
    await api.ok("POST", "/v1/bandits/b/choose/batch", {"requests": [{}] * 400})
    count = len((await api.ok("GET", f"{PATH}?limit=1000"))["items"])
    assert abs(count - 100) < 7 * (400 * 0.25 * 0.75) ** 0.5


BAD_QUERIES: list[Any] = [
        ("from=no", "from"), ("to=2026-13-01", "to"), ("from=1e400", "from"), ("to=99999999999999999", "to"),
        ("from=2026-11-02&to=2026-11-01", "from"), ("limit=0", "limit"), ("limit=1001", "limit"),
        ("cursor=no", "cursor"), ("cursor=YQ", "cursor"), ("start=1", "start"), ("from=1&from=2", "from"),
        ("order=up", "order"), ("order=", "order"),
    ]  # fmt: skip


async def test_a_bad_query_names_the_field(api: Api):
    await api.bandit("b", "c", log={})
    for query, loc in BAD_QUERIES:
        await api.refused("GET", f"{PATH}?{query}", loc=["query", loc])


@pytest.mark.rest
@pytest.mark.parametrize(
    "query", ["from=0", "from=-5&to=0", "from=9999-12-31", "to=9999-12-31", "to=0001-01-01"]
)
async def test_any_time_can_be_asked_for(api: Api, query: str):
    await api.bandit("b", "c", log={})
    assert (await api.ok("GET", f"{PATH}?{query}"))["items"] == []


BAD_RULES: list[Any] = [
        ({"share": 0}, ["share"]), ({"share": 1.5}, ["share"]), ({"share": "1"}, ["share"]), (True, []),
        ({"keep_s": 59}, ["keep_s"]), ({"keep_s": 1e12}, ["keep_s"]), ({"keep": 1}, ["keep"]), ([], []),
    ]  # fmt: skip


async def test_a_bad_rule_names_the_field(api: Api):
    for rule, loc in BAD_RULES:
        body = {"catalogue": "c", "policy": "sub_ts", "log": rule}
        await api.refused("PUT", "/v1/bandits/b", body, loc=["body", "log", *loc])
