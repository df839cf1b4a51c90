"""An application for a test, and one that a whole module shares where these keep out of each other's way."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from api_client import Api, running
from workers import housekeeping


@pytest.fixture
async def api(store_url: str, tmp_path: Path) -> AsyncIterator[Api]:
    """An application over an empty store."""
    async with running(store_url, tmp_path) as api:
        yield api


@pytest.fixture(scope="module")
async def shared(shared_store_url: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Api]:
    """One application for the tests of a module: each uses names of its own."""
    async with running(shared_store_url, tmp_path_factory.mktemp("shared")) as api:
        yield api


@pytest.fixture
def housekeeping_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """An application that starts after it looks for what is due every 10 ms."""
    monkeypatch.setattr(housekeeping, "EVERY_S", 0.01)
