"""What numbers stand for: fields, and values of each type.

Notation
    path    ``STORINGS`` times the number of a field, plus how its values are stored
    code    the number of a value that no float64 stands for, in the order in which they were first met
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from enum import IntEnum

from app.filters.fields import Value, ValueKind

_NAME_BYTES = 40


class Stored(IntEnum):
    """How values are stored; NOTHING is in every entry that has a field without values."""

    NOTHING = 0
    BOOLEAN = 1
    NUMBER = 2
    INTEGER = 3  # one that no float64 equals: by its code
    STRING = 4  # by its code


EVERY_STORING = tuple(Stored)
STORINGS = len(EVERY_STORING)
CODED = frozenset({Stored.INTEGER, Stored.STRING})
KINDS = {
    Stored.BOOLEAN: ValueKind.BOOLEAN,
    Stored.NUMBER: ValueKind.NUMBER,
    Stored.INTEGER: ValueKind.NUMBER,
    Stored.STRING: ValueKind.STRING,
}


class Numbering:
    """Strings and integers in the order in which they were first met. One thread adds; all may read."""

    def __init__(self) -> None:
        self.numbers: dict[str | int, int] = {}
        self.names: list[str | int] = []
        self._name_bytes = 0

    def number(self, name: str | int) -> int:
        """The number of a name, which is added if it is new."""
        known = self.numbers.get(name)
        if known is None:
            known = len(self.names)
            self.names.append(name)
            self.numbers[name] = known
            self._name_bytes += sys.getsizeof(name) + _NAME_BYTES
        return known

    @property
    def memory_bytes(self) -> int:
        return self._name_bytes + sys.getsizeof(self.numbers) + sys.getsizeof(self.names)


@dataclass(frozen=True)
class Names:
    """What numbers stand for: fields, and the values that are stored by codes."""

    fields: Numbering = field(default_factory=Numbering)
    values: Numbering = field(default_factory=Numbering)

    def path(self, name: str, stored: Stored) -> int | None:
        """None for a field that no arm has."""
        number = self.fields.numbers.get(name)
        return None if number is None else number * STORINGS + stored

    def stored(self, value: Value) -> tuple[Stored, float | None]:
        """How a value is stored, and its number; None if it is the code of a value that no arm has."""
        if isinstance(value, str):
            return Stored.STRING, self.values.numbers.get(value)
        if isinstance(value, bool):
            return Stored.BOOLEAN, float(value)
        if isinstance(value, float) or _is_float(value):
            return Stored.NUMBER, float(value)
        return Stored.INTEGER, self.values.numbers.get(value)

    def stored_new(self, value: Value) -> tuple[Stored, float]:
        """As ``stored``; a value that no arm has gets a code."""
        stored, number = self.stored(value)
        if number is None:
            assert not isinstance(value, float)  # noqa: S101 - floats have no code
            number = self.values.number(value)
        return stored, number

    def value(self, stored: Stored, number: float) -> Value:
        if stored in CODED:
            return self.values.names[int(number)]
        return bool(number) if stored is Stored.BOOLEAN else number


def _is_float(value: int) -> bool:
    try:
        return float(value) == value
    except OverflowError:
        return False
