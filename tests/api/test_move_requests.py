"""Moves: what is refused and said, and two processes that move."""

# ruff: noqa: F401, F811 - fixtures are imported

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_moving import (
    ARMS,
    MOVE,
    NEW,
    OLD,
    UNRELATED,
    D,
    api,
    assert_knows,
    assert_replay,
    by_id,
    carried,
    observe,
)

from api_client import Api, Json, running
from app.bandits.served_bandits import Bandits
from app.exposure_limits.bandit_quotas import BanditQuotas
from app.exposure_limits.quotas import Quotas
from app.storage.embedded.server import EmbeddedServer
from app.storage.redis_keys import LEFT
from waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.rest]


async def test_the_same_body_again_is_the_same_answer_and_changes_nothing(api: Api):
    await api.bandit("b", "old", scope="per_key")
    told = await observe(api)
    first = await api.ok("POST", MOVE, {"catalogue": "new", "carry": "map"})
    assert await api.ok("POST", MOVE, {"catalogue": "new", "carry": "map"}) == first
    await carried(api)
    assert await api.ok("POST", MOVE, {"catalogue": "new", "carry": "map"}) == first
    await assert_knows(api, NEW, told)
    assert (await api.ok("GET", "/v1/bandits/b"))["version"] == 2


async def test_a_dry_run_tells_the_same_and_changes_nothing(api: Api):
    await api.bandit("b", "old", scope="per_key")
    told, before = await observe(api), await api.stored()
    answer = await api.ok("POST", MOVE, {"catalogue": "new", "dry_run": True})
    assert await api.stored() == before
    await assert_knows(api, OLD, told)
    done = await api.ok("POST", MOVE, {"catalogue": "new"})
    assert {**done, "bandit_version": 1} == answer


async def test_decisions_of_before_teach_with_the_features_of_then_through_every_move(
    api: Api, store_url: str
):
    """Though their arms have others, or are gone, in later catalogues, and the first one is deleted."""
    third = NEW @ np.diag([1.0, 2.0, -1.0, 0.5])
    await api.catalogue("third", by_id(third))
    await api.bandit("b", "old", scope="per_key")
    told = await observe(api)
    shown = [await api.choose("b", key="u0") for _ in range(6)]
    arms = list(dict.fromkeys(choice["arms"][0]["id"] for choice in shown))
    moved = await api.ok("POST", MOVE, {"catalogue": "new"})
    assert moved["map"]["r2"] == pytest.approx(1.0, abs=1e-6)
    await api.put_arms("new", {arm: (7.0 * NEW[int(arm[1:])]).tolist() for arm in arms})
    await api.reward({"decision": shown[0]["decision"], "value": 1})
    await carried(api)
    await api.put_arms("new", {arm: NEW[int(arm[1:])].tolist() for arm in arms})
    await api.ok("POST", MOVE, {"catalogue": "third"})
    await api.ok("DELETE", "/v1/catalogues/old", status=204)
    await api.ok("POST", "/v1/catalogues/third/arms/delete", {"ids": arms})
    receipt = await api.reward(*({"decision": choice["decision"], "value": 1} for choice in shown))
    assert (receipt["accepted"], receipt["duplicate"]) == (5, 1)
    told += [{"key": "u0", "arm": choice["arms"][0]["id"], "value": 1.0} for choice in shown]
    await assert_knows(api, third, told)
    await carried(api)
    await assert_knows(api, third, told)
    await assert_replay(store_url)


async def test_where_the_new_catalogue_lacks_the_arm_it_teaches_with_the_map(api: Api, store_url: str):
    await api.bandit("b", "old", scope="per_key")
    shown = await api.choose("b", key="u0", k=3)
    arms = [arm["id"] for arm in shown["arms"]]
    await api.ok("POST", "/v1/catalogues/new/arms/delete", {"ids": arms})
    answer = await api.ok("POST", MOVE, {"catalogue": "new"})
    assert answer["arms"] == {"common": ARMS - 3, "only_from": 3, "only_to": 0}
    assert any("3 arms" in warning for warning in answer["warnings"])
    await api.reward(*({"decision": shown["decision"], "arm": arm, "value": 1} for arm in arms))
    rows = NEW[[int(arm[1:]) for arm in arms]]  # the map is exact
    learner = await api.learner("b", "u0", precision=True)
    np.testing.assert_allclose(learner["precision"], np.eye(D) + rows.T @ rows, atol=1e-5)
    await carried(api)
    await assert_replay(store_url)


async def test_the_old_catalogue_can_be_deleted(api: Api):
    await api.bandit("b", "old", scope="per_key")
    told = await observe(api)
    shown = await api.choose("b", key="u0")
    await api.refused("DELETE", "/v1/catalogues/old", status=409, code="conflict")
    await api.ok("POST", MOVE, {"catalogue": "new"})
    await api.refused("DELETE", "/v1/catalogues/new", status=409, code="conflict")
    await api.ok("DELETE", "/v1/catalogues/old", status=204)
    told.append({"key": "u0", "arm": shown["arms"][0]["id"], "value": 0.5})
    assert (await api.reward({"decision": shown["decision"], "value": 0.5}))["accepted"] == 1
    await assert_knows(api, NEW, told)
    await api.ok("DELETE", "/v1/bandits/b", status=204)
    await api.ok("DELETE", "/v1/catalogues/new", status=204)


async def test_features_of_a_catalogue_that_was_left_go_once_no_decision_needs_them(api: Api):
    await api.bandit("b", "old", scope="per_key")
    await api.ok("POST", MOVE, {"catalogue": "new"})
    uid = api.app.service.catalogues.served("old").uid
    registry = api.app.service.store.registry
    await api.ok("DELETE", "/v1/catalogues/old", status=204)

    async def stored() -> set[bytes]:
        return {key.rsplit(b":", 1)[1] for key in await api.store.keys(f"*{uid}*")}

    async def are_gone() -> bool:
        return b"features" not in await stored()

    assert await stored() == {b"counters", b"features"}
    assert uid not in await registry.deletions()
    day_ms = 86_400_000
    await api.store.hset(LEFT, uid, time.time_ns() // 1_000_000 - day_ms)
    await wait_until(are_gone, what="the features are gone")
    assert not await api.store.hexists(LEFT, uid)


async def test_none_begins_from_nothing(api: Api, store_url: str):
    await api.bandit("b", "old", scope="per_key")
    await observe(api)
    shown = await api.choose("b", key="u0")
    answer = await api.ok("POST", MOVE, {"catalogue": "new", "carry": "none"})
    assert (answer["carry"], answer["map"], answer["agreement"]) == ("none", None, None)
    assert "begin from nothing" in answer["warnings"][0]
    assert (await api.learner("b", "u1"))["observations"] == 0
    await carried(api)
    assert (await api.ok("GET", "/v1/bandits/b/learners"))["items"] == []
    # of before: nothing of it is carried either
    assert (await api.reward({"decision": shown["decision"], "value": 1.0}))["accepted"] == 1
    assert (await api.learner("b", "u0"))["observations"] == 0
    choice = await api.choose("b", key="u0")
    await api.reward({"decision": choice["decision"], "value": 1.0})
    await assert_knows(api, NEW, [{"key": "u0", "arm": choice["arms"][0]["id"], "value": 1.0}])
    await assert_replay(store_url)


async def test_features_that_have_nothing_in_common_are_refused_and_what_to_do_is_said(api: Api):
    await api.catalogue("other", by_id(UNRELATED))
    await api.bandit("b", "old", scope="per_key")
    told = await observe(api)
    dry = await api.ok("POST", MOVE, {"catalogue": "other", "dry_run": True})
    assert dry["map"]["r2"] < 0.1
    assert "would be refused" in dry["warnings"][0]
    for body in ({}, {"carry": "map"}, {"carry": "auto"}):
        refusal = await api.refused(
            "POST", MOVE, {"catalogue": "other", **body}, status=409, code="too_different"
        )
        assert "shortlist import --history" in refusal["detail"]
    await assert_knows(api, OLD, told)
    await api.ok("POST", MOVE, {"catalogue": "other", "carry": "none"})


async def test_what_cannot_be_is_refused_and_changes_nothing(api: Api):
    await api.catalogue("strangers", by_id(NEW, "z"))
    await api.bandit("b", "old", scope="per_key")
    told = await observe(api)
    await api.refused("POST", MOVE, {"catalogue": "nowhere"}, status=404, code="not_found")
    await api.refused("POST", MOVE, {"catalogue": "strangers"}, loc=["body", "catalogue"])
    await api.refused("POST", MOVE, {"catalogue": "old"}, loc=["body", "catalogue"])
    for gone in ("log", "restore"):
        document = await api.refused("POST", MOVE, {"catalogue": "new", "carry": gone}, loc=["body", "carry"])
        assert "shortlist import --history" in document["errors"][0]["message"]
    await api.refused("POST", MOVE, {"catalogue": "new", "carry": "all"}, loc=["body", "carry"])
    await api.refused("POST", MOVE, {"catalogue": "new", "dryrun": True}, loc=["body", "dryrun"])
    await api.refused("POST", "/v1/bandits/x/move", {"catalogue": "new"}, status=404, code="not_found")
    for body in ({"catalogue": "strangers"}, {"catalogue": "old"}):
        answer = await api.ok("POST", MOVE, {**body, "dry_run": True})
        assert "would be refused" in answer["warnings"][0]
    await assert_knows(api, OLD, told)
    assert (await api.ok("GET", "/v1/bandits/b"))["version"] == 1


async def test_learners_that_would_be_too_large_are_refused(api: Api):
    await api.catalogue("wide", {f"a{place}": [1.0] * 250 for place in range(ARMS)})
    await api.bandit("b", "old", scope="per_key", context={"dim": 2})
    document = await api.refused(
        "POST", MOVE, {"catalogue": "wide", "carry": "map"}, loc=["body", "catalogue"]
    )
    assert "the largest interactions that fits is 3" in document["detail"]


async def test_another_move_while_learners_are_carried_is_a_conflict(store_url: str, tmp_path: Path):
    """Without a worker nothing is carried; readers carry what they read."""
    async with running(store_url, tmp_path) as api:
        await api.catalogue("old", by_id(OLD))
        await api.catalogue("new", by_id(NEW))
        await api.bandit("b", "old", scope="per_key")
        told = await observe(api)
    async with running(store_url, tmp_path, empty=False, worker=False) as api:
        first = await api.ok("POST", MOVE, {"catalogue": "new"})
        bandit = await api.ok("GET", "/v1/bandits/b")
        assert bandit["move"] == {"from": "old", "to": "new", "carry": "map", "learners": 3, "carried": 0.0}
        await api.refused("POST", MOVE, {"catalogue": "old"}, status=409, code="conflict")
        dry = await api.ok("POST", MOVE, {"catalogue": "old", "dry_run": True})
        assert "would be refused" in dry["warnings"][0]
        assert await api.ok("POST", MOVE, {"catalogue": "new"}) == first
        await assert_knows(api, NEW, told)
        exported = await api.ok("GET", "/v1/bandits/b/learners?include=state")
    async with running(store_url, tmp_path, empty=False) as api:
        await carried(api)
        await assert_knows(api, NEW, told)
        assert await api.ok("GET", "/v1/bandits/b/learners?include=state") == exported
    await assert_replay(store_url, 3)


async def test_quotas_and_frequency_caps_go_on(api: Api):
    await api.bandit("b", "old", scope="per_key", repeats={"most": 1, "within_s": 600})
    for place in range(2):
        await api.ok("PUT", f"/v1/bandits/b/quotas/q{place}", {"arm": f"a{place}", "most": 1}, 201)
    had = {(await api.choose("b", key="u0"))["arms"][0]["id"] for _ in range(10)}
    await api.ok("POST", "/v1/catalogues/new/arms/delete", {"ids": ["a1"]})
    answer = await api.ok("POST", MOVE, {"catalogue": "new"})
    assert any("a1" in warning for warning in answer["warnings"])
    later = [(await api.choose("b", key="u0"))["arms"][0]["id"] for _ in range(ARMS - 1 - len(had))]
    assert not had & set(later)
    assert len(set(later)) == len(later)
    # back to a catalogue that was there before the other: quotas follow its rows again
    await carried(api)
    await api.ok("POST", MOVE, {"catalogue": "old"})
    shown = [arm["id"] for arm in (await api.choose("b", key="u1", k=ARMS))["arms"]]
    assert len(shown) == len({*shown}) >= ARMS - 2
    await api.ok("PUT", "/v1/bandits/b/quotas/q2", {"arm": "a2", "most": 1}, 201)


@pytest.fixture
async def two_processes(store_url: str, tmp_path: Path) -> AsyncIterator[tuple[Api, Api]]:
    """Two processes, and a bandit with a quota on 20 arms, whose rows are others in the new catalogue."""
    arms = {
        name: [
            {
                "id": f"a{place}",
                "features": row.tolist(),
                **({"metadata": {"brand": "x"}} if place < 20 else {}),
            }
            for place, row in enumerate(features)
        ]
        for name, features in (("old", OLD), ("new", NEW))
    }
    async with running(store_url, tmp_path / "one") as api:
        for name, own in arms.items():
            await api.ok("PUT", f"/v1/catalogues/{name}", {"dim": D}, 201)
            await api.ok("PUT", f"/v1/catalogues/{name}/arms", {"arms": own if name == "old" else own[::-1]})
        await api.bandit("b", "old", scope="per_key")
        await api.ok("PUT", "/v1/bandits/b/quotas/q", {"filter": {"brand": "x"}, "most": 30}, 201)
        async with running(store_url, tmp_path / "two", empty=False, worker=False) as other:
            yield api, other


@pytest.mark.parametrize(
    ("owner", "name", "call"),
    [(BanditQuotas, "charge", "choice"), (Quotas, "count_rewards", "reward")],
    ids=["choice", "reward"],
)
async def test_what_began_before_the_switch_ends_after_it(
    two_processes: tuple[Api, Api], monkeypatch: pytest.MonkeyPatch, owner: type, name: str, call: str
):
    """Meanwhile another choice is made of the new catalogue."""
    api, _ = two_processes
    await api.ok("PUT", "/v1/bandits/b/quotas/r", {"arm": "a3", "most": 9, "counts": "rewarded"}, 201)
    await api.ok("PUT", "/v1/bandits/b/quotas/s", {"arm": "a45", "most": 1}, 201)
    decision = (await api.choose("b", key="u0", k=ARMS))["decision"]
    calls: dict[str, tuple[str, str, Json, int]] = {
        "choice": ("POST", "/v1/bandits/b/choose", {"key": "u1", "k": 5}, 200),
        "reward": (
            "POST",
            "/v1/rewards",
            {"rewards": [{"decision": decision, "arm": "a3", "value": 1.0}]},
            202,
        ),
    }
    begun, go_on, step = asyncio.Event(), asyncio.Event(), getattr(owner, name)

    async def waits(*args: Any, **options: Any) -> Any:
        if not begun.is_set():
            begun.set()
            await go_on.wait()
        return await step(*args, **options)

    monkeypatch.setattr(owner, name, waits)
    method, path, body, status = calls[call]
    old = asyncio.create_task(api.ok(method, path, body, status))
    await begun.wait()
    await api.ok("POST", MOVE, {"catalogue": "new", "carry": "map"})
    assert (await api.choose("b", key="u2"))["bandit_version"] == 2
    go_on.set()
    await old
    shown = (await api.choose("b", key="u3", k=ARMS))["arms"]
    assert len({arm["id"] for arm in shown}) == len(shown) >= 40 - 1


async def test_the_log_weighs_arms_by_how_often_they_were_shown(api: Api):
    await api.bandit("b", "old", scope="per_key", log={})
    for number in range(10):
        await api.choose("b", key=f"u{number}")

    async def is_written() -> bool:
        return len((await api.ok("GET", "/v1/bandits/b/log"))["items"]) == 10

    await wait_until(is_written, what="the rows of ten choices")
    answer = await api.ok("POST", MOVE, {"catalogue": "new"})
    assert answer["map"]["shown"] == "log"
    rows = (await api.ok("GET", "/v1/bandits/b/log"))["items"]
    assert len(rows) == 10
    await api.ok("POST", "/v1/bandits/b/log/explain", {"decision": rows[0]["decision"]})
    report = await api.ok("GET", "/v1/bandits/b/report")
    (move,) = report["moves"]
    assert (move["from"], move["to"], report["groups"][0]["decisions"]) == (
        "old",
        "new",
        report["as_of_decisions"],
    )
    assert any("moved from old to new" in words for words in report["warnings"])
    later = await api.ok("GET", f"/v1/bandits/b/report?from={move['time'] + 1}")
    assert "moves" not in later


async def test_elimination_begins_again_and_says_so(api: Api):
    await api.bandit("b", "old", policy="linear_elim")
    told = [{"id": f"o{n}", "arm": f"a{n}", "value": 0.5} for n in range(20)]
    await api.observe("b", *told)
    await api.choose("b")
    answer = await api.ok("POST", MOVE, {"catalogue": "new"})
    assert any("elimination begins again" in warning for warning in answer["warnings"])
    assert (await api.choose("b", k=2))["arms"]
    assert (await api.ok("GET", "/v1/bandits/b/learners/_global/sets"))["eliminated"] >= 0


async def test_a_context_has_the_directions_of_another_dimension_where_learners_begin_anew(api: Api):
    await api.catalogue("wide", {f"a{place}": [1.0, place, -place, place % 3, 0.5] for place in range(ARMS)})
    await api.catalogue("others", {"x": [1.0] * (D + 1)})
    await api.catalogue("empty", {}, dim=D + 1)
    await api.bandit("b", "old", context={"dim": 2}, interactions=2)
    for catalogue in ("others", "empty"):
        await api.refused("POST", MOVE, {"catalogue": catalogue}, loc=["body", "catalogue"])
    await api.ok("POST", MOVE, {"catalogue": "wide", "carry": "none"})
    choice = await api.choose("b", context=[1.0, -1.0])
    assert (await api.reward({"decision": choice["decision"], "value": 1.0}))["accepted"] == 1
    moved = await api.learner("b", "_global")
    await api.bandit("fresh", "wide", context={"dim": 2}, interactions=2)
    told = {"id": "o", "arm": choice["arms"][0]["id"], "value": 1.0, "context": [1.0, -1.0]}
    await api.observe("fresh", told)
    assert moved["theta"] == (await api.learner("fresh", "_global"))["theta"]


async def test_what_a_learner_knew_of_other_features_serves_no_choice(
    api: Api, monkeypatch: pytest.MonkeyPatch
):
    await api.catalogue("wide", {f"a{place}": [1.0, place, -place, 0.5, 2.0] for place in range(ARMS)})
    await api.bandit("b", "old")
    await api.observe("b", {"id": "o", "arm": "a1", "value": 1.0})
    await api.choose("b")
    monkeypatch.setattr(api.app.service.learners, "patience_s", 0.0)  # a store that takes long
    await api.ok("POST", MOVE, {"catalogue": "wide", "carry": "none"})
    for _ in range(2):
        assert (await api.choose("b"))["catalogue_version"] == 1


async def test_maps_of_moves_have_room_until_the_store_is_nearly_full(store_url: str, tmp_path: Path):
    rng, wide = np.random.default_rng(5), 400  # a map and its residual are 2.6 MB
    arms = by_id(rng.normal(size=(2 * ARMS, wide)))
    with EmbeddedServer(tmp_path / "store") as server:
        async with running(server.url, tmp_path, max_store_mb=1 << 20) as api:
            for name in ("old", "new"):
                await api.catalogue(name, arms)
            await api.bandit("b", "old")
            used = (await api.store.info("memory"))["used_memory"]
        most = {"max_store_mb": (used >> 20) + 3, "empty": False}
        async with running(server.url, tmp_path, **most) as api:
            move = {"catalogue": "new", "carry": "map"}
            dry = await api.ok("POST", "/v1/bandits/b/move", {**move, "dry_run": True})
            assert any("SHORTLIST_MAX_STORE_MB" in warning for warning in dry["warnings"])
            await api.refused("POST", "/v1/bandits/b/move", move, status=429, code="quota_reached")
            await api.ok("POST", "/v1/bandits/b/move", {"catalogue": "new", "carry": "none"})
