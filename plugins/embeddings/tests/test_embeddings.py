"""Catalogues that follow another one, by an embedding of behaviour."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from api_client import Api, Json, running
from app.api.api_keys import new_key
from waiting import wait_until

pytestmark = pytest.mark.anyio

BLOCKS = {"content-type": "application/vnd.shortlist.arms"}
LINEAR, SHIFT, KAPPA = np.array([[1.0, 0.0], [0.0, -2.0], [1.0, 1.0]]), np.array([0.5, 0.0, -1.0]), 4.0
ARMS = {f"a{n}": [float(n), 1.0] for n in range(6)}
SEEN = {"a0": (12, [1.0, 2.0, 3.0]), "a1": (1, [0.0, 0.0, 1.0]), "gone": (3, [1.0, 1.0, 1.0])}


def features(arm: str, table: list[float]) -> np.ndarray:
    expected = LINEAR @ table + SHIFT
    if arm not in SEEN:
        return expected
    likes, vector = SEEN[arm]
    return (likes * np.array(vector) + KAPPA * expected) / (likes + KAPPA)


def numbers(values: Any) -> bytes:
    return np.asarray(values, dtype="<f4").tobytes()


def head(name: str, version: int = 1, **changes: Any) -> Json:
    counts = {"rewards": 16, "keys": 12, "arms": 3, "without": 4}
    matrices = {"linear": numbers(LINEAR), "shift": numbers(SHIFT), "kappa": KAPPA}
    return {"catalogue": name, "version": version, **matrices, **counts, **changes}


def block(seen: dict[str, tuple[int, list[float]]], **changes: Any) -> Json:
    likes, vectors = zip(*seen.values(), strict=True)
    return {"ids": list(seen), "likes": numbers(likes), "vectors": numbers(vectors), **changes}


def body(*documents: Json) -> bytes:
    blocks = map(msgspec.msgpack.encode, documents)
    return b"".join(len(each).to_bytes(4, "little") + each for each in blocks)


async def follow(api: Api, source: str, name: str, **options: Any) -> Json:
    """A catalogue that follows ``source``, with all its arms."""
    path = f"/v1/catalogues/{source}/embeddings"
    await api.ok("POST", path, status=201, content=body(head(name), block(SEEN)), headers=BLOCKS | options)

    async def filled() -> Json | None:
        found: Json = await api.ok("GET", f"/v1/catalogues/{name}", headers=options)
        return found if found["filled"] else None

    return await wait_until(filled, what="all arms are there")


async def held(api: Api) -> set[bytes]:
    """The keys of behaviour that stay."""
    return {key async for key in api.store.scan_iter("*:behaviour") if await api.store.pttl(key) < 0}


async def arms_of(api: Api, name: str) -> dict[str, Json]:
    return {arm["id"]: arm for arm in await api.listed(f"/v1/catalogues/{name}/arms")}


async def await_arms(api: Api, name: str, expected: dict[str, list[float]]) -> None:
    """Until the catalogue has exactly these arms of the followed one, as encoded."""

    async def there() -> bool:
        found = await arms_of(api, name)
        return found.keys() == expected.keys() and all(
            np.allclose(found[arm]["features"], features(arm, table), atol=1e-6)
            for arm, table in expected.items()
        )

    await wait_until(there, what="what was done in the followed catalogue is done here")


async def test_a_catalogue_has_the_arms_of_another_one_by_their_behaviour_or_their_fields(shared: Api):
    api = shared
    await api.ok("PUT", "/v1/catalogues/made", {"dim": 2, "display": {"title": "name"}}, 201)
    rows = [
        {"id": arm, "features": row, "tags": ["t", arm], "metadata": {"name": arm.upper()}}
        for arm, row in ARMS.items()
    ]
    await api.ok("PUT", "/v1/catalogues/made/arms", {"arms": rows})
    found = await follow(api, "made", "made-2")
    assert (found["dim"], found["follows"], found["size"]) == (3, "made", 6)
    assert found["display"] == {"title": "name"}
    counts = {"rewards": 16, "keys": 12, "arms": 3, "without": 4}
    assert found["behaviour"] == {**counts, "held_out": None, "prior": None}
    await await_arms(api, "made-2", ARMS)
    arm = await api.ok("GET", "/v1/catalogues/made-2/arms/a1")
    assert (arm["tags"], arm["metadata"]) == (["t", "a1"], {"name": "A1"})
    assert "follows" not in await api.ok("GET", "/v1/catalogues/made")
    await api.refused("DELETE", "/v1/catalogues/made", status=409, code="conflict")


async def test_features_may_begin_with_those_of_the_followed_catalogue(shared: Api):
    """As the table is now: also of an arm that was changed after the embedding was made."""
    api = shared
    await api.catalogue("beside", ARMS)
    content = body(head("beside-2", beside=True), block(SEEN))
    await api.ok("POST", "/v1/catalogues/beside/embeddings", status=201, content=content, headers=BLOCKS)
    changed = ARMS | {"a0": [7.0, 3.0], "new": [2.0, -1.0]}
    rows = [{"id": arm, "features": changed[arm]} for arm in ("a0", "new")]
    await api.ok("PUT", "/v1/catalogues/beside/arms", {"arms": rows})

    async def there() -> bool:
        found = await arms_of(api, "beside-2")
        return found.keys() == changed.keys() and all(
            np.allclose(found[arm]["features"], [*row, *features(arm, row)], atol=1e-6)
            for arm, row in changed.items()
        )

    await wait_until(there, what="the features are those of now")


async def test_what_is_done_in_the_followed_catalogue_is_done_in_order(shared: Api):
    api, arms = shared, dict(ARMS)
    await api.catalogue("films", arms)
    await follow(api, "films", "films-2")
    await api.bandit("home", "films-2")
    await api.put_arms("films", {"a1": [7.0, 7.0], "new": [1.0, 5.0]})
    await api.ok("DELETE", "/v1/catalogues/films/arms/a2", status=204)
    await api.put_arms("films", {"a2": [9.0, 9.0]})
    await api.ok("POST", "/v1/catalogues/films/arms/delete", {"ids": ["a3", "a0"]})
    arms |= {"a1": [7.0, 7.0], "new": [1.0, 5.0], "a2": [9.0, 9.0]}
    del arms["a3"], arms["a0"]
    await await_arms(api, "films-2", arms)
    tagged = {"id": "a4", "features": ARMS["a4"], "tags": ["fresh"]}
    await api.ok("PUT", "/v1/catalogues/films/arms", {"arms": [tagged]})

    async def chosen() -> bool:
        made = await api.call("POST", "/v1/bandits/home/choose", {"filter": {"tags": "fresh"}})
        return made.status_code == 200 and [arm["id"] for arm in made.json()["arms"]] == ["a4"]

    await wait_until(chosen, what="a tag of the followed catalogue filters here")
    # behaviour of an arm that comes back is known still
    await api.put_arms("films", {"a0": [2.0, 2.0]})
    await await_arms(api, "films-2", arms | {"a0": [2.0, 2.0]})


async def test_arms_are_written_where_they_are_followed(shared: Api):
    api = shared
    await api.catalogue("c", ARMS)
    before = await held(api)
    await follow(api, "c", "c-2")
    arm = {"id": "a1", "features": [1.0, 1.0, 1.0]}
    for method, path, given in [
        ("PUT", "arms", {"arms": [arm]}),
        ("POST", "arms/delete", {"ids": ["a1"]}),
        ("DELETE", "arms/a1", None),
    ]:
        said = await api.refused(method, f"/v1/catalogues/c-2/{path}", given, status=409, code="conflict")
        assert "follows c: write to c" in said["detail"]
    said = await api.refused("DELETE", "/v1/catalogues/c", status=409, code="conflict")
    assert "delete c-2 first" in said["detail"]
    said = await api.refused("PUT", "/v1/catalogues/c-2", {"dim": 3}, status=409, code="conflict")
    assert "follows another catalogue" in said["detail"]
    await api.ok("DELETE", "/v1/catalogues/c-2", status=204)
    await api.ok("DELETE", "/v1/catalogues/c", status=204)
    assert await held(api) == before


async def test_the_same_again_is_the_same_and_another_is_refused(shared: Api):
    api, path = shared, "/v1/catalogues/s/embeddings"
    await api.catalogue("s", ARMS)
    await follow(api, "s", "s-2")
    again = body(head("s-2"), block(SEEN))
    found = await api.ok("POST", path, status=200, content=again, headers=BLOCKS)
    assert found["id"] == "s-2"
    other = body(head("s-2", kappa=5.0), block(SEEN))
    await api.refused("POST", path, status=409, code="conflict", content=other, headers=BLOCKS)
    of_it = body(head("s-3"))
    said = await api.refused("POST", "/v1/catalogues/s-2/embeddings", content=of_it, headers=BLOCKS)
    assert "make the embedding from s" in said["detail"]


async def test_what_is_wrong_with_an_embedding_is_named_and_makes_nothing(shared: Api):
    api = shared
    await api.catalogue("bad", ARMS)
    before = await held(api)
    wrong = [
        (400, [b"\x03\x00\x00\x00abc"], "the first block"),
        (400, [b""], "the first block"),
        (422, [body(head("not a name"))], "catalogue"),
        (422, [body(head("x", shift=b""))], "shift"),
        (422, [body(head("x", shift=numbers([1.0, np.nan, 0.0])))], "shift"),
        (422, [body(head("x", linear=numbers(np.full((3, 2), np.inf))))], "linear"),
        (409, [body(head("x", linear=numbers(np.ones((3, 5)))))], "begin again"),
        (409, [body(head("x", version=9))], "begin again"),
        (422, [body(head("x", kappa=0.0))], "kappa"),
        (422, [body(head("x", keys=-1))], "keys"),
        (400, [body(head("x", beside=2))], "the first block"),
        (422, [body(head("x"), block(SEEN, likes=numbers([1, 2])))], "likes"),
        (422, [body(head("x"), block(SEEN, likes=numbers([1, 2, 0])))], "likes"),
        (422, [body(head("x"), block(SEEN, vectors=numbers(np.full((3, 3), np.inf))))], "vectors"),
        (422, [body(head("x"), block(SEEN, ids=["a", "b", ""]))], "ids"),
        (400, [body(head("x"), {"ids": ["a"]})], "block after the first"),
    ]
    for status, content, named in wrong:
        answer = await api.call(
            "POST", "/v1/catalogues/bad/embeddings", content=b"".join(content), headers=BLOCKS
        )
        assert answer.status_code == status, (named, answer.text)
        assert named in answer.text
    await api.refused(
        "POST", "/v1/catalogues/bad/embeddings", json={"catalogue": "x", "dim": 2}, status=400,
        code="bad_request",
    )  # fmt: skip
    await api.refused(
        "POST", "/v1/catalogues/none/embeddings", content=body(head("x")), status=404, code="not_found",
        headers=BLOCKS,
    )  # fmt: skip
    await api.refused("GET", "/v1/catalogues/x", status=404, code="not_found")
    assert await held(api) == before


async def test_a_bandit_waits_until_all_arms_are_there(shared: Api):
    """Nothing is followed of a catalogue whose source has no arms yet."""
    api = shared
    await api.ok("PUT", "/v1/catalogues/empty", {"dim": 2}, 201)
    await api.ok(
        "POST", "/v1/catalogues/empty/embeddings", status=201, content=body(head("e-2", version=0)),
        headers=BLOCKS,
    )  # fmt: skip
    await api.catalogue("full", {"a4": [1.0, 2.0, 3.0]})
    await api.bandit("waits", "full")
    said = await api.refused(
        "POST", "/v1/bandits/waits/move", {"catalogue": "e-2"}, status=409, code="not_fitted"
    )
    assert "being taken over" in said["detail"]
    unseen = {"a4": ARMS["a4"], "a5": ARMS["a5"]}
    await api.put_arms("empty", unseen)
    await await_arms(api, "e-2", unseen)
    moved = await api.ok("POST", "/v1/bandits/waits/move", {"catalogue": "e-2", "carry": "none"})
    assert moved["to"] == "e-2"


KEYS = {
    "admin": new_key("admin", ["admin"]),
    "films": new_key("films", ["admin"], {"bandits": "none", "catalogues": "films"}),
    "books": new_key("books", ["admin"], {"bandits": "none", "catalogues": "books"}),
}


@pytest.fixture
async def guarded(store_url: str, tmp_path: Path) -> AsyncIterator[Api]:
    async with running(store_url, tmp_path, api_keys=" ".join(entry for _, entry in KEYS.values())) as api:
        yield api


async def test_a_key_of_the_followed_catalogue_reaches_the_one_that_follows(guarded: Api):
    as_admin, as_films, as_books = (
        {"authorization": f"Bearer {KEYS[name][0]}"} for name in ("admin", "films", "books")
    )
    api = guarded
    for name in ("films", "books"):
        await api.ok("PUT", f"/v1/catalogues/{name}", {"dim": 2}, 201, headers=as_admin)
    arms = {"arms": [{"id": arm, "features": row} for arm, row in ARMS.items()]}
    await api.ok("PUT", "/v1/catalogues/films/arms", arms, headers=as_films)
    path = "/v1/catalogues/films/embeddings"
    for name in ("books", "films-2"):  # whether there is one or not
        content = body(head(name), block(SEEN))
        options = {"content": content, "headers": BLOCKS | as_films}
        await api.refused("POST", path, status=404, code="not_found", **options)
    await follow(api, "films", "films-2", **as_admin)
    listed = await api.ok("GET", "/v1/catalogues", headers=as_films)
    assert [each["id"] for each in listed["items"]] == ["films", "films-2"]
    assert (await api.ok("GET", "/v1/catalogues/films-2/arms/a1", headers=as_films))["id"] == "a1"
    path = "/v1/catalogues/films-2"
    await api.refused("GET", path, status=404, code="not_found", headers=as_books)


async def stored_behaviour(api: Api) -> dict[bytes, set[bytes]]:
    keys = [key async for key in api.store.scan_iter("*:behaviour")]
    return {key: set(await api.store.hkeys(key)) for key in keys}


async def uploaded(api: Api) -> float:
    """The bytes of uploads, as /metrics says."""
    lines = (await api.call("GET", "/metrics")).text.splitlines()
    (found,) = (line.split()[1] for line in lines if line.startswith("shortlist_uploaded_bytes "))
    return float(found)


async def test_a_client_that_leaves_within_an_upload_leaves_nothing(shared: Api):
    api, path = shared, "/v1/catalogues/broken-off/embeddings"
    await api.catalogue("broken-off", ARMS)
    before, shown = await stored_behaviour(api), list[float]()

    async def watched() -> AsyncIterator[bytes]:
        yield body(head("broken-off-2"), block(SEEN))
        yield body(block({"a2": (1, [1.0, 1.0, 1.0])}))
        shown.append(await uploaded(api))
        assert await stored_behaviour(api) != before
        yield b"cut"

    whole = body(head("broken-off-2"), block(SEEN))
    for chunks in ([whole], [whole, b"cut"]):
        assert await api.left("POST", path, *chunks, headers=BLOCKS) == []
        assert await stored_behaviour(api) == before
    answer = await api.call("POST", path, content=watched(), headers=BLOCKS)
    assert answer.status_code == 400
    assert shown[0] > 0.0
    assert await uploaded(api) == 0.0
    assert await stored_behaviour(api) == before
    await follow(api, "broken-off", "broken-off-2")
    assert await uploaded(api) == 0.0
    assert await stored_behaviour(api) != before
