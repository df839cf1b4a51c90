"""Members of the quotas of a bandit, and the arms of its closed quotas."""

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
        """The quotas with the same members."""
        self._answers_of = None
        value = quota.value
        if value is None:
            return self._by_arm.setdefault(quota.rule.arm or "", [])
        return self._by_value.setdefault(value.field, {}).setdefault(value[1:], [])

    def quotas_of(self, snapshot: Snapshot, rows: Sequence[int]) -> list[Quotas]:
        """The quotas of each of these rows, by the arms in the snapshot; none for a row of -1.

        Cost: a read of each field of quotas, for rows not asked for before.
        """
        all_arms = snapshot.whole
        arms = all_arms.table.number, all_arms.attributes
        if self._answers_of != arms or len(self._answers) > MOST_ROWS:
            self._answers, self._answers_of = {-1: ()}, arms
        answers = self._answers
        missing = [row for row in rows if row not in answers]
        if missing:
            quotas_by_row = {row: [*self._by_arm.get(all_arms.id_of(row), ())] for row in missing}
            for field_name, by_value in self._by_value.items():
                values = all_arms.attributes.values_of(field_name, np.array(missing))
                for row, values_of_row in zip(missing, values, strict=True):
                    for value in values_of_row:
                        quotas_by_row[row] += by_value.get(value, ())
            answers.update(quotas_by_row)
        return [answers[row] for row in rows]

    def absent(self, all_arms: Snapshot) -> list[str]:
        """The ids of quotas without arms. Cost: a read of the fields of all arms."""
        table, empty = all_arms.table, list[Quotas]()
        empty += [quotas for arm, quotas in self._by_arm.items() if table.row_of(arm) < 0]
        for field_name, by_value in self._by_value.items():
            values = [value for _, value in by_value]
            _, places = coded_among(all_arms.attributes, field_name, table.live_rows, values)
            arms = np.bincount(places, minlength=len(values)).tolist()
            empty += [quotas for quotas, count in zip(by_value.values(), arms, strict=True) if not count]
        return sorted(quota.id for quotas in empty for quota in quotas)


@dataclass(eq=False)
class ClosedArms:
    """The closed quotas of a bandit at one moment. Immutable, but for caches.

    ``number``: of the last change; ``at_ms``: since when this state holds, by the store's clock.
    """

    members: QuotaMembers
    number: str
    at_ms: int
    quotas: Mapping[str, BanditQuota]
    _eligible: dict[Snapshot, Snapshot] = field(default_factory=dict)
    _matches: EligibleRows | None = None

    async def eligible(self, base: Snapshot) -> Snapshot:
        """``base`` without the arms of closed quotas.

        Cost: a read of their fields for all arms, once, and then for changed arms; in a thread where long.
        Raises Unavailable: too many long computations at once.
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
        all_arms = base.whole
        members, arms = defaultdict[str, list[Value]](list), list[str]()
        for quota in self.quotas.values():
            value = quota.value
            if value is None:
                arms.append(quota.rule.arm or "")
            else:
                members[value.field].append(value.value)
        barred = np.zeros(all_arms.table.rows, dtype=np.bool_)
        if members:
            expression = AnyOf(tuple(OneOf(name, tuple(values)) for name, values in members.items()))
            closed = Filter("", {}, len(members), expression)
            if all_arms.is_of_one_request:
                barred |= matched(all_arms, closed)
            else:
                self._matches = eligible_rows(closed, all_arms.table, all_arms.attributes, self._matches)
                barred |= self._matches.mask
        rows = all_arms.table.row_of_each(arms)
        barred[rows[rows >= 0]] = True
        return without_rows(base, barred)

    def eligible_pins(
        self, pins: Iterable[tuple[T, int]], all_arms: Snapshot, nearly_closed: Mapping[BanditQuota, int]
    ) -> list[T]:
        """The pins allowed by quotas, the first ones first. Each has the row of its arm, -1: it is gone.

        ``nearly_closed``: remaining exposures of quotas with few left.
        """
        eligible, pinned = list[T](), Counter[BanditQuota]()
        for pin, row in pins:
            (quotas,) = self.members.quotas_of(all_arms, [row])
            if all(
                quota.id not in self.quotas and pinned[quota] != nearly_closed.get(quota) for quota in quotas
            ):
                pinned.update(quotas)
                eligible.append(pin)
        return eligible
