"""Candidates that are refused: by their path, for their size, and of those who may send ids alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_candidates import DIM, PATH, ids, own, ready

from api_client import Api, Json, running
from app.api.api_keys import new_key
from app.platform.errors import StartupError
from shortlist_client import visitor_pass

pytestmark = [pytest.mark.anyio, pytest.mark.rest]

BAD: list[tuple[Json, list[str | int]]] = [
    ({"candidates": ["a1", "a2", "a1"]}, ["candidates", 2]),
    ({"candidates": ["a1", own("a1", [1] * DIM)]}, ["candidates", 1]),
    ({"candidates": ["a1", {"id": "n", "metadata": {"x": 1}}]}, ["candidates", 1, "features"]),
    ({"candidates": ["a1", own("n", [1, 2])]}, ["candidates", 1, "features"]),
    ({"candidates": ["a1", own("n", [1, 2, 3, 100.001])]}, ["candidates", 1, "features"]),
    ({"candidates": [own("n", [1] * DIM), {"id": "a1", "tags": ["t"]}]}, ["candidates", 1, "tags"]),
    ({"candidates": ["a1", {"id": "n", "features": [1, 2, 3, "4"]}]}, ["candidates", 1, "features", 3]),
    ({"candidates": ["a1", {"id": "n", "feature": [1]}]}, ["candidates", 1, "feature"]),
    ({"candidates": ["a1", {"features": [1] * DIM}]}, ["candidates", 1, "id"]),
    ({"candidates": ["a1", "not an id"]}, ["candidates", 1]),
    ({"candidates": ["a1", 7]}, ["candidates", 1]),
    ({"candidates": []}, ["candidates"]),
    ({"candidates": ["a1"], "baseline": "s"}, ["candidates"]),
]


async def test_bad_candidates_are_named_by_their_path(shared: Api):
    await ready(shared, "bad")
    path = PATH.format("bad")
    for body, loc in BAD:
        code = "dimension_mismatch" if own("n", [1, 2]) in body["candidates"] else "invalid"
        await shared.refused("POST", path, body, code=code, loc=["body", *loc])
        batch = {"requests": [{}, body]}
        await shared.refused("POST", f"{path}/batch", batch, code=code, loc=["body", "requests", 1, *loc])


async def test_too_many_candidates_and_tokens_too_long(shared: Api):
    await shared.catalogue("wide", {"w": [0.0] * 99 + [1.0]})
    await shared.bandit("wide", "wide")
    path = PATH.format("wide")
    many = [f"x{place}" for place in range(1_001)]
    await shared.refused("POST", path, {"candidates": many}, loc=["body", "candidates"])
    long = [own(f"x{place}", [0.5] * 100) for place in range(1_001)]
    await shared.refused("POST", path, {"candidates": long}, loc=["body", "candidates"])
    brought = [own(f"n{place}", [0.5] * 100) for place in range(150)]
    told = await shared.refused("POST", path, {"candidates": brought, "k": 123}, loc=["body", "k"])
    assert "122" in told["detail"]
    assert "100 numbers (D)" in told["detail"]
    answer = await shared.choose("wide", candidates=brought, k=122)
    assert len(ids(answer)) == 122
    rewards = [{"decision": answer["decision"], "arm": arm, "value": 1} for arm in ids(answer)[:5]]
    assert (await shared.reward(*rewards))["accepted"] == 5


async def test_a_pass_sends_ids_alone_unless_its_key_says_more(store_url: str, tmp_path: Path):
    restrictions = {"visitors": "3600"}
    key, entry = new_key("web", ["choose"], restrictions)
    full, full_entry = new_key("full", ["choose"], {**restrictions, "candidates": "full"})
    admin, admin_entry = new_key("admin", ["admin"])
    async with running(store_url, tmp_path, api_keys=f"{entry} {full_entry} {admin_entry}") as api:
        api.http.headers["authorization"] = f"Bearer {admin}"
        await ready(api, "b", scope="per_key")
        path, brought = PATH.format("b"), [own("n", [1] * DIM)]
        as_ann = {"authorization": f"Bearer {visitor_pass(key, visitor='ann')}"}
        named = {"candidates": ["a1", {"id": "a2"}]}
        assert len((await api.ok("POST", path, {**named, "k": 2}, headers=as_ann))["arms"]) == 2
        for candidate, field in ((brought[0], "features"), ({"id": "a1", "tags": []}, "tags")):
            body, loc = {"candidates": ["a1", candidate]}, ["body", "candidates", 1, field]
            await api.refused("POST", path, body, status=403, code="forbidden", loc=loc, headers=as_ann)
        for headers in (
            {"authorization": f"Bearer {visitor_pass(full, visitor='ann')}"},
            {"authorization": f"Bearer {key}"},
        ):
            body = {"candidates": brought, "key": "ann"}
            assert ids(await api.ok("POST", path, body, headers=headers)) == ["n"]
    for bad in ({"candidates": "full"}, {**restrictions, "candidates": "some"}):
        with pytest.raises(StartupError, match="candidates"):
            new_key("bad", ["choose"], bad)
