"""The fields of one arm: what a filter can ask for.

Notation
    field   dotted name of a value: the keys on the way to it, joined by dots ("maker.country"), or "tags"
    value   a string, a boolean or a finite number; null, objects and lists of lists are none, but exist
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from math import isfinite
from typing import Any

Value = str | bool | int | float

TAGS = "tags"
MAX_FIELD_CHARS = 256


class ValueKind(IntEnum):
    """Values are compared with values of their own kind alone."""

    BOOLEAN = 0
    NUMBER = 1
    STRING = 2


class Stored(IntEnum):
    """The forms in which values are stored; NOTHING is in every entry of a field without values."""

    NOTHING = 0
    BOOLEAN = 1
    NUMBER = 2
    INTEGER = 3  # one that no float64 equals: by its code
    STRING = 4  # by its code


def kind_of(value: object) -> ValueKind | None:
    """The kind of a value; None of what is no value."""
    if isinstance(value, str):
        return ValueKind.STRING
    if isinstance(value, bool):
        return ValueKind.BOOLEAN
    if isinstance(value, int) or (isinstance(value, float) and isfinite(value)):
        return ValueKind.NUMBER
    return None


def fields_of(tags: Iterable[str], metadata: Mapping[str, Any]) -> dict[str, list[Value]]:
    """The values of every field that an arm has; an empty list where it exists without a value.

    A list has the values of its members, and an object in a list has its fields as an object outside one
    would have. A key "tags" of the metadata is out of reach, and so are names of more than
    ``MAX_FIELD_CHARS`` characters.
    """
    result: dict[str, list[Value]] = {}
    _collect("", metadata, result)
    named = list(tags)
    if named:
        result[TAGS] = [*named]
    return result


def _collect(prefix: str, document: Mapping[str, Any], result: dict[str, list[Value]]) -> None:
    for key, content in document.items():
        name = prefix + key
        if name == TAGS or len(name) > MAX_FIELD_CHARS:
            continue
        values = result.setdefault(name, [])
        for member in content if isinstance(content, list | tuple) else (content,):
            if kind_of(member) is not None:
                values.append(member)
            elif isinstance(member, Mapping):
                _collect(name + ".", member, result)
