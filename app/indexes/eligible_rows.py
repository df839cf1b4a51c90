"""The arms matched by a filter, as rows of a table, and how they follow a changing catalogue.

Rows, tombstones and entries of attributes are only ever appended. So the matches of an earlier snapshot stay
true, and only rows, tombstones and entries appended since are looked at.

A new filter is evaluated in the memory of the filter before it, for fresh memory costs more time than a
comparison. Of few rows their numbers alone are kept, of many a byte for every row of the table.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count as counting
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from app.filters.attribute_snapshot import AttributeSnapshot
from app.filters.filter import Filter
from shortlist.index.table import TableSnapshot
from shortlist.types import NO_ROWS, Rows

_NUMBERS = counting()
_WORD = 8  # rows
# Of one row in so many, the numbers take no more memory than a byte for every row of the table.
_FEW = 8
# Masks of up to so many rows are written over the last one that this thread evaluated.
_ROWS_KEPT = 1 << 20
_SCRATCH = threading.local()


@dataclass(frozen=True, slots=True, eq=False)
class Change:
    """Rows newly matched by a filter, and rows no longer matched. Both ascend."""

    came: Rows
    went: Rows


class TableVersion(NamedTuple):
    """A snapshot of the arms and of their attributes, by numbers. ``size``: K; ``dead``: number of
    tombstones.

    ``number``: of the table. One version of a table is less than a later one.
    """

    number: int
    generation: int
    entries: int
    dead: int
    size: int

    @classmethod
    def of(cls, table: TableSnapshot, attributes: AttributeSnapshot) -> TableVersion:
        return cls(table.number, attributes.generation, attributes.entries, len(table.dead), table.rows)

    def precedes(self, other: TableVersion) -> bool:
        """True if ``other`` is the same or a later snapshot, of the same table and the same entries."""
        return self[:2] == other[:2] and all(mine <= theirs for mine, theirs in zip(self, other, strict=True))


@dataclass(frozen=True, eq=False)
class EligibleRows:
    """The living rows matched by a filter, at one moment. Immutable.

    ``rows_or_mask``: the rows, ascending (count,), or a mask (K,) of them. ``step``: the change since the
    rows of number ``follows``, for rows made from those.
    """

    version: TableVersion
    count: int
    rows_or_mask: NDArray[Any]
    follows: int = -1
    step: Change | None = None
    number: int = field(default_factory=lambda: next(_NUMBERS))

    @property
    def table_number(self) -> int:
        """The number of the table whose rows they are."""
        return self.version.number

    @cached_property
    def rows(self) -> Rows:
        """The rows, ascending (count,)."""
        rows: Rows = np.flatnonzero(self.rows_or_mask) if self._is_mask else self.rows_or_mask
        return rows

    @cached_property
    def mask(self) -> NDArray[np.bool_]:
        """True for those rows (K,)."""
        if not self._is_mask:
            mask = np.zeros(self.version.size, dtype=np.bool_)
            mask[self.rows_or_mask] = True
            return mask
        return self.rows_or_mask

    @property
    def _is_mask(self) -> bool:
        return bool(self.rows_or_mask.dtype == np.bool_)

    def memory_bytes(self, *, listed: bool) -> int:
        """Memory of the arrays, also of those not made yet. ``listed``: its rows are asked for."""
        return self.version.size + (8 * self.count if listed else 0)

    def is_of(self, table: TableSnapshot, attributes: AttributeSnapshot) -> bool:
        """True if neither the table nor the attributes changed since."""
        return self.version == TableVersion.of(table, attributes)

    def since(self, before: EligibleRows) -> Change:
        """The change since an earlier moment of the same table. Cost: K, or nothing for rows made from
        ``before``.
        """
        if before is self:
            return Change(NO_ROWS, NO_ROWS)
        if self.step is not None and self.follows == before.number:
            return self.step
        size_before = before.version.size
        differs = np.flatnonzero(self.mask[:size_before] != before.mask)
        later = np.flatnonzero(self.mask[size_before:]) + size_before
        is_in = self.mask[differs]
        return Change(np.concatenate((differs[is_in], later)), differs[~is_in])


def renumbered(before: EligibleRows, position: Rows, table: TableSnapshot) -> EligibleRows:
    """The same rows in a renumbered table: row r is now ``position[r]``, -1 for a row which is gone.

    For ``since`` alone: later changes are unknown. Cost: K.
    """
    rows = position[before.rows]
    mask = np.zeros(table.rows, dtype=np.bool_)
    mask[rows[rows >= 0]] = True
    return EligibleRows(TableVersion(table.number, -1, 0, 0, table.rows), int(np.count_nonzero(mask)), mask)


def rows_left(table: TableSnapshot, attributes: AttributeSnapshot, mask: NDArray[np.bool_]) -> EligibleRows:
    """The rows of a mask (K,), at this moment."""
    return EligibleRows(TableVersion.of(table, attributes), int(np.count_nonzero(mask)), mask)


def eligible_rows(
    arm_filter: Filter,
    table: TableSnapshot,
    attributes: AttributeSnapshot,
    before: EligibleRows | None = None,
) -> EligibleRows:
    """Find the living rows matched by ``arm_filter``. ``table`` and ``attributes`` are of one moment.

    ``before``: the rows found for an earlier moment. Cost: ``work`` reads, and a copy of the mask.
    """
    current = TableVersion.of(table, attributes)
    if before is not None and before.version == current:
        return before
    if before is None or not before.version.precedes(current):
        return EligibleRows(current, *_of_all(arm_filter, table, attributes))
    _, _, entries, dead, size_before = before.version
    mask = np.empty(table.rows, dtype=np.bool_)
    mask[:size_before] = before.mask
    if attributes.straight < table.rows:
        mask[size_before:] = _of_no_fields(arm_filter)
    if entries < attributes.entries:
        _write(mask, attributes, entries, attributes.evaluate(arm_filter, entries))
    mask[table.dead[dead:]] = False
    step = _step(before, mask, attributes.rows[entries:], table.dead[dead:])
    count = before.count + len(step.came) - len(step.went)
    return EligibleRows(current, count, mask, before.number, step)


def _of_all(
    arm_filter: Filter, table: TableSnapshot, attributes: AttributeSnapshot
) -> tuple[int, NDArray[Any]]:
    """The number of living matches, and the matches as in ``rows_or_mask``.

    Few matches are sought in words of eight rows, and then in the words which have any.
    """
    scratch = _scratch(table.rows)
    mask = scratch[: table.rows]
    if attributes.straight == table.rows == attributes.entries:
        attributes.evaluate(arm_filter, out=mask)
    else:
        mask[:] = _of_no_fields(arm_filter)
        _write(mask, attributes, 0, attributes.evaluate(arm_filter))
    mask[table.dead] = False
    words = scratch.view(np.uint64)
    is_hit = words != 0
    if _FEW * np.count_nonzero(is_hit) <= len(words):
        positions = np.flatnonzero(is_hit)
        inside = np.flatnonzero(words[positions].view(np.bool_))
        rows = positions[inside // _WORD] * _WORD + inside % _WORD
        return len(rows), rows
    count = int(np.count_nonzero(mask))
    return count, mask.copy() if _FEW * count > table.rows else np.flatnonzero(mask)


def _of_no_fields(arm_filter: Filter) -> bool:
    """True if an arm without any attribute matches."""
    return arm_filter.matches((), {})


def _scratch(rows: int) -> NDArray[np.bool_]:
    """Memory for a mask of so many rows, in whole words, with False after the rows.

    Unless large, the same memory serves all filters of a thread.
    """
    size = -(-rows // _WORD) * _WORD
    mask: NDArray[np.bool_] | None = getattr(_SCRATCH, "mask", None)
    if mask is None or len(mask) < size:
        mask = np.empty(size, dtype=np.bool_)
        if size <= _ROWS_KEPT:
            _SCRATCH.mask = mask
    mask[rows:size] = False
    return mask[:size]


def work(
    arm_filter: Filter, table: TableSnapshot, attributes: AttributeSnapshot, before: EligibleRows | None
) -> int:
    """About how many values ``eligible_rows`` reads."""
    is_usable = before is not None and before.version.precedes(TableVersion.of(table, attributes))
    return attributes.work(arm_filter, before.version.entries if before is not None and is_usable else 0)


def _write(
    mask: NDArray[np.bool_], attributes: AttributeSnapshot, first: int, answers: NDArray[np.bool_]
) -> None:
    """Write what was found for the entries from ``first`` on to their rows."""
    straight = min(attributes.straight, len(mask))
    if straight > first:
        mask[first:straight] = answers[: straight - first]
        answers, first = answers[straight - first :], straight
    if len(answers):
        rows = attributes.rows[first:]
        here = (rows >= 0) & (rows < len(mask))
        mask[rows[here]] = answers[here]  # of a row named twice the last counts


def _step(before: EligibleRows, mask: NDArray[np.bool_], described: NDArray[np.int32], died: Rows) -> Change:
    """The change of the matches. Only described, dead and new rows can have changed."""
    size_before = before.version.size
    touched: Rows = np.concatenate((described, died))
    touched = touched[(touched >= 0) & (touched < size_before)]
    touched = touched[before.mask[touched] != mask[touched]]
    if len(touched) > 1:
        touched = np.unique(touched)  # a row may have been described and have died
    is_in = mask[touched]
    later = np.flatnonzero(mask[size_before:]) + size_before
    return Change(np.concatenate((touched[is_in], later)), touched[~is_in])
