"""Which arms count for which quotas of a bandit.

What a quota counts (``rules.Counted``) is an arm, a value of a field, or a filter. Quotas are looked up by
the first two in a dictionary. A filter is followed: its rows are found once, and then only what has changed
in the catalogue is looked at (``indexes.eligible_rows``). Every answer is for the snapshot that is asked
about, so no choice waits for the quotas of arms that came or changed.

Notation
    number      of a quota: its place in the arrays of ``arrays``
    row         of an arm, see ``indexes.table``
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from app.filters.coded_values import coded_among
from app.filters.fields import Value
from app.filters.filter import Filter, OneOf
from app.indexes.eligible_rows import EligibleRows, eligible_rows, matches_of, work
from app.indexes.snapshot import Snapshot
from app.platform.deadlines import yield_to_others
from app.platform.long_work import LongWork
from app.quotas.rules import Counted, OneArm, OneValue, QuotaRule
from shortlist.types import NO_ROWS, Rows

TABLES = 3  # whose rows are known: one, its successor, and that of a catalogue to move to
LONG_WORK = 1_000_000  # values that are compared: a few milliseconds; more is done in a thread
STEPS_OF_A_VALUE = 1_000  # to look for one takes as long as to compare so many
EVALUATING = LongWork(threads=2, waiting=256, name="quotas")

Numbers = Sequence[int]
T = TypeVar("T")


class QuotaMembers:
    """See the module. For the event loop. ``remembered``: rows whose quotas are kept for the next choice."""

    def __init__(self, *, remembered: int = 10_000) -> None:
        self._counted: dict[int, Counted] = {}
        self._numbers: dict[Counted, list[int]] = {}
        self._fields = Counter[str]()  # how many quotas count a value of each
        self._filters = Counter[Filter]()
        # By table first: while a bandit is moved, its filters are followed in two catalogues.
        self._followed: dict[int, dict[Filter, EligibleRows]] = {}
        self._remembered = remembered
        self._moment = -1, -1  # of the catalogue, of which the quotas of rows are remembered
        self._quotas_of: dict[int, Numbers] = {}
        # The rows of quotas by a value, as ``follow`` last found them, and when that was.
        self._rows_of: dict[OneValue, Rows] = {}
        self._rows_moment = -1, -1, -1

    @property
    def filters(self) -> int:
        """How many quotas count the arms of a filter that is followed."""
        return self._filters.total()

    def add(self, number: int, rule: QuotaRule) -> None:
        """A quota has this number now."""
        counted = self._counted[number] = rule.counted
        self._numbers.setdefault(counted, []).append(number)
        if isinstance(counted, OneValue):
            self._fields[counted.field] += 1
        elif isinstance(counted, Filter):
            self._filters[counted] += 1
        self._quotas_of.clear()

    def remove(self, number: int) -> None:
        """No quota has this number now."""
        counted = self._counted.pop(number)
        self._numbers[counted].remove(number)
        if not self._numbers[counted]:
            del self._numbers[counted]
        if isinstance(counted, OneValue):
            self._fields = _one_less(self._fields, counted.field)
        elif isinstance(counted, Filter):
            self._filters = _one_less(self._filters, counted)
            for followed in self._followed.values() if counted not in self._filters else ():
                followed.pop(counted, None)
        self._quotas_of.clear()

    def quotas_of(self, snapshot: Snapshot, rows: Sequence[int]) -> list[Numbers]:
        """The quotas of each of these rows; none of a row that is -1. Cost: O(rows); nothing is awaited."""
        whole = snapshot.whole
        moment = whole.table.number, whole.attributes.stamp
        if moment != self._moment or len(self._quotas_of) + len(rows) > self._remembered:
            self._quotas_of.clear()
            self._moment = moment
        missing = [row for row in rows if row >= 0 and row not in self._quotas_of]
        if missing:
            self._quotas_of.update(zip(missing, self._look_up(whole, missing), strict=True))
        return [self._quotas_of.get(row, ()) for row in rows]

    def _look_up(self, whole: Snapshot, rows: Sequence[int]) -> list[Numbers]:
        quotas = [[*self._numbers.get(OneArm(whole.id_of(row)), ())] for row in rows]
        row_array, table, attributes = np.array(rows, dtype=np.int64), whole.table, whole.attributes
        for field in self._fields:
            for numbers, values in zip(quotas, attributes.values_of(field, row_array), strict=True):
                for kind, value in values:
                    numbers.extend(self._numbers.get(OneValue(field, kind, value), ()))
        if not self._filters:
            return list[Numbers](quotas)
        followed, entries = self._followed_in(table.number), attributes.entries_of(row_array).tolist()
        moment, is_known = None, False
        for arm_filter in self._filters:
            eligible = followed.get(arm_filter)
            # Most filters were followed at one moment, so this is asked once.
            if eligible is not None and eligible.moment != moment:
                moment = eligible.moment
                is_known = min(entries) >= 0 and eligible.knows(table, attributes, max(entries))
            if eligible is not None and is_known:
                matches = [*map(eligible.mask.item, rows)]
            else:
                matches = matches_of(arm_filter, table, attributes, row_array, eligible).tolist()
            for numbers, is_match in zip(quotas, matches, strict=True):
                if is_match:
                    numbers.extend(self._numbers[arm_filter])
        return list[Numbers](quotas)

    async def counting(self, snapshot: Snapshot, numbers: Numbers) -> NDArray[np.bool_]:
        """True for the rows (K,) of the table of a snapshot that count for one of these quotas.

        Cost: K bytes, and for each filter what changed since the last call. Where the catalogue has changed
        since ``follow``, also K reads for each field of quotas by a value; in a thread where that is long.
        Raises Unavailable: too many long computations at once.
        """
        whole, counted = snapshot.whole, self.counted(numbers)
        counts = np.zeros(whole.table.rows, dtype=np.bool_)
        rows = whole.table.row_of_each([arm.id for arm in counted if isinstance(arm, OneArm)])
        counts[rows[rows >= 0]] = True
        rows_of = self._rows_of if self._rows_moment == _moment_of(whole) else {}
        values, parts = defaultdict[str, list[Value]](list), [NO_ROWS]
        for value in counted:
            if isinstance(value, OneValue) and value in rows_of:
                parts.append(rows_of[value])
            elif isinstance(value, OneValue):
                values[value.field].append(value.value)
        counts[np.concatenate(parts)] = True
        for field, members in values.items():
            any_value = Filter("", {}, 1, OneOf(field, tuple(members)))
            found = partial(eligible_rows, any_value, whole.table, whole.attributes)
            counts |= (await _compute(found, whole.table.rows + STEPS_OF_A_VALUE * len(members))).mask
        for eligible in await self._follow(whole, [part for part in counted if isinstance(part, Filter)]):
            counts |= eligible.mask
            await yield_to_others()
        return counts

    def counted(self, numbers: Numbers) -> list[Counted]:
        """What these quotas count, each once; nothing of those that were deleted meanwhile."""
        return [*dict.fromkeys(self._counted[number] for number in numbers if number in self._counted)]

    def matches(self, arm_filter: Filter, whole: Snapshot, rows: Rows) -> NDArray[np.bool_]:
        """Whether a filter of quotas matches each of these rows (n,). Cost: O(n), and what has changed."""
        followed = self._followed_in(whole.table.number).get(arm_filter)
        return matches_of(arm_filter, whole.table, whole.attributes, rows, followed)

    async def _follow(self, whole: Snapshot, filters: Sequence[Filter]) -> list[EligibleRows]:
        """The rows of these filters at this moment; they are kept for the next one."""
        table, attributes = whole.table, whole.attributes
        followed, answers = self._followed_in(table.number), list[EligibleRows]()
        for arm_filter in filters:
            eligible = followed.get(arm_filter)
            if eligible is None or not eligible.is_of(table, attributes):
                later = partial(eligible_rows, arm_filter, table, attributes, eligible)
                eligible = await _compute(later, work(arm_filter, table, attributes, eligible))
                await yield_to_others()
                # Its quotas may be gone by now, and what a later choice found is newer.
                if arm_filter in self._filters:
                    newest = followed.get(arm_filter, eligible)
                    followed[arm_filter] = eligible if eligible.number >= newest.number else newest
            answers.append(eligible)
        return answers

    def _followed_in(self, table_number: int) -> dict[Filter, EligibleRows]:
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
        whole, filters = snapshot.whole, [*self._filters]
        rows_of_filters = zip(filters, await self._follow(whole, filters), strict=True)
        absent: set[Counted] = {arm_filter for arm_filter, eligible in rows_of_filters if not eligible.count}
        values = defaultdict[str, list[OneValue]](list)
        for counted in self._numbers:
            if isinstance(counted, OneValue):
                values[counted.field].append(counted)
            elif isinstance(counted, OneArm) and whole.table.row_of(counted.id) < 0:
                absent.add(counted)
        rows_of = dict[OneValue, Rows]()
        for field, those in values.items():
            size = whole.table.rows + STEPS_OF_A_VALUE * len(those)
            rows_of |= await _compute(partial(_rows_of_values, whole, field, those), size)
        self._rows_of, self._rows_moment = rows_of, _moment_of(whole)
        absent |= {value for value, rows in rows_of.items() if not len(rows)}
        return [number for counted in absent for number in self._numbers.get(counted, ())]


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


def _moment_of(whole: Snapshot) -> tuple[int, int, int]:
    """Which rows have which fields."""
    return whole.table.number, whole.attributes.generation, whole.attributes.entries


def _rows_of_values(whole: Snapshot, field: str, values: Sequence[OneValue]) -> dict[OneValue, Rows]:
    """The living rows that have each of these values of a field. Cost: O(K), and O(values)."""
    rows = whole.table.live_rows
    places, codes = coded_among(whole.attributes, field, rows, [value.value for value in values])
    order = np.argsort(codes, kind="stable")
    ends = codes[order].searchsorted(np.arange(1, len(values)))
    return dict(zip(values, np.split(rows[places[order]], ends), strict=True))


async def _compute(work: Callable[[], T], size: int) -> T:
    """Do work that compares so many values: in a thread where that is long."""
    return await EVALUATING.run(work) if size > LONG_WORK else work()


def _one_less(counts: Counter[T], key: T) -> Counter[T]:
    """The counts with one less of a key, without it at 0."""
    counts[key] -= 1
    if not counts[key]:
        del counts[key]
    return counts
