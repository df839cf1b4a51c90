"""Catalogues while they change: pages, many writers, numbers of every size."""

import asyncio
import itertools
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_catalogues import arm, arms_of

from api_client import Api, Json, running

pytestmark = [pytest.mark.anyio, pytest.mark.rest]


async def test_the_target_of_recall_is_shown_and_kept(api: Api):
    for name, target in (("least", 0.8), ("most", 0.999), ("usual", 0.95)):
        body = {"dim": 2, "index": {"target_recall": target}}
        made = await api.ok("PUT", f"/v1/catalogues/{name}", body, 201)
        assert (made["index"]["target_recall"], made["index"]["recall_at_1"]) == (target, 1.0)
        assert await api.ok("PUT", f"/v1/catalogues/{name}", body, 200) == made
        assert await api.ok("GET", f"/v1/catalogues/{name}") == made
    told = await api.refused("PUT", "/v1/catalogues/least", {"dim": 2}, status=409, code="conflict")
    assert told["detail"] == "a catalogue with this name exists: index.target_recall is 0.8, not 0.95"


async def test_a_target_of_recall_that_is_none_is_refused(api: Api):
    for bad in [1.0, 1, 0, 0.7999, 0.9991, -0.95, 95, "x", "0.95", None, True, [0.95], {}]:
        body = {"dim": 2, "index": {"target_recall": bad}}
        before = await api.stored()
        await api.refused(
            "PUT", "/v1/catalogues/c", body, loc=["body", "index", "target_recall"], code="invalid"
        )
        assert await api.stored() == before


@pytest.mark.parametrize("word", ["NaN", "Infinity", "1e999"])
async def test_a_target_of_recall_that_is_not_finite_is_refused(api: Api, word: str):
    body = f'{{"dim": 2, "index": {{"target_recall": {word}}}}}'.encode()
    loc = ["body", "index", "target_recall"]
    await api.refused("PUT", "/v1/catalogues/c", content=body, code="invalid", loc=loc)


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


async def test_an_upsert_inserts_and_replaces_everything_of_an_arm(api: Api):
    await api.catalogue("c", {}, dim=2)
    first = arm("a", 1, 2, tags=["x", "y"], metadata={"n": 1})
    put = "/v1/catalogues/c/arms"
    assert await api.ok("PUT", put, {"arms": [first]}) == {"added": 1, "updated": 0, "version": 1}
    assert await api.ok("PUT", put, {"arms": [first]}) == {"added": 0, "updated": 1, "version": 1}
    assert await api.ok("GET", f"{put}/a") == first
    await api.ok("PUT", put, {"arms": [{"id": "a", "features": [1, 2]}, arm("b", 0, 0)]})
    assert await arms_of(api) == {"a": arm("a", 1, 2), "b": arm("b", 0, 0)}
    await api.ok("PUT", put, {"arms": [arm("a", 9, 9, metadata={"only": "this"})]})
    assert await api.ok("GET", f"{put}/a") == arm("a", 9, 9, metadata={"only": "this"})


async def test_an_upsert_is_all_or_nothing(api: Api):
    await api.catalogue("c", {"old": [1, 2]})
    before = await api.stored()
    good = [arm(f"new{i}", 1, 2) for i in range(50)] + [arm("old", 7, 7)]
    put = "/v1/catalogues/c/arms"
    for bad in (arm("bad", 1), arm("bad!", 1, 2), {"id": "bad"}, arm("new7", 1, 2), arm("old", 1, 2)):
        await api.refused(
            "PUT",
            put,
            {"arms": [*good, bad]},
            code="dimension_mismatch" if bad == arm("bad", 1) else "invalid",
        )
        assert await arms_of(api) == {"old": arm("old", 1, 2)}
    assert await api.stored() == before


async def test_an_id_twice_in_a_batch_is_refused_where_it_repeats(api: Api):
    await api.catalogue("c", {"a": [1, 2]})
    body: Json = {"arms": [arm("x", 1, 2), arm("y", 1, 2), arm("x", 1, 2)]}
    await api.refused("PUT", "/v1/catalogues/c/arms", body, loc=["body", "arms", 2, "id"])
    await api.refused("POST", "/v1/catalogues/c/arms/delete", {"ids": ["a", "a"]}, loc=["body", "ids", 1])
    assert await arms_of(api) == {"a": arm("a", 1, 2)}


async def test_deleting_names_what_was_not_there_and_may_be_repeated(api: Api):
    await api.catalogue("c", {name: [1, 2] for name in "abcde"})
    many = {"ids": ["a", "none", "c", "nothing"]}
    path = "/v1/catalogues/c/arms/delete"
    assert await api.ok("POST", path, many) == {"deleted": 2, "missing": ["none", "nothing"], "version": 2}
    assert await api.ok("POST", path, many) == {
        "deleted": 0, "missing": ["a", "none", "c", "nothing"], "version": 2,
    }  # fmt: skip
    await api.ok("DELETE", "/v1/catalogues/c/arms/b", status=204)
    await api.refused("DELETE", "/v1/catalogues/c/arms/b", status=404, code="not_found")
    assert set(await arms_of(api)) == {"d", "e"}
    assert (await api.ok("GET", "/v1/catalogues/c"))["size"] == 2


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


async def test_everything_is_there_after_a_restart(store_url: str, tmp_path: Path):
    async with running(store_url, tmp_path / "1") as api:
        await api.catalogue("empty", {}, dim=4_096)
        await api.catalogue("c", {f"a{i}": [i, -i] for i in range(30)})
        await api.ok(
            "PUT", "/v1/catalogues/c/arms", {"arms": [arm("a3", 7, 7, tags=["t"], metadata={"m": [1]})]}
        )
        await api.ok("POST", "/v1/catalogues/c/arms/delete", {"ids": ["a0", "a29"]})
        arms, catalogues = await api.listed("/v1/catalogues/c/arms"), await api.listed("/v1/catalogues")
    async with running(store_url, tmp_path / "2", empty=False) as api:
        assert await api.listed("/v1/catalogues/c/arms") == arms
        for before, after in zip(catalogues, await api.listed("/v1/catalogues"), strict=True):
            assert {**before, "index": 0} == {**after, "index": 0}
            assert before["index"]["seed"] == after["index"]["seed"]


FEATURES = st.lists(st.sampled_from([-1.0, -0.0, 0.0, 0.5, 1e-9, 1e6]), min_size=2, max_size=2)


NAMES = st.sampled_from(["a", "b", "c", "d"])


ARMS = st.fixed_dictionaries(
    {"id": NAMES, "features": FEATURES},
    optional={
        "tags": st.lists(st.text(max_size=3), max_size=2),
        "metadata": st.dictionaries(st.text(max_size=3), st.integers(-9, 9), max_size=2),
    },
)  # fmt: skip


STEP = st.one_of(
    st.tuples(st.just("upsert"), st.lists(ARMS, min_size=1, max_size=4)),
    st.tuples(st.just("delete"), st.lists(NAMES, min_size=1, max_size=4)),
    st.tuples(st.just("delete one"), NAMES),
    st.tuples(st.just("import"), st.lists(ARMS, max_size=4)),
    st.tuples(st.just("make again"), st.booleans()),
    st.tuples(st.just("restart"), st.none()),
)


numbers = itertools.count()


@settings(max_examples=12)
@given(steps=st.lists(STEP, max_size=25))
async def test_a_catalogue_is_a_dictionary(store_url: str, tmp_path: Path, steps: list[Any]):
    """Side by side with a dict, over HTTP, through restarts; a choice of all arms agrees as well."""
    model: dict[str, Json] = {}
    stack: list[Any] = []

    async def start(*, empty: bool) -> Api:
        stack.append(running(store_url, tmp_path / str(next(numbers)), empty=empty))
        api: Api = await stack[-1].__aenter__()
        return api

    async def stop() -> None:
        await stack.pop().__aexit__(None, None, None)

    api = await start(empty=True)
    try:
        await api.catalogue("c", {}, dim=2)
        for step, argument in steps:
            if step == "restart":
                await stop()
                api = await start(empty=False)
            else:
                await take(api, model, step, argument)
            listed = await arms_of(api, limit=3)
            assert json.dumps(listed, sort_keys=True) == json.dumps(model, sort_keys=True)
            assert (await api.ok("GET", "/v1/catalogues/c"))["size"] == len(model)
            await agree_in_choosing(api, model)
    finally:
        await stop()


async def take(api: Api, model: dict[str, Json], step: str, argument: Any) -> None:
    """Do one step to the service and to its model."""
    if step == "upsert" and len({item["id"] for item in argument}) == len(argument):
        done = await api.ok("PUT", "/v1/catalogues/c/arms", {"arms": argument})
        assert done["updated"] == len(model.keys() & {item["id"] for item in argument})
        model.update({item["id"]: {**arm("", 0), **item} for item in argument})
    elif step == "upsert":
        await api.refused("PUT", "/v1/catalogues/c/arms", {"arms": argument})
    elif step == "import":
        body = b"\n".join(json.dumps(item).encode() for item in argument)
        await api.ok("POST", "/v1/catalogues/c/import", content=body)
        model.update({item["id"]: {**arm("", 0), **item} for item in argument})
    elif step == "delete" and len(set(argument)) == len(argument):
        done = await api.ok("POST", "/v1/catalogues/c/arms/delete", {"ids": argument})
        assert done["missing"] == [name for name in argument if name not in model]
        for name in argument:
            model.pop(name, None)
    elif step == "delete":
        await api.refused("POST", "/v1/catalogues/c/arms/delete", {"ids": argument})
    elif step == "delete one":
        answer = await api.call("DELETE", f"/v1/catalogues/c/arms/{argument}")
        assert answer.status_code == (204 if model.pop(argument, None) else 404)
    else:
        await api.call("DELETE", "/v1/bandits/b")
        await api.ok("DELETE", "/v1/catalogues/c", status=204)
        await api.ok("PUT", "/v1/catalogues/c", {"dim": 2}, 201)
        model.clear()


async def agree_in_choosing(api: Api, model: dict[str, Json]) -> None:
    """As many arms as there could be are asked for, and all are given."""
    await api.call("PUT", "/v1/bandits/b", {"catalogue": "c", "policy": "linear_ts", "exploration": 0})
    if not model:
        await api.refused("POST", "/v1/bandits/b/choose", {}, status=409, code="no_arms")
        return
    choice = await api.choose("b", k=10)
    assert {item["id"] for item in choice["arms"]} == set(model)
    assert choice["exact"]


NUMBERS: list[Any] = [
    ('{"ok": 1, "price": NaN}', "price"),
    ('{"maker": {"sizes": [1, 1e999]}}', "maker.sizes"),
    ('{"maker": [{"id": 123456789012345678901234567890}]}', "maker.id"),
    ('{"a b": NaN}', "?"),
]


async def test_a_number_that_is_none_is_named_by_its_field(api: Api):
    await api.ok("PUT", "/v1/catalogues/numbers", {"dim": 1}, 201)
    for metadata, field in NUMBERS:
        content = '{"arms": [{"id": "a", "features": [1], "metadata": ' + metadata + "}]}"
        document = await api.refused("PUT", "/v1/catalogues/numbers/arms", content=content)
        assert document["errors"][0]["message"].endswith(f"and not so {field}")
