"""Arms of many numbers, or of many fields, are indexed a few at a time: others have their turns between."""

import numpy as np
import pytest

from app.catalogues import resident_arms
from app.catalogues.arms import Arm
from app.indexes.live import LiveIndex
from app.records.records import CatalogueRecord
from headless_service import INDEX, HeadlessService

pytestmark = [pytest.mark.anyio, pytest.mark.rest]

DIM, ARMS = 4_096, 60


async def test_arms_of_many_numbers_are_indexed_a_few_at_a_time(
    service: HeadlessService, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalogue, _ = await service.parts.catalogues.create("large", CatalogueRecord(DIM, INDEX))
    rows = np.random.default_rng(1).normal(size=(ARMS, DIM)).tolist()
    sizes = list[int]()
    upsert = LiveIndex.upsert

    def counted(
        self: LiveIndex, ids: list[str], features: np.ndarray, revisions: list[int], came_ms: list[int]
    ) -> None:
        sizes.append(features.size)
        upsert(self, ids, features, revisions, came_ms)

    monkeypatch.setattr(LiveIndex, "upsert", counted)
    await service.parts.catalogues.upsert(catalogue, [Arm(f"a{i}", row) for i, row in enumerate(rows)])
    assert max(sizes) <= resident_arms.INDEXED_NUMBERS
    assert sum(sizes) == ARMS * DIM
