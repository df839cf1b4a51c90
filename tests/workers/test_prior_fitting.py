"""When learned priors are fitted again: by what has come since, by the clock, and who does it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from app.bandits.prior_version import PriorRecord, PriorVersion
from app.platform import background
from app.storage.types import FoldedCounts
from workers import prior_fitting
from workers.prior_fitting import LONGEST_S, FittingPauses, PriorFitting

pytestmark = pytest.mark.anyio

UID = "0123456789abcdef"


@dataclass
class Town:
    """What a worker asks: counts of the store, bandits, versions and fits."""

    counts: dict[str, FoldedCounts] = field(default_factory=dict)
    versions: dict[str, PriorVersion] = field(default_factory=dict)
    fitted: list[str] = field(default_factory=list)
    spaces: dict[str, int] = field(default_factory=dict)
    reads: int = 0
    gives: bool = True
    keys: int = 9
    seconds: float = 0.0

    async def folded(self, uids: Sequence[str]) -> Sequence[FoldedCounts]:
        self.reads += 1
        return [self.counts.get(uid, FoldedCounts()) for uid in uids]

    def with_learned_priors(self) -> Sequence[str]:
        return list(self.counts)

    def by_uid(self, uid: str) -> Any:
        if uid not in self.counts:
            return None
        record = SimpleNamespace(prior="learned", space=self.spaces.get(uid, 0))
        return SimpleNamespace(uid=uid, record=record)

    async def newest(self, uid: str) -> PriorVersion | None:
        return self.versions.get(uid)

    async def fit(self, bandit: Any) -> Any:
        counts, uid = self.counts[bandit.uid], bandit.uid
        self.fitted.append(uid)
        if self.gives:
            number = 1 + (self.versions[uid].number if uid in self.versions else 0)
            self.versions[uid] = version(number, counts, space=bandit.record.space)
        few = self.keys < 5
        return SimpleNamespace(is_new=self.gives, is_of_few=few, keys=self.keys, seconds=self.seconds)


def version(number: int, counts: FoldedCounts, *, since_ms: int = 0, space: int = 0) -> PriorVersion:
    """One that has a prior, whatever it says."""
    record = PriorRecord(number, since_ms, counts.entries, counts.replaced, keys=9, space=space)
    return PriorVersion(record, SimpleNamespace())  # type: ignore[arg-type]


@dataclass
class Clock:
    """Seconds, of the wall and since whenever; ``core``: for which the thread has worked."""

    now: float = 1_000.0
    core: float = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    core = lambda: clock.core  # noqa: E731
    monkeypatch.setattr(prior_fitting, "time", SimpleNamespace(monotonic=clock, time=clock, thread_time=core))
    return clock


def worker(
    town: Town,
    clock: Clock,
    *,
    owned: Mapping[int, bool] | None = None,
    pauses: FittingPauses = FittingPauses(),
) -> PriorFitting:
    owns = {0: True} if owned is None else owned
    fitting: Any = PriorFitting  # a town stands for the store, the bandits, the priors and the fits
    made = fitting(town, town, town, town, owns=owns.__getitem__, now_s=clock, pauses=pauses)
    return cast("PriorFitting", made)


@pytest.mark.rest
async def test_after_a_move_that_left_no_prior_one_is_fitted_and_none_by_who_has_not_heard_of_it(
    clock: Clock,
):
    town = Town({UID: FoldedCounts(100)})
    mine = worker(town, clock)
    await mine.round()
    assert town.fitted == [UID]
    town.spaces[UID] = 1
    mine.changed([UID])
    await mine.round()
    assert town.fitted == [UID, UID]
    assert town.versions[UID].record.space == 1
    mine.changed([UID])
    await mine.round()
    town.spaces[UID] = 0
    town.counts[UID] = FoldedCounts(1_000)
    mine.changed([UID])
    await mine.round()
    assert town.fitted == [UID, UID]


async def test_only_who_holds_the_first_partition_fits(clock: Clock):
    town, owned = Town({UID: FoldedCounts(100)}), {0: False}
    fitting = worker(town, clock, owned=owned)
    fitting.changed([UID])
    await fitting.round()
    assert not town.fitted
    owned[0] = True
    await fitting.round()
    assert town.fitted == [UID]


@pytest.mark.parametrize(("entries", "due"), [(109, False), (110, True), (99, True)])
async def test_a_tenth_as_many_rewards_more_are_enough_and_lost_ones_too(
    clock: Clock, entries: int, due: bool
):
    """A store that was put back has fewer: what stands is not what it says."""
    town = Town({UID: FoldedCounts(100)})
    fitting = worker(town, clock)
    await fitting.round()
    town.counts[UID] = FoldedCounts(entries)
    fitting.changed([UID])
    await fitting.round()
    assert town.fitted == [UID] * (1 + due)


@pytest.mark.rest
async def test_a_forgotten_key_is_enough(clock: Clock):
    town = Town({UID: FoldedCounts(100)})
    fitting = worker(town, clock)
    await fitting.round()
    town.counts[UID] = FoldedCounts(101, 1)
    fitting.changed([UID])
    await fitting.round()
    assert town.fitted == [UID] * 2


@pytest.mark.rest
async def test_one_reward_is_enough_after_an_hour_and_none_is_not(clock: Clock):
    town = Town({UID: FoldedCounts(100)})
    fitting = worker(town, clock)
    await fitting.round()
    town.versions[UID] = PriorVersion(
        PriorRecord(1, round(1_000 * clock.now), 100, 0, keys=9), SimpleNamespace()
    )  # type: ignore[arg-type]
    clock.now += 2 * LONGEST_S
    fitting.changed([UID])
    await fitting.round()
    assert town.fitted == [UID], "nothing has come"
    town.versions[UID] = PriorVersion(
        PriorRecord(1, round(1_000 * clock.now), 100, 0, keys=9), SimpleNamespace()
    )  # type: ignore[arg-type]
    town.counts[UID] = FoldedCounts(101)
    fitting.changed([UID])
    await fitting.round()
    assert town.fitted == [UID]
    clock.now += LONGEST_S
    await fitting.round()
    assert town.fitted == [UID] * 2, "nobody has said that anything changed since"


async def test_what_gave_no_version_is_tried_again_when_there_is_more(clock: Clock):
    town = Town({UID: FoldedCounts(100)}, gives=False)
    fitting = worker(town, clock)
    for entries, tries in ((100, 1), (101, 1), (109, 1), (110, 2)):
        town.counts[UID] = FoldedCounts(entries)
        fitting.changed([UID])
        await fitting.round()
        assert len(town.fitted) == tries
    town.keys = 4
    for entries, tries in ((300, 3), (301, 4)):
        town.counts[UID] = FoldedCounts(entries)
        fitting.changed([UID])
        await fitting.round()
        assert len(town.fitted) == tries, "of four keys one reward may make five"


@pytest.mark.rest
async def test_it_takes_a_twentieth_of_a_core_but_for_what_it_has_saved(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
):
    """A fit keeps a core for a second here, so 19 follow; of which 60 were saved when it began."""
    uids = [f"{number:016}" for number in range(7)]
    town = Town({uid: FoldedCounts(10) for uid in uids}, seconds=0.7)
    fitting, fit = worker(town, clock), town.fit

    async def slow(bandit: Any, **options: Any) -> Any:
        clock.core += 0.3
        return await fit(bandit, **options)

    monkeypatch.setattr(town, "fit", slow)
    await fitting.round()
    assert len(town.fitted) == 4  # 4 x 19 are 76: 16 s are left to rest
    clock.now += 15.9
    await fitting.round()
    assert len(town.fitted) == 4
    for fits, later in ((5, 0.2), (6, 19.0)):
        clock.now += later
        await fitting.round()
        assert len(town.fitted) == fits
    clock.now += 1_000.0
    await fitting.round()
    assert sorted(town.fitted) == uids


async def test_requests_that_are_served_meanwhile_are_no_work(clock: Clock, monkeypatch: pytest.MonkeyPatch):
    """The event loop is busy for an hour during each fit, which itself takes a millisecond."""
    uids = [f"{number:016}" for number in range(9)]
    town = Town({uid: FoldedCounts(10) for uid in uids}, seconds=0.001)
    fitting, fit = worker(town, clock), town.fit

    async def beside_requests(bandit: Any, **options: Any) -> Any:
        clock.core += 3_600.0
        return await fit(bandit, **options)

    monkeypatch.setattr(town, "fit", beside_requests)
    await fitting.round()
    assert sorted(town.fitted) == uids


async def test_a_fit_that_fails_is_tried_again(clock: Clock, monkeypatch: pytest.MonkeyPatch):
    town = Town({UID: FoldedCounts(100)})
    fitting, fit = worker(town, clock), town.fit

    async def failing(_: Any, **options: Any) -> Any:
        raise RuntimeError

    monkeypatch.setattr(town, "fit", failing)
    with pytest.raises(RuntimeError):
        await fitting.round()
    monkeypatch.setattr(town, "fit", fit)
    await fitting.round()
    assert town.fitted == [UID]


@pytest.mark.rest
async def test_a_fit_that_always_fails_keeps_none_of_the_others_waiting(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
):
    uids = [f"{number:016}" for number in range(8)]
    town = Town({uid: FoldedCounts(10) for uid in uids})
    fitting, fit = worker(town, clock), town.fit

    async def failing(bandit: Any, **options: Any) -> Any:
        if bandit.uid in uids[:4]:
            clock.core += 0.1
            raise RuntimeError
        return await fit(bandit, **options)

    monkeypatch.setattr(town, "fit", failing)
    for _ in range(8):
        with contextlib.suppress(RuntimeError):
            await fitting.round()
        fitting.changed(uids)
        clock.now += 2.0
    assert sorted(set(town.fitted)) == uids[4:]


async def test_what_is_learned_is_looked_at_at_once(clock: Clock, monkeypatch: pytest.MonkeyPatch):
    """Waits of the clock are an hour long here: only news can end them."""
    hour = FittingPauses(after_fit_s=0.0, idle_s=3_600.0, longest_s=3_600.0)
    town = Town({UID: FoldedCounts(100)})
    fitting, fit, done = worker(town, clock, pauses=hour), town.fit, asyncio.Event()

    async def told(bandit: Any, **options: Any) -> Any:
        done.set()
        return await fit(bandit, **options)

    monkeypatch.setattr(town, "fit", told)
    running = asyncio.create_task(fitting.run())
    try:
        for fits in range(1, 4):
            town.counts[UID] = FoldedCounts(100 * 2**fits)
            fitting.changed([UID])
            async with asyncio.timeout(30.0):
                await done.wait()
            done.clear()
        assert town.fitted == [UID] * 3
    finally:
        await background.end([running])


@pytest.mark.rest
async def test_rewards_after_which_nothing_is_due_are_looked_at_now_and_then(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
):
    """A look costs a call of each partition, more than a reward does: its pauses are counted here."""
    town = Town({UID: FoldedCounts(100)})
    fitting, pauses = worker(town, clock), list[float]()

    async def slept(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(prior_fitting.asyncio, "sleep", slept)
    for entries, due in ((100, True), (101, False), (105, False), (110, True), (111, False)):
        town.counts[UID] = FoldedCounts(entries)
        fitting.changed([UID])
        await fitting._next_round()  # private: one round, without waiting for the next
        expected = FittingPauses().after_fit_s if due else FittingPauses().longest_s
        assert pauses[-1] == expected, entries
    assert town.fitted == [UID] * 2
