"""When effects are fitted, and when the log is asked who teaches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from workers.effect_fitting import DROP_EVERY_S, EVERY_S, LOOK_EVERY_S, PAUSE_S, SHARE, EffectFitting

pytestmark = pytest.mark.anyio

WITH, WITHOUT = "with-effects", "without"


@dataclass
class Town:
    """What a worker asks: a clock, bandits and fits."""

    now: float = 1_000.0
    used_s: float = 0.0
    fitted: list[str] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    looked: list[set[str]] = field(default_factory=list)

    def with_learned_priors(self) -> Sequence[str]:
        return [WITH, WITHOUT]

    def by_uid(self, uid: str) -> Any:
        return SimpleNamespace(uid=uid, record=SimpleNamespace(arm_effects="auto" if uid == WITH else "off"))

    async def fit(self, bandit: Any) -> tuple[None, float]:
        self.fitted.append(bandit.uid)
        return None, self.used_s

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


@pytest.mark.rest
async def test_at_first_it_is_fitted_after_a_tenth_of_the_time_that_it_has_learned():
    town, fits = Town(), list[float]()
    worker, began = fitting(town), town.now
    for _ in range(2_000):
        worker.changed([WITH])
        if await worker.round():
            fits.append(town.now - began)
        town.now += 0.01
    pauses = [after - before for before, after in pairwise(fits)]
    expected = [min(max(0.1 * before, PAUSE_S), EVERY_S) for before in fits]
    assert pauses == pytest.approx(expected[:-1], abs=0.011)
    assert pauses[0] == pytest.approx(PAUSE_S, abs=0.011)
    assert pauses[-1] == pytest.approx(EVERY_S, abs=0.011)


@pytest.mark.rest
async def test_fits_that_take_long_are_rare_from_the_first_one_on():
    town = Town(used_s=1.0)
    worker = fitting(town)
    await worker.round()
    worker.changed([WITH])
    town.now += 0.99 / SHARE
    assert not await worker.round()
    town.now += 0.01 / SHARE
    assert await worker.round()


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
