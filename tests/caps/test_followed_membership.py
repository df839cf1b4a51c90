"""Which quotas arms count for, beside asking each filter for each arm, whatever happens to a catalogue."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from app.caps import followed_membership, membership, membership_filters
from app.caps.followed_membership import FollowedMembership
from app.caps.membership_filters import QuotaFilters
from app.caps.rules import QuotaRule
from app.filters.attribute_snapshot import AttributeSnapshot
from app.filters.filter import Filter, parse
from app.indexes import live
from app.indexes.live import IndexOptions, LiveIndex
from app.indexes.snapshot import Snapshot
from quota_filters_pool import documents, quota_filters_of
from waiting import DEADLINE_S

pytestmark = pytest.mark.anyio

ARMS = 60


@dataclass
class Town:
    """A catalogue of ``arms`` and ``quotas`` by their numbers; ``followed``: what is known of them."""

    draw: random.Random
    index: LiveIndex = field(default_factory=lambda: LiveIndex(2, IndexOptions(kind="exact")))
    arms: dict[str, tuple[list[str], dict[str, Any]]] = field(default_factory=dict)
    quotas: dict[int, QuotaRule] = field(default_factory=dict)
    revision: int = 0

    def __post_init__(self) -> None:
        self.followed = FollowedMembership(lambda: None)

    @property
    def snapshot(self) -> Snapshot:
        return self.index.snapshot()

    def write(self, count: int, *, is_new: bool) -> None:
        """Arms that are new, or have other features, or are described again alone."""
        names = [f"a{self.draw.randrange(ARMS)}" for _ in range(count)]
        names = [*dict.fromkeys(names)] if is_new else [name for name in names if name in self.arms]
        if is_new:
            self.revision += len(names)
            self.index.upsert(
                names, np.ones((len(names), 2)), range(self.revision, self.revision + len(names))
            )
        described = {name: self.draw.choice(documents()) for name in names}
        self.index.describe([*described], [*described.values()])
        self.arms |= described

    def remove(self) -> None:
        gone = [name for name in self.arms if self.draw.random() < 0.1]
        self.index.remove(gone)
        for name in gone:
            del self.arms[name]

    def compact(self) -> None:
        """Arms and attributes, each if it is due."""
        while (job := self.index.begin_maintenance()) is not None:
            job.run()
            self.index.finish_maintenance(job)

    def change_quotas(self) -> None:
        for number in [each for each in self.quotas if self.draw.random() < 0.1]:
            del self.quotas[number]
            self.followed.remove(number)
        for _ in range(self.draw.randrange(4)):
            of_arm = self.arms and self.draw.random() < 0.2
            asked = (
                {"arm": self.draw.choice([*self.arms])}
                if of_arm
                else {"filter": self.draw.choice(quota_filters_of(self.draw))}
            )
            rule = QuotaRule(1, **asked)
            self.quotas[self.followed.add(rule)] = rule

    def counts_for(self, arm: str) -> set[int]:
        """By asking each filter."""
        tags, metadata = self.arms[arm]
        return {
            number
            for number, rule in self.quotas.items()
            if rule.arm == arm or (rule.filter is not None and parse(rule.filter).matches(tags, metadata))
        }

    def random_out(self) -> np.ndarray:
        out = np.zeros(max(self.quotas, default=0) + 2, dtype=np.bool_)
        out[[number for number in self.quotas if self.draw.random() < 0.3]] = True
        return out

    async def step(self) -> None:
        what = self.draw.random()
        if what < 0.3:
            self.write(self.draw.randrange(1, 12), is_new=self.draw.random() < 0.5)
        elif what < 0.4:
            self.remove()
        elif what < 0.5:
            self.compact()
        else:
            self.change_quotas()

    async def follow(self) -> None:
        """As a choice does; what is being found for the other catalogue comes to its end first."""
        self.followed.follow(self.snapshot)
        while not await self.followed.ready(self.snapshot):
            self.followed.follow(self.snapshot)

    async def settle(self) -> None:
        """Wait until all is known, and what was deleted is gone."""
        rows = np.arange(self.snapshot.table.rows)
        while not await self.followed.settled(self.snapshot, rows) or self.followed._update is not None:
            if self.followed._update is not None:
                await asyncio.wait({self.followed._update})

    async def sync_with_store(self) -> None:
        """What is eligible may be shown, and counts for what its filters say."""
        snapshot, out = self.snapshot, self.random_out()
        eligible = await self.followed.eligible(snapshot, out)
        assert eligible is not None
        for arm in self.arms:
            row = snapshot.table.row_of(arm)
            if self.followed.members.waiting[row] or self.followed.members.beyond[row]:
                assert not eligible[row]
            else:
                numbers = self.quotas.keys() & self.followed.members.of(row)  # not those just deleted
                assert numbers == self.counts_for(arm)
                assert eligible[row] == (not out[[*numbers, -1]].any())


@pytest.fixture(params=["at once", "in a thread"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small tables are compacted; filters are evaluated at once, or in a thread."""
    monkeypatch.setattr(live, "_LEAST_DEAD", 8)
    if request.param == "in a thread":
        monkeypatch.setattr(membership_filters, "MOST_AT_ONCE", -1)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 8))]
)
async def test_arms_count_for_what_their_filters_say(seed: int):
    town = Town(random.Random(seed))
    town.write(40, is_new=True)
    for _ in range(40):
        await town.step()
        await town.sync_with_store()
    await town.settle()
    members = town.followed.members
    counts = {arm: town.counts_for(arm) for arm in town.arms}
    assert {arm: set(members.of(town.snapshot.table.row_of(arm))) for arm in town.arms} == counts
    assert members.total == sum(map(len, counts.values()))
    rows = np.array([town.snapshot.table.row_of(arm) for arm in town.arms], dtype=np.int64)
    places, numbers = members.quotas_of(rows)
    assert sorted(zip(places.tolist(), numbers.tolist(), strict=True)) == sorted(
        (place, number) for place, arm in enumerate(town.arms) for number in counts[arm]
    )


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 6))])
async def test_what_is_not_known_yet_is_not_eligible(seed: int, monkeypatch: pytest.MonkeyPatch):
    """Arms are written and described while filters are evaluated in a thread, by several callers at once."""
    monkeypatch.setattr(membership_filters, "MOST_AT_ONCE", -1)
    monkeypatch.setattr(live, "_LEAST_DEAD", 8)
    monkeypatch.setattr(followed_membership, "BATCH_SIZE", 7)
    monkeypatch.setattr(membership, "_GARBAGE", 50)
    town = Town(random.Random(seed))
    town.write(40, is_new=True)

    async def caller() -> None:
        for _ in range(40):
            await town.step()
            snapshot = town.snapshot
            if await town.followed.ready(snapshot) and snapshot is town.snapshot and not town.followed._new:
                members = town.followed.members
                for arm in town.arms:
                    row = snapshot.table.row_of(arm)
                    if not members.waiting[row]:
                        assert {*members.of(row)} & town.quotas.keys() == town.counts_for(arm)
                        seen[0] += 1
            await asyncio.sleep(0)

    seen = [0]

    await asyncio.gather(*(caller() for _ in range(4)))
    assert seen[0] > 100
    await town.settle()
    await town.sync_with_store()


@pytest.mark.rest
@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 4))])
async def test_an_arm_beyond_a_limit_is_not_eligible_until_there_is_room(
    seed: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(membership, "MAX_OF_ARM", 3)
    monkeypatch.setattr(membership, "MAX_PAIRS", 60)
    town = Town(random.Random(seed))
    town.write(40, is_new=True)
    for _ in range(40):
        await town.step()
        await town.sync_with_store()
        assert (town.followed.members.counts <= 3).all()
        assert town.followed.members.total <= 60
    assert town.followed.beyond > 0
    for number in [*town.quotas]:
        del town.quotas[number]
        town.followed.remove(number)
    await town.settle()
    assert town.followed.beyond == 0
    assert town.followed.members.total == 0


@pytest.mark.rest
@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 3))])
async def test_quotas_follow_a_bandit_to_another_catalogue_and_back(seed: int):
    """Prepared or not, while quotas and arms of both change; choices of before may still be under way."""
    towns = [Town(random.Random(seed)), Town(random.Random(seed + 100))]
    here, there = towns
    there.followed, there.quotas = here.followed, here.quotas
    for town in towns:
        town.write(40, is_new=True)
    for number in range(30):
        town = towns[number % 2 if number % 7 else 0]
        if town.draw.random() < 0.5:
            await town.followed.prepare(town.snapshot)
            assert town.snapshot.whole.table.number in town.followed._aside
        await town.step()
        await town.follow()
        await town.sync_with_store()
    for town in towns:
        await town.follow()
        await town.settle()
        members = town.followed.members
        for arm in town.arms:
            assert {*members.of(town.snapshot.table.row_of(arm))} == town.counts_for(arm)


@pytest.mark.rest
async def test_what_was_prepared_is_taken_up_and_not_found_again(monkeypatch: pytest.MonkeyPatch):
    here, there = Town(random.Random(1)), Town(random.Random(2))
    there.followed, there.quotas = here.followed, here.quotas
    for town in (here, there):
        town.write(40, is_new=True)
    here.change_quotas()
    here.change_quotas()
    await here.settle()
    await here.followed.prepare(there.snapshot)
    found = list[int]()
    whole = membership_filters.QuotaFilters.found

    def counted(filters: membership_filters.QuotaFilters, snapshot: Snapshot, rows: np.ndarray) -> Any:
        found.append(len(rows) * len(filters.rules))
        return whole(filters, snapshot, rows)

    monkeypatch.setattr(membership_filters.QuotaFilters, "found", counted)
    for town in (there, here, there):  # a choice of before may still be under way
        await town.follow()
        await town.sync_with_store()
    assert sum(found) == 0
    monkeypatch.setattr(followed_membership.time, "monotonic", lambda: 1e9)
    there.followed.tidy()
    assert not there.followed._aside


@pytest.mark.rest
async def test_a_choice_does_not_wait_while_filters_are_evaluated_for_arms_that_changed(
    monkeypatch: pytest.MonkeyPatch,
):
    """It bars the arms of what was used up meanwhile, however long the thread takes."""
    town = Town(random.Random(1))
    town.write(40, is_new=True)
    for _ in range(8):
        town.change_quotas()
    await town.settle()
    is_over = asyncio.Event()
    run = FollowedMembership._evaluated

    async def held_up(work: Any, is_long: bool) -> Any:
        await is_over.wait()
        return await run(work, is_long)

    monkeypatch.setattr(membership_filters, "MOST_AT_ONCE", -1)
    monkeypatch.setattr(FollowedMembership, "_evaluated", staticmethod(held_up))
    monkeypatch.setattr(followed_membership, "MANY", 1.0)
    town.write(4, is_new=False)
    snapshot, out = town.snapshot, np.ones(len(town.followed.members.sizes), dtype=np.bool_)
    assert await town.followed.ready(snapshot)
    async with asyncio.timeout(DEADLINE_S):  # it does not wait for what is held up
        eligible = await town.followed.eligible(snapshot, out)
    assert eligible is not None
    for arm in town.arms:
        assert not (eligible[snapshot.table.row_of(arm)] and town.counts_for(arm))
    is_over.set()
    await town.settle()
    await town.sync_with_store()


def of_each_arm(index: LiveIndex, filters: QuotaFilters) -> list[set[int]]:
    """The quotas that each arm counts for, asked for it alone."""
    snapshot = index.snapshot()
    return [
        {number for number, _ in filters.found(snapshot, np.array([row]))}
        for row in range(snapshot.table.rows)
    ]


@pytest.mark.rest
def test_one_arm_counts_for_what_the_filters_say():
    """Where rows are few, filters are left out by the values and the numbers of these rows alone."""
    index, arms = LiveIndex(1, IndexOptions(kind="exact")), documents()
    names = [f"a{number}" for number in range(len(arms))]
    index.upsert(names, np.ones((len(arms), 1)), range(1, len(arms) + 1))
    index.describe(names, arms)
    asked = [each for seed in range(6) for each in quota_filters_of(random.Random(seed))]
    filters = QuotaFilters({number: QuotaRule(1, filter=each) for number, each in enumerate(asked)})
    expected = [{number for number, each in enumerate(asked) if parse(each).matches(*arm)} for arm in arms]
    assert of_each_arm(index, filters) == expected
    for number in range(0, len(asked), 2):
        filters.remove(number)
    assert of_each_arm(index, filters) == [{each for each in own if each % 2} for own in expected]


@pytest.mark.rest
def test_an_arm_that_changes_asks_few_of_many_intervals(monkeypatch: pytest.MonkeyPatch):
    index, count = LiveIndex(1, IndexOptions(kind="exact")), 600
    names = [f"a{number}" for number in range(count)]
    index.upsert(names, np.ones((count, 1)), range(1, count + 1))
    index.describe(names, [([], {"price": number, "campaign": number}) for number in range(count)])
    shapes: list[dict[str, Any]] = []
    for low in range(0, count, 2):
        interval = {"$gte": low, "$lt": low + 4}
        shapes += [{"price": interval}, {"$or": [{"campaign": low}, {"price": interval}]}]
    filters = QuotaFilters({number: QuotaRule(1, filter=each) for number, each in enumerate(shapes)})
    evaluated = list[str]()
    evaluate = AttributeSnapshot.evaluate

    def counted(self: AttributeSnapshot, arm_filter: Filter, first: int = 0) -> Any:
        evaluated.append(arm_filter.key)
        return evaluate(self, arm_filter, first)

    monkeypatch.setattr(AttributeSnapshot, "evaluate", counted)
    assert len(filters.found(index.snapshot(), np.array([300, 301]))) == 4
    assert len(evaluated) <= 8  # of 600
