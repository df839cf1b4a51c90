"""Two services of a group: what one of them makes both use, and what it cannot make both say."""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from app.catalogues.resident_arms import ResidentArms
from app.indexes import shared_files
from app.indexes.index_limits import IndexLimits
from app.platform.settings import Settings
from headless_service import PATIENT
from server.application import create_app
from server.composition import SHARED
from shortlist.index import shared_format
from store_clients import connect, flush
from waiting import wait_until

pytestmark = pytest.mark.anyio

FEW_ARMS = IndexLimits(shared_numbers=1)
PAUSES = replace(PATIENT, index_poll_s=0.005, index_idle_s=0.02, index_rest_s=0.05)

ARMS = [{"id": f"a{row}", "features": [1.0, row], "tags": ["even"] * (row % 2 == 0)} for row in range(200)]


@asynccontextmanager
async def service(store_url: str, folder: Path, number: int) -> AsyncIterator[httpx.AsyncClient]:
    """A client of one service of the group."""
    settings = Settings(redis_url=store_url, data_dir=folder / str(number))
    app = create_app(settings, group_dir=folder, pauses=PAUSES, index_limits=FEW_ARMS)
    transport = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client,
    ):
        yield client


@pytest.fixture
async def clients(store_url: str, tmp_path: Path) -> AsyncIterator[list[httpx.AsyncClient]]:
    """Of two services that share however few arms, with a catalogue."""
    (tmp_path / SHARED).mkdir(mode=0o700)
    async with connect(store_url) as store:
        await flush(store)
    async with service(store_url, tmp_path, 0) as one, service(store_url, tmp_path, 1) as other:
        (await one.put("/v1/catalogues/c", json={"dim": 2})).raise_for_status()
        yield [one, other]


async def put(client: httpx.AsyncClient, arms: list[dict]) -> None:
    (await client.put("/v1/catalogues/c/arms", json={"arms": arms})).raise_for_status()


def shared(folder: Path) -> list[Path]:
    return list((folder / SHARED).glob("*/current"))


async def evens(client: httpx.AsyncClient) -> set[str]:
    body = {"query": [1.0, 0.0], "k": 1_000, "method": "exact", "filter": {"tags": "even"}}
    answer = await client.post("/v1/catalogues/c/mips", json=body)
    return {arm["id"] for arm in answer.raise_for_status().json()["arms"]}


async def findings(client: httpx.AsyncClient) -> str:
    document = (await client.get("/v1/status")).raise_for_status().json()
    return " ".join(each["text"] for each in document["findings"])


EVENS = {arm["id"] for arm in ARMS if arm["tags"]}


async def test_all_answer_from_what_one_has_made(
    clients: list[httpx.AsyncClient], store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A third one starts without reading one arm or document from the store."""
    await put(clients[1], ARMS)

    async def is_shared() -> bool:
        return bool(shared(tmp_path))

    await wait_until(is_shared, what="the arms are shared")
    for client in clients:

        async def sees(client: httpx.AsyncClient = client) -> bool:
            return await evens(client) == EVENS

        await wait_until(sees, what="all see the tags")
    monkeypatch.setattr(ResidentArms, "_load_arms", None)
    monkeypatch.setattr(ResidentArms, "_take", None)
    async with service(store_url, tmp_path, 2) as third:
        assert await evens(third) == EVENS


async def test_a_service_that_finds_no_room_at_its_start_reads_the_store(
    clients: list[httpx.AsyncClient], store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put(clients[0], ARMS)

    async def is_shared() -> bool:
        return bool(shared(tmp_path))

    await wait_until(is_shared, what="the arms are shared")

    def full(folder: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(shared_files, "read_arms", full)
    async with service(store_url, tmp_path, 2) as third:
        assert await evens(third) == EVENS
        assert "No space left on device" in await findings(third)


@pytest.mark.rest
async def test_all_say_why_nothing_can_be_shared_until_there_is_room(
    clients: list[httpx.AsyncClient], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full: all answer from what they have, also of arms that come, and the status says why."""

    def full(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    written_all = shared_format.write_all
    await put(clients[0], ARMS)

    async def is_shared() -> bool:
        return bool(shared(tmp_path))

    await wait_until(is_shared, what="the arms are shared")
    monkeypatch.setattr(shared_files, "write_all", full)
    more = [{**arm, "id": f"more-{arm['id']}"} for arm in ARMS]
    await put(clients[1], more)
    for client in clients:

        async def says(client: httpx.AsyncClient = client) -> bool:
            return "No space left on device" in await findings(client)

        async def sees(client: httpx.AsyncClient = client) -> bool:
            return await evens(client) == EVENS | {f"more-{arm_id}" for arm_id in EVENS}

        await wait_until(says, what="the status says why")
        await wait_until(sees, what="what came is seen")
    monkeypatch.setattr(shared_files, "write_all", written_all)
    for client in clients:

        async def is_well(client: httpx.AsyncClient = client) -> bool:
            return "No space left" not in await findings(client)

        await wait_until(is_well, what="it is shared again")
