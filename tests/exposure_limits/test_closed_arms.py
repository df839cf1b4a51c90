"""Which quotas arms count for, beside asking each quota for each arm, whatever happens to a catalogue."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from app.exposure_limits.closed_arms import ClosedArms, QuotaMembers
from app.exposure_limits.rules import BanditQuota, QuotaRule
from app.filters.filter import Filter, parse
from app.indexes.live import IndexOptions, LiveIndex
from app.indexes.snapshot import Snapshot
from app.platform.errors import Invalid

pytestmark = pytest.mark.anyio

ARMS, STEPS = 60, 120
POOL: dict[str, list[Any]] = {
    "campaign": [0, 1, 2, "1", True],
    "price": [0, 2.5, 2**53 + 1, [0, 4]],
    "maker": ["ada", "bob", ["ada", "bob"]],
    "shelf": [{"row": 1}, {"row": 2}],
}
VALUES = [("campaign", value) for value in POOL["campaign"]]
VALUES += [("price", 4), ("price", 2**53 + 1), ("maker", "ada"), ("shelf.row", 1), ("tags", "new")]


@dataclass
class Catalogue:
    """Arms with their tags and metadata, and quotas by their ids."""

    draw: random.Random
    index: LiveIndex = field(default_factory=lambda: LiveIndex(2, IndexOptions(kind="exact")))
    members: QuotaMembers = field(default_factory=QuotaMembers)
    arms: dict[str, tuple[list[str], dict[str, Any]]] = field(default_factory=dict)
    quotas: dict[str, BanditQuota] = field(default_factory=dict)
    filters: dict[str, Filter] = field(default_factory=dict)
    revision: int = 0

    def put(self, *, is_new: bool) -> None:
        """Arms that are new, or have other features, or are described again alone."""
        drawn = dict.fromkeys(f"a{self.draw.randrange(ARMS)}" for _ in range(self.draw.randrange(1, 12)))
        names = [name for name in drawn if is_new or name in self.arms]
        if is_new:
            self.revision += len(names)
            revisions = range(self.revision, self.revision + len(names))
            self.index.upsert(names, np.ones((len(names), 2)), revisions)
        described = {
            name: (
                self.draw.sample(["new", "old"], self.draw.randrange(3)),
                {key: self.draw.choice(values) for key, values in POOL.items() if self.draw.random() < 0.7},
            )
            for name in names
        }
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
        for name in [name for name in self.quotas if self.draw.random() < 0.1]:
            self.members.remove(self.quotas.pop(name))
        for _ in range(self.draw.randrange(4)):
            name = f"q{next(n for n in range(10**6) if f'q{n}' not in self.quotas)}"
            filter_field, value = self.draw.choice(VALUES)
            rule = QuotaRule(1, {filter_field: value})
            self.filters[name] = parse({filter_field: value})
            if self.draw.random() < 0.2:
                rule = QuotaRule(1, arm=f"a{self.draw.randrange(ARMS)}")
            self.quotas[name] = BanditQuota.of_rule(name, "0" * 16, rule)
            self.members.add(self.quotas[name])

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

    def quotas_of(self, arm: str) -> set[str]:
        """The definition: each quota is asked for the arm as it is."""
        rules = {name: quota.rule for name, quota in self.quotas.items()}
        filters = {name: self.filters[name] for name, rule in rules.items() if rule.filter is not None}
        matching = {name for name, each in filters.items() if each.matches(*self.arms[arm])}
        return matching | {name for name, rule in rules.items() if rule.arm == arm}


def names_of(members: QuotaMembers, snapshot: Snapshot, rows: list[int]) -> list[set[str]]:
    found = members.quotas_of(snapshot, rows)
    assert all(len(set(quotas)) == len(quotas) for quotas in found), "each once"
    return [{quota.id for quota in quotas} for quotas in found]


def ids(snapshot: Snapshot) -> set[str]:
    return {*map(snapshot.id_of, snapshot.eligible().tolist())}


@pytest.mark.parametrize("seed", range(3))
async def test_arms_count_as_each_quota_says_of_each_arm(seed: int):
    """For single arms, for all arms of closed quotas, also within a filter; and as a snapshot was taken."""
    draw = random.Random(seed)
    catalogue, closed = Catalogue(draw), dict[str, BanditQuota]()
    earlier, quotas, then = catalogue.index.snapshot(), dict[str, BanditQuota](), dict[str, set[str]]()
    arms_of_closed = ClosedArms(catalogue.members, "1-1", 0, closed)
    for step in range(STEPS):
        catalogue.step()
        snapshot, members = catalogue.index.snapshot(), catalogue.members
        arms = draw.sample([*catalogue.arms], min(len(catalogue.arms), 8))
        rows = [*map(snapshot.table.row_of, arms), -1]
        of_arms = {arm: catalogue.quotas_of(arm) for arm in catalogue.arms}
        expected = [of_arms[arm] for arm in arms]
        assert names_of(members, snapshot, rows) == [*expected, set()]
        absent = catalogue.quotas.keys() - set[str]().union(*of_arms.values())
        assert {*members.absent(snapshot)} == absent
        if step % 4 == 0 or any(catalogue.quotas.get(name) is not closed[name] for name in closed):
            closed = {name: quota for name, quota in catalogue.quotas.items() if draw.random() < 0.3}
            arms_of_closed = ClosedArms(members, "1-1", 0, closed)
        left = {arm for arm, names in of_arms.items() if not names & closed.keys()}
        eligible = await arms_of_closed.eligible(snapshot)
        assert ids(eligible) == left
        assert await arms_of_closed.eligible(snapshot) is eligible
        # A choice that began before arms changed ends after it. Quotas may have come and gone meanwhile.
        told = names_of(members, earlier, [*map(earlier.table.row_of, then)])
        same = {name for name, quota in quotas.items() if catalogue.quotas.get(name) is quota}
        assert [same & names for names in told] == [same & names for names in then.values()]
        if step % 5 == 0:
            earlier, quotas = snapshot, dict(catalogue.quotas)
            then = dict(zip(arms, expected, strict=True))


def test_pins_are_left_that_all_their_quotas_allow_the_first_ones_first():
    catalogue = Catalogue(random.Random(0))
    catalogue.index.upsert([*"abcd"], np.ones((4, 2)), range(4))
    documents = [((), {"campaign": number}) for number in (1, 1, 1, 2)]
    catalogue.index.describe([*"abcd"], documents)
    snapshot = catalogue.index.snapshot()
    one, two = (BanditQuota.of_rule(f"q{n}", "0" * 16, QuotaRule(5, {"campaign": n})) for n in (1, 2))
    for quota in (one, two):
        catalogue.members.add(quota)
    pins = [(arm, snapshot.table.row_of(arm)) for arm in "abcd"] + [("gone", -1)]
    closed = ClosedArms(catalogue.members, "1-1", 0, {"q2": two})
    assert closed.eligible_pins(pins, snapshot, {}) == [*"abc", "gone"]
    assert closed.eligible_pins(pins, snapshot, {one: 2}) == [*"ab", "gone"]


@pytest.mark.parametrize(
    ("body", "is_one_value"),
    [
        ({"campaign": 1}, True),
        ({"campaign": {"$eq": "x"}}, True),
        ({"campaign": {"$in": [1]}}, True),
        ({"tags": "new"}, True),
        ({"$and": [{"campaign": 1}]}, True),
        ({"campaign": {"$in": [1, 2]}}, False),
        ({"campaign": {"$ne": 1}}, False),
        ({"campaign": {"$gt": 1}}, False),
        ({"campaign": 1, "price": 2}, False),
        ({}, False),
    ],
)
def test_a_filter_asks_for_one_value_of_one_field(body: dict[str, Any], is_one_value: bool):
    if is_one_value:
        assert QuotaRule(1, body).checked()
    else:
        with pytest.raises(Invalid):
            QuotaRule(1, body).checked()
