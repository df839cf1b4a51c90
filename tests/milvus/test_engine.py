"""What answers at SHORTLIST_MILVUS_URI: versions, calls that it refuses, searches that are asked together."""

import asyncio
import socket
import sys
from pathlib import Path

import numpy as np
import pytest

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
    search, sizes = engine._client.search, list[int]()

    async def counted(collection, **options):
        sizes.append(len(options["data"]))
        return await search(collection, **options)

    monkeypatch.setattr(engine._client, "search", counted)
    found = await asyncio.gather(
        *(engine.search("together", row, 32, expression="", ef=32) for row in [*rows, rows[0]])
    )
    assert [hits[0].id for hits in found] == [*(f"a{i}" for i in range(16)), "a0"]
    assert sizes == [17]
    await engine.drop("together")
    await engine.close()
