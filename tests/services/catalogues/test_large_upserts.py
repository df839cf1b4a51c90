"""Many arms of many numbers are put into an index a few at a time: others have their turns between."""

import numpy as np
import pytest
from world import INDEX, World

from app.indexes.live import LiveIndex
from app.services.catalogues import catalogues
from app.services.catalogues.catalogues import Arm
from app.services.formats.records import CatalogueRecord

pytestmark = pytest.mark.anyio

DIM, ARMS = 4_096, 60


async def test_arms_of_many_numbers_are_indexed_a_few_at_a_time(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalogue, _ = await world.service.catalogues.create("large", CatalogueRecord(DIM, INDEX))
    rows = np.random.default_rng(1).normal(size=(ARMS, DIM)).tolist()
    sizes = list[int]()
    upsert = LiveIndex.upsert

    def counted(self: LiveIndex, ids: list[str], features: np.ndarray, revisions: list[int]) -> None:
        sizes.append(features.size)
        upsert(self, ids, features, revisions)

    monkeypatch.setattr(LiveIndex, "upsert", counted)
    await world.service.catalogues.upsert(catalogue, [Arm(f"a{i}", row) for i, row in enumerate(rows)])
    assert max(sizes) <= catalogues.INDEXED_NUMBERS
    assert sum(sizes) == ARMS * DIM
