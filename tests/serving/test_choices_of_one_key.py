"""Choices of one key at once, by one process and by two: all are answered, and none breaks its constraint."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from app.bandits.settings import RepeatsRule
from app.catalogues.arms import Arm
from app.platform.metrics import Metrics
from app.platform.settings import Settings
from app.storage.store import Store
from headless_service import PATIENT, HeadlessService
from server.composition import Service
from shortlist_service.testing.shop import ids

pytestmark = [pytest.mark.anyio, pytest.mark.rest]

CALLS = 64


@pytest.mark.parametrize("processes", [1, 2])
async def test_all_are_answered_and_show_different_arms(store: Store, tmp_path: Path, processes: int):
    services = list[HeadlessService]()
    for number in range(processes):
        settings = Settings(redis_url="unix:///not-used", data_dir=tmp_path / str(number))
        service = HeadlessService(Service(settings, store, Metrics(), pauses=PATIENT), store)
        await service.parts.start()
        services.append(service)
    try:
        first = services[0]
        await first.catalogue()
        catalogue = await first.parts.catalogues.get("c")
        await first.parts.catalogues.upsert(catalogue, [Arm(f"b{i}", [1.0, i / 64]) for i in range(CALLS)])
        await first.bandit(scope="per_key", repeats=RepeatsRule(most=1, within_s=3_600.0))
        bandits = list[Any]()
        for service in services:
            await service.parts.sync.poll()
            bandits.append(await service.parts.bandits.get("b"))
        calls = [
            service.choose(bandit, k=1)
            for _ in range(CALLS // processes)
            for service, bandit in zip(services, bandits, strict=True)
        ]
        answers = await asyncio.gather(*calls, return_exceptions=True)

        arms = [ids(answer)[0] for answer in answers]
        assert len(set(arms)) == CALLS
    finally:
        for service in services:
            await service.parts.stop()
