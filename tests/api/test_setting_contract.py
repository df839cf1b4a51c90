"""What holds whatever a bandit is set to: filter, holdout, log, move, forgetting, erasure.

``SETTINGS`` is a table. What a setting means for a learner has tests of its own.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from api_client import Api, Json, running
from app.fold.replay import compare
from store_clients import traces
from store_server import patient_store
from waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.rest]

DIM, ARMS = 3, 24
OLD = np.random.default_rng(8).normal(size=(ARMS, DIM))
NEW = OLD @ np.linalg.qr(np.random.default_rng(9).normal(size=(DIM, DIM)))[0]
EVEN: Json = {"filter": {"even": True}}
OWN: Json = {"id": "n0", "features": [1.0, 0.5, -0.5], "metadata": {"even": True}}


@dataclass(frozen=True)
class Setting:
    """``settings`` of a bandit, what its requests say besides, and what each of its rewards says."""

    settings: Json
    asked: Json = field(default_factory=dict)
    told: Json = field(default_factory=dict)


SETTINGS = {
    "none": Setting({}),
    "no intercept": Setting({"intercept": False}),
    "a context": Setting({"context": {"dim": 2}, "interactions": 2}, {"context": [0.5, -1.0]}),
    "signals": Setting({"signals": {"click": {}, "buy": {}}}, {"weights": {"buy": 2.0}}, {"signal": "buy"}),
    "stated places": Setting({"position": {"examination": [1.0, 0.5]}}),
    "learned places": Setting({"position": "auto"}),
    "a half-life": Setting({"half_life_s": 3_600.0}),
    "a plain prior": Setting({"prior": "plain", "ridge": 1.0, "exploration": 1.0}),
    "effects of arms": Setting({"prior": "learned", "arm_effects": "auto"}),
    "a default": Setting({"reward": {"wait_s": 3_600.0, "default": -0.5}}),
    "rewards that add up": Setting({"reward": {"aggregate": "sum"}}, told={"reward_id": "r"}),
    "the last reward": Setting({"reward": {"aggregate": "last"}}, told={"at": 1_000}),
    "candidates": Setting({}, {"candidates": ["a1", "a2", "a3", "a4", "a6", "gone", OWN]}),
    "match": Setting(
        {"match": {"fields": [{"name": "km", "kind": "number"}]}},
        {"candidates": ["a1", "a3", {"id": "a4", "match": {"km": 2.0}}, {**OWN, "match": {"km": -1.0}}]},
    ),
}
every_setting = pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS.keys())


@pytest.fixture
async def api(store_url: str, tmp_path: Path) -> AsyncIterator[Api]:
    """An application with two catalogues of the same arms, and no bandit."""
    async with running(store_url, tmp_path) as api:
        for name, features in (("old", OLD), ("new", NEW)):
            await api.ok("PUT", f"/v1/catalogues/{name}", {"dim": DIM}, 201)
            arms = [
                {"id": f"a{place}", "features": row.tolist(), "metadata": {"even": place % 2 == 0}}
                for place, row in enumerate(features)
            ]
            await api.ok("PUT", f"/v1/catalogues/{name}/arms", {"arms": arms})
        yield api


async def build(api: Api, setting: Setting, **more: Any) -> None:
    """A bandit of which six keys have had two rewards each."""
    body = {"catalogue": "old", "policy": "softmax", "scope": "per_key", "log": {}, **setting.settings}
    await api.ok("PUT", "/v1/bandits/b", {**body, **more}, 201)
    for number in range(6):
        choice = await choose(api, setting, f"u{number}")
        await api.reward(*rewards_of(setting, choice))
    if setting.settings.get("prior") == "learned":
        await api.ok("POST", "/v1/bandits/b/prior/refresh")


async def choose(api: Api, setting: Setting, key: str, **body: Any) -> Json:
    return await api.choose("b", key=key, k=2, **setting.asked, **body)


def rewards_of(setting: Setting, choice: Json) -> list[Json]:
    return [
        {"decision": choice["decision"], "arm": arm["id"], "value": 1.0 - place, **setting.told}
        for place, arm in enumerate(choice["arms"])
    ]


async def explained(api: Api, choice: Json) -> Json:
    """How a choice is made again from its row."""

    async def found() -> Json | None:
        answer = await api.call("POST", "/v1/bandits/b/log/explain", {"decision": choice["decision"]})
        return answer.json() if answer.status_code == 200 else None

    return await wait_until(found, what="the row is written") or {}


def even_arms(setting: Setting) -> set[str]:
    """Arms that ``EVEN`` lets in, of those that a request of the setting may be answered with."""
    named = [each if isinstance(each, str) else each["id"] for each in setting.asked.get("candidates", [])]
    even = {"n0", *(f"a{place}" for place in range(0, ARMS, 2))}
    return even & {*named} if named else even - {"n0"}


@every_setting
async def test_a_choice_keeps_to_its_filter_and_is_made_again_from_its_row(api: Api, setting: Setting):
    await build(api, setting)
    for key in ("u1", "new"):
        choice = await choose(api, setting, key, **EVEN)
        chosen = [arm["id"] for arm in choice["arms"]]
        assert len(chosen) == 2
        assert set(chosen) <= even_arms(setting)
        assert choice["eligible"] == len(even_arms(setting))
        found = await explained(api, choice)
        assert (found["repeated"], found["changed"]) == (True, [])
        assert [arm["id"] for arm in found["row"]["arms"]] == chosen


@every_setting
async def test_a_holdout_is_drawn_by_chance_logged_and_teaches(api: Api, setting: Setting):
    await build(api, setting, holdout={"share": 1.0})
    choice = await choose(api, setting, "held", **EVEN)
    assert choice["group"] == "holdout"
    assert {arm["id"] for arm in choice["arms"]} <= even_arms(setting)
    first = 1.0 / len(even_arms(setting))
    assert [arm["propensity"] for arm in choice["arms"]] == pytest.approx([first, first / (1.0 - first)])
    found = await explained(api, choice)
    assert (found["repeated"], found["changed"]) == (True, [])
    assert (await api.reward(*rewards_of(setting, choice)))["accepted"] == 2
    assert (await api.learner("b", "held"))["observations"] == 2


@every_setting
async def test_a_move_loses_no_reward_and_counts_none_twice(api: Api, setting: Setting, store_url: str):
    await build(api, setting)
    early, late = await choose(api, setting, "u1"), await choose(api, setting, "u1")
    await api.reward(*rewards_of(setting, early))
    await api.ok("POST", "/v1/bandits/b/move", {"catalogue": "new"})
    assert (await api.reward(*rewards_of(setting, early)))["duplicate"] == 2
    assert (await api.reward(*rewards_of(setting, late)))["accepted"] == 2
    after = await choose(api, setting, "u1", **EVEN)
    assert {arm["id"] for arm in after["arms"]} <= even_arms(setting)
    assert (await api.reward(*rewards_of(setting, after)))["accepted"] == 2
    assert (await api.learner("b", "u1"))["observations"] == 8

    async def is_carried() -> bool:
        return "move" not in await api.ok("GET", "/v1/bandits/b")

    await wait_until(is_carried, what="all learners are carried")
    assert (await api.learner("b", "u1"))["observations"] == 8
    store = patient_store(store_url)
    await store.open()
    replayed = await compare(store)
    await store.close()
    assert replayed.different == []
    assert replayed.equal >= 6


@every_setting
async def test_a_key_that_is_forgotten_begins_anew(api: Api, setting: Setting):
    await build(api, setting)
    choice = await choose(api, setting, "u1", event_id="e")
    await api.ok("DELETE", "/v1/bandits/b/learners/u1", status=204)
    forgotten = await api.learner("b", "u1")
    assert (forgotten["version"], forgotten["observations"]) == (0, 0)
    receipt = await api.reward(*rewards_of(setting, choice))
    assert [each["code"] for each in receipt["rejected"]] == ["forgotten"] * 2
    again = await choose(api, setting, "u1", event_id="e")
    assert again["decision"] != choice["decision"]
    assert (await api.reward(*rewards_of(setting, again)))["accepted"] == 2
    assert (await api.learner("b", "u1"))["observations"] == 2
    assert (await api.learner("b", "u2"))["observations"] == 2


@every_setting
async def test_of_a_bandit_that_is_deleted_no_key_is_left(api: Api, setting: Setting):
    await build(api, setting)
    uid = (await api.app.service.bandits.get("b")).uid
    await choose(api, setting, "u1", event_id="e")
    await choose(api, setting, "u1", activate=False)
    assert await traces(api.store, uid)
    await api.ok("DELETE", "/v1/bandits/b", status=204)
    await api.stored()  # all deletions are finished
    left = await traces(api.store, uid)
    # The newest entry of a log stays, and what was changed and deleted is pushed out by what comes later.
    assert [trace for trace in left if ": " not in trace] == []
    assert {trace.split(": ")[0].split(":")[-1] for trace in left} <= {"changes", "deleted", "log"}, left
