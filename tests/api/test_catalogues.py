"""Catalogues and arms: what a client may rely on, and a dictionary as the model of it all."""

import dataclasses
from typing import Any

import numpy as np
import pytest

from api_client import Api, Json
from app.catalogues.arm_pages import PAGE_NUMBERS
from app.indexes.live import IndexStatus

pytestmark = pytest.mark.anyio

INDEX = {
    "kind": "auto", "m": 16, "ef_construction": 100, "ef_search": None, "shortlist": 30,
    "target_recall": 0.95,
}  # fmt: skip


def arm(name: str, *features: float, **rest: Any) -> Json:
    return {"id": name, "features": list(features), "tags": [], "metadata": {}, **rest}


async def arms_of(api: Api, catalogue: str = "c", limit: int = 1_000) -> dict[str, Json]:
    listed = await api.listed(f"/v1/catalogues/{catalogue}/arms", limit=limit)
    assert len({item["id"] for item in listed}) == len(listed)
    return {item["id"]: item for item in listed}


async def test_a_catalogue_is_made_once(api: Api):
    made = await api.ok("PUT", "/v1/catalogues/c", {"dim": 3}, 201)
    assert (made["id"], made["dim"], made["size"], made["version"]) == ("c", 3, 0, 0)
    assert (made["index"]["kind"], made["index"]["state"], made["index"]["exact"]) == ("exact", "ready", True)
    assert made["index"]["arms_in_memory"] is True
    assert set(made["index"]) == {"requested", "arms_in_memory"} | {
        field.name for field in dataclasses.fields(IndexStatus)
    }
    before = await api.stored()
    for same in (
        {"dim": 3},
        {"dim": 3, "index": {}},
        {"dim": 3, "index": {"kind": "auto"}},
        {"index": INDEX, "dim": 3},
    ):
        assert (await api.ok("PUT", "/v1/catalogues/c", same, 200))["id"] == "c"
    changes: Json = {"kind": "exact", "m": 17, "ef_construction": 99, "ef_search": 1, "shortlist": 31}
    changes["target_recall"] = 0.96
    for name, value in changes.items():
        other = {"dim": 3, "index": {name: value}}
        told = await api.refused("PUT", "/v1/catalogues/c", other, status=409, code="conflict")
        assert f"index.{name} is " in told["detail"]
        assert f", not {value}" in told["detail"]
    told = await api.refused("PUT", "/v1/catalogues/c", {"dim": 4}, status=409, code="conflict")
    assert told["detail"] == "a catalogue with this name exists: dim is 3, not 4"
    assert await api.stored() == before
    assert await api.ok("GET", "/v1/catalogues/c") == made


async def test_a_catalogue_in_use_is_not_deleted(api: Api):
    await api.catalogue("c", {"a": [1, 2]})
    await api.bandit("b", "c")
    before = await api.stored()
    await api.refused("DELETE", "/v1/catalogues/c", status=409, code="conflict")
    assert await api.stored() == before
    assert (await api.choose("b"))["arms"][0]["id"] == "a"
    await api.ok("DELETE", "/v1/bandits/b", status=204)
    await api.ok("DELETE", "/v1/catalogues/c", status=204)
    for method, path in (
        ("GET", ""),
        ("DELETE", ""),
        ("GET", "/arms"),
        ("GET", "/arms/a"),
        ("DELETE", "/arms/a"),
    ):
        await api.refused(method, f"/v1/catalogues/c{path}", status=404, code="not_found")
    await api.refused(
        "PUT", "/v1/catalogues/c/arms", {"arms": [arm("a", 1, 2)]}, status=404, code="not_found"
    )


async def test_a_change_is_seen_by_the_next_call(api: Api):
    """Greedy choices over a known parameter: after every write the best arm is the model's."""
    rng = np.random.default_rng(1)
    await api.catalogue("c", {"base": [1.0, 0.0]})
    await api.bandit("b", "c", exploration=0)
    await api.observe("b", {"id": "o", "arm": "base", "value": 1.0})
    model = {"base": 1.0}
    for step in range(60):
        name = f"a{rng.integers(12)}"
        if rng.random() < 0.4 and name in model:
            await api.ok("DELETE", f"/v1/catalogues/c/arms/{name}", status=204)
            del model[name]
        else:
            model[name] = float(rng.normal())
            await api.put_arms("c", {name: [model[name], 0.0]})
        chosen = [item["id"] for item in (await api.choose("b", k=20))["arms"]]
        assert chosen == sorted(model, key=lambda item: -model[item]), step


async def test_a_page_of_long_arms_has_fewer(api: Api):
    dim = 2_000
    await api.catalogue("c", {f"a{n}": [float(n)] * dim for n in range(120)})
    page = await api.ok("GET", "/v1/catalogues/c/arms?limit=1000")
    assert len(page["items"]) == PAGE_NUMBERS // dim
    assert len(await arms_of(api)) == 120
    await api.catalogue("longest", {f"a{n}": [float(n)] * 4_096 for n in range(2)})
    assert len((await api.ok("GET", "/v1/catalogues/longest/arms?limit=1"))["items"]) == 1
