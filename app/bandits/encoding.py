"""How a context becomes numbers: a plain vector as it is, or named fields, each by its kind.

    kind        value       numbers
    category    a string    one for each of ``values``: 1 for the value given, 0 for all others
    cycle       a number v  cos and sin of 2 pi v / period, so that the end of a period is next to its start
    number      a number v  (v - mean) / scale
    hash        a text      ``size``: each word adds 1 or -1 to one of them; then they are scaled to length 1

Words of a text are separated by white space, and A to Z count as a to z; anything else is part of its word.
The slot of a word is told by its BLAKE2b hash. That knows no locale and no Unicode tables, so a text means
the same numbers on every machine, for ever. Half of the words subtract, so that words which share a slot do
not look like more of the same (feature hashing: Weinberger et al. 2009).

A field that is absent or null, and a category that is not among ``values``, are zeros. No constant 1 is
added: what is the same in every context is learned by theta. The numbers are float32, and it is their float32
values that are used and learned from.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Annotated, Literal, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from app.platform.documents import Document
from app.platform.errors import DimensionMismatch, FieldPath, Invalid, shown
from app.platform.ids import Identifier

MAX_CATEGORY_CHARS = 256
MAX_CONTEXT_DIM = 1_023
MAX_CONTEXT_FIELDS = 64
MAX_CONTEXT_NUMBER = 1e6
MAX_FIELD_NUMBER = 1e15
MAX_TEXT_CHARS = 1_024
MAX_TEXTS_CHARS = 8_192  # of a context: to hash them takes up to 5 ms
MAX_ERRORS = 20
_HERE: FieldPath = ("context",)
_WORDS = re.compile(rb"[^\t\n\v\f\r ]+")

Numbers32 = NDArray[np.float32]


class WrongValue(Exception):
    """A value that its field does not take; the text says what it takes."""


class FieldEncoder(Protocol):
    """The numbers of one field."""

    def columns(self, name: str) -> Sequence[str]:
        """What each number means, in words."""
        ...

    def write(self, value: object, numbers: Numbers32) -> None:
        """Write the numbers of a value, instead of zeros. Raises WrongValue."""
        ...


@dataclass(frozen=True, slots=True)
class Category:
    positions: Mapping[str, int]

    def columns(self, name: str) -> Sequence[str]:
        return [f"{name}={value}" for value in self.positions]

    def write(self, value: object, numbers: Numbers32) -> None:
        if not isinstance(value, str):
            raise WrongValue("must be a string")
        position = self.positions.get(value)
        if position is not None:
            numbers[position] = 1.0


@dataclass(frozen=True, slots=True)
class Cycle:
    period: float

    def columns(self, name: str) -> Sequence[str]:
        return [f"{name}.cos", f"{name}.sin"]

    def write(self, value: object, numbers: Numbers32) -> None:
        angle = 2.0 * math.pi * (math.fmod(_number(value), self.period) / self.period)
        numbers[:] = math.cos(angle), math.sin(angle)


@dataclass(frozen=True, slots=True)
class Number:
    mean: float
    scale: float

    def columns(self, name: str) -> Sequence[str]:
        return [name]

    def write(self, value: object, numbers: Numbers32) -> None:
        scaled = (_number(value) - self.mean) / self.scale
        if abs(scaled) > MAX_CONTEXT_NUMBER:
            raise WrongValue(f"must not be farther than {MAX_CONTEXT_NUMBER:,.0f} times scale from mean")
        numbers[0] = scaled


@dataclass(frozen=True, slots=True)
class Hash:
    size: int

    def columns(self, name: str) -> Sequence[str]:
        return [f"{name}.{slot}" for slot in range(self.size)]

    def write(self, value: object, numbers: Numbers32) -> None:
        if not isinstance(value, str):
            raise WrongValue("must be a string")
        if len(value) > MAX_TEXT_CHARS:
            raise WrongValue(f"must have at most {MAX_TEXT_CHARS:,} characters")
        counts = [0] * self.size
        for word in _WORDS.findall(value.encode("utf-8", "surrogatepass").lower()):
            number = int.from_bytes(blake2b(word, digest_size=8).digest(), "little")
            counts[(number >> 1) % self.size] += -1 if number & 1 else 1
        length = math.sqrt(sum(count * count for count in counts))
        if length:
            numbers[:] = [count / length for count in counts]


@dataclass(frozen=True, slots=True)
class FieldKind:
    """One row of the table.

    ``make``    its encoder, of a field that has all its parameters
    ``needs``   parameters that must be given
    ``takes``   parameters that may be given, and what they are otherwise
    """

    make: Callable[[ContextField], FieldEncoder]
    needs: Sequence[str] = ()
    takes: Mapping[str, object] = field(default_factory=dict)


# A new kind of field is one row.
KINDS: Mapping[str, FieldKind] = {
    "category": FieldKind(lambda own: Category({v: i for i, v in enumerate(own.values or ())}), ["values"]),
    "cycle": FieldKind(lambda own: Cycle(own.period or 1.0), ["period"]),
    "number": FieldKind(
        lambda own: Number(own.mean or 0.0, own.scale or 1.0), takes={"mean": 0.0, "scale": 1.0}
    ),
    "hash": FieldKind(lambda own: Hash(own.size or 1), ["size"]),
}
PARAMETERS = ("values", "period", "mean", "scale", "size")

if TYPE_CHECKING:
    KindName = str
else:
    KindName = Literal[tuple(KINDS)]
_Size = Annotated[int, Field(ge=1, le=MAX_CONTEXT_DIM)]
_Scale = Annotated[float, Field(ge=1e-9, le=MAX_FIELD_NUMBER)]
_Value = Annotated[str, Field(min_length=1, max_length=MAX_CATEGORY_CHARS)]


class ContextField(Document, frozen=True, omit_defaults=True):
    """``category`` needs ``values``, ``cycle`` needs ``period``, ``hash`` needs ``size``; ``number`` may have
    ``mean`` (0 if absent) and ``scale`` (1).
    """

    name: Identifier
    kind: KindName
    values: Annotated[list[_Value], Field(min_length=1, max_length=MAX_CONTEXT_DIM)] | None = None
    period: _Scale | None = None
    mean: Annotated[float, Field(ge=-MAX_FIELD_NUMBER, le=MAX_FIELD_NUMBER)] | None = None
    scale: _Scale | None = None
    size: _Size | None = None


class ContextRule(Document, frozen=True, omit_defaults=True):
    """A vector of ``dim`` numbers, or named ``fields``, which the service encodes as numbers."""

    dim: _Size | None = None
    fields: Annotated[list[ContextField], Field(min_length=1, max_length=MAX_CONTEXT_FIELDS)] | None = None


def completed(rule: ContextRule) -> ContextRule:
    """The rule with the defaults of its fields. Raises Invalid, naming everything that is wrong."""
    if (rule.dim is None) == (rule.fields is None):
        raise Invalid("context must have dim or fields, and not both", path=_HERE)
    if rule.fields is None:
        return rule
    errors: list[tuple[FieldPath, str]] = []
    names = [field.name for field in rule.fields]
    done = []
    for position, own in enumerate(rule.fields):
        where = (*_HERE, "fields", position)
        if own.name in names[:position]:
            errors.append(((*where, "name"), "another field has this name"))
        kind = KINDS[own.kind]
        given = [name for name in PARAMETERS if getattr(own, name) is not None]
        errors += [((*where, name), f"{own.kind} needs {name}") for name in kind.needs if name not in given]
        known = {*kind.needs, *kind.takes}
        errors += [((*where, name), f"{own.kind} has no {name}") for name in given if name not in known]
        if len(set(own.values or ())) < len(own.values or ()):
            errors.append(((*where, "values"), "values must be different"))
        absent = {name: value for name, value in kind.takes.items() if name not in given}
        done.append(msgspec.structs.replace(own, **absent))
    if errors:
        raise Invalid.many(errors[:MAX_ERRORS])
    return ContextRule(fields=done)


class Encoding:
    """The encoding of a ``rule`` that is ``completed``. ``dim`` is m, how many numbers a context becomes."""

    def __init__(self, rule: ContextRule) -> None:
        self._fields: dict[str, tuple[FieldEncoder, slice]] = {}
        self._columns: list[str] = []
        for own in rule.fields or ():
            encoder = KINDS[own.kind].make(own)
            start = len(self._columns)
            self._columns += encoder.columns(own.name)
            self._fields[own.name] = encoder, slice(start, len(self._columns))
        self._is_plain = rule.dim is not None
        self.rule = rule
        self.dim = len(self._columns) if rule.dim is None else rule.dim

    @property
    def columns(self) -> Sequence[str] | None:
        """What each number means; None for a plain vector."""
        return None if self._is_plain else self._columns

    def encode(self, given: object) -> Numbers32:
        """Return u. Shape: (m,). Raises Invalid, DimensionMismatch: every field that is wrong is named."""
        return self._plain(given) if self._is_plain else self._named(given)

    def _plain(self, given: object) -> Numbers32:
        if not isinstance(given, list):
            raise Invalid(f"context must be a list of {self.dim} numbers", path=_HERE)
        if len(given) != self.dim:
            raise DimensionMismatch(f"context must have {self.dim} numbers, not {len(given)}", path=_HERE)
        errors: list[tuple[FieldPath, str]] = []
        for position, value in enumerate(given):
            try:
                _number(value, MAX_CONTEXT_NUMBER)
            except WrongValue as wrong:
                errors.append(((*_HERE, position), str(wrong)))
        if errors:
            raise Invalid.many(errors[:MAX_ERRORS])
        return np.array(given, dtype=np.float64).astype(np.float32)

    def _named(self, given: object) -> Numbers32:
        if not isinstance(given, dict):
            raise Invalid("context must be an object of named fields", path=_HERE)
        if sum(len(value) for value in given.values() if isinstance(value, str)) > MAX_TEXTS_CHARS:
            message = f"the texts of a context must have at most {MAX_TEXTS_CHARS:,} characters together"
            raise Invalid(message, path=_HERE)
        numbers = np.zeros(self.dim, dtype=np.float32)
        errors: list[tuple[FieldPath, str]] = []
        for name, value in given.items():
            known = self._fields.get(name)
            if known is None:
                errors.append(((*_HERE, shown(name)), "the context of this bandit has no such field"))
            elif value is not None:
                try:
                    known[0].write(value, numbers[known[1]])
                except WrongValue as wrong:
                    errors.append(((*_HERE, name), str(wrong)))
            if len(errors) == MAX_ERRORS:
                break
        if errors:
            raise Invalid.many(errors)
        return numbers


def _number(value: object, most: float = MAX_FIELD_NUMBER) -> float:
    """A number as float64. Raises WrongValue; of booleans too."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise WrongValue("must be a number")
    if not -most <= value <= most:  # nor NaN
        raise WrongValue(f"must be a number from {-most:g} to {most:g}")
    return float(value)
