"""Candidates under quotas, caps, effects and holdouts, and of a catalogue whose arms are in an engine."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from api_client import Api, Json, running
from app.catalogues import catalogue_kinds
from app.records.records import CatalogueRecord
from memory_engine import MemorySource
from shortlist_service.tokens import Decision, decision_of, raw_of
from waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.rest]

DAY = 86_400
DIM, KEYS = 3, 20
FEATURES = {f"a{place}": row for place, row in enumerate(np.random.default_rng(5).normal(size=(60, DIM)))}
OWN: list[Json] = [
    {"id": f"n{place}", "features": [place, 1.0, 0.0], "metadata": {"shop": place % 2}} for place in range(4)
]


def ids(answer: Json) -> list[str]:
    return [arm["id"] for arm in answer["arms"]]


async def catalogue(api: Api, name: str) -> None:
    await api.ok("PUT", f"/v1/catalogues/{name}", {"dim": DIM}, 201)
    await put(api, name)


async def put(api: Api, name: str) -> None:
    rows = [
        {"id": arm, "features": row.tolist(), "metadata": {"shop": int(arm[1:]) % 2}}
        for arm, row in FEATURES.items()
    ]
    await api.ok("PUT", f"/v1/catalogues/{name}/arms", {"arms": rows})


async def test_quotas_count_candidates_by_their_id_and_by_their_values(shared: Api):
    """Also of an arm that the request brings under the id of one of the catalogue."""
    await catalogue(shared, "quotas")
    await shared.bandit("quotas", "quotas", policy="softmax")
    path = "/v1/bandits/quotas/quotas"
    for name, of in {"a1": {"arm": "a1"}, "a5": {"arm": "a5"}, "shop": {"filter": {"shop": 0}}}.items():
        await shared.ok("PUT", f"{path}/{name}", {**of, "most": 2, "per_s": DAY}, 201)
    shown: list[str] = []
    brought = {**OWN[1], "id": "a5"}
    for _ in range(8):
        answer = await shared.choose("quotas", candidates=["a0", "a1", "a2", brought, *OWN], k=3)
        shown += ids(answer)
    of_shop_0 = [arm for arm in shown if int(arm[1:]) % 2 == 0]
    assert (shown.count("a1"), shown.count("a5"), len(of_shop_0)) == (2, 2, 2)
    assert set(shown[-6:]) == {"n1", "n3"}
    assert (await shared.ok("GET", f"{path}/shop"))["used"] == 2


async def test_caps_count_candidates_by_their_id_and_by_their_values(shared: Api):
    await catalogue(shared, "caps")
    for name, by in {"by-arm": {}, "by-shop": {"by": "shop"}}.items():
        rule = {"most": 1, "within_s": DAY, **by}
        await shared.bandit(name, "caps", scope="per_key", repeats=rule)
        shown: list[str] = []
        body = {"candidates": ["a0", *OWN], "key": "ann", "k": 2, "include": ["ranking"]}
        for _ in range(3):
            answer = await shared.call("POST", f"/v1/bandits/{name}/choose", body)
            if answer.is_success:
                ranking = answer.json()["ranking"]
                left_out = [each["id"] for each in ranking if each.get("eligible") is False]
                assert set(left_out) == set(shown) if name == "by-arm" else set(left_out) >= set(shown)
                shown += ids(answer.json())
        assert len(shown) == len(set(shown))
        assert len(shown) == (5 if name == "by-arm" else 2)


async def taught(api: Api, name: str) -> dict[str, float]:
    """A bandit whose arms have effects. Returns those."""
    await api.ok(
        "PUT",
        f"/v1/bandits/{name}",
        {"catalogue": name, "policy": "sub_ts", "scope": "per_key", "log": {}},
        201,
    )
    rng = np.random.default_rng(6)
    effects = dict(zip(FEATURES, np.random.default_rng(7).normal(size=60), strict=True))
    for part in range(2):
        rows = []
        for key in range(KEYS):
            taste = np.random.default_rng(key).normal(size=DIM)
            for arm in rng.choice(list(FEATURES), 15, replace=False):
                value = float(FEATURES[arm] @ taste + effects[arm] + 0.1 * rng.normal())
                rows.append({"id": f"{part}-{key}-{arm}", "key": f"u{key}", "arm": arm, "value": value})
        await api.observe(name, *rows)
        await api.ok("POST", f"/v1/bandits/{name}/prior/refresh", {})
    path = f"/v1/bandits/{name}/arm-effects"
    return {item["arm"]: item["effect"] for item in await api.listed(path)}


async def check_effects(api: Api, name: str) -> None:
    """Arms of the catalogue have theirs; one that the request brings has none, also by the same id."""
    effects = await taught(api, name)
    assert np.std(list(effects.values())) > 0.5
    brought = {"id": "a1", "features": FEATURES["a1"].tolist()}
    body: Json = {"key": "u1", "k": 4, "candidates": ["a0", brought, "a2", "a3"]}

    async def shown() -> bool:
        return "effect" in (await api.choose(name, **body, dry_run=True))["arms"][0]

    await wait_until(shown, what="the effects are served")
    dry = await api.choose(name, **body, dry_run=True)
    for arm in dry["arms"]:
        expected = 0.0 if arm["id"] == "a1" else effects[arm["id"]]
        assert arm["effect"] == pytest.approx(expected, abs=1e-6)
    learner = await api.learner(name, "u1")
    offset = learner.get("offset", 0.0)
    (estimate,) = [arm["estimate"] for arm in dry["arms"] if arm["id"] == "a1"]
    theta = np.array(learner["theta"])
    own = FEATURES["a1"].astype(np.float32).astype(float)
    assert estimate == pytest.approx(float(own @ theta) + offset, abs=1e-6)
    choice = await api.choose(name, **body)
    decision: Decision = decision_of(raw_of(choice["decision"]))
    for place, arm in enumerate(decision.arms):
        pair: Any = decision.effect_at(place)
        expected = np.frombuffer(pair.expected, "<f4")
        assert math.isnan(expected[0]) == (arm == "a1")
        assert (np.frombuffer(pair.served, "<f4")[0] == 0.0) == (arm == "a1")
    rewards = [{"decision": choice["decision"], "arm": arm, "value": 1.0} for arm in decision.arms]
    assert (await api.reward(*rewards))["accepted"] == 4


async def test_effects_are_of_arms_of_the_catalogue_alone(shared: Api):
    await catalogue(shared, "effects")
    await check_effects(shared, "effects")


async def test_candidates_of_a_catalogue_in_an_engine_are_read_from_the_store(
    store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(catalogue_kinds.ENGINE_KINDS, "memory", MemorySource())  # type: ignore[arg-type]
    index = {"kind": "memory", "m": 16, "ef_construction": 100, "ef_search": None, "shortlist": 30}
    async with running(store_url, tmp_path) as api:
        await api.app.service.catalogues.create("c", CatalogueRecord(DIM, index, 0.95))
        await put(api, "c")
        await api.bandit("b", "c", exploration=0)
        await api.observe("b", {"id": "o", "arm": "a3", "value": 5.0})
        theta = np.array((await api.learner("b"))["theta"])
        named = ["a7", "a3", "gone", "a4", "a20"]
        answer = await api.choose("b", k=9, candidates=[*named, *OWN], include=["ranking"])
        rows = {arm: FEATURES[arm] for arm in named if arm in FEATURES} | {
            arm["id"]: np.array(arm["features"]) for arm in OWN
        }
        assert ids(answer) == sorted(rows, key=lambda arm: -float(rows[arm] @ theta))
        assert [each["id"] for each in answer["ranking"]] == ids(answer)
        assert (answer["unknown"], answer["exact"]) == (1, True)
        even = await api.choose("b", k=9, candidates=[*named, *OWN], filter={"shop": 0})
        assert set(ids(even)) == {"a4", "a20", "n0", "n2"}
        assert even["eligible"] == 4
        await api.refused("POST", "/v1/bandits/b/choose", {"candidates": ["x"]}, status=409, code="no_arms")
        match = {"fields": [{"name": "km", "kind": "number"}]}
        await api.bandit("m", "c", exploration=0, match=match)
        choice = await api.choose("m", candidates=[{"id": "a7", "match": {"km": 2.0}}])
        await api.reward({"decision": choice["decision"], "value": 1.0})
        x = np.append(FEATURES["a7"], 2.0)
        theta = np.array((await api.learner("m"))["theta"])
        np.testing.assert_allclose(theta, x / (1 + x @ x), atol=1e-9)
        sent: list[Any] = ["a7", {"id": "a3", "match": {"km": 9.0}}, {**OWN[1], "match": {"km": -9.0}}]
        assert ids(await api.choose("m", k=9, candidates=sent))[::2] == ["a3", "n1"]
        assert len(ids(await api.choose("m", k=9))) == 9
