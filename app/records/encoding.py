"""Encoding of contexts of choices, and of metadata of arms, as numbers. Named fields, by kind.

    kind        value               numbers
    category    a string            one for each of ``values``: 1 for the given value, 0 for all others
    categories  strings, or one     the same, 1 for each given one
    cycle       a number v          cos and sin of 2 pi v / period, so that a period ends next to its start
    number      a number v          (v - mean) / scale; with ``log`` (log(1 + v) - mean) / scale
    hash        a text              ``size``: each word adds 1 or -1 to one; then they are scaled to length 1

Words of a text are separated by white space, and A to Z count as a to z; anything else is part of its word.
The slot of a word follows from its BLAKE2b hash. The hash knows no locale and no Unicode tables, so a text
means the same numbers on every machine, forever. Half of the words subtract: words in one slot do not look
like more of the same (feature hashing: Weinberger et al. 2009).

A field which is absent or null, and a value not among ``values``, are zeros, which for a number is the mean.
No constant 1 is added: the part common to all contexts is learned by theta. The numbers are float32, and
their float32 values are used and learned from.

A context may also be a plain vector, which stays as it is. Numbers of an arm for one request (``MatchRule``)
are named fields too. Arms are in ``features``.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from app.platform.documents import Document
from app.platform.errors import DimensionMismatch, FieldPath, Invalid, shown

MAX_CATEGORY_CHARS = 256
MAX_CONTEXT_DIM = 1_023
MAX_MATCH_DIM = 64
MAX_FIELDS = 64
MAX_CONTEXT_NUMBER = 1e6
MAX_FIELD_NUMBER = 1e15
MAX_TEXT_CHARS = 1_024
MOST_WORDS = 5  # that are shown of each number of a hashed text
MAX_TEXTS_CHARS = 8_192  # of a context: to hash them takes up to 5 ms
MAX_ERRORS = 20
_HERE: FieldPath = ("context",)
_MATCH: FieldPath = ("match",)
_WORDS = re.compile(rb"[^\t\n\v\f\r ]+")

Numbers32 = NDArray[np.float32]
PARAMETERS = ("values", "period", "mean", "scale", "size", "log")
# A key of metadata, as its owner has it: with blanks too.
FieldName = Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[^\x00-\x1f\x7f]+$")]
_Size = Annotated[int, Field(ge=1, le=MAX_CONTEXT_DIM)]
_Scale = Annotated[float, Field(ge=1e-9, le=MAX_FIELD_NUMBER)]
_Value = Annotated[str, Field(min_length=1, max_length=MAX_CATEGORY_CHARS)]


class WrongValue(Exception):
    """A value which its field does not take; the text says what is allowed."""


@dataclass(frozen=True, slots=True)
class Category:
    """``takes_lists``: of strings, besides a string."""

    positions: Mapping[str, int]
    takes_lists: bool = False

    def columns(self, name: str) -> Sequence[str]:
        return [f"{name}={value}" for value in self.positions]

    def write(self, value: object, numbers: Numbers32) -> None:
        members = value if self.takes_lists and isinstance(value, list | tuple) else (value,)
        for member in members:
            if not isinstance(member, str):
                raise WrongValue("must be a string" + ", or a list of strings" * self.takes_lists)
            position = self.positions.get(member)
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
    log: bool = False

    def columns(self, name: str) -> Sequence[str]:
        return [name]

    def write(self, value: object, numbers: Numbers32) -> None:
        number = _number(value)
        if self.log and number <= -1.0:
            raise WrongValue("must be above -1: the field takes the logarithm of 1 + the number")
        scaled = ((math.log1p(number) if self.log else number) - self.mean) / self.scale
        if abs(scaled) > MAX_CONTEXT_NUMBER:
            raise WrongValue(f"must not be farther than {MAX_CONTEXT_NUMBER:,.0f} times scale from mean")
        numbers[0] = scaled


@dataclass(frozen=True, slots=True)
class Hash:
    size: int
    max_chars: int

    def columns(self, name: str) -> Sequence[str]:
        return [f"{name}.{slot}" for slot in range(self.size)]

    def write(self, value: object, numbers: Numbers32) -> None:
        if not isinstance(value, str):
            raise WrongValue("must be a string")
        if len(value) > self.max_chars:
            raise WrongValue(f"must have at most {self.max_chars:,} characters")
        counts = [0] * self.size
        for slot, sign, _ in self.words(value):
            counts[slot] += sign
        length = math.sqrt(sum(count * count for count in counts))
        if length:
            numbers[:] = [count / length for count in counts]

    def words(self, value: str) -> Iterator[tuple[int, int, bytes]]:
        """The slot of each word of a text, and whether it adds 1 or -1 there."""
        for word in _WORDS.findall(value.encode("utf-8", "surrogatepass").lower()):
            number = int.from_bytes(blake2b(word, digest_size=8).digest(), "little")
            yield (number >> 1) % self.size, -1 if number & 1 else 1, word


FieldEncoder = Category | Cycle | Number | Hash
"""The numbers of one field. ``columns``: what each means, in words. ``write``: those of a value, in place of
zeros; raises WrongValue.
"""


def words_of_slots(size: int, texts: Iterable[tuple[str, int]]) -> list[list[str]]:
    """The words behind each number of a hashed field, from these texts, the most frequent first.

    ``texts``: each with its number of occurrences. Words that add -1 begin with "-". Cost: 2 us a word.
    """
    counts = [Counter[str]() for _ in range(size)]
    hashed = Hash(size, 0)
    for text, times in texts:
        for slot, sign, word in hashed.words(text):
            counts[slot][("-" if sign < 0 else "") + word.decode("utf-8", "replace")] += times
    return [[word for word, _ in count.most_common(MOST_WORDS)] for count in counts]


@dataclass(frozen=True, slots=True)
class FieldKind:
    """One row of the table.

    ``make``    its encoder, for a field with all its parameters, and for texts of so many characters
    ``needs``   required parameters
    ``takes``   optional parameters, and their defaults
    """

    make: Callable[[EncodedField, int], FieldEncoder]
    needs: Sequence[str] = ()
    takes: Mapping[str, object] = field(default_factory=dict)


# A new kind of field is one row.
KINDS: Mapping[str, FieldKind] = {
    "category": FieldKind(lambda declared, _: Category(_positions(declared)), ["values"]),
    "categories": FieldKind(lambda declared, _: Category(_positions(declared), takes_lists=True), ["values"]),
    "cycle": FieldKind(lambda declared, _: Cycle(declared.period or 1.0), ["period"]),
    "number": FieldKind(
        lambda declared, _: Number(declared.mean or 0.0, declared.scale or 1.0, declared.log or False),
        takes={"mean": 0.0, "scale": 1.0, "log": None},
    ),
    "hash": FieldKind(lambda declared, max_chars: Hash(declared.size or 1, max_chars), ["size"]),
}


def _positions(encoded: EncodedField) -> Mapping[str, int]:
    return {value: position for position, value in enumerate(encoded.values or ())}


if TYPE_CHECKING:
    KindName = str
else:
    KindName = Literal[tuple(KINDS)]


class EncodedField(Document, frozen=True, omit_defaults=True):
    """``category`` and ``categories`` need ``values``, ``cycle`` needs ``period``, ``hash`` needs ``size``;
    ``number`` may have ``mean`` (0 if absent) and ``scale`` (1), both of log(1 + v) with ``log``.
    """

    name: FieldName
    kind: KindName
    values: Annotated[list[_Value], Field(min_length=1, max_length=MAX_CONTEXT_DIM)] | None = None
    period: _Scale | None = None
    mean: Annotated[float, Field(ge=-MAX_FIELD_NUMBER, le=MAX_FIELD_NUMBER)] | None = None
    scale: _Scale | None = None
    size: _Size | None = None
    log: bool | None = None


EncodedFieldList = Annotated[list[EncodedField], Field(min_length=1, max_length=MAX_FIELDS)]


def completed_fields(fields: Sequence[EncodedField], where: FieldPath) -> list[EncodedField]:
    """The fields with their defaults. Raises Invalid, with every error below ``where``."""
    errors: list[tuple[FieldPath, str]] = []
    names = [field.name for field in fields]
    done = []
    for position, encoded in enumerate(fields):
        path = (*where, position)
        if encoded.name in names[:position]:
            errors.append(((*path, "name"), "another field has this name"))
        kind = KINDS[encoded.kind]
        given_parameters = [name for name in PARAMETERS if getattr(encoded, name) is not None]
        errors += [
            ((*path, name), f"{encoded.kind} needs {name}")
            for name in kind.needs
            if name not in given_parameters
        ]
        parameters = {*kind.needs, *kind.takes}
        errors += [
            ((*path, name), f"{encoded.kind} has no {name}")
            for name in given_parameters
            if name not in parameters
        ]
        if len(set(encoded.values or ())) < len(encoded.values or ()):
            errors.append(((*path, "values"), "values must be different"))
        absent = {name: value for name, value in kind.takes.items() if name not in given_parameters}
        done.append(msgspec.structs.replace(encoded, **{"log": encoded.log or None, **absent}))
    if errors:
        raise Invalid.many(errors[:MAX_ERRORS])
    return done


class FieldsEncoding:
    """The encoding of completed fields: the numbers of each. ``dim``: the count of all numbers."""

    def __init__(self, fields: Iterable[EncodedField], *, max_text_chars: int = MAX_TEXT_CHARS) -> None:
        self._fields: dict[str, tuple[FieldEncoder, slice]] = {}
        self.columns: list[str] = []
        for encoded in fields:
            encoder = KINDS[encoded.kind].make(encoded, max_text_chars)
            start = len(self.columns)
            self.columns += encoder.columns(encoded.name)
            self._fields[encoded.name] = encoder, slice(start, len(self.columns))
        self.dim = len(self.columns)

    def __contains__(self, name: str) -> bool:
        return name in self._fields

    def write(self, name: str, value: object, numbers: Numbers32) -> None:
        """Write the numbers of a field's value into those of all, in place of zeros. Raises WrongValue."""
        encoder, columns = self._fields[name]
        encoder.write(value, numbers[columns])

    def write_all(
        self, values: Mapping[str, object], numbers: Numbers32, where: FieldPath, unknown: str
    ) -> list[tuple[FieldPath, str]]:
        """Write the numbers of all fields with a value, in place of zeros.

        Returns the first ``MAX_ERRORS`` mistakes, below ``where``; ``unknown`` is said of a name of no field.
        """
        errors = list[tuple[FieldPath, str]]()
        for name, value in values.items():
            if name not in self._fields:
                errors.append(((*where, shown(name)), unknown))
            elif value is not None:
                try:
                    self.write(name, value, numbers)
                except WrongValue as wrong:
                    errors.append(((*where, name), str(wrong)))
            if len(errors) == MAX_ERRORS:
                break
        return errors


class ContextRule(Document, frozen=True, omit_defaults=True):
    """A vector of ``dim`` numbers, or named ``fields``, which the service encodes as numbers."""

    dim: _Size | None = None
    fields: EncodedFieldList | None = None


def completed(rule: ContextRule) -> ContextRule:
    """The rule with the defaults of its fields. Raises Invalid, with every error."""
    if (rule.dim is None) == (rule.fields is None):
        raise Invalid("context must have dim or fields, and not both", path=_HERE)
    if rule.fields is None:
        return rule
    return ContextRule(fields=completed_fields(rule.fields, (*_HERE, "fields")))


class Encoding:
    """The encoding of a ``completed`` rule. ``dim`` is m, the count of a context's numbers."""

    def __init__(self, rule: ContextRule) -> None:
        self._fields = FieldsEncoding(rule.fields or ())
        self._is_plain = rule.dim is not None
        self.rule = rule
        self.dim = self._fields.dim if rule.dim is None else rule.dim

    @property
    def columns(self) -> Sequence[str] | None:
        """The meaning of each number; None for a plain vector."""
        return None if self._is_plain else self._fields.columns

    def encode(self, context: object) -> Numbers32:
        """Return u. Shape: (m,). Raises Invalid, DimensionMismatch: with every wrong field."""
        return self._encode_plain(context) if self._is_plain else self._encode_named(context)

    def _encode_plain(self, context: object) -> Numbers32:
        if not isinstance(context, list):
            raise Invalid(f"context must be a list of {self.dim} numbers", path=_HERE)
        if len(context) != self.dim:
            raise DimensionMismatch(f"context must have {self.dim} numbers, not {len(context)}", path=_HERE)
        errors: list[tuple[FieldPath, str]] = []
        for position, value in enumerate(context):
            try:
                _number(value, MAX_CONTEXT_NUMBER)
            except WrongValue as wrong:
                errors.append(((*_HERE, position), str(wrong)))
        if errors:
            raise Invalid.many(errors[:MAX_ERRORS])
        return np.array(context, dtype=np.float64).astype(np.float32)

    def _encode_named(self, context: object) -> Numbers32:
        if not isinstance(context, dict):
            raise Invalid("context must be an object of named fields", path=_HERE)
        if sum(map(chars_of, context.values())) > MAX_TEXTS_CHARS:
            message = f"the texts of a context must have at most {MAX_TEXTS_CHARS:,} characters together"
            raise Invalid(message, path=_HERE)
        numbers = np.zeros(self.dim, dtype=np.float32)
        unknown = "the context of this bandit has no such field"
        if errors := self._fields.write_all(context, numbers, _HERE, unknown):
            raise Invalid.many(errors)
        return numbers


class MatchRule(Document, frozen=True, omit_defaults=True):
    """Named ``fields`` of what a request says of an arm, encoded as those of a context are."""

    fields: EncodedFieldList


def completed_match(rule: MatchRule) -> MatchRule:
    """The rule with the defaults of its fields. Raises Invalid, with every error."""
    fields = completed_fields(rule.fields, (*_MATCH, "fields"))
    dim = FieldsEncoding(fields).dim
    if dim > MAX_MATCH_DIM:
        message = f"match must have at most {MAX_MATCH_DIM} numbers together, and these have {dim:,}"
        raise Invalid(message, path=_MATCH)
    return MatchRule(fields)


class MatchEncoding(FieldsEncoding):
    """The encoding of a rule from ``completed_match``. ``dim`` is m.

    ``reads_texts``: words of texts are hashed.
    """

    def __init__(self, rule: MatchRule) -> None:
        super().__init__(rule.fields)
        self.rule = rule
        self.columns = [f"match.{column}" for column in self.columns]
        self.reads_texts = any(field.kind == "hash" for field in rule.fields)


def chars_of(value: object) -> int:
    """The number of characters in the texts of a value."""
    if isinstance(value, list):
        return sum(len(member) for member in value if isinstance(member, str))
    return len(value) if isinstance(value, str) else 0


def _number(value: object, most: float = MAX_FIELD_NUMBER) -> float:
    """A number as float64. Raises WrongValue; of booleans too."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise WrongValue("must be a number")
    if not -most <= value <= most:  # nor NaN
        raise WrongValue(f"must be a number from {-most:g} to {most:g}")
    return float(value)
