"""Which rows of a catalogue what quotas count matches: found once, then only what has changed is looked at.

Rows by a value are pairs of a row and a value. Rows of filters, which overlap, are a bit for each row and
filter. So to find what a row counts for takes a few reads, however many quotas there are.
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
from app.indexes.eligible_rows import Moment, eligible_rows, matches_of
from app.indexes.snapshot import Snapshot
from app.quotas.rules import Counted, OneValue
from shortlist.index.table import TableSnapshot
from shortlist.types import Rows

Numbers = NDArray[np.int32]

BYTE = 8  # filters, a bit each
NO_NUMBERS: Numbers = np.empty(0, np.int32)


@dataclass(frozen=True, eq=False)
class CountedRows:
    """Which rows of a table count for which values and filters, at one moment. It never changes.

    version      of what is looked for, by a count of the caller
    attributes   of that ``moment``; None: nothing is known
    is_live      (K + 1,) the rows that had not died: of those that had nothing is said; False at last
    rows, codes  (v,) pairs of a row and the place of a value in ``values``; the rows ascend
    starts       (K + 1,) where the pairs of each row begin
    bits         (bytes, K): of ``filters[p]`` bit ``p % BYTE`` of byte ``p // BYTE``
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

    @cached_property
    def places(self) -> Mapping[Counted, int]:
        """The place of each value, and behind them of each filter."""
        parts: list[Counted] = [*self.values, *self.filters]
        return {part: place for place, part in enumerate(parts)}

    @cached_property
    def absent(self) -> Sequence[Counted]:
        """The values and filters of no living row. Cost: a read of all bits."""
        has_value = np.bincount(self.codes, minlength=len(self.values)) > 0
        has_bit = np.unpackbits(np.bitwise_or.reduce(self.bits, axis=1), bitorder="little")
        has_rows = [*has_value.tolist(), *has_bit[: len(self.filters)].tolist()]
        return [part for part, has_row in zip(self.places, has_rows, strict=True) if not has_row]

    def is_of(self, table: TableSnapshot, attributes: AttributeSnapshot) -> bool:
        """Whether this is as of that moment, or of a later one."""
        return Moment.of(table, attributes).precedes(self.moment)

    def knows(self, attributes: AttributeSnapshot, rows: Rows) -> NDArray[np.bool_]:
        """Whether these rows (n,) had the same fields at that moment of the table; not of rows below 0."""
        is_known: NDArray[np.bool_] = (rows >= 0) & self.is_live.take(rows, mode="clip")
        if self.attributes is attributes or self.attributes is None:
            return is_known
        if attributes.generation == self.moment.generation:
            is_known &= self.attributes.entries_of(rows) == attributes.entries_of(rows)
            return is_known
        return np.zeros(len(rows), dtype=np.bool_)

    def places_of(self, row: int) -> list[int]:
        """The ``places`` of what a row counts for. Cost: a read for each, and for each byte of bits."""
        places: list[int] = self.codes[self.starts.item(row) : self.starts.item(row + 1)].tolist()
        if len(self.bits):
            is_set = np.unpackbits(self.bits[:, row], bitorder="little")
            places += (len(self.values) + np.flatnonzero(is_set)).tolist()
        return places

    def matches(self, arm_filter: Filter, rows: Rows | slice = slice(None)) -> NDArray[np.bool_]:
        """Whether one of ``filters`` matches these rows (n,), by default all."""
        byte, bit = divmod(self.places[arm_filter] - len(self.values), BYTE)
        matches: NDArray[np.bool_] = self.bits[byte, rows] & 1 << bit != 0
        return matches

    def counting(self, counted: Iterable[Counted]) -> NDArray[np.bool_]:
        """True for the rows (K,) that count for one of these; of others than were looked for none does.

        Cost: a read of all pairs, and of all bits.
        """
        is_asked, asked_bits = np.zeros(len(self.values), np.bool_), np.zeros(len(self.bits), np.uint8)
        for part in counted:
            place = self.places.get(part)
            if place is not None and place >= len(self.values):
                byte, bit = divmod(place - len(self.values), BYTE)
                asked_bits[byte] |= 1 << bit
            elif place is not None:
                is_asked[place] = True
        counts = np.zeros(self.moment.size, dtype=np.bool_)
        counts[self.rows[is_asked[self.codes]]] = True
        for byte in np.flatnonzero(asked_bits).tolist():
            counts |= (self.bits[byte] & asked_bits[byte]).astype(np.bool_)
        return counts


NOTHING = CountedRows(
    -1, Moment(-1, -1, 0, 0, 0), None, np.zeros(1, np.bool_), (), NO_NUMBERS, NO_NUMBERS, NO_NUMBERS, (),
    np.empty((0, 0), np.uint8),
)  # fmt: skip


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
    moment = Moment.of(table, attributes)
    if not before.moment.precedes(moment):
        before = NOTHING
    _, _, entries, dead, size = before.moment
    has_changed = np.zeros(table.rows, dtype=np.bool_)
    has_changed[size:] = True
    described = attributes.rows[entries:]
    has_changed[described[(described >= 0) & (described < table.rows)]] = True
    has_changed[table.dead[dead:]] = True
    is_live = np.append(table.died >= len(table.dead), False)
    changed = np.flatnonzero(has_changed & is_live[:-1])

    kept = {place: part for place, part in enumerate(filters) if part in before.places}
    bits = np.zeros((-(-len(filters) // BYTE), table.rows), np.uint8)
    if filters == before.filters:
        bits[:, :size] = before.bits
    else:
        for place, part in kept.items():
            bits[place // BYTE, :size] |= before.matches(part).view(np.uint8) << place % BYTE
    bits[:, has_changed] = 0
    for place, matches in zip(kept, matches_of(kept.values(), attributes, changed), strict=True):
        bits[place // BYTE, changed] |= matches.view(np.uint8) << place % BYTE
    for place in range(len(filters)):
        if place not in kept:
            matches = eligible_rows(filters[place], table, attributes).mask
            bits[place // BYTE] |= matches.view(np.uint8) << place % BYTE

    rows, codes, asked = [NO_NUMBERS], [NO_NUMBERS], table.live_rows
    if values == before.values:
        stays = ~has_changed[before.rows]
        rows, codes, asked = [before.rows[stays]], [before.codes[stays]], changed
    codes_of = defaultdict[str, list[int]](list)
    for code, value in enumerate(values):
        codes_of[value.field].append(code)
    for field, own in codes_of.items():
        positions, which = coded_among(attributes, field, asked, [values[code].value for code in own])
        rows.append(asked[positions].astype(np.int32))
        codes.append(np.array(own, np.int32)[which])
    all_rows = np.concatenate(rows)
    order = np.argsort(all_rows, kind="stable")
    starts = np.zeros(table.rows + 1, dtype=np.int32)
    np.cumsum(np.bincount(all_rows, minlength=table.rows), out=starts[1:])
    return CountedRows(
        version, moment, attributes, is_live, values, all_rows[order], np.concatenate(codes)[order],
        starts, filters, bits,
    )  # fmt: skip
