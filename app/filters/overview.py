"""The fields of a catalogue's arms, for people: types with counts, frequent values, arms in order.

Notation
    row     an arm's number; entry, place: see ``attribute_snapshot`` and ``columns``
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.filters.attribute_snapshot import AttributeSnapshot
from app.filters.columns import Mask
from app.filters.field_numbers import KINDS, STORINGS
from app.filters.fields import Stored, Value, ValueKind
from app.filters.filter import Filter, compared
from app.platform.cursors import decode_cursor, encode_cursor, foreign
from app.platform.documents import Answer
from app.platform.errors import shown
from shortlist.types import Rows

MOST_VALUES = 20
MOST_TEXTS, MOST_TEXT_CHARS = 500, 100_000  # of which words are counted: at most some 40 ms
MOST_NAMED = 5  # fields in a refusal
MOST_SORTED = 100_000  # arms: four tenths of a second in a thread, for each page
SORTED_CHARS = 256  # of a text, by which arms are sorted
TYPES = {ValueKind.STRING: "string", ValueKind.NUMBER: "number", ValueKind.BOOLEAN: "boolean"}
WORDS = {ValueKind.STRING: "text", ValueKind.NUMBER: "a number", ValueKind.BOOLEAN: "true or false"}
NOTHING = "none"
Place = tuple[str, str, bool, int, Value, int]
"""Order, field, whether a value comes last, and the kind, the value and the age of the arm there."""
_KIND_ORDER = {ValueKind.NUMBER: 0, ValueKind.STRING: 1, ValueKind.BOOLEAN: 2}


class FieldSummary(Answer, frozen=True, omit_defaults=True):
    """A field of the metadata, or ``tags``: how many ``arms`` have it, and in ``types`` how many have a
    string, a number, a boolean, or none of these (null, an object, an empty list). ``values``: the most
    frequent of ``distinct`` ones, at most 20, and in ``counts`` how often each is there.

    ``words``: of a field that the catalogue hashes, for each of its numbers the most frequent words among its
    frequent texts; those that count as -1 begin with "-". Absent of others.
    """

    schema_name: ClassVar[str] = "FieldView"

    field: str
    arms: int
    types: dict[str, int]
    distinct: int
    values: list[str | int | float | bool]
    counts: list[int]
    words: list[list[str]] | None = None


class FieldOverview:
    """The fields of the arms in these rows alone. Cost of making one: O(rows + entries)."""

    def __init__(self, attributes: AttributeSnapshot, rows: Rows) -> None:
        self._attributes = attributes
        is_shown = np.zeros(attributes.entries, dtype=np.bool_)
        entries = attributes.entries_of(rows)
        is_shown[entries[entries >= 0]] = True
        self._is_shown = [
            is_shown[first : first + block.size]
            # without blocks there is a first entry nevertheless
            for first, block in zip(attributes.firsts, attributes.blocks, strict=False)
        ]

    def page(self, cursor: str | None, limit: int) -> tuple[list[FieldSummary], str | None]:
        """The summaries of ``limit`` fields by name after the cursor, and the cursor of the next page.

        Cost: O(values of these fields).
        """
        after: str | None = None if cursor is None else _read(cursor, str)
        summaries = list[FieldSummary]()
        for name in self._names():
            if (after is None or name > after) and (summary := self.summary(name)) is not None:
                if len(summaries) == limit:
                    return summaries, encode_cursor(json.dumps(summaries[-1].field))
                summaries.append(summary)
        return summaries, None

    def summary(self, name: str) -> FieldSummary | None:
        """None: no arm has the field."""
        having, types = self._arms_by_type(name)
        if not having:
            return None
        distinct, counted = 0, list[tuple[Value, int]]()
        for stored, numbers, often in self._values(name):
            distinct += numbers.size
            # Only the shown values are looked up: a name that each of many arms has alone has as many values.
            most = np.argsort(-often, kind="stable")[:MOST_VALUES]
            names = self._attributes.names
            for number, count in zip(numbers[most].tolist(), often[most].tolist(), strict=True):
                value = names.value(stored, number)
                is_integer = isinstance(value, float) and value.is_integer()
                counted.append((int(value) if is_integer else value, count))
        counted = sorted(counted, key=lambda pair: -pair[1])[:MOST_VALUES]
        values: list[str | int | float | bool] = [value for value, _ in counted]
        return FieldSummary(name, having, types, distinct, values, [count for _, count in counted])

    def texts(self, name: str) -> list[tuple[str, int]]:
        """The most frequent texts of a field, and how often each is there; as many as there is time for."""
        texts, chars = list[tuple[str, int]](), 0
        for stored, numbers, often in self._values(name):
            if _type(stored) != TYPES[ValueKind.STRING]:
                continue
            for position in np.argsort(-often, kind="stable")[:MOST_TEXTS].tolist():
                text = str(self._attributes.names.value(stored, numbers[position]))
                texts.append((text, int(often[position])))
                chars += len(text)
                if chars > MOST_TEXT_CHARS:
                    break
        return texts

    def unmet(self, arm_filter: Filter) -> list[tuple[str, str]]:
        """Fields of conditions that no arm can meet, and why: none has it, or all have other types of value.

        At most ``MOST_NAMED``. Cost: O(entries) for each.
        """
        unmet: dict[str, str] = {}
        for name, wanted in compared(arm_filter.expression):
            if len(unmet) == MOST_NAMED:
                break
            having, types = self._arms_by_type(name)
            has = [kind for kind, word in TYPES.items() if word in types]
            if not having:
                unmet[name] = no_arm_has(name)
            elif has and wanted and wanted.isdisjoint(has):
                counts = [(WORDS[kind], types[TYPES[kind]]) for kind in has]
                is_what = " and ".join(f"{what} in {n:,} arm{'s' * (n != 1)}" for what, n in counts)
                asked = " and ".join(WORDS[kind] for kind in WORDS if kind in wanted)
                unmet[name] = f"`{shown(name)}` is {is_what}, and the filter compares it with {asked}"
        return list(unmet.items())

    def _names(self) -> list[str]:
        """The fields of all entries, sorted."""
        numbers = set[int]()
        for block in self._attributes.blocks:
            numbers.update(path // STORINGS for path in block.columns)
            numbers.update(np.unique(block.paths // STORINGS).tolist())
        return sorted(str(self._attributes.names.fields[number]) for number in numbers)

    def _arms_by_type(self, name: str) -> tuple[int, dict[str, int]]:
        """The number of arms with the field, and their numbers by the type of the field's values."""
        having, counts = 0, dict[str, int]()
        for block, is_shown in zip(self._attributes.blocks, self._is_shown, strict=True):
            masks = dict[str, Mask]()
            for stored in Stored:
                path = self._attributes.names.path(name, stored)
                column = None if path is None else block.find_column(path)
                if column is not None:
                    mask = masks.setdefault(_type(stored), np.zeros(block.size, dtype=np.bool_))
                    mask[slice(None) if column.places is None else column.places] = True
            for word, mask in masks.items():
                counts[word] = counts.get(word, 0) + int(np.count_nonzero(mask & is_shown))
            if masks:
                having += int(np.count_nonzero(np.logical_or.reduce(list(masks.values())) & is_shown))
        return having, {word: count for word, count in counts.items() if count}

    def _values(self, name: str) -> Iterator[tuple[Stored, NDArray[np.float64], NDArray[np.int64]]]:
        """The different values of a field by their numbers, and how often each is there; by type of value."""
        for stored in KINDS:
            path = self._attributes.names.path(name, stored)
            numbers, counts = list[NDArray[np.float64]](), list[NDArray[np.int64]]()
            for block, is_shown in zip(self._attributes.blocks, self._is_shown, strict=True):
                column = None if path is None else block.find_column(path)
                if column is not None:
                    shown_numbers = column.numbers[
                        is_shown if column.places is None else is_shown[column.places]
                    ]
                    distinct, often = np.unique(shown_numbers.astype(np.float64), return_counts=True)
                    numbers.append(distinct)
                    counts.append(often)
            if numbers:
                distinct, which = np.unique(np.concatenate(numbers), return_inverse=True)
                yield stored, distinct, np.bincount(which, np.concatenate(counts)).astype(np.int64)


def unknown_fields(attributes: AttributeSnapshot, names: Iterable[str]) -> list[str]:
    """The fields which no arm has had, sorted. Cost: O(names)."""
    fields = attributes.names.fields
    return [name for name in sorted(names) if fields.number_of(name) is None]


def no_arm_has(name: str) -> str:
    """The words for a field that no arm has."""
    return f"no arm has `{shown(name)}`"


def in_order(
    attributes: AttributeSnapshot,
    rows: Rows,
    revisions: Sequence[int],
    name: str,
    *,
    descending: bool,
    cursor: str | None,
    limit: int,
) -> list[tuple[int, str]]:
    """The first ``limit`` of the rows (n,) by the values of a field, each with the cursor of the next one.

    Arms without a value are last, of equal ones the oldest is first. Numbers come before texts, and those
    before true and false; a text counts by its first ``SORTED_CHARS`` characters, an arm of several values by
    the one that comes first. ``revisions`` (n,). Cost: O(n log limit). Raises Invalid.
    """
    order = "desc" if descending else "asc"
    after = None if cursor is None else _place_of(cursor, order, name)
    places = list[tuple[bool, int, Value, int, int]]()
    for row, revision, values in zip(rows.tolist(), revisions, attributes.values_of(name, rows), strict=True):
        keys = [
            (_KIND_ORDER[kind], value[:SORTED_CHARS] if isinstance(value, str) else value)
            for kind, value in values
        ]
        best = (max(keys) if descending else min(keys)) if keys else (0, 0)
        # in the descending order the largest place comes first: of an arm that has a value, and is old
        has_value, age = (bool(keys), -revision) if descending else (not keys, revision)
        sort_key = (has_value, *best, age, row)
        if after is None or (sort_key[:4] < after if descending else sort_key[:4] > after):
            places.append(sort_key)
    best_places = (heapq.nlargest if descending else heapq.nsmallest)(limit, places)
    return [
        (sort_key[4], encode_cursor(json.dumps([order, name, *sort_key[:4]]))) for sort_key in best_places
    ]


def _type(stored: Stored) -> str:
    return TYPES[KINDS[stored]] if stored in KINDS else NOTHING


def _place_of(cursor: str, order: str, name: str) -> tuple[bool, int, Value, int]:
    """The place in this order of this field. Raises Invalid."""
    its_order, its_name, flag, kind, value, age = _read(cursor, Place)
    is_text = isinstance(value, str)
    if (its_order, its_name) != (order, name) or is_text != (kind == _KIND_ORDER[ValueKind.STRING]):
        raise foreign()
    return flag, kind, value, age


def _read(cursor: str, form: Any) -> Any:
    """Decode a cursor of this form. Raises Invalid."""
    try:
        return msgspec.json.decode(decode_cursor(cursor), type=form)
    except msgspec.DecodeError:
        raise foreign() from None
