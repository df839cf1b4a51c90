"""What people ask of a catalogue and a key: fields, arms in order, titles, and what a key has had."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from api_client import Api, Json

pytestmark = [pytest.mark.anyio, pytest.mark.rest]

WORDS: list[Any] = ["a", "é", "b" * 300, 3, 3.5, -2, 2**53 + 1, 2**53 + 2, True, False]
TYPES = {str: "string", bool: "boolean", int: "number", float: "number"}
ORDER = {"number": 0, "string": 1, "boolean": 2}


def documents(seed: int, count: int) -> list[Json]:
    """Arms whose fields have values of all types, none, and several."""
    draw = random.Random(seed)
    some = [*WORDS, None, {}, [], ["a", "b"], [1, "x", True], [[1]]]
    return [
        {
            "id": f"a{n}",
            "features": [n, 1.0],
            "tags": draw.sample(["x", "y"], draw.randrange(3)),
            "metadata": {
                name: draw.choice(some) for name in ("p", "q", "naïve name", "p.q") if draw.random() < 0.8
            },
        }
        for n in range(count)
    ]


def values_of(arm: Json, name: str) -> list[Any] | None:
    """The values of a field; None: the arm lacks it."""
    metadata = {"tags": arm["tags"] or None, **arm["metadata"]}
    if name not in metadata or (name == "tags" and not arm["tags"]):
        return None
    content = metadata[name]
    members = content if isinstance(content, list) else [content]
    return [each for each in members if type(each) in TYPES]


async def create_catalogue(api: Api, name: str, arms: list[Json]) -> None:
    await api.ok("PUT", f"/v1/catalogues/{name}", {"dim": 2}, 201)
    await api.ok("PUT", f"/v1/catalogues/{name}/arms", {"arms": arms})


async def test_fields_are_counted_as_the_arms_have_them(api: Api):
    arms = documents(1, 400)
    await create_catalogue(api, "c", documents(2, 400))  # replaced by what follows, and some are deleted
    await api.ok("PUT", "/v1/catalogues/c/arms", {"arms": arms})
    await api.ok("POST", "/v1/catalogues/c/arms/delete", {"ids": [f"a{n}" for n in range(100)]})
    arms = arms[100:]
    items = await api.listed("/v1/catalogues/c/fields", limit=2)
    assert [item["field"] for item in items] == sorted(["naïve name", "p", "p.q", "q", "tags"])
    for item in items:
        known = [values for arm in arms if (values := values_of(arm, item["field"])) is not None]
        types = Counter(word for each in known for word in {TYPES[type(v)] for v in each} or {"none"})
        often = Counter((TYPES[type(value)], value) for each in known for value in each)
        assert (item["arms"], item["types"]) == (len(known), types), item["field"]
        assert item["distinct"] == len(often)
        found = [(TYPES[type(value)], value) for value in item["values"]]
        assert dict(zip(found, item["counts"], strict=True)) == often
        assert item["counts"] == sorted(item["counts"], reverse=True)
    assert await api.listed("/v1/catalogues/c/fields") == items


async def test_only_frequent_values_are_listed_and_fields_without_arms_are_not(api: Api):
    arms: list[Json] = [{"id": f"a{n}", "features": [0, n], "metadata": {"n": n % 50}} for n in range(120)]
    await create_catalogue(api, "c", [*arms, {"id": "gone", "features": [0, 0], "metadata": {"gone": 1}}])
    await api.call("DELETE", "/v1/catalogues/c/arms/gone")
    (item,) = await api.listed("/v1/catalogues/c/fields")
    assert (item["field"], item["arms"], item["distinct"]) == ("n", 120, 50)
    assert item["values"] == list(range(20))  # of those that are there three times
    assert item["counts"] == [3] * 20


@pytest.mark.parametrize("order", ["asc", "desc"])
async def test_arms_are_sorted_by_a_field(api: Api, order: str):
    arms = documents(3, 150)
    await create_catalogue(api, "c", arms)
    for name in ("p", "tags", "naïve name", "nobody has it"):

        def key(arm: Json, name: str = name) -> tuple[bool, int, Any]:
            keys = [
                (ORDER[TYPES[type(v)]], v[:256] if isinstance(v, str) else v)
                for v in values_of(arm, name) or []
            ]
            if not keys:
                return (order == "asc", 0, 0)
            return (order == "desc", *(max if order == "desc" else min)(keys))

        expected = sorted(arms, key=key, reverse=order == "desc")  # stable: of equal ones the oldest first
        for limit in (7, 150):
            found, cursor = list[str](), ""
            while cursor is not None:
                path = f"/v1/catalogues/c/arms?sort={name}&order={order}&limit={limit}{cursor}"
                page = await api.ok("GET", path)
                found += [arm["id"] for arm in page["items"]]
                cursor = page["next"] and f"&cursor={page['next']}"
            assert found == [arm["id"] for arm in expected], (name, limit)
    page = await api.ok("GET", f"/v1/catalogues/c/arms?sort=p&order={order}&limit=10")
    other = {"asc": "desc", "desc": "asc"}[order]
    for path in (
        f"sort=p&order={other}",
        f"sort=q&order={order}",
        f"sort=p&sample_seed=1&order={order}",
        f"order={order}",
        "sort=p&order=up",
        "sort=",
    ):
        await api.refused("GET", f"/v1/catalogues/c/arms?{path}&cursor={page['next']}")


async def test_the_title_of_arms_is_chosen_and_changed(api: Api):
    made = await api.ok("PUT", "/v1/catalogues/c", {"dim": 2, "display": {"title": "name"}}, 201)
    assert made["display"] == {"title": "name"}
    assert (await api.ok("PUT", "/v1/catalogues/c", {"dim": 2}))["display"] == {"title": "name"}
    changed = await api.ok("PUT", "/v1/catalogues/c", {"dim": 2, "display": {"title": "maker.name"}})
    assert changed["display"] == {"title": "maker.name"}
    await api.refused(
        "PUT", "/v1/catalogues/c", {"dim": 3, "display": {"title": "no"}}, status=409, code="conflict"
    )
    for patch, display in (
        ({}, {"title": "maker.name"}),
        ({"display": {}}, {"title": "maker.name"}),
        ({"display": {"title": "other"}}, {"title": "other"}),
        ({"display": {"picture": "image"}}, {"title": "other", "picture": "image"}),
        ({"display": {"title": None}}, {"picture": "image"}),
        ({"display": {"picture": None}}, None),
        ({"display": {"title": "again"}}, {"title": "again"}),
        ({"display": None}, None),
    ):
        assert (await api.ok("PATCH", "/v1/catalogues/c", patch))["display"] == display
        assert (await api.ok("GET", "/v1/catalogues/c"))["display"] == display
    for bad in ({"title": ""}, {"title": 3}, {"name": "x"}, "name", {"title": "x" * 257}):
        await api.refused("PATCH", "/v1/catalogues/c", {"display": bad})
        await api.refused("PUT", "/v1/catalogues/c", {"dim": 2, "display": bad})
    await api.refused("PUT", "/v1/catalogues/c", {"dim": 2, "display": {}})
    await api.refused("PATCH", "/v1/catalogues/none", {}, status=404, code="not_found")
    await api.refused("PATCH", "/v1/catalogues/c", {"dim": 3})


async def test_what_a_key_has_had_counts_until_it_does_not(api: Api):
    arms = [
        {"id": f"a{n}", "features": [n, 1.0], "metadata": {"maker": "ann" if n % 2 else "bob"}}
        for n in range(4)
    ]
    await create_catalogue(api, "c", arms)
    repeats = {"most": 2, "within_s": 3_600.0}
    await api.bandit("keyed", "c", scope="per_key", repeats=repeats)
    await api.bandit("visited", "c", repeats={**repeats, "by": "maker"})
    await api.bandit("plain", "c")
    assert (await api.ok("GET", "/v1/bandits/keyed/learners/ann/exposures"))["items"] == []
    shown = Counter[str]()
    for k in (4, 1, 1):
        shown.update(arm["id"] for arm in (await api.choose("keyed", key="ann", k=k))["arms"])
    found = await api.ok("GET", "/v1/bandits/keyed/learners/ann/exposures")
    assert (found["key"], found["repeats"]) == ("ann", {**repeats, "counts": "shown", "by": "arm"})
    assert {item["arm"]: item["count"] for item in found["items"]} == shown
    for item in found["items"]:
        assert (item["value"], item["left"]) == (None, 2 - item["count"])
        assert item["last_ms"] <= item["until_ms"] <= item["last_ms"] + 3_600_000
    last = [item["last_ms"] for item in found["items"]]
    assert last == sorted(last, reverse=True)
    await api.choose("visited", visitor="eve", k=2)
    by_value = (await api.ok("GET", "/v1/bandits/visited/learners/eve/exposures"))["items"]
    assert sum(item["count"] for item in by_value) == 2
    assert {(item["arm"], item["value"] in {"ann", "bob"}) for item in by_value} == {(None, True)}
    assert (await api.ok("GET", "/v1/bandits/keyed/learners/bob/exposures"))["items"] == []
    for path in ("plain/learners/_global", "none/learners/ann"):
        await api.refused("GET", f"/v1/bandits/{path}/exposures", status=404, code="not_found")
