"""Which rows of a catalogue what quotas count matches: found once, then only what has changed is looked at.

Rows by a value are pairs of a row and a value. Rows of filters, which overlap, are a bit for each filter and
row. So to find what a row counts for takes a few reads, however many quotas there are.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from app.filters.attribute_snapshot import AttributeSnapshot
from app.filters.coded_values import coded_among
from app.filters.filter import Filter
from app.indexes.eligible_rows import Moment, eligible_rows
from app.indexes.snapshot import Snapshot
from app.quotas.rules import Counted, OneValue
from shortlist.index.table import TableSnapshot
from shortlist.types import Rows

Numbers = NDArray[np.int32]

NO_NUMBERS: Numbers = np.empty(0, np.int32)


@dataclass(frozen=True, eq=False)
class CountedRows:
    """Which rows of a table count for which values and filters, at one moment. It never changes.

    version      of what is looked for, by a count of the caller
    attributes   of that ``moment``; None: nothing is known
    is_live      (K + 1,) the rows that had not died: of those that had nothing is said; False at last
    rows, codes  (v,) pairs of a row and the position of a value in ``values``; the rows ascend
    starts       (K + 1,) where the pairs of each row begin
    bits         (filters, K / 8) whether each filter matches each row, as ``np.packbits`` packs them
    """

    version: int
    moment: Moment
    attributes: AttributeSnapshot | None
    is_live: NDArray[np.bool_]
    values: Sequence[OneValue]
    rows: Numbers
    codes: Numbers
    starts: Numbers
    filters: Sequence[Filter]
    bits: NDArray[np.uint8]

    @classmethod
    def of_nothing(cls) -> CountedRows:
        """Of a moment before all others: no row counts for anything."""
        moment, nothing = Moment(-1, -1, 0, 0, 0), np.empty((0, 0), np.uint8)
        return cls(
            -1, moment, None, np.zeros(1, np.bool_), (), NO_NUMBERS, NO_NUMBERS, NO_NUMBERS, (), nothing
        )

    @cached_property
    def code_of(self) -> Mapping[Counted, int]:
        """The position of each value, and behind them of each filter."""
        parts: list[Counted] = [*self.values, *self.filters]
        return {part: code for code, part in enumerate(parts)}

    @cached_property
    def absent(self) -> Sequence[Counted]:
        """The values and filters of no living row. Cost: a read of all bits."""
        has_value = np.bincount(self.codes, minlength=len(self.values)) > 0
        has_row = np.concatenate((has_value, self.bits.any(axis=1))).tolist()
        return [part for part, code in self.code_of.items() if not has_row[code]]

    def is_of(self, table: TableSnapshot, attributes: AttributeSnapshot) -> bool:
        """Whether this is as of that moment, or of a later one."""
        return Moment.of(table, attributes).precedes(self.moment)

    def knows(self, attributes: AttributeSnapshot, rows: Rows) -> NDArray[np.bool_]:
        """Whether these rows (n,), 0 or more, had the same fields at that moment of the table."""
        is_known: NDArray[np.bool_] = self.is_live.take(rows, mode="clip")
        if self.attributes is attributes or self.attributes is None:
            return is_known
        if attributes.generation == self.moment.generation:
            is_known &= self.attributes.entries_of(rows) == attributes.entries_of(rows)
            return is_known
        return np.zeros(len(rows), dtype=np.bool_)

    def codes_of(self, row: int) -> list[int]:
        """The positions of what a row counts for. Cost: a read for each, and for each filter."""
        codes: list[int] = self.codes[self.starts.item(row) : self.starts.item(row + 1)].tolist()
        if len(self.bits):
            is_set = self.bits[:, row >> 3] & 1 << (row & 7)
            codes += (len(self.values) + np.flatnonzero(is_set)).tolist()
        return codes

    def matches(self, arm_filter: Filter, rows: Rows) -> NDArray[np.bool_]:
        """Whether one of ``filters`` matches these rows (n,)."""
        bits = self.bits[self.code_of[arm_filter] - len(self.values)]
        matches: NDArray[np.bool_] = bits[rows >> 3] & 1 << (rows & 7) != 0
        return matches

    def counting(self, counted: Iterable[Counted]) -> NDArray[np.bool_]:
        """True for the rows (K,) that count for one of these; of others than were looked for none does.

        Cost: a read of all pairs, and of the bits of these filters.
        """
        is_counted = np.zeros(len(self.code_of), dtype=np.bool_)
        is_counted[[self.code_of[part] for part in counted if part in self.code_of]] = True
        is_value, is_filter = np.split(is_counted, [len(self.values)])
        counts = _unpacked(np.bitwise_or.reduce(self.bits[is_filter], axis=0), self.moment.size)
        counts[self.rows[is_value[self.codes]]] = True
        return counts


def counted_rows(
    whole: Snapshot,
    version: int,
    values: Sequence[OneValue],
    filters: Sequence[Filter],
    before: CountedRows,
) -> CountedRows:
    """Find the living rows of these values and filters. ``before``: what was found for a moment of the table.

    Cost: a copy of ``before``, and of what is new. Of a filter that is new all rows are looked at; of all
    values where one is new; of everything where ``before`` is of a later moment or of other numbers.
    """
    table, attributes = whole.table, whole.attributes
    now = Moment.of(table, attributes)
    if not before.moment.precedes(now):
        before = CountedRows.of_nothing()
    _, _, entries, dead, size = before.moment
    has_changed = np.zeros(table.rows, dtype=np.bool_)
    has_changed[size:] = True
    described = attributes.rows[entries:]
    has_changed[described[(described >= 0) & (described < table.rows)]] = True
    has_changed[table.dead[dead:]] = True
    is_live = np.append(table.died >= len(table.dead), False)
    touched = np.flatnonzero(has_changed)
    lives = is_live[touched]
    changed = touched[lives]

    followed_filters = [arm_filter for arm_filter in filters if arm_filter in before.code_of]
    changes = dict(zip(followed_filters, attributes.matches(followed_filters, changed), strict=True))
    # To unpack the bits of all rows takes many times as long as to copy them.
    octets, octet_of = np.unique(touched >> 3, return_inverse=True)
    places = 8 * octet_of + (touched & 7)
    bits = np.zeros((len(filters), -(-table.rows // 8)), np.uint8)
    for number, arm_filter in enumerate(filters):
        if arm_filter in changes:
            earlier_bits = before.bits[before.code_of[arm_filter] - len(before.values)]
            bits[number, : len(earlier_bits)] = earlier_bits
            matches = np.unpackbits(bits[number, octets], bitorder="little")
            matches[places[~lives]], matches[places[lives]] = 0, changes[arm_filter]
            bits[number, octets] = np.packbits(matches, bitorder="little")
        else:
            bits[number] = np.packbits(eligible_rows(arm_filter, table, attributes).mask, bitorder="little")

    rows, codes, asked = [NO_NUMBERS], [NO_NUMBERS], table.live_rows
    if values == before.values:
        stays = ~has_changed[before.rows]
        rows, codes, asked = [before.rows[stays]], [before.codes[stays]], changed
    codes_by_field = defaultdict[str, list[int]](list)
    for code, value in enumerate(values):
        codes_by_field[value.field].append(code)
    for field, field_codes in codes_by_field.items():
        positions, which = coded_among(attributes, field, asked, [values[code].value for code in field_codes])
        rows.append(asked[positions].astype(np.int32))
        codes.append(np.array(field_codes, np.int32)[which])
    all_rows = np.concatenate(rows)
    order = np.argsort(all_rows, kind="stable")
    starts = np.zeros(table.rows + 1, dtype=np.int32)
    np.cumsum(np.bincount(all_rows, minlength=table.rows), out=starts[1:])
    return CountedRows(
        version, now, attributes, is_live, values, all_rows[order], np.concatenate(codes)[order],
        starts, filters, bits,
    )  # fmt: skip


def _unpacked(bits: NDArray[np.uint8], size: int) -> NDArray[np.bool_]:
    return np.unpackbits(bits, count=size, bitorder="little").view(np.bool_)
