"""Which arms count for which quotas of a bandit.

A quota counts one arm, the arms that have a value in a field, or the arms that a filter matches. The first
two are looked up in dictionaries. A filter is followed: its rows are found once, and then only what has
changed in the catalogue is looked at (``indexes.eligible_rows``). Every answer is for the snapshot that is
asked about, so no choice waits for the quotas of arms that came or changed.

Notation
    number      of a quota: its place in the arrays of ``ledger``
    row, entry  see ``indexes.table`` and ``filters.attribute_snapshot``
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from app.filters.attribute_snapshot import AttributeSnapshot, Labelled
from app.filters.coded_values import coded_among
from app.filters.fields import Value, kind_of
from app.filters.filter import Filter
from app.indexes.eligible_rows import EligibleRows, eligible_rows, matches_of, work
from app.indexes.snapshot import Snapshot
from app.platform.deadlines import yield_to_others
from app.platform.long_work import LongWork
from app.quotas.rules import QuotaRule
from shortlist.types import Rows

MAX_QUOTAS = 10_000  # of a bandit
MAX_FILTERS = 256  # of these, that count the arms of a filter other than an equality
TABLES = 3  # whose rows are known: one, its successor, and that of a catalogue to move to
LONG_WORK = 1_000_000  # values that are compared: a few milliseconds; more is done in a thread
EVALUATING = LongWork(threads=2, waiting=256, name="quotas")

Numbers = Sequence[int]
T = TypeVar("T")
_ValuesOfQuotas = Sequence[Mapping[str, Mapping[int, Value]]]


class _ValuePairs(NamedTuple):
    """Which rows count for which quotas by equality, at one moment of the catalogue.

    ``rows`` and ``numbers`` (v,): pairs of a row and of a quota, by row. ``entries``: of attributes that were
    read; ``dead``: rows that had died when all rows were read.
    """

    table_number: int
    generation: int
    entries: int
    dead: int
    rows: NDArray[np.int32]
    numbers: NDArray[np.int32]

    def is_of(self, whole: Snapshot) -> bool:
        """Whether nothing has changed since."""
        attributes = whole.attributes
        moment = whole.table.number, attributes.generation, attributes.entries
        return moment == self[:3]

    def of_row(self, row: int) -> list[int]:
        """The quotas of a row that has not changed since."""
        first, last = self.rows.searchsorted(np.array([row, row + 1], dtype=np.int32)).tolist()
        numbers: list[int] = self.numbers[first:last].tolist()
        return numbers

    def of(self, whole: Snapshot, values: _ValuesOfQuotas) -> _ValuePairs:
        """The pairs of a later moment. Cost: v, and the rows that have changed; all rows of another table."""
        attributes, table = whole.attributes, whole.table
        rows, pairs, dead = table.live_rows, [], len(table.dead)
        if (table.number, attributes.generation) == self[:2] and self.entries <= attributes.entries:
            described = attributes.rows[self.entries :]
            rows = np.unique(described[(described >= 0) & (described < table.rows)]).astype(np.int64)
            is_changed = np.zeros(table.rows, dtype=np.bool_)
            is_changed[rows] = True
            stays, dead = ~is_changed[self.rows], self.dead
            pairs.append((self.rows[stays], self.numbers[stays]))
        for part in values:
            for field, value_of in part.items():
                places, codes = coded_among(attributes, field, rows, [*value_of.values()])
                numbers = np.array([*value_of], dtype=np.int32)
                pairs.append((rows[places].astype(np.int32), numbers[codes]))
        empty = np.empty(0, dtype=np.int32)
        all_rows = np.concatenate([empty, *(rows for rows, _ in pairs)])
        numbers = np.concatenate([empty, *(numbers for _, numbers in pairs)])
        order = np.argsort(all_rows, kind="stable")
        moment = table.number, attributes.generation, attributes.entries, dead
        return _ValuePairs(*moment, all_rows[order], numbers[order])


_NO_PAIRS = _ValuePairs(-1, -1, 0, 0, np.empty(0, dtype=np.int32), np.empty(0, dtype=np.int32))


class QuotaMembers:
    """See the module. For the event loop. ``remembered``: rows whose quotas are kept for the next choice."""

    def __init__(self, *, remembered: int = 10_000) -> None:
        self._arms: dict[int, str] = {}
        self._values: dict[int, tuple[str, Value]] = {}
        self._filters: dict[int, Filter] = {}
        # The same by what an arm has: the quotas of an arm id, and of a value of a field.
        self._of_arm: dict[str, list[int]] = defaultdict(list)
        self._of_value: dict[str, dict[Labelled, list[int]]] = defaultdict(lambda: defaultdict(list))
        # By table first: while a bandit is moved, its filters are followed in two catalogues.
        self._followed: dict[int, dict[int, EligibleRows]] = {}
        self._remembered = remembered
        self._quotas_of: dict[int, tuple[int, int, Numbers]] = {}
        self._table = -1
        self._pairs = _NO_PAIRS

    @property
    def filters(self) -> int:
        """How many quotas count the arms of a filter that is followed."""
        return len(self._filters)

    def add(self, number: int, rule: QuotaRule) -> None:
        """A quota has this number now."""
        if rule.arm is not None:
            self._arms[number] = rule.arm
            self._of_arm[rule.arm].append(number)
        elif (equality := rule.equality) is not None:
            self._values[number] = equality
            self._of_value[equality[0]][_labelled(equality[1])].append(number)
        elif (arm_filter := rule.parsed) is not None:
            self._filters[number] = arm_filter
        self._forget()

    def remove(self, number: int) -> None:
        """No quota has this number now."""
        if (arm := self._arms.pop(number, None)) is not None:
            self._of_arm[arm].remove(number)
            if not self._of_arm[arm]:
                del self._of_arm[arm]
        elif (equality := self._values.pop(number, None)) is not None:
            field, value = equality[0], _labelled(equality[1])
            self._of_value[field][value].remove(number)
            if not self._of_value[field][value]:
                del self._of_value[field][value]
            if not self._of_value[field]:
                del self._of_value[field]
        elif self._filters.pop(number, None) is not None:
            for followed in self._followed.values():
                followed.pop(number, None)
        self._forget()

    def _forget(self) -> None:
        """Other quotas have other numbers now: what is known of rows is looked up again."""
        self._quotas_of.clear()
        self._pairs = _NO_PAIRS

    def is_one_arm(self, number: int) -> bool:
        """Whether a list can hold one arm of this quota at most."""
        return number in self._arms

    def quotas_of(self, snapshot: Snapshot, rows: Sequence[int]) -> list[Numbers]:
        """The quotas of each of these rows; none of a row that is -1. Cost: O(rows); nothing is awaited."""
        whole = snapshot.whole
        attributes, number = whole.attributes, whole.table.number
        if number != self._table:
            self._quotas_of.clear()
            self._table = number
        answers, unknown = list[Numbers](), list[int]()
        for place, row in enumerate(rows):
            remembered = self._quotas_of.get(row)
            if remembered is not None and remembered[0] == attributes.stamp:
                answers.append(remembered[2])
            else:
                answers.append(())
                unknown.append(place)
        if unknown:
            self._find(whole, attributes, rows, unknown, answers)
        return answers

    def _find(
        self,
        whole: Snapshot,
        attributes: AttributeSnapshot,
        rows: Sequence[int],
        unknown: Sequence[int],
        answers: list[Numbers],
    ) -> None:
        """Write the quotas of the rows at the places ``unknown`` into ``answers``, and remember them."""
        entries = attributes.entries_of(np.array([rows[place] for place in unknown])).tolist()
        missing = dict[int, int]()
        for place, entry in zip(unknown, entries, strict=True):
            remembered = self._quotas_of.get(rows[place])
            # The catalogue has changed, but not this arm: what it has is written once, as one entry.
            if remembered is not None and entry >= 0 and remembered[1] == entry:
                answers[place] = remembered[2]
                self._quotas_of[rows[place]] = (attributes.stamp, entry, remembered[2])
            elif rows[place] >= 0:
                missing[place] = entry
        if not missing:
            return
        if len(self._quotas_of) + len(missing) > self._remembered:
            self._quotas_of.clear()
        numbers = {place: list(self._of_arm.get(whole.id_of(rows[place]), ())) for place in missing}
        self._add_values(whole, rows, missing, numbers)
        self._add_filters(whole, rows, missing, numbers)
        for place, entry in missing.items():
            answers[place] = numbers[place]
            self._quotas_of[rows[place]] = (attributes.stamp, entry, numbers[place])

    def _add_values(
        self, whole: Snapshot, rows: Sequence[int], entries: Mapping[int, int], numbers: dict[int, list[int]]
    ) -> None:
        """Add the quotas by equality of the rows at these places, whose entries are given."""
        pairs, attributes = self._pairs, whole.attributes
        is_same = (whole.table.number, attributes.generation) == pairs[:2]
        is_same &= pairs.dead <= len(whole.table.dead)
        changed = list[int]()
        for place, entry in entries.items():
            # What was written before the pairs were found stands among them.
            if is_same and 0 <= entry < pairs.entries <= attributes.entries:
                numbers[place] += pairs.of_row(rows[place])
            else:
                changed.append(place)
        if not changed:
            return
        changed_rows = np.array([rows[place] for place in changed], dtype=np.int64)
        for field, of_value in self._of_value.items():
            for place, values in zip(changed, attributes.values_of(field, changed_rows), strict=True):
                for value in values:
                    numbers[place] += of_value.get(value, ())

    def _add_filters(
        self, whole: Snapshot, rows: Sequence[int], entries: Mapping[int, int], numbers: dict[int, list[int]]
    ) -> None:
        """Add the filters that match the rows at these places, whose entries are given."""
        followed = self._followed_in(whole.table.number)
        least, most = min(entries.values()), max(entries.values())
        those = np.array([rows[place] for place in entries], dtype=np.int64)
        moment, is_known = None, False
        for number in self._filters:
            eligible = followed.get(number)
            # Most filters were followed at one moment, so this is asked once.
            if eligible is not None and eligible.moment != moment:
                moment = eligible.moment
                is_known = least >= 0 and eligible.knows(whole.table, whole.attributes, most)
            if eligible is not None and is_known:
                mask = eligible.mask
                for place in entries:
                    if mask.item(rows[place]):
                        numbers[place].append(number)
            else:
                for place, is_match in zip(
                    entries, self._matches(number, whole, those).tolist(), strict=True
                ):
                    if is_match:
                        numbers[place].append(number)

    def counted(self, number: int, whole: Snapshot, rows: Rows) -> NDArray[np.bool_]:
        """Whether each of these rows (n,) counts for a quota by arm or by filter."""
        arm = self._arms.get(number)
        if arm is not None:
            is_arm: NDArray[np.bool_] = rows == whole.table.row_of(arm)
            return is_arm
        if number not in self._filters:  # the quota was deleted while the choice was made
            return np.zeros(len(rows), dtype=np.bool_)
        return self._matches(number, whole, rows)

    def _matches(self, number: int, whole: Snapshot, rows: Rows) -> NDArray[np.bool_]:
        """Whether the filter of this quota matches each of these rows (n,). Cost: O(n), and what changed."""
        before = self._followed_in(whole.table.number).get(number)
        return matches_of(self._filters[number], whole.table, whole.attributes, rows, before)

    async def counting(self, snapshot: Snapshot, numbers: Numbers) -> NDArray[np.bool_]:
        """True for the rows (K,) of the table of a snapshot that count for one of these quotas.

        Cost: K bytes, and what changed since the last call; in a thread where that is long. Raises
        Unavailable: too many long computations at once.
        """
        whole = snapshot.whole
        counts = np.zeros(whole.table.rows, dtype=np.bool_)
        rows = whole.table.row_of_each([self._arms[number] for number in numbers if number in self._arms])
        counts[rows[rows >= 0]] = True
        if any(number in self._values for number in numbers):
            pairs = await self._pairs_of(whole)
            is_wanted = np.zeros(max(*self._values, *numbers) + 1, dtype=np.bool_)
            is_wanted[[number for number in numbers if number in self._values]] = True
            counts[pairs.rows[is_wanted[pairs.numbers]]] = True
        for eligible in await self._eligible_of(whole, [n for n in numbers if n in self._filters]):
            counts |= eligible.mask
        return counts

    async def _pairs_of(self, whole: Snapshot) -> _ValuePairs:
        """The pairs of quotas by equality at this moment; they are kept for the next one."""
        if self._pairs.is_of(whole):
            return self._pairs
        before, values = self._pairs, self.values_of([*self._values])
        pairs = await _find(partial(before.of, whole, values), len(values) * whole.table.rows)
        if self._pairs is before:  # no quota came or went meanwhile, and nobody found later ones
            self._pairs = pairs
        return pairs

    async def _eligible_of(self, whole: Snapshot, numbers: Numbers) -> list[EligibleRows]:
        """The rows of these filters at this moment; they are kept for the next one."""
        table, attributes = whole.table, whole.attributes
        followed = self._followed_in(table.number)
        found = list[EligibleRows]()
        for number in numbers:
            arm_filter, before = self._filters[number], followed.get(number)
            if before is None or not before.is_of(table, attributes):
                size = work(arm_filter, table, attributes, before)
                eligible = await _find(partial(eligible_rows, arm_filter, table, attributes, before), size)
                await yield_to_others()
                # Another quota may have the number by now, and what a later choice found is newer.
                newest = followed.get(number, eligible)
                if self._filters.get(number) is arm_filter and eligible.number >= newest.number:
                    followed[number] = eligible
                before = eligible
            found.append(before)
        return found

    def _followed_in(self, table_number: int) -> dict[int, EligibleRows]:
        """What is known of filters over the rows of a table."""
        if table_number not in self._followed:
            while len(self._followed) >= TABLES:
                del self._followed[next(iter(self._followed))]
            self._followed[table_number] = {}
        return self._followed[table_number]

    async def follow(self, snapshot: Snapshot) -> list[int]:
        """Find the rows of all filters, so that choices find them known; the quotas that no arm counts for.

        Others go on between two filters. Raises Unavailable.
        """
        whole = snapshot.whole
        eligible = zip([*self._filters], await self._eligible_of(whole, [*self._filters]), strict=True)
        empty = [number for number, rows in eligible if rows.count == 0]
        empty += [number for number, arm in self._arms.items() if whole.table.row_of(arm) < 0]
        if self._values:
            pairs = await self._pairs_of(whole)
            # Rows that died stay among the pairs until their table is numbered again.
            is_live = whole.table.died[pairs.rows] >= len(whole.table.dead)
            empty += np.setdiff1d([*self._values], pairs.numbers[is_live]).tolist()
        return empty

    def values_of(self, numbers: Numbers) -> _ValuesOfQuotas:
        """The quotas by equality among these: by their fields, numbers and values.

        Two quotas of one value are in different parts.
        """
        parts = list[dict[str, dict[int, Value]]]()
        depth = Counter[tuple[str, Labelled]]()
        for number in numbers:
            if (equality := self._values.get(number)) is not None:
                field, value = equality
                part = depth[field, _labelled(value)]
                depth[field, _labelled(value)] += 1
                if part == len(parts):
                    parts.append(defaultdict(dict))
                parts[part][field][number] = value
        return parts


class RemainingQuotas(NamedTuple):
    """How much is left of some quotas, of each by its number: a limit of one list (``policies.limits``)."""

    members: QuotaMembers
    left: Mapping[int, int]
    field: None = None  # an arm counts for quotas of any filter

    def pairs(self, arms: Snapshot, rows: Rows) -> tuple[NDArray[np.int32], NDArray[np.int32], Rows]:
        """Positions in ``rows`` and codes of their quotas (v,), and how much is left of each code."""
        code_of = {number: code for code, number in enumerate(self.left)}
        places, codes = [np.empty(0, np.int32)], [np.empty(0, np.int32)]
        parts = self.members.values_of([*self.left])
        for part in parts:
            for field, values in part.items():
                own_places, own_codes = coded_among(arms.attributes, field, rows, [*values.values()])
                places.append(own_places)
                codes.append(np.array([code_of[number] for number in values], np.int32)[own_codes])
        by_value = {number for part in parts for values in part.values() for number in values}
        for number in self.left.keys() - by_value:
            own_places = np.flatnonzero(self.members.counted(number, arms.whole, rows)).astype(np.int32)
            places.append(own_places)
            codes.append(np.full(len(own_places), code_of[number], dtype=np.int32))
        return np.concatenate(places), np.concatenate(codes), np.array([*self.left.values()])


async def _find(work: Callable[[], T], size: int) -> T:
    """Do work that compares so many values: in a thread where that is long."""
    return await EVALUATING.run(work) if size > LONG_WORK else work()


def _labelled(value: Value) -> Labelled:
    kind = kind_of(value)
    assert kind is not None, "a filter compares with strings, numbers and booleans"  # noqa: S101
    return kind, value
