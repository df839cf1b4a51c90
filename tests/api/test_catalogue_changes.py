"""Catalogues while they change: pages, many writers, numbers of every size."""

import asyncio
import itertools
from collections import Counter

import numpy as np
import pytest
from test_catalogues import arm, arms_of

from api_client import Api, Json

pytestmark = [pytest.mark.anyio, pytest.mark.rest]


async def test_of_many_who_make_a_catalogue_one_makes_it(api: Api):
    answers = await asyncio.gather(
        *(api.call("PUT", "/v1/catalogues/c", {"dim": 1 + i % 2}) for i in range(40))
    )
    statuses = sorted(answer.status_code for answer in answers)
    assert statuses == [200] * 19 + [201] + [409] * 20


async def test_a_catalogue_made_again_is_empty_and_may_differ(api: Api):
    await api.catalogue("c", {"a": [1, 2], "b": [3, 4]})
    await api.ok("DELETE", "/v1/catalogues/c", status=204)
    await api.catalogue("c", {"b": [5, 6, 7]})
    assert await arms_of(api) == {"b": arm("b", 5, 6, 7)}


async def test_an_id_twice_in_a_batch_is_refused_where_it_repeats(api: Api):
    await api.catalogue("c", {"a": [1, 2]})
    body: Json = {"arms": [arm("x", 1, 2), arm("y", 1, 2), arm("x", 1, 2)]}
    await api.refused("PUT", "/v1/catalogues/c/arms", body, loc=["body", "arms", 2, "id"])
    await api.refused("POST", "/v1/catalogues/c/arms/delete", {"ids": ["a", "a"]}, loc=["body", "ids", 1])
    assert await arms_of(api) == {"a": arm("a", 1, 2)}


async def test_lists_give_everything_once_in_pages(api: Api):
    rows = {f"a{i}": [float(i)] for i in range(20)}
    await api.catalogue("c", rows)
    for name in ("d", "a", "z", "B", "0", "a.b"):
        await api.ok("PUT", f"/v1/catalogues/{name}", {"dim": 1}, 201)
        await api.bandit(name, "c")
    for limit in [1, 2, 3, 7, 1_000]:
        for path, expected in (
            ("/v1/catalogues", sorted(["c", "d", "a", "z", "B", "0", "a.b"])),
            ("/v1/bandits", sorted(["d", "a", "z", "B", "0", "a.b"])),
            ("/v1/catalogues/c/arms", list(rows)),
        ):
            assert [item["id"] for item in await api.listed(path, limit=limit)] == expected


async def test_a_sample_draws_every_arm_alike_and_the_same_for_the_same_seed(api: Api):
    rows = {f"a{n}": [float(n), 1.0] for n in range(30)}
    await api.catalogue("c", rows)
    counts: Counter[str] = Counter()
    for seed in range(200):
        page = await api.ok("GET", f"/v1/catalogues/c/arms?limit=10&sample_seed={seed}")
        drawn = {item["id"]: item["features"] for item in page["items"]}
        assert (len(page["items"]), len(drawn), page["next"]) == (10, 10, None)
        assert all(features == rows[name] for name, features in drawn.items())
        counts.update(list(drawn))
    assert counts.keys() == rows.keys()
    assert sum((count - 200 / 3) ** 2 / (200 / 3) for count in counts.values()) < 60  # chi-squared of 29
    again = await api.ok("GET", "/v1/catalogues/c/arms?limit=10&sample_seed=199")
    assert again == page
    every = await api.ok("GET", "/v1/catalogues/c/arms?limit=100&sample_seed=0")
    assert {item["id"] for item in every["items"]} == rows.keys()
    await api.catalogue("none", {}, dim=2)
    assert (await api.ok("GET", "/v1/catalogues/none/arms?sample_seed=0"))["items"] == []


async def test_a_sample_has_no_pages_and_needs_a_whole_seed(api: Api):
    await api.catalogue("c", {"a": [1.0]})
    path = "/v1/catalogues/c/arms"
    await api.refused("GET", f"{path}?sample_seed=1&cursor=x", loc=["query", "cursor"])
    for seed in ("-1", "x", "1.5", str(2**63)):
        await api.refused("GET", f"{path}?sample_seed={seed}", loc=["query", "sample_seed"])


async def test_a_listing_gives_every_arm_that_stays_once_while_others_change(api: Api):
    staying = {f"s{i}": [float(i), 1.0] for i in range(60)}
    await api.catalogue("c", {**staying, **{f"m{i}": [0.0, 0.0] for i in range(30)}})
    rng = np.random.default_rng(2)
    seen: list[str] = []
    cursor: str | None = None
    for number in itertools.count():
        params = {"limit": 7} if cursor is None else {"limit": 7, "cursor": cursor}
        page = await api.ok("GET", "/v1/catalogues/c/arms", params=params)
        for item in page["items"]:
            if item["id"] in staying:
                assert item["features"] == staying[item["id"]]
                seen.append(item["id"])
        cursor = page["next"]
        if cursor is None:
            break
        if number < 40:
            await api.put_arms("c", {f"n{number}": [1, 1], f"m{rng.integers(30)}": rng.normal(size=2)})
            await api.call("DELETE", f"/v1/catalogues/c/arms/m{rng.integers(30)}")
            tags = [{"id": "s5", "features": staying["s5"], "tags": [str(number)]}]
            await api.ok("PUT", "/v1/catalogues/c/arms", {"arms": tags})
    assert sorted(seen) == sorted(staying)


async def test_an_arm_is_never_seen_half_replaced(api: Api):
    """Features and metadata are stored apart; a reader gets both of one write."""
    await api.catalogue("c", {"a": [0.0]})
    await api.ok("PUT", "/v1/catalogues/c/arms", {"arms": [arm("a", 0, metadata={"n": 0})]})
    writing = True

    async def write() -> None:
        nonlocal writing
        for number in range(1, 80):
            await api.ok("PUT", "/v1/catalogues/c/arms", {"arms": [arm("a", number, metadata={"n": number})]})
        writing = False

    async def read(path: str) -> int:
        reads = 0
        while writing:
            answer = await api.ok("GET", path)
            for item in answer.get("items", [answer]):
                assert item["features"] == [item["metadata"]["n"]]
            reads += 1
        return reads

    paths = ["/v1/catalogues/c/arms/a", "/v1/catalogues/c/arms"]
    _, *reads = await asyncio.gather(write(), *(read(path) for path in paths * 2))
    assert min(reads) > 10


async def test_writes_to_one_catalogue_at_once(api: Api):
    """Fifty writers: each write happens whole, and what is served is what is stored."""
    await api.catalogue("c", {}, dim=2)

    async def write(writer: int) -> None:
        for step in range(5):
            rows = [arm(f"a{i}", writer, step, metadata={"w": [writer, step]}) for i in range(10)]
            if (writer + step) % 4 == 0:
                await api.ok("POST", "/v1/catalogues/c/arms/delete", {"ids": [row["id"] for row in rows]})
            else:
                await api.ok("PUT", "/v1/catalogues/c/arms", {"arms": rows})

    await asyncio.gather(*(write(writer) for writer in range(50)))
    arms = await arms_of(api)
    assert len(arms) in {0, 10}
    assert len({tuple(item["features"]) for item in arms.values()}) <= 1
    for item in arms.values():
        assert item["features"] == item["metadata"]["w"]


numbers = itertools.count()
