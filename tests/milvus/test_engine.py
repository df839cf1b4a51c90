"""What answers at SHORTLIST_MILVUS_URI: versions, calls that it refuses, searches that are asked together."""

import asyncio
import json
import socket
import sys
from pathlib import Path

import grpc
import numpy as np
import pytest
from pymilvus.grpc_gen import common_pb2, milvus_pb2, milvus_pb2_grpc

from app.milvus import embedded_engine
from app.milvus.embedded_engine import EmbeddedEngine, is_embedded
from app.milvus.engine import ArmRow, CollectionGone, Engine, WrongEngine, check_version
from app.platform.errors import StartupError, Unavailable

pytestmark = pytest.mark.anyio

ONES = np.ones(2, np.float32)


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
        await Engine("ftp://milvus").open()


async def test_without_the_extra_it_is_said_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "pymilvus", None)
    with pytest.raises(StartupError, match=r"pip install 'shortlist-service\[milvus\]'"):
        await Engine("http://127.0.0.1:1").open()
    monkeypatch.setattr(embedded_engine, "find_spec", lambda name: None)
    with pytest.raises(StartupError, match=r"pip install 'shortlist-service\[milvus\]'"):
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
    engine = Engine(milvus_uri)
    await engine.open()
    with pytest.raises(CollectionGone):
        await engine.search("none", ONES, 32, expression="", ef=32)
    await engine.create("refusing", 2, m=16, ef_construction=100)
    with pytest.raises(Unavailable, match="refused"):
        await engine.search("refusing", ONES, 32, expression="nonsense(", ef=32)
    assert await engine.search("refusing", ONES, 32, expression="", ef=32) == []
    assert (await engine.dim("refusing"), await engine.dim("none")) == (2, None)
    await engine.drop("refusing")
    await engine.drop("refusing")
    await engine.close()


async def test_an_engine_that_does_not_answer_is_away_and_refuses_nothing(monkeypatch, caplog):
    monkeypatch.setattr("app.milvus.engine.TIMEOUT_S", 0.5)  # nobody answers there
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        engine = Engine(f"http://127.0.0.1:{free.getsockname()[1]}")
        await engine.open()
        engine._away_until = 0.0
        with pytest.raises(Unavailable, match="does not answer"):
            await engine.search("none", ONES, 32, expression="", ef=32)
        assert engine._away_until, "it rests"
        assert [record for record in caplog.records if record.levelname == "ERROR"] == []
        await engine.close()


async def test_searches_at_once_are_asked_together_and_each_has_its_own_answer(milvus_uri, monkeypatch):
    engine = Engine(milvus_uri)
    await engine.open()
    await engine.create("together", 2, m=16, ef_construction=100)
    angles = np.linspace(0.0, 2.0 * np.pi, 16, endpoint=False)
    rows = np.stack((np.cos(angles), np.sin(angles)), axis=1).astype(np.float32)
    await engine.write("together", [ArmRow(f"a{i}", i, row, [], {}) for i, row in enumerate(rows)], [])
    await engine.confirm("together", "a0")
    ask, sizes = engine._ask, list[int]()

    async def counted(queries, search):
        sizes.append(len(queries))
        return await ask(queries, search)

    monkeypatch.setattr(engine, "_ask", counted)
    found = await asyncio.gather(
        *(engine.search("together", row, 32, expression="", ef=32) for row in [*rows, rows[0]])
    )
    assert [ids[0] for ids in found] == [*(f"a{i}" for i in range(16)), "a0"]
    assert sizes == [17]
    await engine.drop("together")
    await engine.close()


class BreakingMilvus(milvus_pb2_grpc.MilvusServiceServicer):
    """A server of the protocol, which breaks off each second search, as a proxy that is replaced does."""

    def __init__(self) -> None:
        self.searches: list[milvus_pb2.SearchRequest] = []

    async def Connect(self, request, context):  # noqa: N802
        return milvus_pb2.ConnectResponse(status=common_pb2.Status(), identifier=1)

    async def GetVersion(self, request, context):  # noqa: N802
        return milvus_pb2.GetVersionResponse(status=common_pb2.Status(), version="v2.3.5")

    async def Search(self, request, context):  # noqa: N802
        self.searches.append(request)
        if len(self.searches) % 2:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "goes away")
        answer = milvus_pb2.SearchResults(status=common_pb2.Status())
        answer.results.topks.extend([2, 0, 1])
        answer.results.ids.str_id.data.extend(["a", "b", "c"])
        return answer


async def test_a_search_asks_for_ids_alone_and_is_sent_again_when_its_connection_breaks(tmp_path):
    milvus, server = BreakingMilvus(), grpc.aio.server()
    milvus_pb2_grpc.add_MilvusServiceServicer_to_server(milvus, server)
    server.add_insecure_port(f"unix:{tmp_path}/milvus.sock")
    await server.start()
    engine = Engine(f"unix:{tmp_path}/milvus.sock")
    await engine.open()
    queries = [ONES, 2 * ONES, 3 * ONES]
    for sent in (2, 4):
        found = await asyncio.gather(
            *(engine.search("c", query, 32, expression="e", ef=64) for query in queries)
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
    await engine.close()
    await server.stop(0)
