"""A page in one call: rows of several bandits, no arm twice, each as a call of its own with ``exclude``."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from api_client import Api, Json
from app.api import request_limits as limits

pytestmark = [pytest.mark.anyio, pytest.mark.rest]

PATH = "/v1/choose/batch"
PAGES, ROWS, SHARED = 500, 3, 12
FILMS, SHOPS = 30, 20
KINDS = ("x", "y", "z")


def ids(choice: Json) -> list[str]:
    return [arm["id"] for arm in choice.get("arms", ())]


def kind_of(arm: str) -> str:
    return KINDS[int(arm[1:]) % 3]


async def stock(api: Api, name: str, count: int, *, seed: int) -> None:
    """A catalogue of arms a0, a1, …: two catalogues share the first of these ids."""
    await api.ok("PUT", f"/v1/catalogues/{name}", {"dim": 3}, 201)
    rng = np.random.default_rng(seed)
    arms = [
        {
            "id": f"a{number}",
            "features": rng.normal(size=3).tolist(),
            "metadata": {"kind": KINDS[number % 3], "from": name},
        }
        for number in range(count)
    ]
    await api.ok("PUT", f"/v1/catalogues/{name}/arms", {"arms": arms})


async def build(api: Api) -> None:
    """Bandits ``you`` (per key), ``new`` and ``near``, the last of another catalogue."""
    await stock(api, "films", FILMS, seed=1)
    await stock(api, "shops", SHOPS, seed=2)
    await api.bandit("you", "films", scope="per_key", log={})
    await api.bandit("new", "films", policy="linucb", log={})
    await api.bandit("near", "shops", policy="softmax", temperature=0.5, log={})


async def page(api: Api, *requests: Json, **options: Any) -> list[Json]:
    answer = await api.ok("POST", PATH, {"requests": list(requests), **options})
    results: list[Json] = answer["results"]
    assert len(results) == len(requests)
    return results


async def test_no_row_shows_what_one_before_it_shows_whatever_its_catalogue(api: Api):
    await build(api)
    asked = [{"bandit": "new", "k": 5}, {"bandit": "you", "key": "ann", "k": 5}, {"bandit": "near", "k": 5}]
    free = await page(api, *asked)
    assert [choice["policy"] for choice in free] == ["linucb", "sub_ts", "softmax"]
    rows = await page(api, *asked, distinct=True)
    shown = [arm for choice in rows for arm in ids(choice)]
    assert len(shown) == len(set(shown)) == 15
    assert ids(rows[0]) == ids(free[0])
    # Of one bandit too; and each row is a decision of its own.
    batch = {"requests": [{"k": 12}, {"k": 12}, {"k": 12}], "distinct": True}
    same = (await api.ok("POST", "/v1/bandits/new/choose/batch", batch))["results"]
    assert [len(ids(choice)) for choice in same] == [12, 12, FILMS - 24]
    assert len({arm for choice in same for arm in ids(choice)}) == FILMS
    batch["requests"].append({"k": 1})
    problem = await api.refused("POST", "/v1/bandits/new/choose/batch", batch, status=409, code="no_arms")
    assert problem["detail"].endswith(
        "distinct leaves none, since the requests before it show all that are left"
    )
    rewards = [
        {"decision": choice["decision"], "arm": ids(choice)[0], "value": 1.0} for choice in (*rows, *same)
    ]
    assert (await api.reward(*rewards))["accepted"] == 6
    assert (await api.learner("new"))["observations"] == 4


async def test_what_is_wrong_names_its_request(api: Api):
    await build(api)
    good = {"bandit": "new"}
    wrong: list[tuple[Any, list[Any]]] = [
        ({}, ["bandit"]),
        ({"bandit": None}, ["bandit"]),
        ({"bandit": "no name"}, ["bandit"]),
        ({"bandit": ["new"]}, ["bandit"]),
        ({**good, "k": 0}, ["k"]),
        ({**good, "dry_run": True}, ["dry_run"]),
        ({**good, "key": "ann"}, ["key"]),
        ({"bandit": "you"}, ["key"]),
        ({**good, "distinct": True}, ["distinct"]),
        ({**good, "filter": {"kind": {"$near": 1}}}, ["filter"]),
        ("new", []),
    ]
    for bad, loc in wrong:
        body = {"requests": [good, bad]}
        problem = await api.refused("POST", PATH, body)
        assert problem["errors"][0]["loc"][: 3 + len(loc)] == ["body", "requests", 1, *loc], bad
    results = await page(api, *(bad for bad, _ in wrong), good, partial=True)
    for place, (result, (_, loc)) in enumerate(zip(results, wrong, strict=False)):
        assert result["error"]["status"] == 422
        assert result["error"]["errors"][0]["loc"][: 3 + len(loc)] == ["body", "requests", place, *loc]
    assert results[-1]["arms"]
    for body, loc in (
        ({"requests": []}, ["body", "requests"]),
        ({"requests": [good], "distinct": 1}, ["body", "distinct"]),
        ({"requests": [good], "bandit": "new"}, ["body", "bandit"]),
        ({"requests": [{**good, "k": limits.MAX_K}] * 21}, ["body", "requests"]),
        ({}, ["body", "requests"]),
    ):
        await api.refused("POST", PATH, body, loc=loc)
    many = {"requests": [good] * (limits.MAX_BATCH + 1)}
    await api.refused("POST", PATH, many, status=413, code="too_large", loc=["body", "requests"])


async def test_a_bandit_that_there_is_not_is_404_and_with_partial_refused_alone(api: Api):
    await build(api)
    asked = [{"bandit": "new"}, {"bandit": "none"}, {"bandit": "near"}]
    loc = ["body", "requests", 1, "bandit"]
    await api.refused("POST", PATH, {"requests": asked}, status=404, code="not_found", loc=loc)
    first, none, last = await page(api, *asked, partial=True)
    assert (none["error"]["status"], none["error"]["errors"][0]["loc"]) == (404, loc)
    assert first["arms"]
    assert last["arms"]
    # Also in a body that is so large that its requests are read one by one.
    long = {"bandit": "new", "exclude": [f"gone-{number}" for number in range(9_000)]}
    results = await page(api, long, {"bandit": "none"}, {"k": 1}, long, partial=True)
    assert ["error" in result for result in results] == [False, True, True, False]
    assert results[2]["error"]["errors"][0]["loc"] == ["body", "requests", 2, "bandit"]


class Oracle:
    """What ``new``, whose scores nobody draws, should show: its arms by their scores, less what is out."""

    def __init__(self, scores: dict[str, float]) -> None:
        self._ranked = sorted(scores, key=lambda arm: -scores[arm])

    def row(self, request: Json, shown: list[str]) -> list[str]:
        out, kind = {*shown, *request["exclude"]}, request.get("filter", {}).get("kind")
        left = [arm for arm in self._ranked if arm not in out and kind in {None, kind_of(arm)}]
        return left[: request["k"]]


def random_pages(rng: random.Random) -> Iterator[list[Json]]:
    """Pages of three rows. Some rows ask for more arms than are left."""
    for _ in range(PAGES):
        rows = list[Json]()
        for _ in range(ROWS):
            bandit = rng.choice(("you", "new", "near"))
            row: Json = {"bandit": bandit, "k": rng.choice((1, 4, 9, 25)), "seed": rng.randrange(2**32)}
            row["exclude"] = [f"a{rng.randrange(FILMS)}" for _ in range(rng.randrange(4))]
            if bandit == "you":
                row["key"] = rng.choice(("ann", "bob"))
            if rng.random() < 0.3:
                row["filter"] = {"kind": rng.choice(KINDS)}
            rows.append(row)
        yield rows


async def test_500_pages_are_those_of_the_oracle_and_of_three_calls_with_exclude(api: Api):
    await build(api)
    observations = [
        {"id": f"o{number}", "arm": f"a{number}", "value": float(number % 2)} for number in range(FILMS)
    ]
    await api.observe("new", *observations)
    dry = await api.choose("new", k=FILMS, dry_run=True)
    oracle = Oracle({arm["id"]: arm["score"] for arm in dry["arms"]})
    short = empty = 0
    for rows in random_pages(random.Random(1)):
        results, shown = await page(api, *rows, distinct=True, partial=True), list[str]()
        for row, result in zip(rows, results, strict=True):
            alone = {name: value for name, value in row.items() if name != "bandit"}
            alone["exclude"] = [*row["exclude"], *shown]
            single = await api.call("POST", f"/v1/bandits/{row['bandit']}/choose", alone)
            if "error" in result:
                empty += 1
                assert (single.status_code, single.json()["code"]) == (409, "no_arms")
                assert result["error"]["code"] == "no_arms"
            else:
                assert result["arms"] == single.json()["arms"]
            if row["bandit"] == "new":
                assert ids(result) == oracle.row(row, shown)
            short += 0 < len(ids(result)) < row["k"]
            shown += ids(result)
        assert len(shown) == len(set(shown))
    # The pages would not say much if no row had ever been short of arms.
    assert short > 100
    assert empty > 20


async def test_an_event_that_is_answered_again_counts_what_it_shows(api: Api):
    await build(api)
    rows = [
        {"bandit": "near", "k": 6, "event_id": "e1"},
        {"bandit": "you", "key": "ann", "k": 6, "event_id": "e2"},
    ]
    first = await page(api, *rows, distinct=True)
    assert await page(api, *rows, distinct=True) == first
    other = {"bandit": "new", "k": FILMS}
    kept, rest = await page(api, rows[0], other, distinct=True)
    assert kept == first[0]
    assert not set(ids(rest)) & set(ids(kept))
    # The row is a request with exclusions: without the rows before it the event is of another request.
    await api.refused("POST", PATH, {"requests": rows[1:]}, status=409, code="event_used")
    alone = {**rows[1], "exclude": ids(first[0])}
    del alone["bandit"]
    assert await api.choose("you", **alone) == first[1]


async def test_a_row_with_an_event_keeps_its_choice_where_another_refuses_the_page(api: Api):
    await build(api)
    row, bad = {"bandit": "near", "k": 2, "event_id": "e1"}, {"bandit": "new", "filter": {"kind": "none"}}
    await api.refused("POST", PATH, {"requests": [row, bad]}, status=409, code="no_arms")
    other = {"requests": [{**row, "k": 3}]}
    await api.refused("POST", PATH, other, status=409, code="event_used")
    (kept,) = await page(api, row)
    assert (await page(api, row, bad, partial=True))[0] == kept


async def test_quotas_and_repeats_count_each_row_and_a_refused_page_counts_nothing(api: Api):
    await build(api)
    await api.bandit("scarce", "films", policy="linucb")
    await api.bandit("capped", "shops", scope="per_key", repeats={"most": 1, "within_s": 3_600})
    (best,) = ids((await page(api, {"bandit": "scarce"}))[0])
    await api.ok("PUT", "/v1/bandits/scarce/quotas/q", {"arm": best, "most": 2}, status=201)

    async def used() -> int:
        quota: Json = await api.ok("GET", "/v1/bandits/scarce/quotas/q")
        return int(quota["used"])

    bad = {"bandit": "new", "filter": {"kind": "none"}}
    row, own = {"bandit": "scarce", "k": 3}, {"bandit": "capped", "key": "ann", "k": 8}
    await api.refused("POST", PATH, {"requests": [row, own, bad]}, status=409, code="no_arms")
    assert await used() == 0
    rows = await page(api, row, row, own, own, bad, distinct=True, partial=True)
    assert ["error" in each for each in rows] == [False, False, False, False, True]
    shown = [arm for each in rows for arm in ids(each)]
    assert len(shown) == len(set(shown))
    assert best in ids(rows[0])
    assert await used() == 1
    # Without distinct both rows want the best arm, of which the quota has one left.
    assert sorted(best in ids(each) for each in await page(api, row, row)) == [False, True]
    assert await used() == 2
    (later,) = await page(api, {**own, "k": SHOPS})
    assert not set(ids(later)) & {*ids(rows[2]), *ids(rows[3])}


async def test_a_pin_of_an_arm_that_is_shown_already_leaves_its_place_to_the_policy(api: Api):
    await build(api)
    pin = {"rules": {"pin": [{"arm": "a3", "place": 1}]}}
    first, second = await page(
        api, {"bandit": "new", "k": 2, **pin}, {"bandit": "near", "k": 2, **pin}, distinct=True
    )
    assert ids(first)[0] == "a3"
    assert len(ids(second)) == 2
    assert not set(ids(first)) & set(ids(second))
    assert not any(arm.get("pinned") for arm in second["arms"])


async def test_lists_of_a_holdout_and_candidates_are_distinct_too(api: Api):
    await build(api)
    await api.bandit("held", "films", holdout={"share": 1.0, "serve": {"arms": ["a0", "a1", "a2", "a3"]}})
    own = {"id": "a1", "features": [9.0, 9.0, 9.0]}
    rows = await page(
        api,
        {"bandit": "held", "k": 2},
        {"bandit": "held", "k": 2},
        {
            "bandit": "new",
            "k": 3,
            "candidates": ["a0", own, "a3", "a7", {"id": "mine", "features": [1, 1, 1]}],
        },
        distinct=True,
    )
    assert [ids(rows[0]), ids(rows[1])] == [["a0", "a1"], ["a2", "a3"]]
    assert set(ids(rows[2])) == {"a7", "mine"}
    await api.bandit("shadow", "films", holdout={"share": 1.0, "serve": "candidates"})
    own = [{"bandit": "shadow", "k": 2, "candidates": ["a5", "a6", "a7", "a8", "a9"]}] * 2
    rows = await page(api, {"bandit": "new", "candidates": ["a6"]}, *own, distinct=True)
    assert [ids(row) for row in rows] == [["a6"], ["a5", "a7"], ["a8", "a9"]]
