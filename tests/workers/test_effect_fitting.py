"""When effects are fitted, and when the log is asked who teaches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from app.learners.effect_fits import FittedEffects, Folded
from app.platform.errors import Unavailable
from workers.effect_fitting import (
    ARMS_EVERY_S,
    EVERY_S,
    LOOK_EVERY_S,
    MERGE_EVERY_S,
    PAUSE_S,
    SHARE,
    EffectFitting,
)

pytestmark = pytest.mark.anyio

WITH, WITHOUT = "with-effects", "without"


@dataclass
class Town:
    """What a worker asks: a clock, bandits and fits."""

    now: float = 1_000.0
    used_s: float = 0.0
    fitted: list[str] = field(default_factory=list)
    merged: list[str] = field(default_factory=list)
    looked: list[set[str]] = field(default_factory=list)
    rewards: int = 0
    arms: int = 0
    waits: bool = False
    noted: dict[str, str] = field(default_factory=dict)
    while_read: Callable[[], None] = lambda: None
    space: int = 0
    arm_half_life_s: float | None = None
    version: Any = None

    def with_learned_priors(self) -> Sequence[str]:
        return [WITH, WITHOUT]

    def by_uid(self, uid: str) -> Any:
        effects = "auto" if uid == WITH else "off"
        record = SimpleNamespace(arm_effects=effects, space=self.space, arm_half_life_s=self.arm_half_life_s)
        return SimpleNamespace(name=uid, uid=uid, record=record, catalogue_uid="c")

    async def folded_at_fit(self) -> dict[str, str]:
        return dict(self.noted)

    async def folded(self, bandits: Sequence[Any]) -> Sequence[Folded]:
        counts = [Folded(str(self.rewards), self.arms)] * len(bandits)
        self.while_read()
        return counts

    async def with_other_arms(self, versions: dict[str, int]) -> Sequence[str]:
        return [uid for uid, version in versions.items() if version != self.arms]

    async def note_seen(self, seen: dict[str, tuple[str, str]]) -> None:
        self.noted |= {uid: text for uid, (_, text) in seen.items()}

    async def fit(self, bandit: Any, *, merges: bool) -> FittedEffects:
        self.fitted.append(bandit.uid)
        self.merged += [bandit.uid] if merges else []
        return FittedEffects(self.version, self.used_s, self.waits)

    async def look_at_keys(self, uids: Iterable[str]) -> None:
        self.looked.append(set(uids))


def fitting(town: Any, *, owns: bool = True) -> EffectFitting:
    store: Any = SimpleNamespace(effects=town, arms=SimpleNamespace(behind=town.with_other_arms))
    return EffectFitting(store, town, town, owns=lambda _: owns, now_s=lambda: town.now)


def teach(town: Town, worker: EffectFitting) -> None:
    town.rewards += 1
    worker.changed([WITH])


async def test_a_new_worker_fits_only_what_was_taught_since_the_last_fit():
    town = Town()
    await fitting(town).round()
    worker = fitting(town)
    assert await worker.round()
    assert town.fitted == [WITH]
    town.rewards += 1  # while no worker runs
    await fitting(town).round()
    assert town.fitted == [WITH, WITH]
    worker = fitting(town)
    town.while_read = lambda: teach(town, worker)
    await worker.round()
    assert town.fitted == [WITH, WITH]
    town.while_read = lambda: None
    assert await worker.round()
    assert town.fitted == [WITH, WITH, WITH], "what comes while the counts are read is not lost"


@pytest.mark.rest
async def test_a_moved_bandit_is_fitted_although_a_move_counts_as_no_reward():
    town = Town()
    worker = fitting(town)
    await worker.round()
    worker.changed([WITH])
    town.now += EVERY_S
    assert await worker.round()
    assert town.fitted == [WITH, WITH]
    town.space = 1
    await fitting(town).round()
    assert town.fitted == [WITH, WITH, WITH], "it may have been moved while no worker ran"


@pytest.mark.rest
async def test_what_could_not_be_fitted_is_fitted_later():
    town = Town()
    worker = fitting(town)
    town.while_read = Mock(side_effect=[Unavailable("gone"), None])
    with pytest.raises(Unavailable):
        await worker.round()
    assert await worker.round()
    assert (town.fitted, town.noted) == ([WITH], {WITH: "0 0"})


async def test_what_changed_is_fitted_once_a_second():
    town = Town()
    worker = fitting(town)
    assert await worker.round()
    assert town.fitted == [WITH]
    teach(town, worker)
    assert not await worker.round()
    town.now += EVERY_S
    assert await worker.round()
    assert town.fitted == [WITH, WITH]
    town.now += EVERY_S
    assert not await worker.round()
    assert town.merged == [WITH]
    town.now += MERGE_EVERY_S
    teach(town, worker)
    await worker.round()
    assert town.merged == [WITH, WITH]


@pytest.mark.rest
async def test_at_first_it_is_fitted_after_a_tenth_of_the_time_that_it_has_learned():
    town, fits = Town(), list[float]()
    worker, began = fitting(town), town.now
    for _ in range(2_000):
        teach(town, worker)
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
    teach(town, worker)
    town.now += 0.99 / SHARE
    assert not await worker.round()
    town.now += 0.01 / SHARE
    assert await worker.round()


@pytest.mark.rest
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


async def test_a_bandit_without_rewards_is_fitted_where_its_arms_change_and_where_sums_wait():
    town = Town()
    worker = fitting(town)
    await worker.round()
    town.now += ARMS_EVERY_S
    assert not await worker.round()
    town.arms, town.waits = 1, True
    town.now += ARMS_EVERY_S
    assert await worker.round()
    assert town.fitted == [WITH, WITH]
    assert town.merged == [WITH]
    town.now += MERGE_EVERY_S
    assert await worker.round()
    assert town.merged == [WITH, WITH]
    # they wait also where another worker begins, which looks at all, and at what changed while none ran
    await fitting(town).round()
    assert town.fitted == [WITH] * 4
    town.waits = False
    await fitting(town).round()
    await fitting(town).round()
    assert town.fitted == [WITH] * 5
    town.arms = 2
    await fitting(town).round()
    assert town.fitted == [WITH] * 6


async def test_arms_fade_also_while_nobody_is_rewarded():
    town = Town(arm_half_life_s=8.0 * ARMS_EVERY_S, version=SimpleNamespace(names=["a"]))
    worker = fitting(town)
    for count in (1, 2, 3):
        assert await worker.round()
        assert town.fitted == [WITH] * count
        assert not await worker.round()
        town.now += ARMS_EVERY_S
    town.version = SimpleNamespace(names=[])
    assert await worker.round(), "after this one nothing is left that fades"
    town.now += MERGE_EVERY_S
    assert not await worker.round()
    assert await fitting(town).round(), "nobody knows how long no worker ran"


async def test_another_worker_does_nothing():
    town = Town()
    assert not await fitting(town, owns=False).round()
    assert town.fitted == town.looked == []
