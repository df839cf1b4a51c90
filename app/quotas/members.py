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
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from app.filters.coded_values import coded_among
from app.filters.filter import Filter
from app.indexes.eligible_rows import matches_of
from app.indexes.snapshot import Snapshot
from app.platform.long_work import LongWork
from app.quotas.counted_rows import NOTHING, CountedRows, counted_rows
from app.quotas.rules import Counted, OneArm, OneValue, QuotaRule
from shortlist.types import Rows

TABLES = 3  # whose rows are known: one, its successor, and that of a catalogue to move to
MOST_CHANGES, MOST_NEW = 10_000, 8  # entries of arms and filters, since the rows were found
MOST_ROWS = 4_096  # whose quotas are kept
LONG_WORK = 1_000_000  # values that are compared: a few milliseconds; more is done in a thread
STEPS_OF_A_VALUE = 1_000  # to look for one takes as long as to compare so many
FOLLOWING = LongWork(threads=2, waiting=256, name="quotas")

Numbers = Sequence[int]
T = TypeVar("T")


class KnownQuotas(NamedTuple):
    """The quotas of what ``counted`` has: of values and filters by place, of ``rows`` that were asked for.

    To look up a filter, or the bits of a row, takes microseconds.
    """

    counted: CountedRows
    of_value: Sequence[Numbers]
    of_filter: Mapping[int, Numbers]
    rows: dict[int, Numbers]


class QuotaMembers:
    """See the module. For the event loop; ``_following`` guards the rows that are followed."""

    def __init__(self) -> None:
        self._counted: dict[int, Counted] = {}
        self._numbers: dict[Counted, list[int]] = {}
        self._fields = Counter[str]()  # how many quotas count a value of each
        self._filters = Counter[Filter]()
        self._arms = 0  # quotas of one arm
        self._version = 0  # how often these have changed
        # By table: while a bandit is moved, its quotas are followed in two catalogues.
        self._followed: dict[int, CountedRows] = {}
        self._following = asyncio.Lock()
        self._known: KnownQuotas | None = None

    @property
    def filters(self) -> int:
        """How many quotas count the arms of a filter."""
        return self._filters.total()

    def add(self, number: int, rule: QuotaRule) -> None:
        """A quota has this number now."""
        counted = self._counted[number] = rule.counted
        self._numbers.setdefault(counted, []).append(number)
        self._count(counted, 1)

    def remove(self, number: int) -> None:
        """No quota has this number now."""
        counted = self._counted.pop(number)
        self._numbers[counted].remove(number)
        if not self._numbers[counted]:
            del self._numbers[counted]
        self._count(counted, -1)

    def _count(self, counted: Counted, quotas: int) -> None:
        self._version += 1
        self._known = None
        if isinstance(counted, OneValue):
            _add(self._fields, counted.field, quotas)
        elif isinstance(counted, Filter):
            _add(self._filters, counted, quotas)
        else:
            self._arms += quotas

    def quotas_of(self, snapshot: Snapshot, rows: Sequence[int]) -> list[Numbers]:
        """The quotas of each of these rows; none of a row that is -1. Nothing is awaited.

        Cost: a few reads for each row. One that changed since ``follow``, and a quota that was added since,
        is compared by itself.
        """
        whole = snapshot.whole
        followed = self._followed.get(whole.table.number, NOTHING)
        is_known = followed.knows_each(whole.attributes, rows)
        if followed.version == self._version and all(is_known):
            return self._known_quotas(followed, whole, rows)
        counted = [
            followed.counted_by(row) if is_row_known else set[Counted]()
            for row, is_row_known in zip(rows, is_known, strict=True)
        ]
        if not all(is_known):
            unknown = [place for place, row in enumerate(rows) if row >= 0 and not is_known[place]]
            self._look_up(whole, unknown, rows, self._filters, counted)
        if followed.version != self._version:
            filters = self._filters.keys() - followed.filters.values()
            self._look_up(whole, np.flatnonzero(is_known).tolist(), rows, filters, counted)
        if self._arms:
            for row, parts in zip(rows, counted, strict=True):
                parts.update([OneArm(whole.id_of(row))] if row >= 0 else [])
        return [[number for part in parts for number in self._numbers.get(part, ())] for parts in counted]

    def _known_quotas(self, followed: CountedRows, whole: Snapshot, rows: Sequence[int]) -> list[Numbers]:
        """``quotas_of`` rows that ``followed`` knows, which is of all quotas that there are."""
        known = self._known
        if known is None or known.counted is not followed:
            values = [self._numbers[value] for value in followed.values]
            filters = {place: self._numbers[part] for place, part in followed.filters.items()}
            known = self._known = KnownQuotas(followed, values, filters, {})
        result = list[Numbers]()
        for row in rows:
            numbers = known.rows.get(row)
            if numbers is None:
                codes, places = followed.places_of(row)
                found = [number for code in codes for number in known.of_value[code]]
                found += [number for place in places for number in known.of_filter.get(place, ())]
                if self._arms:
                    found += self._numbers.get(OneArm(whole.id_of(row)), ())
                if len(known.rows) >= MOST_ROWS:
                    known.rows.clear()
                numbers = known.rows[row] = found
            result.append(numbers)
        return result

    def _look_up(
        self,
        whole: Snapshot,
        places: Sequence[int],
        rows: Sequence[int],
        filters: Collection[Filter],
        counted: Sequence[set[Counted]],
    ) -> None:
        """Add to ``counted``, at these places, the values and which of these filters the rows there have."""
        some_rows = np.array([rows[place] for place in places], dtype=np.int64)
        for field in self._fields:
            for place, values in zip(places, whole.attributes.values_of(field, some_rows), strict=True):
                counted[place].update(OneValue(field, *value) for value in values)
        for arm_filter, matches in zip(
            filters, matches_of(filters, whole.attributes, some_rows), strict=True
        ):
            for place in np.flatnonzero(matches).tolist():
                counted[places[place]].add(arm_filter)

    async def follow(self, snapshot: Snapshot) -> CountedRows:
        """Find the rows of all values and filters at this moment, so that they are known afterwards.

        Cost: see ``counted_rows``; in a thread where that is long. Raises Unavailable.
        """
        table, attributes = snapshot.whole.table, snapshot.whole.attributes
        async with self._following:
            before = self._followed.get(table.number, NOTHING)
            if before.version == self._version and before.is_of(table, attributes):
                return before
            values, filters = before.values, [*self._filters]
            if before.version != self._version:
                values = [value for value in self._numbers if isinstance(value, OneValue)]
            find = partial(counted_rows, snapshot.whole, self._version, values, filters, before)
            work = table.rows * (1 + len(self._fields) + len(filters)) + STEPS_OF_A_VALUE * len(values)
            followed = await FOLLOWING.run(find) if work > LONG_WORK else find()
            if before.moment <= followed.moment:
                self._followed[table.number] = followed
            while len(self._followed) > TABLES:
                del self._followed[next(iter(self._followed))]
            return followed

    async def ready(self, snapshot: Snapshot) -> None:
        """Wait until little has changed since ``follow``: ``quotas_of`` compares that in the event loop."""
        attributes = snapshot.whole.attributes
        followed = self._followed.get(snapshot.whole.table.number, NOTHING)
        changes, is_new = attributes.entries - followed.moment.entries, followed.version != self._version
        if (
            attributes.generation != followed.moment.generation
            or changes > MOST_CHANGES
            or (is_new and len(self._filters.keys() - followed.filters.values()) > MOST_NEW)
        ):
            await self.follow(snapshot)

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
        knows_all = followed.version == self._version or followed.places.keys() >= {*parts}
        if not knows_all or not followed.is_of(whole.table, whole.attributes):
            followed = await self.follow(whole)
        counts = followed.counting(parts)[: whole.table.rows]
        rows = whole.table.row_of_each([part.id for part in counted if isinstance(part, OneArm)])
        counts[rows[rows >= 0]] = True
        return counts

    def counted(self, numbers: Numbers) -> list[Counted]:
        """What these quotas count, each once; nothing of those that were deleted meanwhile."""
        return [*dict.fromkeys(self._counted[number] for number in numbers if number in self._counted)]

    def matches(self, arm_filter: Filter, whole: Snapshot, rows: Rows) -> NDArray[np.bool_]:
        """Whether a filter of quotas matches each of these rows (n,). Cost: as of ``quotas_of``."""
        followed, matches = self._followed.get(whole.table.number, NOTHING), np.zeros(len(rows), np.bool_)
        is_open = np.ones(len(rows), np.bool_)
        if arm_filter in followed.places:
            is_open = ~followed.knows(whole.attributes, rows)
            matches[~is_open] = followed.matches(arm_filter, rows[~is_open])
        (matches[is_open],) = matches_of([arm_filter], whole.attributes, rows[is_open])
        return matches


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
        values = defaultdict[str, list[OneValue]](list)
        for counted, code in code_of.items():
            if isinstance(counted, OneValue):
                values[counted.field].append(counted)
                continue
            if isinstance(counted, OneArm):
                counts = rows == arms.whole.table.row_of(counted.id)
            else:
                counts = self.members.matches(counted, arms.whole, rows)
            positions.append(np.flatnonzero(counts).astype(np.int32))
            codes.append(np.full(len(positions[-1]), code, dtype=np.int32))
        for field, those in values.items():
            places, which = coded_among(arms.attributes, field, rows, [value.value for value in those])
            positions.append(places)
            codes.append(np.array([code_of[value] for value in those], np.int32)[which])
        return np.concatenate(positions), np.concatenate(codes), np.array([*left.values()], dtype=np.int64)


def _add(counts: Counter[T], key: T, number: int) -> None:
    """Count, without what is 0."""
    counts[key] += number
    if not counts[key]:
        del counts[key]
