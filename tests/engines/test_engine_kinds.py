"""Catalogues of an engine of a package outside: the service knows its engine by the contract alone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from api_client import Api, running
from app.catalogues import catalogue_kinds
from app.catalogues.catalogue_kinds import is_in_engine, missing_plugin
from app.indexes.index_limits import IndexLimits
from app.platform.errors import Invalid
from app.records.records import CatalogueRecord
from memory_engine import MemoryEngine, MemorySource
from shortlist_service.testing import ArmEngineContract
from waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.rest]

INDEX = {"kind": "memory", "m": 16, "ef_construction": 100, "ef_search": None, "shortlist": 30}
ARMS = {f"a{number}": [1.0, float(number)] for number in range(60)}


class TestMemoryEngine(ArmEngineContract):
    recall = 1.0

    @pytest.fixture
    async def engine(self) -> MemoryEngine:
        return MemoryEngine()


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> MemorySource:
    source = MemorySource()
    monkeypatch.setitem(catalogue_kinds.ENGINE_KINDS, "memory", source)  # type: ignore[arg-type]
    return source


@pytest.fixture
async def api(source: MemorySource, store_url: str, tmp_path: Path) -> AsyncIterator[Api]:
    async with running(store_url, tmp_path) as api:
        yield api


async def made(api: Api, name: str = "c", dim: int = 2) -> None:
    """Bodies name the kinds that were there when the service was imported, so it is made below HTTP."""
    await api.app.service.catalogues.create(name, CatalogueRecord(dim, dict(INDEX), 0.95))


async def copied(api: Api, name: str = "c") -> dict[str, Any]:
    """The index once the engine has all arms."""

    async def has_all() -> bool:
        index = (await api.ok("GET", f"/v1/catalogues/{name}"))["index"]
        return bool(index["collection"]) and not index["pending"] and not index["overlay"]

    await wait_until(has_all, what="the engine has every arm")
    index: dict[str, Any] = (await api.ok("GET", f"/v1/catalogues/{name}"))["index"]
    assert index["arms_in_memory"] is False
    return index


async def best(api: Api, **request: Any) -> list[str]:
    body = {"query": [0.0, 1.0], "k": 3, "method": "hnsw", **request}
    return [arm["id"] for arm in (await api.ok("POST", "/v1/catalogues/c/mips", body))["arms"]]


async def test_arms_are_chosen_from_the_overlay_and_from_the_engine_alike(api: Api, source: MemorySource):
    await made(api)
    await api.put_arms("c", ARMS)
    await api.bandit("b", "c", policy="sub_ts", exploration=0)
    await api.observe("b", {"id": "o", "arm": "a50", "value": 1.0})
    for _ in range(2):  # the engine has none of them at first, then all
        assert await best(api) == ["a59", "a58", "a57"]
        choice = await api.choose("b", k=2)
        assert [arm["id"] for arm in choice["arms"]] == ["a59", "a58"]
        assert choice["exact"] is False
        index = await copied(api)
    assert (index["kind"], index["reason"]) == (
        "memory",
        "the arms are in Memory, which proposes those that are compared",
    )
    (held,) = source.made[0].held.values()
    assert held.keys() == ARMS.keys()
    await api.ok("DELETE", "/v1/catalogues/c/arms/a59", status=204)
    assert await best(api) == ["a58", "a57", "a56"]


async def test_what_an_engine_proposes_is_checked_by_the_filter_again(api: Api, source: MemorySource):
    await made(api)
    arms = [
        {"id": arm_id, "features": features, "metadata": {"even": number % 2 == 0}}
        for number, (arm_id, features) in enumerate(ARMS.items())
    ]
    await api.ok("PUT", "/v1/catalogues/c/arms", {"arms": arms})
    await copied(api)
    for blind in (False, True):
        source.made[0].blind = blind
        assert await best(api, filter={"even": True}) == ["a58", "a56", "a54"]


async def test_more_are_proposed_while_rules_leave_too_few(api: Api):
    await made(api)
    arms = [
        {"id": arm_id, "features": features, "metadata": {"half": number // 30}}
        for number, (arm_id, features) in enumerate(ARMS.items())
    ]
    await api.ok("PUT", "/v1/catalogues/c/arms", {"arms": arms})
    await copied(api)
    await api.bandit("b", "c", policy="sub_ts", exploration=0)
    await api.observe("b", {"id": "o", "arm": "a50", "value": 1.0})
    half = {"at_most": [{"field": "half", "count": 1}]}
    for more, wanted in [
        ({"rules": half}, ["a59", "a29"]),  # the engine finds it by more than 30 arms
        ({"exclude": [f"a{number}" for number in range(10, 60)]}, ["a9", "a8"]),
        ({"rules": {**half, "pin": [{"arm": "a3", "place": 1}]}, "filter": {"half": 1}}, ["a3", "a59"]),
    ]:
        choice = await api.choose("b", k=2, **more)
        assert [arm["id"] for arm in choice["arms"]] == wanted, more
        assert "eligible" not in choice
        assert choice["exact"] is False
    answer = await api.http.post("/v1/bandits/b/choose", json={"filter": {"half": 2}})
    assert (answer.status_code, answer.json()["code"]) == (409, "no_arms")


async def test_a_list_of_arms_is_served_as_far_as_the_filter_lets_it(api: Api):
    await made(api)
    arms = [{"id": f"a{number}", "features": [1.0, 0.0], "metadata": {"n": number}} for number in range(40)]
    await api.ok("PUT", "/v1/catalogues/c/arms", {"arms": arms})
    holdout = {"share": 0.5, "serve": {"arms": ["a9", "nobody", "a3", "a30"]}}
    await api.bandit("b", "c", policy="sub_ts", holdout=holdout)
    for number in range(40):
        choice = await api.choose("b", k=3, filter={"n": {"$lt": 20}}, event_id=f"e{number}")
        if choice["group"] == "holdout":
            assert [arm["id"] for arm in choice["arms"]] == ["a9", "a3"]
            assert choice["exact"] is True
            break
    else:
        raise AssertionError("no event is in the holdout")


async def test_a_seeded_choice_is_the_same_again_and_draws_by_chance_differ(api: Api):
    await made(api)
    await api.put_arms("c", {name: [row[1] / 60, np.cos(row[1])] for name, row in ARMS.items()})
    await copied(api)
    await api.bandit("b", "c", policy="sub_ts", exploration=1)
    once = [(await api.choose("b", k=3, seed=seed))["arms"] for seed in range(5)]
    assert once == [(await api.choose("b", k=3, seed=seed))["arms"] for seed in range(5)]
    assert len({(await api.choose("b"))["arms"][0]["score"] for _ in range(20)}) == 20


async def test_an_engine_that_is_away_is_unavailable_and_named(api: Api, source: MemorySource):
    await made(api)
    await api.put_arms("c", ARMS)
    await copied(api)
    body = {"query": [0.0, 1.0], "k": 3, "method": "hnsw"}
    source.made[0].is_away = True
    answer = await api.http.post("/v1/catalogues/c/mips", json=body)
    assert (answer.status_code, answer.json()["detail"]) == (503, "the engine of the test is away")
    source.made[0].is_away = False
    assert await best(api) == ["a59", "a58", "a57"]


async def test_what_needs_all_arms_and_what_the_source_does_not_take_are_refused(api: Api):
    await made(api)
    with pytest.raises(Invalid, match="dim must be at least 2 with the kind memory"):
        await made(api, "small", dim=1)
    await api.put_arms("c", ARMS)
    answer = await api.http.post("/v1/catalogues/c/mips", json={"query": [0.0, 1.0], "method": "exact"})
    assert answer.json()["code"] == "not_possible_here"
    assert "this catalogue is kept in Memory" in answer.json()["detail"]


async def test_a_catalogue_is_known_to_be_in_an_engine_when_its_source_is_gone(
    api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Else a process without the plug-in would take all its arms into memory."""
    await made(api)
    record = api.app.service.catalogues.served("c").record
    assert (is_in_engine(record), missing_plugin(record)) == (True, None)
    await made(api)  # the same again
    service = catalogue_kinds.Kinds(
        api.store, index_dir=tmp_path, group=None, engines={}, index_limits=IndexLimits()
    )
    with pytest.raises(Invalid, match="MEMORY_URL is not set"):
        service.checked(record)
    monkeypatch.delitem(catalogue_kinds.ENGINE_KINDS, "memory")  # type: ignore[arg-type]
    assert (is_in_engine(record), missing_plugin(record)) == (True, "the engine memory")
    other = CatalogueRecord(2, {**INDEX, "kind": "other"}, 0.95)
    assert (is_in_engine(other), missing_plugin(other)) == (False, "the index other")
