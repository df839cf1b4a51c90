"""The import of arms as blocks of numbers: whatever the chunks, and what is wrong in one."""

import json
from typing import Any

import msgspec
import numpy as np
import pytest

from api_client import Api
from app.api.request_limits import MAX_BLOCK_ARMS, MAX_BLOCK_BYTES, MAX_TAG_CHARS, MAX_TAGS

pytestmark = [pytest.mark.anyio, pytest.mark.rest]

CANARY = "c4nary"
PATH = "/v1/catalogues/c/import"
HEADERS = {"content-type": "application/vnd.shortlist.arms"}


def block(ids: list[str], rows: Any, **columns: Any) -> bytes:
    features = rows if isinstance(rows, bytes) else np.asarray(rows, dtype="<f8").tobytes()
    document = msgspec.msgpack.encode({"ids": ids, "features": features, **columns})
    return len(document).to_bytes(4, "little") + document


GOOD = block(["a0", "a1"], [[0, 1], [0.1, -1e6]])


@pytest.fixture
async def empty(api: Api) -> Api:
    await api.catalogue("c", {}, dim=2)
    return api


async def arms_of(api: Api, catalogue: str = "c") -> list[Any]:
    return await api.listed(f"/v1/catalogues/{catalogue}/arms", limit=1_000)


@pytest.mark.parametrize("size", [1, 7, 10**6])
async def test_blocks_in_any_chunks(empty: Api, size: int):
    body = GOOD + block(
        ["b"],
        np.array([[0.1, 2]], dtype="<f4").tobytes(),
        dtype="<f4",
        tags=[["é"]],
        metadata=['{"n": [1, null]}'],
    )

    async def pieces():
        for start in range(0, len(body), size):
            yield body[start : start + size]

    done = await empty.ok("POST", PATH, content=pieces(), headers=HEADERS)
    assert done == {"added": 3, "updated": 0, "version": 2}
    assert await arms_of(empty) == [
        {"id": "a0", "features": [0.0, 1.0], "tags": [], "metadata": {}},
        {"id": "a1", "features": [0.1, -1e6], "tags": [], "metadata": {}},
        {"id": "b", "features": [float(np.float32(0.1)), 2.0], "tags": ["é"], "metadata": {"n": [1, None]}},
    ]
    again = await empty.ok("POST", PATH, content=body, headers=HEADERS)
    assert again == {"added": 0, "updated": 3, "version": 2}, "what is there as it is stays untouched"


TWO = [[1, 2], [3, 4]]
BAD: dict[str, tuple[bytes, int, str]] = {
    "no msgpack": (b"\x06\x00\x00\x00c4nary", 422, "invalid"),
    "an unknown column": (block(["x", "y"], TWO, c4nary=[]), 422, "invalid"),
    "a bad id": (block(["x", "c4nary!"], TWO), 422, "invalid"),
    "an id with a line's end": (block(["x", "y\n"], TWO), 422, "invalid"),
    "an id twice": (block(["x", "x"], TWO), 422, "invalid"),
    "NaN": (block(["x", "y"], [[1, 2], [float("nan"), 1]]), 422, "invalid"),
    "infinite": (block(["x", "y"], [[1, 2], [1, -np.inf]]), 422, "invalid"),
    "too large a number": (block(["x", "y"], [[1, 2], [1, 1e7]]), 422, "invalid"),
    "too few numbers": (block(["x", "y"], [[1, 2]]), 422, "dimension_mismatch"),
    "numbers of another kind": (block(["x", "y"], TWO, dtype="<i8"), 422, "invalid"),
    "half a number": (block(["x"], b"123"), 422, "dimension_mismatch"),
    "too few tags": (block(["x", "y"], TWO, tags=[["t"]]), 422, "invalid"),
    "too many tags": (block(["x", "y"], TWO, tags=[[], ["t"] * (MAX_TAGS + 1)]), 422, "invalid"),
    "a long tag": (block(["x", "y"], TWO, tags=[[], ["t" * (MAX_TAG_CHARS + 1)]]), 422, "invalid"),
    "metadata that are no JSON": (block(["x", "y"], TWO, metadata=["", CANARY]), 422, "invalid"),
    "metadata that are a list": (block(["x", "y"], TWO, metadata=["", "[1]"]), 422, "invalid"),
    "metadata with NaN": (block(["x", "y"], TWO, metadata=["", '{"n": NaN}']), 422, "invalid"),
    "metadata too deep": (block(["x", "y"], TWO, metadata=["", '{"n":' + "[" * 9_999]), 422, "invalid"),
    "long metadata": (block(["x", "y"], TWO, metadata=["", json.dumps({"n": "m" * 20_000})]), 422, "invalid"),
    "metadata as a document": (block(["x", "y"], TWO, metadata=["", {"n": 1}]), 422, "invalid"),
    "bytes for an id": (block([b"x", b"y"], TWO), 422, "invalid"),  # type: ignore[list-item]
    "too many arms": (block([f"x{i}" for i in range(MAX_BLOCK_ARMS + 1)], []), 413, "too_large"),
    "too long a block": ((MAX_BLOCK_BYTES + 1).to_bytes(4, "little"), 413, "too_large"),
    "half a block": (GOOD[:-1], 400, "bad_request"),
    "half a length": (b"\x01\x00", 400, "bad_request"),
}


async def test_blocks_before_a_bad_one_are_applied_and_nothing_after_it(api: Api):
    for number, (name, (bad, status, code)) in enumerate(BAD.items()):
        catalogue = f"c{number}"
        await api.catalogue(catalogue, {}, dim=2)
        body = GOOD + bad
        if not name.startswith("half a "):
            body += block(["after"], [[1, 2]])
        path = f"/v1/catalogues/{catalogue}/import"
        document = await api.refused(
            "POST", path, content=body, headers=HEADERS, status=status, code=code, canary=CANARY
        )
        assert "The first 2 arms were applied, nothing after them was" in document["detail"], name
        assert [arm["id"] for arm in await arms_of(api, catalogue)] == ["a0", "a1"], name


async def test_the_first_bad_arm_is_named(empty: Api):
    bad = block(["x", "y"], [[1, 2], [float("nan"), 1]])
    document = await empty.refused("POST", PATH, content=GOOD + bad, headers=HEADERS, code="invalid")
    assert document["detail"].startswith("arm 4: ")
    assert document["errors"][0]["loc"] == ["body", 4, "features"]
