"""Catalogues of the kind "milvus" over HTTP: what they share with others, what they refuse, what is late."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from pymilvus import MilvusClient, MilvusException
from pymilvus.grpc_gen import common_pb2, milvus_pb2, milvus_pb2_grpc

from api_client import assert_problem, running
from app.engines.engine_index import EngineIndex
from app.platform.errors import StartupError
from milvus_engines import MilvusApi, running_on_milvus
from shortlist_milvus import source
from shortlist_milvus.engine import MilvusEngine
from waiting import DEADLINE_S, wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.rest]

DIM = 4
ALL_ARMS = "needs all arms in memory"


@pytest.fixture(scope="module")
async def shared(shared_store_url, tmp_path_factory, milvus_uri) -> AsyncIterator[MilvusApi]:
    folder = tmp_path_factory.mktemp("milvus-api")
    async with running_on_milvus(shared_store_url, folder, milvus_uri) as api:
        yield api


def arms_of(count: int, seed: int = 0) -> dict[str, list[float]]:
    rows = np.random.default_rng(seed).normal(size=(count, DIM))
    return {f"a{i}": row.tolist() for i, row in enumerate(rows)}


def index_of(api: MilvusApi, name: str) -> EngineIndex:
    index = api.app.service.catalogues.served(name).index
    assert isinstance(index, EngineIndex)
    return index


async def greedy(api: MilvusApi, name: str) -> None:
    """A bandit that takes what it expects most of, over the catalogue of the same name."""
    body = {"catalogue": name, "policy": "sub_ts", "exploration": 0, "intercept": False}
    await api.ok("PUT", f"/v1/bandits/{name}", body, 201)


async def test_a_catalogue_says_that_it_is_in_milvus_and_how_good_that_is(shared):
    await shared.catalogue("says", arms_of(200))
    assert (await shared.ok("GET", "/v1/catalogues/says"))["size"] == 200
    index = await shared.followed("says")
    assert (index["kind"], index["requested"], index["failure"]) == ("milvus", "milvus", None)

    async def is_measured() -> bool:
        return (await shared.ok("GET", "/v1/catalogues/says"))["index"]["measured_arms"] == 200

    await wait_until(is_measured, what="recall is measured")
    index = (await shared.ok("GET", "/v1/catalogues/says"))["index"]
    assert (index["state"], index["recall_at_1"], index["ratio_min"]) == ("ready", 1.0, 1.0)


async def test_a_choice_takes_the_best_arms_and_says_that_it_did_not_compare_all(shared):
    arms = arms_of(300)
    await shared.catalogue("best", arms)
    await greedy(shared, "best")
    observed = [{"id": f"o{i}", "arm": f"a{i}", "value": arms[f"a{i}"][0]} for i in range(200)]
    await shared.ok("POST", "/v1/bandits/best/observations?wait=applied", {"observations": observed})
    theta = np.array((await shared.ok("GET", "/v1/bandits/best/learners/_global"))["theta"])
    scores = {arm: float(np.dot(theta, row)) for arm, row in arms.items()}
    expected = sorted(scores, key=scores.__getitem__, reverse=True)[:5]
    for _ in range(2):  # first from the overlay, then from the engine
        choice = await shared.ok("POST", "/v1/bandits/best/choose", {"k": 5, "filter": {}})
        assert [arm["id"] for arm in choice["arms"]] == expected
        np.testing.assert_allclose([arm["score"] for arm in choice["arms"]], [scores[a] for a in expected])
        assert choice["exact"] is False
        assert choice.get("eligible") is None
        await shared.followed("best")
    found = await shared.ok(
        "POST", "/v1/catalogues/best/mips", {"query": theta.tolist(), "k": 5, "method": "hnsw"}
    )
    assert [arm["id"] for arm in found["arms"]] == expected
    assert found["guarantee"]["kind"] == "none"


async def test_writes_are_seen_by_the_next_call_and_deleted_arms_by_none(shared):
    """Whether the engine has heard of them or not: writes and choices take turns without a pause."""
    await shared.catalogue("next", arms_of(50))
    await greedy(shared, "next")
    observed = [{"id": "o", "arm": "a0", "value": 1.0}]
    await shared.put_arms("next", {"a0": [1.0, 0.0, 0.0, 0.0]})
    await shared.ok("POST", "/v1/bandits/next/observations?wait=applied", {"observations": observed})

    async def best(**request: Any) -> str:
        choice = await shared.ok("POST", "/v1/bandits/next/choose", request)
        return str(choice["arms"][0]["id"])

    for turn in range(30):
        arm = f"long-{turn % 3}"
        await shared.put_arms("next", {arm: [100.0 + turn, 0.0, 0.0, 0.0]})
        assert await best() == arm
        if turn % 2:
            await shared.ok("PUT", "/v1/catalogues/next/arms", {
                "arms": [{"id": arm, "features": [100.0 + turn, 0, 0, 0], "metadata": {"turn": turn}}],
            })  # fmt: skip
            assert await best(filter={"turn": turn}) == arm
            assert await best(filter={"turn": {"$gt": turn - 1}}) == arm
        await shared.ok("DELETE", f"/v1/catalogues/next/arms/{arm}", status=204)
        assert not (await best()).startswith("long")
        if turn % 10 == 9:
            await shared.followed("next")


async def test_what_the_engine_still_has_of_an_arm_is_not_what_counts(shared, monkeypatch):
    """The follower stands still: the store says which arms there are, and what they are like."""
    await shared.catalogue("still", {"a": [2.0, 0, 0, 0], "b": [1.0, 0, 0, 0], "c": [0.5, 0, 0, 0]})
    await greedy(shared, "still")
    observed = [{"id": "o", "arm": "b", "value": 1.0}]
    await shared.ok("POST", "/v1/bandits/still/observations?wait=applied", {"observations": observed})
    await shared.followed("still")
    index = index_of(shared, "still")
    held = asyncio.Event()
    write = MilvusEngine.write

    async def waits(*arguments: Any) -> None:
        await held.wait()
        await write(*arguments)

    monkeypatch.setattr(MilvusEngine, "write", waits)
    await shared.put_arms("still", {"b": [5.0, 0, 0, 0]})
    await shared.ok("DELETE", "/v1/catalogues/still/arms/a", status=204)
    for cleared in range(2):
        choice = await shared.ok("POST", "/v1/bandits/still/choose", {"k": 3})
        assert [arm["id"] for arm in choice["arms"]] == ["b", "c"]
        assert choice["arms"][0]["score"] == pytest.approx(10 * choice["arms"][1]["score"])
        if not cleared:
            index.clear()  # without the overlay too, once an arm is proposed
    held.set()


async def test_an_arm_that_is_better_than_its_features_say_is_chosen(shared):
    """It is the last of all by its features, so that the engine does not propose it."""
    rng = np.random.default_rng(8)
    features = np.abs(rng.normal(size=(300, DIM))) + 0.1
    features[7] = 0.01
    arms = {f"a{number}": row.tolist() for number, row in enumerate(features)}
    await shared.catalogue("effects", arms)
    body = {
        "catalogue": "effects",
        "policy": "sub_ts",
        "scope": "per_key",
        "exploration": 0,
        "intercept": False,
    }
    bandit = await shared.ok("PUT", "/v1/bandits/effects", body, 201)
    assert (bandit["prior"], bandit["arm_effects"]) == ("learned", "auto")
    effects = rng.normal(size=300)
    effects[7] = 15.0
    for part in range(2):  # the first makes a prior, which arms need to learn
        observed = [
            {"id": f"{part}-{key}-{arm}", "key": f"u{key}", "arm": f"a{arm}",
             "value": features[arm].sum() + effects[arm] + 0.1 * rng.normal()}
            for key in range(20)
            for arm in [7] * part + rng.choice(np.arange(8, 300), 20, replace=False).tolist()
        ]  # fmt: skip
        await shared.ok("POST", "/v1/bandits/effects/observations?wait=applied", {"observations": observed})
        await shared.ok("POST", "/v1/bandits/effects/prior/refresh", {})
    await shared.followed("effects")
    effect = (await shared.ok("GET", "/v1/bandits/effects/arm-effects/a7"))["effect"]
    assert effect > 5.0
    index = index_of(shared, "effects")
    theta = np.array((await shared.ok("GET", "/v1/bandits/effects/learners/u1"))["theta"])
    assert "a7" not in await index.proposed(theta, 256)

    async def is_chosen() -> bool:
        choice = await shared.ok("POST", "/v1/bandits/effects/choose", {"key": "u1", "k": 3})
        assert choice["exact"] is False
        return bool(choice["arms"][0]["id"] == "a7")

    await wait_until(is_chosen, what="the arms of largest effect are compared")
    await shared.ok("DELETE", "/v1/catalogues/effects/arms/a7", status=204)
    assert not await is_chosen()


REFUSED = [
    pytest.param(
        "PUT", "/v1/bandits/x", {"policy": policy, **more}, ["body", *loc], id="-".join((policy, *loc))
    )
    for policy, more, loc in [
        *((policy, {}, ["policy"]) for policy in ("linear_ts", "sub_elim", "linear_elim", "softmax", "igw")),
        ("sub_ts", {"solver": "adaptive"}, ["solver"]),
        (
            "sub_ts",
            {"repeats": {"most": 1, "within_s": 60, "by": "maker"}, "scope": "per_key"},
            ["repeats", "by"],
        ),
        ("sub_ts", {"holdout": {"share": 0.1, "serve": "random"}}, ["holdout", "serve"]),
    ]
]


@pytest.mark.parametrize(("method", "path", "body", "loc"), REFUSED)
async def test_a_policy_that_needs_all_arms_is_refused_when_it_is_asked_for(shared, method, path, body, loc):
    await shared.call("PUT", "/v1/catalogues/refused", {"dim": DIM})
    answer = await shared.call(method, path, {"catalogue": "refused", **body})
    problem = assert_problem(answer, 422, "not_possible_here", loc=loc)
    assert ALL_ARMS in problem["errors"][0]["message"]
    assert (await shared.call("GET", path)).status_code == 404, "nothing was made"


async def test_a_bandit_is_not_changed_into_what_is_refused(shared):
    await shared.catalogue("patched", {"a": [1.0, 0, 0, 0]})
    await shared.ok("PUT", "/v1/bandits/patched", {"catalogue": "patched", "policy": "sub_ts"}, 201)
    for change in (
        {"policy": "softmax"},
        {"solver": "adaptive"},
        {"holdout": {"share": 0.5, "serve": "random"}},
    ):
        await shared.refused("PATCH", "/v1/bandits/patched", change, code="not_possible_here")
    served = {"holdout": {"share": 0.5, "serve": {"arms": ["a"]}}}
    assert (await shared.ok("PATCH", "/v1/bandits/patched", served))["version"] == 2


async def test_without_an_engine_no_such_catalogue_is_made(store_url, tmp_path):
    async with running(store_url, tmp_path) as api:
        body = {"dim": DIM, "index": {"kind": "milvus"}}
        problem = await api.refused("PUT", "/v1/catalogues/c", body, loc=["body", "index", "kind"])
        assert "SHORTLIST_MILVUS_URI is not set" in problem["detail"]
        assert (await api.ok("GET", "/v1/catalogues"))["items"] == []


class OldMilvus(milvus_pb2_grpc.MilvusServiceServicer):
    """A server of the protocol that says to be 2.3.1."""

    def Connect(self, request, context):  # noqa: N802
        return milvus_pb2.ConnectResponse(status=common_pb2.Status(), identifier=1)

    def GetVersion(self, request, context):  # noqa: N802
        return milvus_pb2.GetVersionResponse(status=common_pb2.Status(), version="v2.3.1")


@contextmanager
def serving_old(socket: Path) -> Iterator[str]:
    server = grpc.server(ThreadPoolExecutor(1))
    milvus_pb2_grpc.add_MilvusServiceServicer_to_server(OldMilvus(), server)
    server.add_insecure_port(f"unix:{socket}")
    server.start()
    try:
        yield f"unix:{socket}"
    finally:
        server.stop(0).wait()


async def test_an_engine_that_is_too_old_is_refused_at_creation_and_not_at_the_start(
    store_url, tmp_path, milvus_uri
):
    reason = "is milvus 2.3.1: 2.3.2 or newer is needed"
    async with running_on_milvus(store_url, tmp_path, milvus_uri) as api:
        await api.catalogue("kept", {"a": [1.0, 0, 0, 0]})
        await greedy(api, "kept")
        await api.followed("kept")
    with serving_old(tmp_path / "old.sock") as uri:
        async with running_on_milvus(store_url, tmp_path / "2", uri, empty=False) as api:
            problem = await api.refused(
                "PUT", "/v1/catalogues/c", {"dim": DIM}, loc=["body", "index", "kind"]
            )
            assert reason in problem["detail"]
            assert (await api.call("GET", "/v1/catalogues/c")).status_code == 404
            await api.ok("PUT", "/v1/catalogues/plain", {"dim": 2, "index": {"kind": "auto"}}, 201)
            answer = await api.http.post("/v1/bandits/kept/choose", json={})
            assert reason in assert_problem(answer, 503, "unavailable")["detail"]
            assert reason in (await api.ok("GET", "/v1/catalogues/kept"))["index"]["failure"]
            assert reason in str((await api.ok("GET", "/v1/status"))["findings"])
            assert reason in assert_problem(await api.http.get("/readyz"), 503, "unavailable")["detail"]


async def test_a_service_without_an_engine_does_not_start_over_such_catalogues(
    store_url, tmp_path, milvus_uri
):
    async with running_on_milvus(store_url, tmp_path, milvus_uri) as api:
        await api.catalogue("kept", {"a": [1.0, 0, 0, 0]})
    with pytest.raises(StartupError, match="SHORTLIST_MILVUS_URI is not set: kept"):
        async with running(store_url, tmp_path / "other", empty=False):
            pass


async def test_while_the_engine_is_away_choices_wait_and_rewards_go_on(
    store_url, tmp_path, milvus_uri, monkeypatch
):
    async with running_on_milvus(store_url, tmp_path, milvus_uri) as api:
        await api.catalogue("c", arms_of(20))
        await api.ok("PUT", "/v1/bandits/b", {"catalogue": "c", "policy": "sub_ts"}, 201)
        choice = await api.ok("POST", "/v1/bandits/b/choose", {})
        await api.followed("c")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        nowhere = f"http://127.0.0.1:{free.getsockname()[1]}"
    monkeypatch.setattr(source, "MilvusEngine", partial(MilvusEngine, timeout_s=0.5))  # nobody answers there
    async with running_on_milvus(store_url, tmp_path / "2", nowhere, empty=False) as api:
        answer = await api.http.post("/v1/bandits/b/choose", json={})
        assert_problem(answer, 503, "unavailable")
        assert answer.headers["retry-after"]
        answer = await api.http.put("/v1/catalogues/new", json={"dim": 2, "index": {"kind": "milvus"}})
        assert_problem(answer, 503, "unavailable")
        assert (await api.call("GET", "/v1/catalogues/new")).status_code == 404, "nothing half made"
        reward = {"rewards": [{"decision": choice["decision"], "value": 1.0}]}
        receipt = await api.ok("POST", "/v1/rewards?wait=applied", reward)
        assert receipt["accepted"] == 1
        assert (await api.ok("GET", "/v1/bandits/b/learners/_global"))["observations"] == 1
        assert (await api.put_arms("c", {"new": [9.0, 0, 0, 0]}))["added"] == 1, "the store has room"
        assert (await api.ok("GET", "/v1/catalogues/c/arms/new"))["features"] == [9.0, 0, 0, 0]
        await api.ok("PUT", "/v1/catalogues/plain", {"dim": 2, "index": {"kind": "auto"}}, 201)
    monkeypatch.undo()
    async with running_on_milvus(store_url, tmp_path / "3", milvus_uri, empty=False) as api:
        await api.followed("c")
        assert await api.ok("POST", "/v1/bandits/b/choose", {"k": 21})


async def test_a_full_overlay_stops_writes_until_the_engine_has_them(shared, monkeypatch):
    await shared.catalogue("full", {"a": [1.0, 0, 0, 0]})
    await shared.followed("full")
    index = index_of(shared, "full")
    monkeypatch.setattr(index, "_room", 0)
    index.room_s = 0.05
    held = asyncio.Event()
    write = MilvusEngine.write

    async def waits(*arguments: Any) -> None:
        await held.wait()
        await write(*arguments)

    monkeypatch.setattr(MilvusEngine, "write", waits)
    await shared.put_arms("full", {"b": [1.0, 0, 0, 0]})
    answer = await shared.http.put(
        "/v1/catalogues/full/arms", json={"arms": [{"id": "c", "features": [1.0, 0, 0, 0]}]}
    )
    assert_problem(answer, 503, "unavailable")
    assert (await shared.call("GET", "/v1/catalogues/full/arms/c")).status_code == 404
    held.set()
    index.room_s = 60.0
    assert (await shared.put_arms("full", {"c": [1.0, 0, 0, 0]}))["added"] == 1


async def test_revisions_of_arms_come_in_pages_in_the_order_of_changes(shared):
    await shared.catalogue("revised", {f"a{i}": [float(i), 0, 0, 1] for i in range(5)})
    await shared.ok("PUT", "/v1/bandits/revised", {"catalogue": "revised", "policy": "sub_ts"}, 201)
    await shared.put_arms("revised", {"a1": [9.0, 0, 0, 1]})
    seen, cursor = list[str](), None
    while True:
        params = {"limit": 2} | ({} if cursor is None else {"cursor": cursor})
        page = await shared.ok("GET", "/v1/bandits/revised/log/arms", params=params)
        seen += [arm["id"] for arm in page["items"]]
        if page["next"] is None:
            break
        cursor = page["next"]
    assert seen == ["a0", "a2", "a3", "a4", "a1"]
    await shared.refused("GET", "/v1/bandits/revised/log/arms", params={"cursor": "xyz"})


async def released(api: MilvusApi, name: str, milvus_uri: str) -> None:
    """As an engine that was started again: the collection is there, and not in its memory."""
    with closing(MilvusClient(milvus_uri)) as client:
        await asyncio.to_thread(client.release_collection, index_of(api, name).followed.collection)


async def test_a_choice_loads_a_collection_that_is_there(shared, milvus_uri, monkeypatch):
    await shared.catalogue("loads", arms_of(50))
    await greedy(shared, "loads")
    await shared.followed("loads")
    monkeypatch.setattr(shared.app.service.engines["milvus"], "load_wait_s", DEADLINE_S)
    await released(shared, "loads", milvus_uri)
    choices = await asyncio.gather(*(shared.choose("loads", k=5) for _ in range(8)))
    assert [len(choice["arms"]) for choice in choices] == [5] * 8


async def test_ready_waits_for_an_engine_that_starts_and_not_for_one_that_stays_away(
    shared, milvus_uri, monkeypatch
):
    await shared.catalogue("ready", arms_of(50))
    await greedy(shared, "ready")
    await shared.followed("ready")
    await shared.ok("GET", "/readyz")
    await released(shared, "ready", milvus_uri)

    async def is_ready() -> bool:
        return (await shared.http.get("/readyz")).status_code == 200

    await wait_until(is_ready, what="the collection is loaded")
    assert len((await shared.choose("ready", k=5))["arms"]) == 5, "it is loaded"
    engine = shared.app.service.engines["milvus"]
    assert engine is not None
    with monkeypatch.context() as away:
        away.setattr(engine, "_is_here", False)
        document = assert_problem(await shared.http.get("/readyz"), 503, "unavailable")
        assert "Milvus" in document["detail"]
        away.setattr(shared.app.service.health, "engine_start_s", 0.0)
        await shared.ok("GET", "/readyz")
    await wait_until(is_ready, what="the engine is searched again")


async def test_ready_waits_for_searches_that_an_engine_refuses_though_it_says_that_all_is_loaded(
    shared, monkeypatch
):
    """As a Milvus server in its first half minute."""
    await shared.catalogue("early", arms_of(50))
    await greedy(shared, "early")
    await shared.followed("early")
    engine = shared.app.service.engines["milvus"]
    assert engine is not None

    async def refuses(*_: object) -> Any:
        raise MilvusException(code=503, message="channel not available")

    async def is_ready() -> bool:
        return (await shared.http.get("/readyz")).status_code == 200

    async def is_chosen() -> bool:
        return (await shared.http.post("/v1/bandits/early/choose", json={})).status_code == 200

    with monkeypatch.context() as early:
        early.setattr(engine, "_ask", refuses)
        early.setattr(engine, "load_wait_s", 0.0)
        for _ in range(3):
            assert_problem(await shared.http.get("/readyz"), 503, "unavailable")
            answer = await shared.http.post("/v1/bandits/early/choose", json={})
            assert "still loading" in assert_problem(answer, 503, "unavailable")["detail"]
    await wait_until(is_chosen, what="the engine searches")
    await wait_until(is_ready, what="it searches all catalogues")
