"""Arms of many numbers, or of many fields, are indexed a few at a time: others have their turns between."""

import numpy as np
import pytest

from app.catalogues import resident_arms
from app.catalogues.arms import Arm
from app.filters.attributes import Document
from app.indexes.live import LiveIndex
from app.records.records import ArmDocument, CatalogueRecord, pack
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


@pytest.mark.rest
async def test_arms_of_many_fields_are_indexed_a_few_at_a_time(
    service: HeadlessService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also by another process, which reads them from the store."""
    catalogue, _ = await service.parts.catalogues.create("described", CatalogueRecord(1, INDEX))
    metadata = {f"f{number}": number for number in range(1_000)}
    size, described = len(pack(ArmDocument([], metadata))), list[int]()
    describe = LiveIndex.describe

    def counted(self: LiveIndex, ids: list[str], documents: list[Document]) -> None:
        described.append(len(documents))
        describe(self, ids, documents)

    monkeypatch.setattr(LiveIndex, "describe", counted)
    arms = [Arm(f"a{number}", [1.0], (), metadata) for number in range(ARMS)]
    await service.parts.catalogues.upsert(catalogue, arms)
    catalogue.index.version = 0
    await service.parts.catalogues.sync(catalogue)
    assert sum(described) == 2 * ARMS
    assert max(described) == resident_arms.INDEXED_BYTES // size > 1
