"""Which quotas arms count for, beside asking each filter for each arm, whatever happens to a catalogue."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from app.filters.filter import Filter, parse
from app.indexes.live import IndexOptions, LiveIndex
from app.indexes.snapshot import Snapshot
from app.quotas.members import LONG_WORK, STEPS_OF_A_VALUE, QuotaMembers, RemainingQuotas
from app.quotas.rules import OneValue, QuotaRule
from quota_filters_pool import documents, quota_filters_of

pytestmark = pytest.mark.anyio

ARMS, STEPS = 60, 120


@dataclass
class Catalogue:
    """Arms with their tags and metadata, and quotas by their numbers."""

    draw: random.Random
    index: LiveIndex = field(default_factory=lambda: LiveIndex(2, IndexOptions(kind="exact")))
    members: QuotaMembers = field(default_factory=QuotaMembers)
    arms: dict[str, tuple[list[str], dict[str, Any]]] = field(default_factory=dict)
    quotas: dict[int, QuotaRule] = field(default_factory=dict)
    revision: int = 0

    def put(self, *, is_new: bool) -> None:
        """Arms that are new, or have other features, or are described again alone."""
        drawn = dict.fromkeys(f"a{self.draw.randrange(ARMS)}" for _ in range(self.draw.randrange(1, 12)))
        names = [name for name in drawn if is_new or name in self.arms]
        if is_new:
            self.revision += len(names)
            revisions = range(self.revision, self.revision + len(names))
            self.index.upsert(names, np.ones((len(names), 2)), revisions)
        described = {name: self.draw.choice(documents()) for name in names}
        self.index.describe([*described], [*described.values()])
        self.arms |= described

    def delete(self) -> None:
        gone = [name for name in self.arms if self.draw.random() < 0.1]
        self.index.remove(gone)
        for name in gone:
            del self.arms[name]

    def compact(self) -> None:
        """Rows are numbered again where enough arms died."""
        while (job := self.index.begin_maintenance()) is not None:
            job.run()
            self.index.finish(job)

    def change_quotas(self) -> None:
        for number in [number for number in self.quotas if self.draw.random() < 0.1]:
            del self.quotas[number]
            self.members.remove(number)
        for _ in range(self.draw.randrange(4)):
            number = next(n for n in range(10**6) if n not in self.quotas)
            if self.draw.random() < 0.2:
                rule = QuotaRule(1, arm=f"a{self.draw.randrange(ARMS)}")
            else:
                rule = QuotaRule(1, self.draw.choice(quota_filters_of(self.draw)))
            self.quotas[number] = rule
            self.members.add(number, rule)

    def step(self) -> None:
        chance = self.draw.random()
        if chance < 0.35:
            self.put(is_new=self.draw.random() < 0.5)
        elif chance < 0.45:
            self.delete()
        elif chance < 0.55:
            self.compact()
        else:
            self.change_quotas()

    def quotas_of(self, arm: str) -> list[int]:
        """The definition: each quota is asked for the arm as it is."""
        tags, metadata = self.arms[arm]
        return [
            number
            for number, rule in sorted(self.quotas.items())
            if rule.arm == arm or (rule.filter is not None and parse(rule.filter).matches(tags, metadata))
        ]

    def least(self, number: int, numbers: list[int]) -> int:
        counted = self.quotas[number].counted
        return min(n for n in numbers if self.quotas[n].counted == counted)

    def counting(self, snapshot: Snapshot, numbers: list[int]) -> set[str]:
        return {arm for arm in self.arms if set(self.quotas_of(arm)) & set(numbers)}


@pytest.mark.parametrize("seed", range(3))
async def test_arms_count_as_each_quota_says_of_each_arm(seed: int):
    """For single arms, for all arms of some quotas, for the limits of a list; and as a snapshot was taken."""
    draw = random.Random(seed)
    catalogue = Catalogue(draw)
    earlier, rules, then = catalogue.index.snapshot(), dict[int, QuotaRule](), dict[str, list[int]]()
    for step in range(STEPS):
        catalogue.step()
        snapshot, members = catalogue.index.snapshot(), catalogue.members
        arms = draw.sample([*catalogue.arms], min(len(catalogue.arms), 8))
        rows = [*map(snapshot.table.row_of, arms), -1]
        expected = [catalogue.quotas_of(arm) for arm in arms]
        assert [sorted(numbers) for numbers in members.quotas_of(snapshot, rows)] == [*expected, []]
        numbers = [number for number in catalogue.quotas if draw.random() < 0.3]
        counting = await members.counting(snapshot, numbers)
        found = {snapshot.table.ids[row] for row in np.flatnonzero(counting & _is_live(snapshot)).tolist()}
        assert found == catalogue.counting(snapshot, numbers)
        if numbers and arms:
            # Of quotas that count the same the least is left, here that of the least number.
            least = {n: catalogue.least(n, numbers) for n in numbers}
            limit = RemainingQuotas(members, {n: n for n in numbers})
            places, codes, left = limit.pairs(snapshot, np.array(rows[:-1]))
            pairs = set(zip(places.tolist(), left[codes].tolist(), strict=True))
            assert pairs == {
                (place, least[n]) for place, quotas in enumerate(expected) for n in quotas if n in numbers
            }
        # A choice that began before arms changed ends after it. Quotas may have come and gone meanwhile.
        told = members.quotas_of(earlier, [*map(earlier.table.row_of, then)])
        same = {number for number, rule in rules.items() if catalogue.quotas.get(number) is rule}
        assert [same & set(numbers) for numbers in told] == [same & set(numbers) for numbers in then.values()]
        if step % 5 == 0:
            earlier, rules, then = snapshot, dict(catalogue.quotas), dict(zip(arms, expected, strict=True))
            await members.follow(snapshot)


def _is_live(snapshot: Snapshot) -> np.ndarray:
    is_live = np.zeros(snapshot.table.rows, dtype=np.bool_)
    is_live[snapshot.table.live_rows] = True
    return is_live


async def test_quotas_that_no_arm_counts_for_are_found():
    catalogue = Catalogue(random.Random(0))
    catalogue.index.upsert(["a", "b"], np.ones((2, 2)), range(2))
    catalogue.index.describe(["a", "b"], [((), {"campaign": 1}), ((), {"campaign": 2, "price": 5})])
    rules = [
        QuotaRule(1, arm="a"),
        QuotaRule(1, arm="gone"),
        QuotaRule(1, {"campaign": 1}),
        QuotaRule(1, {"campaign": 3}),
        QuotaRule(1, {"campaign": 3}),
        QuotaRule(1, {"price": {"$gt": 4}}),
        QuotaRule(1, {"price": {"$gt": 5}}),
    ]
    for number, rule in enumerate(rules):
        catalogue.members.add(number, rule)
    assert sorted(await catalogue.members.absent(catalogue.index.snapshot())) == [1, 3, 4, 6]


async def test_a_choice_that_began_before_arms_came_finds_those_of_a_new_quota():
    catalogue = Catalogue(random.Random(0))
    members, index = catalogue.members, catalogue.index
    index.upsert(["a", "b"], np.ones((2, 2)), range(2))
    index.describe(["a", "b"], [((), {"price": 1}), ((), {"price": 5})])
    earlier = index.snapshot()
    index.upsert(["c"], np.ones((1, 2)), [2])
    index.describe(["b", "c"], [((), {"price": 1}), ((), {"price": 5})])
    await members.follow(index.snapshot())
    for number, body in enumerate(({"price": 5}, {"price": {"$gt": 2}})):
        members.add(number, QuotaRule(1, body))
        assert (await members.counting(earlier, [number])).tolist() == [False, True]
        assert (await members.counting(index.snapshot(), [number])).tolist() == [False, False, True]


@pytest.mark.rest
async def test_quotas_that_are_deleted_while_rows_are_found_count_no_arms():
    """So many values are looked for in a thread; a choice waits behind a round of the process."""
    catalogue = Catalogue(random.Random(0))
    members, index = catalogue.members, catalogue.index
    index.upsert(["a", "b"], np.ones((2, 2)), range(2))
    index.describe(["a", "b"], [((), {"price": 0}), ((), {"price": 1})])
    for number in range(LONG_WORK // STEPS_OF_A_VALUE):
        members.add(number, QuotaRule(1, {"price": number}))
    snapshot = index.snapshot()
    following = asyncio.create_task(members.follow(snapshot))
    counting = asyncio.create_task(members.counting(snapshot, [0, 1]))
    await asyncio.sleep(0)
    members.remove(0)
    await following
    assert (await counting).tolist() == [False, True]


@pytest.mark.parametrize(
    ("body", "is_equality"),
    [
        ({"campaign": 1}, True),
        ({"campaign": {"$eq": "x"}}, True),
        ({"campaign": {"$in": [1]}}, True),
        ({"$and": [{"campaign": 1}]}, True),
        ({"campaign": {"$in": [1, 2]}}, False),
        ({"campaign": {"$ne": 1}}, False),
        ({"campaign": 1, "price": 2}, False),
        ({}, False),
    ],
)
def test_an_equality_of_one_field_is_told_from_other_filters(body: dict[str, Any], is_equality: bool):
    assert isinstance(QuotaRule(1, body).counted, OneValue if is_equality else Filter)
