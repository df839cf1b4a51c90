"""Numbers for fields, and for values of each type.

Notation
    path    ``STORINGS`` times the number of a field, plus how its values are stored
    code    the number of a value without a float64, in the order of first occurrence
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from app.filters.fields import Stored, Value, ValueKind
from shortlist.index.arrays import NO_STRINGS, MappedStrings

Name = str | int

EVERY_STORING = tuple(Stored)
STORINGS = len(EVERY_STORING)
CODED = frozenset({Stored.INTEGER, Stored.STRING})
KINDS = {
    Stored.BOOLEAN: ValueKind.BOOLEAN,
    Stored.NUMBER: ValueKind.NUMBER,
    Stored.INTEGER: ValueKind.NUMBER,
    Stored.STRING: ValueKind.STRING,
}
_NAME_BYTES = 40
_STRING, _INTEGER = "s", "i"


class Numbering:
    """Strings and integers in the order in which they were first met. One thread adds; all may read.

    ``first``: the first of them, as ``strings`` gives them.
    """

    def __init__(self, first: MappedStrings = NO_STRINGS) -> None:
        self._first = first
        self._numbers: dict[Name, int] = {}
        self._names: list[Name] = []
        self._name_bytes = 0

    def __len__(self) -> int:
        return len(self._first) + len(self._names)

    def __getitem__(self, number: int) -> Name:
        mapped = len(self._first)
        if number >= mapped:
            return self._names[number - mapped]
        text = self._first[number]
        return text[1:] if text[0] == _STRING else int(text[1:])

    def of(self, numbers: Sequence[int]) -> Iterator[Name]:
        """The name of each number. Cost: a microsecond for each that is mapped."""
        return map(self.__getitem__ if len(self._first) else self._names.__getitem__, numbers)

    def number_of(self, name: Name) -> int | None:
        """None for a name that was never met."""
        number = self._numbers.get(name)
        return number if number is not None or not len(self._first) else self._first.number_of(_text(name))

    def number(self, name: Name) -> int:
        """The number of a name, which is added if it is new."""
        number = self.number_of(name)
        if number is None:
            number = len(self)
            self._names.append(name)
            self._numbers[name] = number
            self._name_bytes += sys.getsizeof(name) + _NAME_BYTES
        return number

    def strings(self) -> MappedStrings:
        """All of them, as ``first``. For any thread: others may be added meanwhile."""
        names = self._names[: len(self._names)]
        return self._first.followed_by(MappedStrings.of(map(_text, names), len(names)))

    @property
    def memory_bytes(self) -> int:
        """About the memory of what is not mapped."""
        return self._name_bytes + sys.getsizeof(self._numbers) + sys.getsizeof(self._names)


def _text(name: Name) -> str:
    return _STRING + name if isinstance(name, str) else _INTEGER + str(name)


@dataclass(frozen=True)
class Names:
    """Numbers for fields, and for the values stored by codes."""

    fields: Numbering = field(default_factory=Numbering)
    values: Numbering = field(default_factory=Numbering)

    def path(self, name: str, stored: Stored) -> int | None:
        """None for a field that no arm has."""
        number = self.fields.number_of(name)
        return None if number is None else number * STORINGS + stored

    def stored(self, value: Value) -> tuple[Stored, float | None]:
        """The form and the number of a value; None for the code of a value which no arm has."""
        if isinstance(value, str):
            return Stored.STRING, self.values.number_of(value)
        if isinstance(value, bool):
            return Stored.BOOLEAN, float(value)
        if isinstance(value, float) or _is_float(value):
            return Stored.NUMBER, float(value)
        return Stored.INTEGER, self.values.number_of(value)

    def stored_new(self, value: Value) -> tuple[Stored, float]:
        """As ``stored``; a value that no arm has gets a code."""
        stored, number = self.stored(value)
        if number is None:
            assert not isinstance(value, float)  # noqa: S101 - floats have no code
            number = self.values.number(value)
        return stored, number

    def value(self, stored: Stored, number: float) -> Value:
        if stored in CODED:
            return self.values[int(number)]
        return bool(number) if stored is Stored.BOOLEAN else number


def _is_float(value: int) -> bool:
    try:
        return float(value) == value
    except OverflowError:
        return False
