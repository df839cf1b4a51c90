"""When effects are fitted, and when the log is asked who teaches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from workers.effect_fitting import DROP_EVERY_S, EVERY_S, LOOK_EVERY_S, EffectFitting

pytestmark = pytest.mark.anyio

WITH, WITHOUT = "with-effects", "without"


@dataclass
class Town:
    """What a worker asks: a clock, bandits and fits."""

    now: float = 1_000.0
    fitted: list[str] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    looked: list[set[str]] = field(default_factory=list)

    def with_learned_priors(self) -> Sequence[str]:
        return [WITH, WITHOUT]

    def by_uid(self, uid: str) -> Any:
        return SimpleNamespace(uid=uid, record=SimpleNamespace(arm_effects="auto" if uid == WITH else "off"))

    async def fit(self, bandit: Any) -> tuple[None, float]:
        self.fitted.append(bandit.uid)
        return None, 0.0

    async def drop_gone(self, bandit: Any) -> int:
        self.dropped.append(bandit.uid)
        return 0

    async def look_at_keys(self, uids: Iterable[str]) -> None:
        self.looked.append(set(uids))


def fitting(town: Any, *, owns: bool = True) -> EffectFitting:
    return EffectFitting(town, town, owns=lambda _: owns, now_s=lambda: town.now)


async def test_what_changed_is_fitted_once_a_second():
    town = Town()
    worker = fitting(town)
    assert await worker.round()
    assert town.fitted == [WITH]
    worker.changed([WITH])
    assert not await worker.round()
    town.now += EVERY_S
    assert await worker.round()
    assert town.fitted == [WITH, WITH]
    town.now += EVERY_S
    assert not await worker.round()
    assert town.dropped == [WITH]
    town.now += DROP_EVERY_S
    worker.changed([WITH])
    await worker.round()
    assert town.dropped == [WITH, WITH]


async def test_who_teaches_is_asked_ten_minutes_after_something_was_taught():
    town = Town()
    worker = fitting(town)
    for _ in range(3):
        await worker.round()
        town.now += LOOK_EVERY_S / 3
    assert town.looked == []
    await worker.round()
    assert town.looked == [{WITH}]
    town.now += 2 * LOOK_EVERY_S
    await worker.round()
    await worker.round()
    assert len(town.looked) == 1  # nothing was taught since


async def test_another_worker_does_nothing():
    town = Town()
    assert not await fitting(town, owns=False).round()
    assert town.fitted == town.looked == []
