"""Which arms count for which quotas of a bandit.

What a quota counts (``rules.Counted``) is an arm, a value of a field, or a filter. The rows of the last two
are followed (``counted_rows``): found once, and then only what has changed in the catalogue is looked at. An
answer of single arms is for the snapshot that is asked about: no choice waits for arms that came or changed.

Notation
    number      of a quota: its place in the arrays of ``arrays``
    row         of an arm, see ``indexes.table``
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from app.filters.attribute_snapshot import AttributeSnapshot
from app.filters.coded_values import coded_among
from app.filters.filter import Filter
from app.indexes.snapshot import Snapshot
from app.platform.long_work import LongWork
from app.quotas.counted_rows import CountedRows, counted_rows
from app.quotas.rules import Counted, OneArm, OneValue, QuotaRule
from shortlist.types import Rows

TABLES = 3  # whose rows are known: one, its successor, and that of a catalogue to move to
MOST_CHANGES, MOST_NEW = 10_000, 8  # entries of arms and filters, since the rows were found
MOST_ROWS = 4_096  # whose quotas are kept
LONG_WORK = 1_000_000  # values that are compared: a few milliseconds; more is done in a thread
STEPS_OF_A_VALUE = 1_000  # to look for one takes as long as to compare so many
FOLLOWING = LongWork(threads=2, waiting=256, name="quotas")
NOTHING = CountedRows.of_nothing()

Numbers = Sequence[int]


class Sought(NamedTuple):
    """Quotas by what they count, and the fields and filters by which arms are compared with that."""

    numbers: Mapping[Counted, Numbers]
    fields: Collection[str]
    filters: Sequence[Filter]

    @classmethod
    def of(cls, numbers: Mapping[Counted, Numbers]) -> Sought:
        fields = dict.fromkeys(part.field for part in numbers if isinstance(part, OneValue))
        return cls(numbers, (*fields,), [part for part in numbers if isinstance(part, Filter)])


class Lookup(NamedTuple):
    """The quotas of what rows were found for, by its code there; all quotas, and those added since.

    ``by_arm``: whether some count a single arm.
    """

    followed: CountedRows
    numbers_of: Sequence[Numbers]
    by_arm: bool
    all: Sought
    added: Sought


class QuotaMembers:
    """See the module. For the event loop; ``_following`` guards the rows that are followed."""

    def __init__(self) -> None:
        self._counted: dict[int, Counted] = {}
        self._numbers: dict[Counted, list[int]] = {}
        self._version = 0  # how often these have changed
        # By table: while a bandit is moved, its quotas are followed in two catalogues.
        self._followed: dict[int, CountedRows] = {}
        self._following = asyncio.Lock()
        self._lookup: Lookup | None = None  # while the quotas do not change
        # What was answered, while neither the arms nor the quotas change.
        self._answers: dict[int, Numbers] = {}
        self._answers_of: tuple[int, AttributeSnapshot] | None = None
        self._ready_of: AttributeSnapshot | None = None

    @property
    def filters(self) -> int:
        """How many quotas count the arms of a filter."""
        return sum(isinstance(part, Filter) for part in self._counted.values())

    def add(self, number: int, rule: QuotaRule) -> None:
        """A quota has this number now."""
        counted = self._counted[number] = rule.counted
        self._numbers.setdefault(counted, []).append(number)
        self._change()

    def remove(self, number: int) -> None:
        """No quota has this number now."""
        counted = self._counted.pop(number)
        self._numbers[counted].remove(number)
        if not self._numbers[counted]:
            del self._numbers[counted]
        self._change()

    def _change(self) -> None:
        self._version += 1
        self._lookup = self._answers_of = self._ready_of = None

    def quotas_of(self, snapshot: Snapshot, rows: Sequence[int]) -> list[Numbers]:
        """The quotas of each of these rows; none of a row that is -1. Nothing is awaited.

        Cost: a few reads for each row that was not asked for since arms or quotas changed. One that changed
        since ``follow``, and a quota that was added since, is compared by itself.
        """
        whole = snapshot.whole
        arms = whole.table.number, whole.attributes
        if self._answers_of != arms or len(self._answers) > MOST_ROWS:
            self._answers, self._answers_of = {-1: ()}, arms
        answers = self._answers
        try:
            return [answers[row] for row in rows]
        except KeyError:  # seldom: a test of each row takes as long as the answer
            missing = {row for row in rows if row not in answers}
            answers.update(self._look_up(whole, [*missing]))
        return [answers[row] for row in rows]

    def _look_up(self, whole: Snapshot, rows: Sequence[int]) -> dict[int, list[int]]:
        """The quotas of these rows, each once."""
        followed, numbers_of, by_arm, everything, added = self._lookup_in(whole)
        numbers, followed_rows, changed_rows = dict[int, list[int]](), list[int](), list[int]()
        is_known = followed.knows(whole.attributes, np.array(rows)).tolist()
        for row, knows in zip(rows, is_known, strict=True):
            numbers[row] = [*self._numbers.get(OneArm(whole.id_of(row)), ())] if by_arm else []
            (followed_rows if knows else changed_rows).append(row)
            for code in followed.codes_of(row) if knows else ():
                numbers[row] += numbers_of[code]
        _compare(whole, followed_rows, added, numbers)
        _compare(whole, changed_rows, everything, numbers)
        return numbers

    def _lookup_in(self, whole: Snapshot) -> Lookup:
        """Cost: that of all quotas, once after they or the rows that were found have changed."""
        followed = self._followed.get(whole.table.number, NOTHING)
        if self._lookup is None or self._lookup.followed is not followed:
            numbers_of = [self._numbers.get(part, ()) for part in followed.code_of]
            added = {part: self._numbers[part] for part in self._numbers.keys() - followed.code_of.keys()}
            by_arm = any(isinstance(part, OneArm) for part in self._numbers)
            self._lookup = Lookup(followed, numbers_of, by_arm, Sought.of(self._numbers), Sought.of(added))
        return self._lookup

    async def follow(self, snapshot: Snapshot) -> CountedRows:
        """Find the rows of all values and filters at this moment, so that they are known afterwards.

        Cost: see ``counted_rows``; in a thread where that is long. Raises Unavailable.
        """
        table, attributes = snapshot.whole.table, snapshot.whole.attributes
        async with self._following:
            before = self._followed.get(table.number, NOTHING)
            if before.version == self._version and before.is_of(table, attributes):
                return before
            values = [part for part in self._numbers if isinstance(part, OneValue)]
            _, fields, filters = Sought.of(self._numbers)
            find = partial(counted_rows, snapshot.whole, self._version, values, filters, before)
            work = table.rows * (1 + len(fields) + len(filters)) + STEPS_OF_A_VALUE * len(values)
            followed = await FOLLOWING.run(find) if work > LONG_WORK else find()
            if before.moment <= followed.moment:
                self._followed[table.number] = followed
            while len(self._followed) > TABLES:
                del self._followed[next(iter(self._followed))]
            return followed

    async def ready(self, snapshot: Snapshot) -> None:
        """Wait until little has changed since ``follow``: ``quotas_of`` compares that in the event loop."""
        attributes = snapshot.whole.attributes
        if attributes is self._ready_of:  # nearly always
            return
        followed, *_, added = self._lookup_in(snapshot.whole)
        if (
            attributes.generation != followed.moment.generation
            or attributes.entries - followed.moment.entries > MOST_CHANGES
            or len(added.filters) > MOST_NEW
        ):
            await self.follow(snapshot)
        else:
            self._ready_of = attributes

    async def absent(self, snapshot: Snapshot) -> list[int]:
        """The quotas that no arm counts for. Raises Unavailable."""
        followed = await self.follow(snapshot)
        row_of = snapshot.whole.table.row_of
        arms = [arm for arm in self._numbers if isinstance(arm, OneArm) and row_of(arm.id) < 0]
        return [number for part in (*arms, *followed.absent) for number in self._numbers.get(part, ())]

    async def counting(self, snapshot: Snapshot, numbers: Numbers) -> NDArray[np.bool_]:
        """True for the rows (K,) of the table of a snapshot that count for one of these quotas.

        As they are at that moment, or later. Cost: that of ``follow`` where something has changed, and a read
        of all pairs and bits of ``counted_rows``. Raises Unavailable: too many long computations at once.
        """
        whole, counted = snapshot.whole, self.counted(numbers)
        parts = [part for part in counted if not isinstance(part, OneArm)]
        followed = self._followed.get(whole.table.number, NOTHING)
        # A quota that was just added is seldom out: so choices do not wait until its arms are found.
        knows_all = followed.version == self._version or followed.code_of.keys() >= {*parts}
        if not knows_all or not followed.is_of(whole.table, whole.attributes):
            followed = await self.follow(whole)
        counts = followed.counting(parts)[: whole.table.rows]
        rows = whole.table.row_of_each([part.id for part in counted if isinstance(part, OneArm)])
        counts[rows[rows >= 0]] = True
        return counts

    def counted(self, numbers: Numbers) -> list[Counted]:
        """What these quotas count, each once; nothing of those that were deleted meanwhile."""
        return [*dict.fromkeys(self._counted[number] for number in numbers if number in self._counted)]

    def matches(self, filters: Sequence[Filter], whole: Snapshot, rows: Rows) -> Iterator[NDArray[np.bool_]]:
        """Whether each of these filters of quotas matches these rows (n,). Cost: as of ``quotas_of``."""
        followed, is_known = self._followed.get(whole.table.number, NOTHING), np.zeros(len(rows), np.bool_)
        if followed.code_of.keys() >= {*filters}:
            is_known = followed.knows(whole.attributes, rows)
        compared = whole.attributes.matches(filters, rows[~is_known])
        for arm_filter, changed in zip(filters, compared, strict=True):
            matches = np.empty(len(rows), np.bool_)
            matches[~is_known] = changed
            if is_known.any():
                matches[is_known] = followed.matches(arm_filter, rows[is_known])
            yield matches


def _compare(whole: Snapshot, rows: Sequence[int], sought: Sought, numbers: Mapping[int, list[int]]) -> None:
    """Add the quotas of what these rows have of ``sought`` to their ``numbers``."""
    if not rows or not any(sought[1:]):
        return
    attributes, asked = whole.attributes, np.array(rows)
    for field in sought.fields:
        for row, values in zip(rows, attributes.values_of(field, asked), strict=True):
            for value in values:
                numbers[row] += sought.numbers.get(OneValue(field, *value), ())
    for arm_filter, matches in zip(sought.filters, attributes.matches(sought.filters, asked), strict=True):
        for row in asked[matches].tolist():
            numbers[row] += sought.numbers[arm_filter]


class RemainingQuotas(NamedTuple):
    """How much is left of some quotas, of each by its number: a limit of one list (``policies.limits``)."""

    members: QuotaMembers
    left: Mapping[int, int]
    field: None = None  # an arm counts for quotas of any filter

    def pairs(self, arms: Snapshot, rows: Rows) -> tuple[NDArray[np.int32], NDArray[np.int32], Rows]:
        """Positions in ``rows`` and codes of what they count as (v,), and how much is left of each code."""
        left = dict[Counted, int]()
        for number, most in self.left.items():
            for counted in self.members.counted([number]):
                left[counted] = min(most, left.get(counted, most))
        code_of = {counted: code for code, counted in enumerate(left)}
        positions, codes = [np.empty(0, np.int32)], [np.empty(0, np.int32)]
        values, filters = defaultdict[str, list[OneValue]](list), list[Filter]()
        masks = dict[Counted, NDArray[np.bool_]]()
        for counted in code_of:
            if isinstance(counted, OneValue):
                values[counted.field].append(counted)
            elif isinstance(counted, OneArm):
                masks[counted] = rows == arms.whole.table.row_of(counted.id)
            else:
                filters.append(counted)
        masks.update(zip(filters, self.members.matches(filters, arms.whole, rows), strict=True))
        for counted, mask in masks.items():
            positions.append(np.flatnonzero(mask).astype(np.int32))
            codes.append(np.full(len(positions[-1]), code_of[counted], dtype=np.int32))
        for field, those in values.items():
            places, which = coded_among(arms.attributes, field, rows, [value.value for value in those])
            positions.append(places)
            codes.append(np.array([code_of[value] for value in those], np.int32)[which])
        return np.concatenate(positions), np.concatenate(codes), np.array([*left.values()], dtype=np.int64)
