"""An application for a test, and one that a whole module shares where these keep out of each other's way."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from api_client import PAUSES, Api, running
from app.platform.pauses import Pauses


@pytest.fixture
def pauses() -> Pauses:
    """How long the application waits; a module that needs others has a fixture of this name."""
    return PAUSES


@pytest.fixture
async def api(store_url: str, tmp_path: Path, pauses: Pauses) -> AsyncIterator[Api]:
    """An application over an empty store."""
    async with running(store_url, tmp_path, pauses=pauses) as api:
        yield api


@pytest.fixture(scope="module")
async def shared(shared_store_url: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Api]:
    """One application for the tests of a module: each uses names of its own."""
    async with running(shared_store_url, tmp_path_factory.mktemp("shared")) as api:
        yield api
