"""Arm effects of a catalogue in an engine, over HTTP: lists beside a comparison of all arms."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from api_client import Api, Json, running
from app.catalogues import catalogue_kinds
from app.records.records import CatalogueRecord
from memory_engine import MemorySource
from waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.rest]

INDEX = {"kind": "memory", "m": 16, "ef_construction": 100, "ef_search": None, "shortlist": 30}
ARMS, DIM, KEYS, K = 400, 3, 30, 5
RNG = np.random.default_rng(5)
FEATURES = {f"a{place}": row for place, row in enumerate(RNG.normal(size=(ARMS, DIM)))}
EFFECTS = {arm: float(effect) for arm, effect in zip(FEATURES, RNG.normal(size=ARMS), strict=True)}
TASTES = {f"u{key}": row for key, row in enumerate(RNG.normal(size=(KEYS, DIM)))}
EVEN = {arm for arm in FEATURES if int(arm[1:]) % 2 == 0}
PATH = "/v1/bandits/b/arm-effects"


@pytest.fixture
async def api(store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Api]:
    """A bandit with effects of half the arms, whose engine has all of them."""
    monkeypatch.setitem(catalogue_kinds.ENGINE_KINDS, "memory", MemorySource())  # type: ignore[arg-type]
    async with running(store_url, tmp_path) as api:
        await api.app.service.catalogues.create("c", CatalogueRecord(DIM, dict(INDEX), 0.95))
        await put(api, FEATURES)

        async def is_copied() -> bool:
            index = (await api.ok("GET", "/v1/catalogues/c"))["index"]
            return bool(index["collection"]) and not index["pending"] and not index["overlay"]

        await wait_until(is_copied, what="the engine has every arm")
        yield api


async def put(api: Api, arms: dict[str, np.ndarray]) -> None:
    rows = [
        {"id": arm, "features": row.tolist(), "metadata": {"even": arm in EVEN}} for arm, row in arms.items()
    ]
    await api.ok("PUT", "/v1/catalogues/c/arms", {"arms": rows})


async def teach(api: Api, **fields: Any) -> None:
    """Make a bandit and observe: first what makes a prior, then what teaches arms."""
    body = {"catalogue": "c", "policy": "sub_ts", "scope": "per_key", "intercept": False, "log": {}, **fields}
    assert (await api.ok("PUT", "/v1/bandits/b", body, 201))["arm_effects"] == "auto"
    rng = np.random.default_rng(6)
    for part in range(2):
        rows = []
        for key, taste in TASTES.items():
            for arm in rng.choice(ARMS // 2, 20, replace=False):
                value = FEATURES[f"a{arm}"] @ taste + EFFECTS[f"a{arm}"] + 0.1 * rng.normal()
                rows.append({"id": f"{part}-{key}-{arm}", "key": key, "arm": f"a{arm}", "value": value})
        await api.observe("b", *rows)
        await api.ok("POST", "/v1/bandits/b/prior/refresh", {})


async def best(
    api: Api, key: str, among: Collection[str] = FEATURES.keys(), features: dict[str, Any] = FEATURES
) -> list[str]:
    """The arms of largest estimate, by the learner and the effects that the service shows."""
    theta = np.array((await api.ok("GET", f"/v1/bandits/b/learners/{key}"))["theta"])
    effects = {item["arm"]: item["effect"] for item in await api.listed(PATH)}
    worth = {arm: features[arm] @ theta + effects.get(arm, 0.0) for arm in among}
    return sorted(worth, key=worth.__getitem__, reverse=True)[:K]


async def chosen(api: Api, key: str, **more: Any) -> list[str]:
    choice = await api.choose("b", key=key, k=K, **more)
    assert choice["exact"] is False
    return ids(choice)


def ids(choice: Json) -> list[str]:
    return [arm["id"] for arm in choice["arms"]]


async def test_lists_are_those_of_a_comparison_of_all_arms_and_follow_them(api: Api):
    await teach(api, exploration=0)
    summary = await api.ok("GET", PATH, params={"limit": 1})
    assert 0.7 < summary["spread"] < 1.3

    async def has_head() -> bool:  # it is read in the background
        return [await chosen(api, key) for key in TASTES] == [await best(api, key) for key in TASTES]

    await wait_until(has_head, what="choices compare the arms of largest effect")
    key = "u1"
    wanted = await best(api, key)
    assert await chosen(api, key, filter={"even": True}) == await best(api, key, EVEN)
    assert await chosen(api, key, exclude=wanted[:2]) == await best(
        api, key, [arm for arm in FEATURES if arm not in wanted[:2]]
    )
    dry = await api.ok("POST", "/v1/bandits/b/choose", {"key": key, "k": K, "dry_run": True})
    (item,) = [item for item in await api.listed(PATH) if item["arm"] == wanted[0]]
    assert ids(dry) == wanted
    assert dry["arms"][0]["effect"] == pytest.approx(item["effect"])
    # An arm that is gone is not shown again, and one with other features begins anew.
    await api.ok("DELETE", f"/v1/catalogues/c/arms/{wanted[0]}", status=204)
    features = {arm: row for arm, row in FEATURES.items() if arm != wanted[0]}
    features[wanted[1]] = -FEATURES[wanted[1]]
    await put(api, {wanted[1]: features[wanted[1]]})
    again = await chosen(api, key)
    assert wanted[0] not in again
    others = [arm for arm in features if arm != wanted[1]]
    assert [arm for arm in again if arm != wanted[1]] == (await best(api, key, others))[: len(again)]


async def test_a_choice_is_drawn_logged_and_explained_with_effects(api: Api):
    await teach(api)

    found: list[tuple[Json, Json]] = []

    async def is_repeated() -> bool:  # once the head is read, which a choice does not wait for
        choice = await api.choose("b", key="u2", k=K, seed=3)

        async def explanation() -> Json | None:
            body = {"decision": choice["decision"]}
            answer = await api.call("POST", "/v1/bandits/b/log/explain", body)
            return None if answer.status_code == 404 else answer.json()

        explained: Json = await wait_until(explanation, what="the row is written")
        found.append((choice, explained))
        return bool(explained["repeated"])

    await wait_until(is_repeated, what="a choice is the same again")
    choice, explained = found[-1]
    assert choice["effects_version"] > 0
    assert explained["changed"] == []
    effects = {item["arm"]: item["effect"] for item in await api.listed(PATH)}
    for arm in explained["candidates"]:
        assert arm["effect"] == pytest.approx(effects.get(arm["id"], 0.0), abs=1e-6)
    await api.reward({"decision": choice["decision"], "arm": ids(choice)[0], "value": 1.0})
    row = (await api.listed("/v1/bandits/b/log"))[0]
    assert [arm["effect"] for arm in row["arms"]] == pytest.approx(
        [effects.get(arm, 0.0) for arm in ids(choice)], abs=1e-6
    )


async def test_a_patch_switches_them_off_and_on(api: Api):
    await api.ok("PUT", "/v1/bandits/b", {"catalogue": "c", "policy": "sub_ts", "scope": "per_key"}, 201)
    for setting in ("off", "auto"):
        changed = await api.ok("PATCH", "/v1/bandits/b", {"arm_effects": setting})
        assert changed["arm_effects"] == setting
