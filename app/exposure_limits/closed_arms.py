"""Which arms count for which quotas of a bandit, and the arms of those quotas that are closed."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

import numpy as np

from app.exposure_limits.rules import BanditQuota
from app.filtering.filtered_snapshot import matched, without_rows
from app.filters.attribute_snapshot import AttributeSnapshot
from app.filters.coded_values import coded_among
from app.filters.fields import Value, ValueKind
from app.filters.filter import AnyOf, Filter, OneOf
from app.indexes.eligible_rows import EligibleRows, eligible_rows
from app.indexes.snapshot import Snapshot
from app.platform.long_work import LongWork

SNAPSHOTS_KEPT = 64
MOST_ROWS = 4_096  # whose quotas are kept
LONG_WORK = 200_000  # rows: some milliseconds; more is done in a thread
OF_QUOTA = 100  # rows that take as long
FINDING = LongWork(threads=2, waiting=256, name="quotas")

T = TypeVar("T")
Quotas = Sequence[BanditQuota]


class QuotaMembers:
    """Quotas by what they count: an arm, or a value of a field."""

    def __init__(self) -> None:
        self._by_arm: dict[str, list[BanditQuota]] = {}
        self._by_value: dict[str, dict[tuple[ValueKind, Value], list[BanditQuota]]] = {}
        # What was answered, while neither the arms nor the quotas change.
        self._answers: dict[int, Quotas] = {}
        self._answers_of: tuple[int, AttributeSnapshot] | None = None

    def add(self, quota: BanditQuota) -> None:
        self._quotas_like(quota).append(quota)

    def remove(self, quota: BanditQuota) -> None:
        self._quotas_like(quota).remove(quota)

    def _quotas_like(self, quota: BanditQuota) -> list[BanditQuota]:
        """Those that count the same."""
        self._answers_of = None
        value = quota.value
        if value is None:
            return self._by_arm.setdefault(quota.rule.arm or "", [])
        return self._by_value.setdefault(value.field, {}).setdefault(value[1:], [])

    def quotas_of(self, snapshot: Snapshot, rows: Sequence[int]) -> list[Quotas]:
        """The quotas of each of these rows, as the arms are in the snapshot; none of a row that is -1.

        Cost: a read of each field that some quota counts by, of rows that were not asked for before.
        """
        whole = snapshot.whole
        arms = whole.table.number, whole.attributes
        if self._answers_of != arms or len(self._answers) > MOST_ROWS:
            self._answers, self._answers_of = {-1: ()}, arms
        answers = self._answers
        missing = [row for row in rows if row not in answers]
        if missing:
            found = {row: [*self._by_arm.get(whole.id_of(row), ())] for row in missing}
            for field_name, by_value in self._by_value.items():
                values = whole.attributes.values_of(field_name, np.array(missing))
                for row, own in zip(missing, values, strict=True):
                    for value in own:
                        found[row] += by_value.get(value, ())
            answers.update(found)
        return [answers[row] for row in rows]

    def absent(self, whole: Snapshot) -> list[str]:
        """The ids of quotas that no arm counts for. Cost: a read of the fields of all arms."""
        table, found = whole.table, list[Quotas]()
        found += [quotas for arm, quotas in self._by_arm.items() if table.row_of(arm) < 0]
        for field_name, by_value in self._by_value.items():
            values = [value for _, value in by_value]
            _, places = coded_among(whole.attributes, field_name, table.live_rows, values)
            arms = np.bincount(places, minlength=len(values)).tolist()
            found += [quotas for quotas, count in zip(by_value.values(), arms, strict=True) if not count]
        return sorted(quota.id for quotas in found for quota in quotas)


@dataclass(eq=False)
class ClosedArms:
    """The closed quotas of a bandit at one moment, which stays as it is.

    ``number``: of the last change that is in it; ``at_ms``: since when it holds, by the store's clock.
    """

    members: QuotaMembers
    number: str
    at_ms: int
    quotas: Mapping[str, BanditQuota]
    _eligible: dict[Snapshot, Snapshot] = field(default_factory=dict)
    _found: EligibleRows | None = None

    async def eligible(self, base: Snapshot) -> Snapshot:
        """``base`` without the arms of closed quotas.

        Cost: a read of their fields for all arms, once, and then for arms that change; in a thread where
        that is long. Raises Unavailable: too many long computations at once.
        """
        if base.whole.is_of_one_request:
            return self._without(base)
        if (before := self._eligible.get(base)) is not None:
            return before
        work = base.table.rows + OF_QUOTA * len(self.quotas)
        find = partial(self._without, base)
        eligible = await FINDING.run(find) if work > LONG_WORK else find()
        if len(self._eligible) >= SNAPSHOTS_KEPT:
            self._eligible.clear()
        self._eligible[base] = eligible
        return eligible

    def _without(self, base: Snapshot) -> Snapshot:
        whole = base.whole
        members, arms = defaultdict[str, list[Value]](list), list[str]()
        for quota in self.quotas.values():
            value = quota.value
            if value is None:
                arms.append(quota.rule.arm or "")
            else:
                members[value.field].append(value.value)
        barred = np.zeros(whole.table.rows, dtype=np.bool_)
        if members:
            expression = AnyOf(tuple(OneOf(name, tuple(values)) for name, values in members.items()))
            closed = Filter("", {}, len(members), expression)
            if whole.is_of_one_request:
                barred |= matched(whole, closed)
            else:
                self._found = eligible_rows(closed, whole.table, whole.attributes, self._found)
                barred |= self._found.mask
        rows = whole.table.row_of_each(arms)
        barred[rows[rows >= 0]] = True
        return without_rows(base, barred)

    def eligible_pins(
        self, pins: Iterable[tuple[T, int]], whole: Snapshot, few: Mapping[BanditQuota, int]
    ) -> list[T]:
        """Those pins that quotas leave, the first ones first. Each has the row of its arm, -1: it is gone.

        ``few``: how many may be shown of the quotas of which there are few.
        """
        eligible, pinned = list[T](), Counter[BanditQuota]()
        for pin, row in pins:
            (quotas,) = self.members.quotas_of(whole, [row])
            if all(quota.id not in self.quotas and pinned[quota] != few.get(quota) for quota in quotas):
                pinned.update(quotas)
                eligible.append(pin)
        return eligible
