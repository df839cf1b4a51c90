"""The services without their HTTP face, over a store that can be interfered with."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from app.observability.metrics import Metrics
from app.settings import Settings
from app.storage.redis_store import RedisStore
from lossy_store import LossyStore
from server.composition import Service
from world import World


@pytest.fixture
async def world(store: RedisStore, tmp_path: Path) -> AsyncIterator[World]:
    """A service with a catalogue ``c`` and its worker, over an empty store."""
    lossy: Any = LossyStore(store)
    settings = Settings(redis_url="unix:///not-used", data_dir=tmp_path)
    service = Service(settings, lossy, Metrics())
    await service.start()
    world = World(service, lossy)
    await world.catalogue()
    yield world
    lossy.refuse.clear()
    lossy.hold.clear()
    await service.stop()
