"""A shop of 12 arms for contracts: half of them even, a third of each maker, known rewards."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import numpy as np

from app.bandits.bandit import Bandit
from app.catalogues.arms import Arm
from app.records.records import CatalogueRecord
from app.rewards.reward_entries import Observation
from app.serving.choice import Choice
from shortlist_service.testing.headless_service import INDEX, HeadlessService

THETA = np.array([0.8, -0.5, 0.6])
FEATURES = np.random.default_rng(8).normal(size=(12, 3))
ARMS = [f"a{number}" for number in range(len(FEATURES))]
MEANS = dict(zip(ARMS, (FEATURES @ THETA).tolist(), strict=True))


def number(arm: str) -> int:
    return int(arm[1:])


def maker(arm: str) -> str:
    return f"m{number(arm) % 3}"


def metadata_of(arm: str) -> dict[str, Any]:
    """``added_s``: when it was added, in seconds since 1970: one arm each day, last of all a0."""
    added_s = time.time() - 86_400 * number(arm)
    return {"even": number(arm) % 2 == 0, "maker": maker(arm), "added_s": added_s}


def ids(choice: Choice | Exception) -> list[str]:
    """The arms of a choice, which went well."""
    assert isinstance(choice, Choice), choice
    return [arm.id for arm in choice.arms]


async def open_shop(service: HeadlessService, name: str = "shop") -> None:
    """Make the catalogue of the arms."""
    catalogue, _ = await service.parts.catalogues.create(name, CatalogueRecord(3, INDEX))
    arms = [
        Arm(arm, row.tolist(), metadata=metadata_of(arm)) for arm, row in zip(ARMS, FEATURES, strict=True)
    ]
    await service.parts.catalogues.upsert(catalogue, arms)


async def teach(
    service: HeadlessService, bandit: Bandit, arms: Iterable[Any], key: str | None = None
) -> None:
    """One observation of each of these arms, with noise of 1, applied."""
    rng = np.random.default_rng(3)
    items = [
        Observation(f"o{place}", str(arm), MEANS[str(arm)] + float(rng.normal()), key)
        for place, arm in enumerate(arms)
    ]
    await service.parts.rewards.wait(await service.parts.rewards.observe(bandit, items))
