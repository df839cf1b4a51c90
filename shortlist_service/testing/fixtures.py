"""The fixture ``service`` of the contracts: a service over a store of its own, for each test."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from app.platform.metrics import Metrics
from app.platform.settings import Settings
from app.storage.embedded.server import EmbeddedServer
from app.storage.store import Store
from server.composition import Service
from shortlist_service.testing.headless_service import PATIENT, HeadlessService


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[HeadlessService]:
    """A started service with a catalogue ``c`` of four arms."""
    with EmbeddedServer(tmp_path / "store") as server:
        store = Store(server.url)
        await store.open()
        settings: dict[str, Any] = {"data_dir": tmp_path}
        parts = Service(Settings(**settings), store, Metrics(), pauses=PATIENT)
        await parts.start()
        service = HeadlessService(parts, store)
        await service.catalogue()
        yield service
        await parts.stop()
        await store.close()
