"""What answers at SHORTLIST_MILVUS_URI: versions, calls that it refuses, searches that are asked together."""

import asyncio
import json
import socket
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import numpy as np
import pytest
from pymilvus.grpc_gen import common_pb2, milvus_pb2, milvus_pb2_grpc

from app.engines.engine_contract import CollectionGone, WrongEngine
from app.platform.errors import StartupError, Unavailable
from shortlist_milvus import embedded_engine
from shortlist_milvus.embedded_engine import EmbeddedEngine, is_embedded
from shortlist_milvus.engine import ArmRow, MilvusEngine, check_version
from shortlist_service.testing import ArmEngineContract
from waiting import DEADLINE_S, wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.rest]

ONES = np.ones(2, np.float32)


class TestMilvusEngine(ArmEngineContract):
    @pytest.fixture
    async def engine(self, milvus_uri) -> AsyncIterator[MilvusEngine]:
        engine = MilvusEngine(milvus_uri)
        await engine.open()
        yield engine
        await engine.close()


@pytest.mark.parametrize(
    "text",
    [
        "v2.3.2",
        "v2.3.5-lite",
        "v2.4.0",
        "2.6.4",
        "v2.6-rc1",
        "v3.0.0",
        "milvus_lite-3.0.0",
        "milvus_lite-3.2.2",
    ],
)
def test_versions_that_are_known_and_new_enough(text):
    assert check_version(text) == ("milvus_lite" if text.startswith("milvus_lite") else "milvus")


@pytest.mark.parametrize(
    "text", ["v2.3.1", "v2.3", "v2.2.16", "1.1.1", "milvus_lite-2.5.1", "", "unknown", "qdrant-1.0"]
)
def test_others_are_refused(text):
    with pytest.raises(WrongEngine, match="SHORTLIST_MILVUS_URI"):
        check_version(text)


async def test_an_address_that_is_none_is_refused_at_the_start():
    with pytest.raises(StartupError, match="not an address"):
        await MilvusEngine("ftp://milvus").open()


async def test_without_the_extra_it_is_said_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "pymilvus", None)
    with pytest.raises(StartupError, match=r"pip install -e '\.\[milvus\]' in a checkout"):
        await MilvusEngine("http://127.0.0.1:1").open()
    monkeypatch.setattr(embedded_engine, "find_spec", lambda name: None)
    with pytest.raises(StartupError, match=r"pip install -e '\.\[milvus\]' in a checkout"):
        EmbeddedEngine(tmp_path / "arms").start()
    assert not (tmp_path / "arms").exists(), "nothing half made"


def test_a_folder_of_an_engine_is_served_once(milvus_uri):
    folder = Path(milvus_uri.removeprefix("unix:")).parent
    if (folder / "arms.db").exists():  # else the socket is elsewhere, for the path was too long
        with pytest.raises(StartupError, match="in use by process"):
            EmbeddedEngine(folder).start()


def test_a_setting_is_an_address_or_a_file():
    assert is_embedded("/data/arms.db")
    assert is_embedded("arms")
    for uri in ("http://a:1", "https://u:p@a", "tcp://a:1", "unix:/tmp/a"):
        assert not is_embedded(uri)


async def test_calls_that_are_refused_do_not_make_the_engine_seem_away(milvus_uri):
    engine = MilvusEngine(milvus_uri)
    await engine.open()
    with pytest.raises(CollectionGone):
        await engine.search_where("none", ONES, 32, expression="", ef=32)
    await engine.create("refusing", 2, m=16, ef_construction=100)
    with pytest.raises(Unavailable, match="refused"):
        await engine.search_where("refusing", ONES, 32, expression="nonsense(", ef=32)
    assert await engine.search_where("refusing", ONES, 32, expression="", ef=32) == []
    assert (await engine.dim("refusing"), await engine.dim("none")) == (2, None)
    await engine.drop("refusing")
    await engine.drop("refusing")
    await engine.close()


async def test_an_engine_that_does_not_answer_is_away_and_refuses_nothing(caplog):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        nowhere = f"http://127.0.0.1:{free.getsockname()[1]}"
        engine = MilvusEngine(nowhere, timeout_s=0.5)
        await engine.open()
        with pytest.raises(Unavailable, match="does not answer"):
            await engine.search_where("none", ONES, 32, expression="", ef=32)
        assert [record for record in caplog.records if record.levelname == "ERROR"] == []
        await engine.close()


async def test_searches_at_once_are_asked_together_and_each_has_its_own_answer(milvus_uri, monkeypatch):
    engine = MilvusEngine(milvus_uri)
    await engine.open()
    await engine.create("together", 2, m=16, ef_construction=100)
    angles = np.linspace(0.0, 2.0 * np.pi, 16, endpoint=False)
    rows = np.stack((np.cos(angles), np.sin(angles)), axis=1).astype(np.float32)
    await engine.write_rows("together", [ArmRow(f"a{i}", i, row, [], {}) for i, row in enumerate(rows)])
    ask, sizes = engine._ask, list[int]()  # private: how much is asked at a time

    async def counted(queries, search):
        sizes.append(len(queries))
        return await ask(queries, search)

    monkeypatch.setattr(engine, "_ask", counted)
    found = await asyncio.gather(
        *(engine.search_where("together", row, 32, expression="", ef=32) for row in [*rows, rows[0]])
    )
    assert [ids[0] for ids in found] == [*(f"a{i}" for i in range(16)), "a0"]
    assert sizes == [17]
    await engine.drop("together")
    await engine.close()


FOUND: dict[float, list[str]] = {1.0: ["a", "b"], 2.0: [], 3.0: ["c"]}


class FakeMilvus(milvus_pb2_grpc.MilvusServiceServicer):
    """A server of the protocol that finds ``FOUND``, by the first number of a query.

    ``calls``: what it was asked for. ``here``: it answers nothing until this is set. ``progress``: of a load.
    ``fails``: the code of Milvus that searches are refused with; 0: they are answered. ``breaks``: each
    second search is broken off, as by a proxy that is replaced.
    """

    def __init__(self, *, breaks: bool = False) -> None:
        self.calls = Counter[str]()
        self.searches: list[milvus_pb2.SearchRequest] = []
        self.here = asyncio.Event()
        self.here.set()
        self.progress, self.fails, self._breaks = 100, 0, breaks

    @asynccontextmanager
    async def serving(self, folder: Path, **waits: float) -> AsyncIterator[MilvusEngine]:
        """It on a socket, and an engine that has found it."""
        server = grpc.aio.server()
        milvus_pb2_grpc.add_MilvusServiceServicer_to_server(self, server)
        server.add_insecure_port(f"unix:{folder}/milvus.sock")
        await server.start()
        engine = MilvusEngine(f"unix:{folder}/milvus.sock", **waits)
        await engine.open()
        try:
            yield engine
        finally:
            await engine.close()
            await server.stop(0)

    async def Connect(self, request, context):  # noqa: N802
        return milvus_pb2.ConnectResponse(status=common_pb2.Status(), identifier=1)

    async def GetVersion(self, request, context):  # noqa: N802
        self.calls["version"] += 1
        await self.here.wait()
        return milvus_pb2.GetVersionResponse(status=common_pb2.Status(), version="v2.3.5")

    async def ShowCollections(self, request, context):  # noqa: N802
        return milvus_pb2.ShowCollectionsResponse(status=common_pb2.Status(), collection_names=["c"])

    async def LoadCollection(self, request, context):  # noqa: N802
        self.calls["load"] += 1
        return common_pb2.Status()

    async def GetLoadingProgress(self, request, context):  # noqa: N802
        return milvus_pb2.GetLoadingProgressResponse(status=common_pb2.Status(), progress=self.progress)

    async def Search(self, request, context):  # noqa: N802
        self.searches.append(request)
        if not self.here.is_set() or (self._breaks and len(self.searches) % 2):
            await context.abort(grpc.StatusCode.UNAVAILABLE, "goes away")
        if self.fails:
            return milvus_pb2.SearchResults(status=common_pb2.Status(code=self.fails, reason="not yet"))
        answer = milvus_pb2.SearchResults(status=common_pb2.Status())
        group = common_pb2.PlaceholderGroup.FromString(request.placeholder_group)
        for query in group.placeholders[0].values:
            found = FOUND[np.frombuffer(query, np.float32)[0]]
            answer.results.topks.append(len(found))
            answer.results.ids.str_id.data.extend(found)
        return answer


async def search(engine: MilvusEngine, collection: str = "c") -> list[str]:
    return await engine.search_where(collection, ONES, 32, expression="", ef=64)


async def answer(engine: MilvusEngine) -> list[str]:
    """Of the first search that is not refused."""

    async def found() -> list[str]:
        try:
            return await search(engine)
        except Unavailable:
            return []

    return await wait_until(found, what="a search is answered")


async def test_while_the_engine_is_known_to_be_away_nobody_waits_and_one_asks_whether_it_is_back(tmp_path):
    """The question for its version is not answered until all searches are refused."""
    milvus = FakeMilvus()
    async with milvus.serving(tmp_path, timeout_s=DEADLINE_S, rest_s=0.0) as engine:
        assert await search(engine) == ["a", "b"]
        milvus.here.clear()
        with pytest.raises(Unavailable, match="does not answer"):
            await search(engine)

        async def is_asked() -> bool:
            return milvus.calls["version"] == 2

        await wait_until(is_asked, what="the engine is asked whether it is back")
        searched = len(milvus.searches)
        for _ in range(20):
            for call in (search(engine), search(engine, "other"), engine.collections(), engine.dim("c")):
                with pytest.raises(Unavailable, match="does not answer"):
                    await call
        assert (len(milvus.searches), milvus.calls["version"]) == (searched, 2)
        milvus.here.set()
        assert await answer(engine) == ["a", "b"]


# A Milvus that was started says "not loaded" at first, then that all is loaded, and refuses searches yet.
@pytest.mark.parametrize(("fails", "progress"), [(101, 50), (503, 100), (106, 100), (901, 100)])
async def test_searches_are_refused_at_once_while_a_collection_takes_long_to_load(tmp_path, fails, progress):
    milvus = FakeMilvus()
    async with milvus.serving(tmp_path, load_wait_s=0.0, rest_s=0.0) as engine:
        milvus.fails, milvus.progress = fails, progress
        for _ in range(20):
            with pytest.raises(Unavailable, match="still loading"):
                await search(engine)

        async def is_loading() -> bool:
            return milvus.calls["load"] > 0

        await wait_until(is_loading, what="it is loaded in the background")
        with pytest.raises(Unavailable, match="still loading"):
            await search(engine)
        milvus.fails, milvus.progress = 0, 100
        assert await answer(engine) == ["a", "b"]
        assert engine._recoveries == {}  # private: nothing else tells that no task is left


async def test_a_search_waits_for_a_load_that_takes_a_moment_and_tells_of_what_is_not_there(tmp_path):
    milvus = FakeMilvus()
    async with milvus.serving(tmp_path, load_wait_s=DEADLINE_S) as engine:
        milvus.fails, milvus.progress = 101, 50
        callers = [asyncio.create_task(search(engine)) for _ in range(8)]

        async def is_loading() -> bool:
            return milvus.calls["load"] > 0

        await wait_until(is_loading, what="it is loaded")
        milvus.fails, milvus.progress = 0, 100
        assert await asyncio.gather(*callers) == [["a", "b"]] * 8
        assert milvus.calls["load"] == 1
        milvus.fails = 100
        with pytest.raises(CollectionGone):
            await search(engine, "dropped")


async def test_a_search_asks_for_ids_alone_and_is_sent_again_when_its_connection_breaks(tmp_path):
    milvus = FakeMilvus(breaks=True)
    async with milvus.serving(tmp_path) as engine:
        queries = [ONES, 2 * ONES, 3 * ONES]
        for sent in (2, 4):
            found = await asyncio.gather(
                *(engine.search_where("c", query, 32, expression="e", ef=64) for query in queries)
            )
            assert found == [["a", "b"], [], ["c"]]
            assert len(milvus.searches) == sent
    for request in milvus.searches:
        assert (request.collection_name, request.dsl, request.nq) == ("c", "e", 3)
        # What else Milvus would read of each arm, it would read for nothing: the store says how arms are.
        assert list(request.output_fields) == []
        assert request.consistency_level == common_pb2.ConsistencyLevel.Bounded
        parameters = {pair.key: pair.value for pair in request.search_params}
        assert (parameters["topk"], json.loads(parameters["params"])) == ("32", {"ef": 64})
        group = common_pb2.PlaceholderGroup.FromString(request.placeholder_group)
        assert list(group.placeholders[0].values) == [query.tobytes() for query in queries]
