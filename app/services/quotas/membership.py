"""Which quotas each arm counts for, as rows of a table. For the event loop.

What was found stays until an arm comes or is described anew; only such arms are looked at then. Quotas whose
filter is that a field equals one value are found together, by one look at the values of the field; every
other filter is evaluated by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from app.filters.attribute_snapshot import AttributeSnapshot, Labelled
from app.filters.fields import kind_of
from app.filters.filter import Filter, OneOf
from app.filters.names import KINDS
from app.indexes.snapshot import Snapshot
from app.services.quotas.quota_rules import QuotaRule
from shortlist.types import Rows

NONE = -1


class Membership:
    """``first``: the number of a quota of each row, ``NONE`` if it has none (rows,); ``more``: its others."""

    def __init__(self, rules: Sequence[QuotaRule]) -> None:
        self.first = np.empty(0, dtype=np.int32)
        self.more: dict[int, list[int]] = {}
        self._known = (-1, -1, 0, 0)  # table, generation of the attributes, entries, rows
        self._arms: dict[str, list[int]] = {}
        self._values: dict[str, dict[Labelled, list[int]]] = {}
        self._filters: list[tuple[int, Filter]] = []
        for number, rule in enumerate(rules):
            parsed = rule.parsed
            if rule.arm is not None:
                self._arms.setdefault(rule.arm, []).append(number)
            elif parsed is not None and (same := equality(parsed)) is not None:
                field, value = same
                self._values.setdefault(field, {}).setdefault(value, []).append(number)
            elif parsed is not None:
                self._filters.append((number, parsed))

    def of(self, row: int) -> Iterable[int]:
        """The numbers of the quotas of a row, after ``follow``."""
        first = self.first.item(row)
        return () if first == NONE else (first, *self.more.get(row, ()))

    def follow(self, snapshot: Snapshot) -> None:
        """Know all rows of the snapshot. Cost: O(arms that came or were described since), for each filter."""
        table, attributes = snapshot.whole.table, snapshot.attributes
        number, generation, entries, rows = self._known
        if (number, generation) == (table.number, attributes.generation):
            if entries >= attributes.entries and rows >= table.rows:
                return
        else:
            entries, rows = 0, 0
            self.more.clear()
        if table.rows > len(self.first):
            grown = np.full(max(table.rows, 3 * len(self.first) // 2), NONE, dtype=np.int32)
            grown[:rows] = self.first[:rows]
            self.first = grown
        described = attributes.rows[entries:]
        described = described[(described >= 0) & (described < table.rows)]
        touched = np.union1d(described, np.arange(rows, table.rows))
        self._forget(touched)
        self._find(touched, attributes, table.ids)
        self._known = table.number, attributes.generation, attributes.entries, table.rows

    def _forget(self, rows: Rows) -> None:
        self.first[rows] = NONE
        for row in self.more.keys() & set(rows.tolist()) if self.more else ():
            del self.more[row]

    def _find(self, rows: Rows, attributes: AttributeSnapshot, ids: Sequence[str]) -> None:
        for field, numbers in self._values.items():
            for stored, column, positions, codes in attributes.held(field, rows):
                values = codes if column.distinct is None else column.distinct[codes]
                different, which = np.unique(values, return_inverse=True)
                for place, value in enumerate(different.tolist()):
                    named = numbers.get((KINDS[stored], attributes.names.value(stored, value)))
                    if named:
                        self._add(rows[positions[which == place]], named)
        if self._filters and len(rows):
            known = attributes.entries_of(rows)
            has_any = known >= 0
            start = int(known[has_any].min()) if has_any.any() else attributes.entries
            for number, arm_filter in self._filters:
                lets_in = np.full(len(rows), arm_filter.matches((), {}))
                lets_in[has_any] = attributes.evaluate(arm_filter, start)[known[has_any] - start]
                self._add(rows[lets_in], [number])
        if self._arms:
            for row in rows.tolist():
                if ids[row] in self._arms:
                    self._add(np.array([row]), self._arms[ids[row]])

    def _add(self, rows: Rows, numbers: Sequence[int]) -> None:
        for number in numbers:
            is_first = self.first[rows] == NONE
            self.first[rows[is_first]] = number
            for row in rows[~is_first].tolist():
                others = self.more.setdefault(row, [])
                if number not in (self.first.item(row), *others):
                    others.append(number)

    def pairs(self, rows: Rows, numbers: Sequence[int]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Which of ``rows`` have which of these quotas: positions of both (v,). Cost: O(rows)."""
        codes = np.full(1 + max(self.first.max(initial=0), *numbers), NONE, dtype=np.int32)
        codes[[*numbers]] = np.arange(len(numbers))
        known = self.first[rows]
        own = np.where(known == NONE, NONE, codes[known])
        places = np.flatnonzero(own != NONE)
        others = [
            (position, codes[number])
            for position, row in enumerate(rows.tolist() if self.more else ())
            for number in self.more.get(row, ())
            if number < len(codes) and codes[number] != NONE
        ]
        more = np.array(others, dtype=np.int32).reshape(-1, 2)
        return (
            np.concatenate((places, more[:, 0])).astype(np.int32),
            np.concatenate((own[places], more[:, 1])).astype(np.int32),
        )

    def are_out(self, out: NDArray[np.bool_], rows: int) -> NDArray[np.bool_]:
        """Which of the first rows have a quota that is out. ``out``: of each quota, and False at last."""
        found: NDArray[np.bool_] = out[self.first[:rows]]
        for row, others in self.more.items():
            if row < rows and not found[row]:
                found[row] = any(out[number] for number in others)
        return found


def equality(arm_filter: Filter) -> tuple[str, Labelled] | None:
    """The field and the value of a filter that demands no more than that they are equal."""
    match arm_filter.expression:
        case OneOf(field, (value,)):
            kind = kind_of(value)
            return None if kind is None else (field, (kind, value))
    return None
