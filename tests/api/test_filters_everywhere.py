"""Filters with pins, policies, changes of metadata and other calls."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from test_filters import FEATURES, FILTERS, build, greedy, ids, let_in, scores

from api_client import Api, Json, running

pytestmark = [pytest.mark.anyio, pytest.mark.rest]


@pytest.mark.parametrize("policy", ["sub_elim", "linear_elim"])
async def test_elimination_takes_the_widest_living_eligible_arm(shared: Api, policy: str):
    name = f"widest-{policy}"
    await build(shared, name, policy=policy, exploration=0.5)
    found = await shared.learner(name, precision=True)
    theta, cover = np.array(found["theta"]), np.linalg.inv(np.array(found["precision"]))
    width = {arm: 0.5 * float(np.sqrt(row @ cover @ row)) for arm, row in FEATURES.items()}
    value = scores(theta)
    threshold = max(value[arm] - width[arm] for arm in FEATURES)
    lives = {arm for arm in FEATURES if value[arm] + width[arm] >= threshold}
    assert 0 < len(lives) < 40
    for document in [*FILTERS, {"maker": "ada", "price": 16}]:
        wanted = let_in(document)
        alive = sorted(lives & set(wanted), key=lambda arm: -width[arm])
        gone = sorted(set(wanted) - lives, key=lambda arm: -(value[arm] + width[arm]))
        choice = await shared.choose(name, k=len(wanted), filter=document)
        assert ids(choice) == alive + gone
        limited = await shared.choose(
            name, k=4, filter=document, rules={"at_most": [{"field": "maker", "count": 1}]}
        )
        assert ids(limited) == greedy(alive + gone, 4, {"maker": 1})
    states = await shared.ok("GET", f"/v1/bandits/{name}/learners/_global/sets")
    assert sum(stage["size"] for stage in states["stages"]) == len(lives)


async def test_a_bandits_own_filter_always_holds(shared: Api):
    own, more = {"stock": True}, {"price": {"$lt": 13}}
    await build(shared, "own", exploration=0, filter=own)
    assert (await shared.ok("GET", "/v1/bandits/own"))["filter"] == own
    choice = await shared.choose("own", k=60)
    assert set(ids(choice)) == set(let_in(own))
    assert choice["eligible"] == len(let_in(own))
    choice = await shared.choose("own", k=60, filter=more)
    assert set(ids(choice)) == set(let_in({"$and": [own, more]}))
    place = ("body", "filter", "price", "?")  # nothing of the input is repeated
    bad = {"catalogue": "own", "policy": "sub_ts", "filter": {"price": {"$near": 1}}}
    await shared.refused("PUT", "/v1/bandits/other", bad, loc=place)


async def test_a_bandits_filter_on_a_field_that_no_arm_has_is_a_warning(shared: Api):
    """Its arms may come later, so that it is no error."""
    await shared.ok("PUT", "/v1/catalogues/later", {"dim": 2}, 201)
    body = {"catalogue": "later", "policy": "sub_ts", "filter": {"prise": {"$lt": 13}}}
    made = await shared.ok("PUT", "/v1/bandits/misspelt", body, 201)
    assert "warnings" not in made, "there are no arms yet"
    arm = {"id": "a", "features": [1.0, 0.0], "metadata": {"price": 12}}
    await shared.ok("PUT", "/v1/catalogues/later/arms", {"arms": [arm]})
    assert (await shared.ok("GET", "/v1/bandits/misspelt"))["warnings"] == ["filter: no arm has `prise`"]
    mended = {"filter": {"prise": None, "price": {"$lt": 13}}}
    assert "warnings" not in await shared.ok("PATCH", "/v1/bandits/misspelt", mended)


@pytest.mark.rest
async def test_a_cap_by_a_field_that_no_arm_has_and_a_holdout_of_no_arm_are_warnings(shared: Api):
    """Otherwise the cap would limit nothing, and the holdout be served at random, without a word."""
    await shared.catalogue("warned", {"a": [1.0, 0.0]})
    arms: Json = {"share": 0.1, "serve": {"arms": ["a", "b"]}}
    repeats: Json = {"most": 1, "within_s": 60, "by": "seris"}
    await shared.bandit("warned", "warned", scope="per_key", holdout=arms, repeats=repeats)
    assert (await shared.ok("GET", "/v1/bandits/warned"))["warnings"] == [
        "repeats: no arm has `seris`",
        "holdout: the catalogue lacks 1 of its 2 arms",
    ]
    mended = await shared.ok("PATCH", "/v1/bandits/warned", {"holdout": None, "repeats": {"by": "arm"}})
    assert "warnings" not in mended


async def test_baselines_and_the_ladder_keep_to_the_filter(shared: Api):
    value = scores(await build(shared, "plain", exploration=0))
    assert value
    await shared.bandit("ladder", "plain", exploration=0, solver="adaptive")
    for document in FILTERS:
        choice = await shared.choose("ladder", k=60, filter=document)
        assert set(ids(choice)) == set(let_in(document))


@pytest.mark.parametrize("method", ["bounded_me", "racing", "exact", "hnsw", "adaptive"])
async def test_searches_draws_and_centres_keep_to_the_filter(shared: Api, method: str):
    name = f"queries-{method}"
    await build(shared, name)
    query = [1.0, 0.5, -0.5, 0.2]
    for document in FILTERS:
        wanted = let_in(document)
        best = sorted(wanted, key=lambda arm: -float(np.dot(FEATURES[arm], query)))
        ask = {"query": query, "k": 3, "method": method, "epsilon": 1e-9, "seed": 1, "filter": document}
        found = await shared.ok("POST", f"/v1/catalogues/{name}/mips", ask)
        assert ids(found) == best[:3]
    near = {"query": query, "k": 2, "method": "exact", "objective": "nearest", "filter": {"stock": True}}
    found = await shared.ok("POST", f"/v1/catalogues/{name}/mips", near)
    wanted = let_in({"stock": True})
    assert (
        ids(found)
        == sorted(wanted, key=lambda arm: float(np.sum((FEATURES[arm] - np.array(query)) ** 2)))[:2]
    )
    draws = await shared.ok(
        "POST",
        f"/v1/catalogues/{name}/sample",
        {"query": query, "draws": 500, "seed": 3, "filter": {"maker": "ada"}},
    )
    assert set(draws["draws"]) <= set(let_in({"maker": "ada"}))
    assert len(set(draws["draws"])) > 5
    centres = {"k": 4, "method": "naive", "filter": {"maker": "bob"}, "first": "a1"}
    found = await shared.ok("POST", f"/v1/catalogues/{name}/centers", centres)
    assert set(found["centers"]) <= set(let_in({"maker": "bob"}))
    assert found["centers"][0] == "a1"
    await shared.refused(
        "POST", f"/v1/catalogues/{name}/centers", {**centres, "first": "a0"}, loc=("body", "first")
    )
    for path in ("mips", "sample"):
        nobody = {"query": query, "filter": {"maker": "nobody"}}
        await shared.refused("POST", f"/v1/catalogues/{name}/{path}", nobody, status=409, code="no_arms")


async def test_changes_of_metadata_alone_count_at_once_in_every_process_and_after_a_restart(
    store_url: str, tmp_path: Path
):
    async with (
        running(store_url, tmp_path / "one") as one,
        running(store_url, tmp_path / "two", empty=False) as two,
    ):
        await build(one, "c", exploration=0)
        await two.ok("GET", "/v1/bandits/c")
        ask: Json = {"k": 60, "filter": {"stock": False}}
        assert set(ids(await two.choose("c", **ask))) == set(let_in({"stock": False}))
        version = (await one.ok("GET", "/v1/catalogues/c"))["version"]
        changed = {"id": "a1", "features": FEATURES["a1"], "metadata": {"stock": False}}
        await one.ok("PUT", "/v1/catalogues/c/arms", {"arms": [changed]})
        expected = {*let_in({"stock": False}), "a1"}
        assert set(ids(await one.choose("c", **ask))) == expected
        while (await two.ok("GET", "/v1/catalogues/c"))["version"] == version:
            await two.ok("GET", "/readyz")
        assert set(ids(await two.choose("c", **ask))) == expected
        await one.ok("POST", "/v1/catalogues/c/arms/delete", {"ids": ["a0"]})
        assert set(ids(await one.choose("c", **ask))) == expected - {"a0"}
    async with running(store_url, tmp_path / "one", empty=False) as again:
        assert set(ids(await again.choose("c", **ask))) == expected - {"a0"}


async def test_the_catalogue_tells_which_filters_are_in_use(shared: Api):
    await build(shared, "told")
    for _ in range(3):
        await shared.choose("told", filter={"stock": True})
    await shared.choose("told", filter={"maker": "ada"})
    told = (await shared.ok("GET", "/v1/catalogues/told"))["filters"]
    assert [(one["filter"], one["uses"]) for one in told] == [({"stock": True}, 3), ({"maker": "ada"}, 1)]
    assert told[0]["eligible"] == len(let_in({"stock": True}))
    assert [one["way"] for one in told] == ["copy", "exact"]


@pytest.mark.parametrize(
    ("request_body", "loc"),
    [
        ({"filter": []}, ("body", "filter")),
        ({"filter": {"price": {"$in": []}}}, ("body", "filter", "price", "$in")),
        ({"filter": {"price": {"$gt": True}}}, ("body", "filter", "price", "$gt")),
        ({"rules": {"pin": [{"arm": "a1", "place": 3}]}, "k": 2}, ("body", "rules", "pin", 0, "place")),
        (
            {"rules": {"pin": [{"arm": "a1", "place": 1}, {"arm": "a1", "place": 2}]}, "k": 3},
            ("body", "rules", "pin", 1, "arm"),
        ),
        (
            {"rules": {"pin": [{"arm": "a1", "place": 1}, {"arm": "a2", "place": 1}]}, "k": 3},
            ("body", "rules", "pin", 1, "place"),
        ),
        ({"rules": {"pin": [{"arm": "zzz", "place": 1}]}, "k": 3}, ("body", "rules", "pin", 0, "arm")),
        ({"rules": {"at_most": [{"field": "x", "count": 0}]}}, ("body", "rules", "at_most", 0, "count")),
        ({"rules": {"at_most": [{"field": "x", "count": 1}] * 2}}, ("body", "rules", "at_most", 1, "field")),
        ({"rules": {"least": []}}, ("body", "rules", "least")),
    ],
)
async def test_bad_filters_and_rules_are_named(shared: Api, request_body: Json, loc: Sequence[str | int]):
    if (await shared.call("GET", "/v1/bandits/bad")).status_code != 200:
        await build(shared, "bad")
    await shared.refused("POST", "/v1/bandits/bad/choose", request_body, loc=loc)
    nested = ("body", "requests", 1, *loc[1:])
    batch = {"requests": [{}, request_body]}
    await shared.refused("POST", "/v1/bandits/bad/choose/batch", batch, loc=nested)


TEXT = "`color` is text in 2 arms, and the filter compares it with a number"


NUMBER = "`price` is a number in 2 arms, and the filter compares it with text"


MIXED = "`mixed` is text in 1 arm and a number in 1 arm, and the filter compares it with true or false"


UNMET: list[tuple[Json, dict[str, str]]] = [
    ({"prize": 3}, {"prize": "no arm has `prize`"}),
    ({"prize": {"$exists": True}, "color": "blue"}, {"prize": "no arm has `prize`"}),
    ({"color": {"$gt": 3}}, {"color": TEXT}),
    ({"color": {"$in": [1, 2.5]}}, {"color": TEXT}),
    ({"price": "9"}, {"price": NUMBER}),
    (
        {"$or": [{"price": {"$lt": "9"}}, {"colour": "red"}]},
        {"price": NUMBER, "colour": "no arm has `colour`"},
    ),
    ({"price": {"$gt": 1_000}}, {}),
    ({"$not": {"colour": {"$ne": "red"}}}, {"colour": "no arm has `colour`"}),
    ({"color": {"$nin": ["red", "blue"]}, "maker": {"$ne": 3}}, {}),
    ({"mixed": {"$gt": 1_000}}, {}),
    ({"mixed": True}, {"mixed": MIXED}),
    ({"gone": 1}, {"gone": "no arm has `gone`"}),
]


async def test_where_a_filter_lets_in_nothing_it_is_said_why(api: Api):
    """A misspelt field, or one that is compared with another kind of value: of whoever takes a filter."""
    arms: list[Json] = [
        {"id": "a", "features": [1.0, 0.0], "metadata": {"color": "red", "price": 9, "mixed": 1}},
        {"id": "b", "features": [0.0, 1.0], "metadata": {"color": "blue", "price": 2.5, "mixed": "x"}},
    ]
    await api.ok("PUT", "/v1/catalogues/words", {"dim": 2}, 201)
    gone = {"id": "gone", "features": [0.0, 0.0], "metadata": {"gone": 1, "color": 3}}
    await api.ok("PUT", "/v1/catalogues/words/arms", {"arms": [*arms, gone]})
    await api.call("DELETE", "/v1/catalogues/words/arms/gone")
    await api.bandit("words", "words")
    some = {"query": [1.0, 1.0], "k": 1, "filter": {"color": "red"}}
    found = await api.ok("POST", "/v1/catalogues/words/mips", some)
    assert found["eligible"] == 1
    assert (await api.ok("POST", "/v1/catalogues/words/mips", {"query": [1.0, 1.0]}))["eligible"] is None
    for asked, named in UNMET:
        calls: list[tuple[str, Json]] = [
            ("/v1/bandits/words/choose", {"filter": asked}),
            ("/v1/bandits/words/choose", {"filter": asked, "dry_run": True}),
            ("/v1/catalogues/words/mips", {"query": [1.0, 1.0], "filter": asked}),
            ("/v1/catalogues/words/sample", {"query": [1.0, 1.0], "filter": asked}),
            ("/v1/catalogues/words/centers", {"k": 1, "filter": asked}),
        ]
        for path, body in calls:
            document = await api.refused("POST", path, body, status=409, code="no_arms")
            found = {error["loc"][-1]: error["message"] for error in document["errors"]}
            assert found == named, path
            assert all(why in document["detail"] for why in named.values())
