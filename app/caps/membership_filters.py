"""Which arms quotas are for, found by their filters. For any thread.

Many quotas ask that a field has one of a few values, and perhaps more: the campaigns of a shop. Those are
found together, by one look at the values of the field; what they ask besides is evaluated only where some row
has the value. Many others ask for numbers in an interval: where rows are few, all intervals of a field are
compared with their numbers at once, and a filter is evaluated only where some number may be inside. Every
other filter is evaluated by itself.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from app.caps.membership import Pairs, Rows32, keys
from app.caps.rules import QuotaRule
from app.filters.attribute_snapshot import AttributeSnapshot, Labelled
from app.filters.attributes import AttributeTable
from app.filters.fields import ValueKind, kind_of
from app.filters.filter import AllOf, AnyOf, Expression, Filter, OneOf, Ordered
from app.filters.names import KINDS, Stored
from app.indexes.snapshot import Snapshot
from app.indexes.table import TableSnapshot
from shortlist.types import Rows

MOST_VALUES = 8  # of a field, by which a filter is looked up; and alternatives of a filter
MOST_COMPARED = 4_000_000  # intervals with the numbers of rows
MOST_AT_ONCE = 32  # filters that are evaluated by the event loop itself
LONG = 2_500_000  # values that it reads: two milliseconds at most
_PER_ROW = 10  # such values for each row, whatever is asked
MAX_SEPARATE_FILTERS = 8  # filters are evaluated by themselves in less time than their values are looked up
_SMALLER = 4  # so many times fewer rows than entries: theirs are copied, and the copy is read


class _Condition(NamedTuple):
    """What an arm must fulfil to pass one of the alternatives that a filter consists of.

    values      a field has one of these values; none: nothing is asked
    interval    a field has a number in it, or numbers on both sides of it; None: nothing is asked
    is_all      whether ``values`` are all that is asked
    """

    values: Sequence[tuple[str, Labelled]]
    interval: tuple[str, float, float] | None
    is_all: bool


Key = tuple[int, int]
"""The number of a quota, and the place of an alternative of its filter."""


class QuotaFilters:
    """Of each quota by its number. It may not be changed while ``found`` is called.

    ``evaluated``: filters that are evaluated by themselves. ``partly``: those that are evaluated only where
    an arm may pass, by the conditions of their alternatives; ``wholly``: a value is all that they ask for.
    """

    def __init__(self, rules: Mapping[int, QuotaRule] | None = None) -> None:
        self.rules: dict[int, QuotaRule] = {}
        self._arms: dict[int, str] = {}
        self._evaluated: dict[int, Filter] = {}
        self._partly: dict[int, Filter] = {}
        self._wholly: dict[int, Filter] = {}
        self._looked_up: dict[str, dict[Labelled, set[Key]]] = {}
        self._intervals: dict[str, _Intervals] = {}
        self._conditions: dict[Key, _Condition] = {}
        for number, rule in (rules or {}).items():
            self.add(number, rule)

    def __len__(self) -> int:
        return len(self.rules)

    def add(self, number: int, rule: QuotaRule) -> None:
        self.rules[number], parsed = rule, rule.parsed
        if parsed is None:
            self._arms[number] = rule.arm or ""
            return
        conditions = _conditions(parsed)
        if not all(each.values or each.interval for each in conditions):
            self._evaluated[number] = parsed
            return
        for place, condition in enumerate(conditions):
            self._conditions[number, place] = condition
            for field, value in condition.values:
                self._looked_up.setdefault(field, {}).setdefault(value, set()).add((number, place))
            if condition.interval is not None:
                field, *bounds = condition.interval
                self._intervals.setdefault(field, _Intervals()).add((number, place), *bounds)
        is_all = len(conditions) == 1 and conditions[0].is_all
        (self._wholly if is_all else self._partly)[number] = parsed

    def remove(self, number: int) -> None:
        kinds: Sequence[dict[int, Any]] = (
            self.rules,
            self._arms,
            self._evaluated,
            self._partly,
            self._wholly,
        )
        for kind in kinds:
            kind.pop(number, None)
        place = 0
        while (condition := self._conditions.pop((number, place), None)) is not None:
            for field, value in condition.values:
                self._looked_up[field][value].discard((number, place))
            if condition.interval is not None:
                self._intervals[condition.interval[0]].remove((number, place))
            place += 1

    def is_long(self, snapshot: Snapshot, rows: Rows) -> bool:
        """Whether ``found`` takes more than a few milliseconds."""
        if not len(rows):
            return False
        # how many there are, before they are put together: this is asked for each change of a quota or an arm
        is_many = len(self._partly) + len(self._evaluated) > MOST_AT_ONCE
        if is_many or _PER_ROW * len(rows) > LONG:
            return True
        attributes, filters = snapshot.attributes, {**self._partly, **self._alone}
        first = _first(attributes, attributes.entries_of(rows))
        return sum(attributes.work(each, first) for each in filters.values()) > LONG - _PER_ROW * len(rows)

    @property
    def _alone(self) -> dict[int, Filter]:
        """Filters that are evaluated by themselves: what cannot be looked up, or all where they are few."""
        if len(self._partly) + len(self._wholly) > MAX_SEPARATE_FILTERS:
            return self._evaluated
        return {**self._evaluated, **self._partly, **self._wholly}

    def found(self, snapshot: Snapshot, rows: Rows) -> list[tuple[int, Rows32]]:
        """The rows of each quota among these, which ascend; numbers that have none are left out.

        Cost: about that of evaluating the filters over the entries of these rows, or those between them.
        """
        attributes = snapshot.attributes
        # to look for the entries of most rows takes longer than to evaluate a filter over all entries
        is_most = 2 * len(rows) >= attributes.entries
        first = 0 if is_most else _first(attributes, attributes.entries_of(rows))
        if _SMALLER * len(rows) < attributes.entries - first:
            attributes, first = _of_rows(attributes, rows), 0
        described: Rows | None = None
        found = self._of_arms(snapshot.whole.table, rows)
        alone = self._alone
        asked: dict[int, Filter] = {}
        if alone is self._evaluated:
            values = self._of_values(attributes, rows)
            for (number, _), own in values.items():
                if number in self._wholly:
                    found[number] = np.unique(np.concatenate(own))
            asked = self._possible(attributes, rows, values.keys())
        for number, arm_filter in (alone | asked).items():
            mask, is_empty_in = attributes.evaluate(arm_filter, first), arm_filter.matches((), {})
            if is_most and not is_empty_in:
                found[number] = _rows_of(attributes, np.flatnonzero(mask), rows)
                continue
            if described is None:
                entries = attributes.entries_of(rows)
                described = np.flatnonzero(entries >= 0)
                entries = entries[described] - first
            passes = np.full(len(rows), is_empty_in)
            passes[described] = mask[entries]
            found[number] = rows[passes]
        return [(number, own.astype(np.int32)) for number, own in sorted(found.items()) if len(own)]

    def _of_arms(self, table: TableSnapshot, rows: Rows) -> dict[int, Rows]:
        numbers, of_arms = [*self._arms], table.row_of_each(self._arms.values())
        places = np.minimum(rows.searchsorted(of_arms), max(len(rows) - 1, 0))
        is_here = (rows[places] == of_arms) if len(rows) else np.zeros(len(numbers), dtype=np.bool_)
        return {numbers[place]: of_arms[place : place + 1] for place in np.flatnonzero(is_here).tolist()}

    def _of_values(self, attributes: AttributeSnapshot, rows: Rows) -> dict[Key, list[Rows]]:
        """Of each alternative the rows that have a value which it is looked up by."""
        found: dict[Key, list[Rows]] = {}
        for field, alternatives in self._looked_up.items():
            for value, own in _rows_by_value(attributes, field, rows, alternatives):
                for key in alternatives[value]:
                    found.setdefault(key, []).append(own)
        return found

    def _possible(
        self, attributes: AttributeSnapshot, rows: Rows, with_value: Collection[Key]
    ) -> dict[int, Filter]:
        """The filters that some row may pass, but for those that a value is all of."""
        inside = set[Key]()
        for field, intervals in self._intervals.items():
            if len(intervals) * len(rows) > MOST_COMPARED:
                inside.update(intervals.of)
            elif len(intervals):
                inside.update(intervals.reached(*_extremes(attributes, field, rows)))
        conditions = self._conditions
        with_all = (key for key in with_value if conditions[key].interval is None or key in inside)
        numbers = {number for number, _ in with_all}
        numbers |= {key[0] for key in inside if not conditions[key].values}
        return {number: self._partly[number] for number in numbers & self._partly.keys()}


def pairs_of(found: Sequence[tuple[int, Rows32]]) -> Pairs:
    """All pairs of a row and a number, ascending."""
    return np.sort(np.concatenate([np.empty(0, np.int64), *(keys(rows, number) for number, rows in found)]))


class _Intervals:
    """The intervals of one field, which contain their ends: ``of`` each alternative."""

    def __init__(self) -> None:
        self.of: dict[Key, tuple[float, float]] = {}
        self._arrays: tuple[Sequence[Key], NDArray[np.float64]] | None = None

    def __len__(self) -> int:
        return len(self.of)

    def add(self, key: Key, low: float, high: float) -> None:
        self.of[key], self._arrays = (low, high), None

    def remove(self, key: Key) -> None:
        self._arrays = None
        del self.of[key]

    def reached(self, least: NDArray[np.float64], most: NDArray[np.float64]) -> list[Key]:
        """Those that a row may have a number in, or numbers on both sides of. Shapes: (m,), (m,)."""
        if self._arrays is None:
            self._arrays = [*self.of], np.array([*self.of.values()]).reshape(-1, 2)
        known, bounds = self._arrays
        inside = (most[:, None] >= bounds[:, 0]) & (least[:, None] <= bounds[:, 1])
        return [known[place] for place in np.flatnonzero(inside.any(axis=0)).tolist()]


def _extremes(
    attributes: AttributeSnapshot, field: str, rows: Rows
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The least and the greatest number of each row in a field (m,): inf and -inf where there is none."""
    least, most = np.full(len(rows), np.inf), np.full(len(rows), -np.inf)
    for stored, column, positions, codes in attributes.held(field, rows):
        if stored is Stored.NUMBER:
            numbers = (codes if column.distinct is None else column.distinct[codes]).astype(np.float64)
            np.minimum.at(least, positions, numbers)
            np.maximum.at(most, positions, numbers)
        elif stored is Stored.INTEGER:  # no float64 stands for it
            least[positions], most[positions] = -np.inf, np.inf
    return least, most


def _conditions(parsed: Filter) -> list[_Condition]:
    """Of each alternative of a filter; an arm that passes fulfils that of one."""
    expression = parsed.expression
    alternatives = expression.parts if isinstance(expression, AnyOf) else (expression,)
    if not 0 < len(alternatives) <= MOST_VALUES:
        return [_Condition((), None, False)]
    looked_up = [_looked_up(each) for each in alternatives]
    return [
        _Condition(values, _interval(each), is_all)
        for each, (values, is_all) in zip(alternatives, looked_up, strict=True)
    ]


def _parts(expression: Expression) -> Sequence[Expression]:
    return expression.parts if isinstance(expression, AllOf) else (expression,)


def _looked_up(expression: Expression) -> tuple[list[tuple[str, Labelled]], bool]:
    """A field and values, one of which an arm must have, if there is such a field; whether that is all."""
    parts = _parts(expression)
    for part in parts:
        if isinstance(part, OneOf) and len(part.members) <= MOST_VALUES:
            kinds = [(kind_of(value), value) for value in part.members]
            values = [(part.field, (kind, value)) for kind, value in kinds if kind is not None]
            if values and len(values) == len(kinds):
                return values, len(parts) == 1
    return [], False


def _interval(expression: Expression) -> tuple[str, float, float] | None:
    """A field of which an arm must have numbers, and their bounds; one with two bounds, if there is one."""
    found: dict[str, tuple[float, float]] = {}
    for part in _parts(expression):
        if isinstance(part, Ordered) and kind_of(part.bound) is ValueKind.NUMBER:
            low, high = found.get(part.field, (-np.inf, np.inf))
            bound = float(part.bound)
            is_low = part.operator in ("$gt", "$gte")
            found[part.field] = (max(low, bound), high) if is_low else (low, min(high, bound))
    both = [(field, low, high) for field, (low, high) in found.items() if np.isfinite((low, high)).all()]
    return next(iter([*both, *((field, *bounds) for field, bounds in found.items())]), None)


def _first(attributes: AttributeSnapshot, entries: NDArray[np.int64]) -> int:
    """The first of these entries, some of which may be -1."""
    return int(entries.min(initial=attributes.entries, where=entries >= 0))


def _rows_of(attributes: AttributeSnapshot, entries: NDArray[np.int64], rows: Rows) -> Rows:
    """Those of the rows, which ascend, whose entry is one of these. Cost: O(m log) of m entries."""
    own = attributes.rows[entries].astype(np.int64)
    own = np.sort(own[attributes.entries_of(own) == entries])
    places = rows.searchsorted(own)
    is_here = places < len(rows)
    is_here[is_here] = rows[places[is_here]] == own[is_here]
    return own[is_here]


def _of_rows(attributes: AttributeSnapshot, rows: Rows) -> AttributeSnapshot:
    """The attributes of these rows alone."""
    position = np.full(int(rows.max(initial=-1)) + 1, -1, dtype=np.int64)
    position[rows] = rows
    own, blocks = attributes.latest_of(position, lambda: None)
    return AttributeTable.of(attributes.names, blocks, own).snapshot()


def _rows_by_value(
    attributes: AttributeSnapshot, field: str, rows: Rows, wanted: Mapping[Labelled, object]
) -> Iterator[tuple[Labelled, Rows]]:
    """Of the wanted values of a field each that some row has, and the rows; one may come more than once.

    Cost: O(values of the rows, sorted), and some microseconds for each different one, or each that is wanted.
    """
    names = attributes.names
    for stored, column, positions, unordered in attributes.held(field, rows):
        order = np.argsort(unordered, kind="stable")
        codes = unordered[order]
        starts = np.flatnonzero(np.append(True, codes[1:] != codes[:-1]))[: len(codes)]
        ends = np.append(starts[1:], len(codes))
        values = codes[starts] if column.distinct is None else column.distinct[codes[starts]]
        if len(values) <= len(wanted):
            labels = [(KINDS[stored], names.value(stored, value)) for value in values.tolist()]
            found = [(place, label) for place, label in enumerate(labels) if label in wanted]
        else:
            pairs = ((names.stored(label[1]), label) for label in wanted)
            known = {
                number: label for (kind, number), label in pairs if kind is stored and number is not None
            }
            places = np.flatnonzero(np.isin(values, [*known]))
            found = [(place, known[values[place].item()]) for place in places.tolist()]
        for place, label in found:
            yield label, rows[positions[order[starts[place] : ends[place]]]]
