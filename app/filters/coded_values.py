"""The values of a field as small numbers: equal values have the same. No loop runs over arms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.filters.attribute_snapshot import AttributeSnapshot
from app.filters.columns import Column, Numbers
from app.filters.field_numbers import CODED
from app.filters.fields import Stored, Value
from shortlist.types import Rows

Small = NDArray[np.int32]

_FEW = 4_096  # values: sorted in less time than a table is filled
_SPARSE = 16  # of so many codes one is used, or fewer: a table of all takes longer than a sort


@dataclass(frozen=True, slots=True)
class Coded:
    """Pairs of a row and one of its values. A pair may be there twice.

    places  (v,) of the row, among the requested ones
    codes   (v,) of the value, below ``count``
    """

    places: Small
    codes: Small
    count: int


def coded(attributes: AttributeSnapshot, name: str, rows: Rows, most_sorted: int = _FEW) -> Coded:
    """The pairs of a row and a value of a field. Shapes: rows (m,), any numbers.

    Cost: O(m + v), besides the different values, which are sorted; up to ``most_sorted`` values all are
    sorted.
    """
    places, codes, count = [np.empty(0, np.int32)], [np.empty(0, np.int32)], 0
    for stored, pieces in groupby(attributes.codes_of(name, rows), key=itemgetter(0)):
        columns = []
        for _, column, positions, column_codes in pieces:
            places.append(positions.astype(np.int32))
            columns.append((column, column_codes))
        renamed, different = _renamed(
            columns, len(attributes.names.values) if stored in CODED else None, most_sorted
        )
        codes.append(renamed + np.int32(count))
        count += different
    return Coded(np.concatenate(places), np.concatenate(codes), count)


def ascending(numbers: Small) -> Rows:
    """The order in which these numbers ascend, equal ones as they stand: (v,) -> (v,). Cost: O(v)."""
    order: Rows = np.argsort((numbers & 0xFFFF).astype(np.uint16), kind="stable")  # by their digits
    if numbers.max(initial=0) > 0xFFFF:
        order = order[np.argsort((numbers[order] >> 16).astype(np.uint16), kind="stable")]
    return order


def _renamed(pieces: list[tuple[Column, Numbers]], names: int | None, most_sorted: int) -> tuple[Small, int]:
    """Codes of several columns as those of one, and how many there are. ``names``: of what has a code."""
    distinct = [column.distinct for column, _ in pieces if column.distinct is not None]
    total = sum(len(column_codes) for _, column_codes in pieces)
    union: NDArray[Any]
    if total > most_sorted and len(distinct) == len(pieces):
        union = np.unique(np.concatenate(distinct))
        maps = (np.searchsorted(union, column_values).astype(np.int32) for column_values in distinct)
        return np.concatenate(
            [to[column_codes] for to, (_, column_codes) in zip(maps, pieces, strict=True)]
        ), len(union)
    numbers = np.concatenate([column.numbers_of(column_codes) for column, column_codes in pieces])
    if names is None or total <= most_sorted or names > _SPARSE * total:
        union, renamed = np.unique(numbers, return_inverse=True)
        return renamed.astype(np.int32), len(union)
    numbers = numbers.astype(np.int64)
    is_used = np.zeros(names, dtype=np.bool_)
    is_used[numbers] = True
    new_code = np.cumsum(is_used, dtype=np.int32) - np.int32(1)
    return new_code[numbers], int(new_code[-1]) + 1


def coded_among(
    attributes: AttributeSnapshot, field: str, rows: Rows, values: Sequence[Value]
) -> tuple[Small, Small]:
    """The pairs of a position in ``rows`` and one of these values that its arm has, by its place among them.

    Shapes: rows (n,), positions (v,), places (v,). A value twice: the later place counts. Cost: O(n + v).
    """
    wanted_numbers: dict[Stored, dict[float, int]] = {}
    for number_of_value, value in enumerate(values):
        stored, number = attributes.names.stored(value)
        if number is not None:
            wanted_numbers.setdefault(stored, {})[number] = number_of_value
    positions, codes = [np.empty(0, np.int32)], [np.empty(0, np.int32)]
    for stored, column, inside, column_codes in attributes.codes_of(field, rows):
        numbers = column.numbers_of(column_codes)
        wanted = np.array(sorted(wanted_numbers.get(stored, ())))
        is_wanted = np.isin(numbers, wanted)
        which = np.searchsorted(wanted, numbers[is_wanted])
        positions.append(inside[is_wanted].astype(np.int32))
        codes.append(
            np.array([wanted_numbers[stored][number] for number in wanted.tolist()], np.int32)[which]
        )
    return np.concatenate(positions), np.concatenate(codes)
