"""The language of filters: which arms may be chosen, by their tags and metadata.

A filter is a JSON object in the style of MongoDB's queries.

    {"genre": "drama"}                                  a value equals this one; short for {"$eq": "drama"}
    {"price": {"$gt": 5, "$lte": 20}, "stock": true}    several operators, several fields: all must hold
    {"$or": [{"tags": "new"}, {"$not": {"price": {"$gt": 20}}}]}

Operators of a field: $eq $ne $in $nin $gt $gte $lt $lte $exists $not. Of filters: $and $or $not.

A condition on a field holds when one of the field's values fulfils it (see ``fields``), so it fails for an
arm that lacks the field. $ne, $nin and $not are exactly the negations of $eq, of $in and of what stands in
$not. Values of different kinds are never equal and have no order. Numbers compare exactly, integers beyond
2^53 too; strings compare by code points; booleans have no order.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from json.encoder import encode_basestring_ascii as quoted
from math import isfinite
from typing import Any, TypeAlias

from app.filters.fields import MAX_FIELD_CHARS, Value, ValueKind, fields_of, kind_of
from app.platform.errors import FieldPath, Invalid, shown

MAX_CONDITIONS = 100
MAX_DEPTH = 5
MAX_MEMBERS = 1_000
MAX_STRING_CHARS = 8_192
MAX_ERRORS = 20

ORDERS: Mapping[str, Callable[[Any, Any], Any]] = {
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
}
_ON_FIELDS = {"$eq", "$ne", "$in", "$nin", "$exists", "$not", *ORDERS}
_ON_FILTERS = {"$and", "$or", "$not"}
# Only a field that looks like a name is named in an error; anything else is not repeated.
Expression: TypeAlias = "OneOf | Ordered | Exists | Not | AllOf | AnyOf"
"""The meaning of a filter. ``key`` is canonical text: equal keys mean the same."""


@dataclass(frozen=True)
class OneOf:
    """A value of the field equals a member."""

    field: str
    members: tuple[Value, ...]

    @cached_property
    def key(self) -> str:
        members = sorted(set(map(text_of, self.members)))
        return f"{quoted(self.field)} in [{', '.join(members)}]"


@dataclass(frozen=True)
class Ordered:
    """A value of the field stands in the order ``operator`` (a key of ``ORDERS``) to the bound."""

    field: str
    operator: str
    bound: Value

    @cached_property
    def key(self) -> str:
        return f"{quoted(self.field)} {self.operator} {text_of(self.bound)}"


@dataclass(frozen=True)
class Exists:
    """The arm has the field, whatever stands in it."""

    field: str

    @cached_property
    def key(self) -> str:
        return f"{quoted(self.field)} exists"


@dataclass(frozen=True)
class Not:
    """The part does not hold."""

    part: Expression

    @cached_property
    def key(self) -> str:
        return f"not ({self.part.key})"


@dataclass(frozen=True)
class AllOf:
    """All parts hold; always, when there is none."""

    parts: tuple[Expression, ...]

    @cached_property
    def key(self) -> str:
        return f"all ({'; '.join(part.key for part in self.parts)})"


@dataclass(frozen=True)
class AnyOf:
    """A part holds."""

    parts: tuple[Expression, ...]

    @cached_property
    def key(self) -> str:
        return f"any ({'; '.join(part.key for part in self.parts)})"


@dataclass(frozen=True)
class Filter:
    """A filter that has been read. Two are equal when their ``key`` is.

    key         canonical text: the order of keys, of parts and of members makes no difference
    document    the filter as it was given, to store and to send back
    conditions  how many conditions it has: one operator on one field is one
    """

    key: str
    document: Mapping[str, Any] = field(compare=False, repr=False)
    conditions: int = field(compare=False)
    expression: Expression = field(compare=False, repr=False)

    @cached_property
    def fields(self) -> frozenset[str]:
        return frozenset(_fields(self.expression))

    def matches(self, tags: Iterable[str], metadata: Mapping[str, Any]) -> bool:
        """Return whether an arm of these tags and metadata matches. This is the definition of a filter."""
        return _holds(self.expression, fields_of(tags, metadata))

    def both(self, other: Filter) -> Filter:
        """The filter matched by the arms which match both. It may be larger than ``parse`` allows."""
        if self == other or other.expression == AllOf(()):
            return self
        if self.expression == AllOf(()):
            return other
        expression = _all_of((self.expression, other.expression))
        document = {"$and": [self.document, other.document]}
        return Filter(expression.key, document, self.conditions + other.conditions, expression)


def compared(expression: Expression) -> Iterator[tuple[str, frozenset[ValueKind]]]:
    """The fields of conditions that are not negated, and the kinds of value that each compares them with."""
    if isinstance(expression, AllOf | AnyOf):
        for part in expression.parts:
            yield from compared(part)
    elif not isinstance(expression, Not):
        values: tuple[Value, ...] = ()
        if isinstance(expression, OneOf):
            values = expression.members
        elif isinstance(expression, Ordered):
            values = (expression.bound,)
        yield expression.field, frozenset(kind for kind in map(kind_of, values) if kind is not None)


def none_of(filters: Sequence[Filter]) -> Filter:
    """The filter matched by the arms which match none of these. It may be larger than ``parse`` allows."""
    expression = _negated(_any_of(arm_filter.expression for arm_filter in filters))
    document = {"$not": {"$or": [arm_filter.document for arm_filter in filters]}}
    return Filter(expression.key, document, sum(arm_filter.conditions for arm_filter in filters), expression)


def parse(document: object, path: FieldPath = ("filter",)) -> Filter:
    """Read a filter, which takes the document over, uncopied: the document must not be changed after.

    path    of the filter in what was given; errors name the path within it
    Raises: Invalid, which names up to ``MAX_ERRORS`` places and repeats no value.
    """
    reader = _Reader(path)
    everything = isinstance(document, dict) and not document
    expression = AllOf(()) if everything else reader.filter(document, path, 0)
    if reader.errors or not isinstance(document, dict):
        raise Invalid.many(reader.errors)
    return Filter(expression.key, document, reader.conditions, expression)


class _Reader:
    """Reads one filter and notes its mistakes; what is read of a filter with mistakes means nothing.

    Raises Invalid when the errors or the conditions are too many, whatever else the filter holds.
    """

    def __init__(self, path: FieldPath) -> None:
        self._path = path
        self.errors: list[tuple[FieldPath, str]] = []
        self.members = 0
        self.conditions = 0

    def filter(self, document: object, path: FieldPath, depth: int) -> Expression:
        """An object of fields, $and, $or, $not, which stands in ``depth`` of the latter three."""
        parts = []
        for name, content in self._items(document, path, "field"):
            if name in _ON_FILTERS:
                parts.append(self._of_filters(name, content, (*path, name), depth + 1))
            elif name.startswith("$"):
                self._note((*path, "?"), "unknown operator; filters have $and, $not, $or")
            elif not name or len(name) > MAX_FIELD_CHARS:
                self._note((*path, "?"), f"the name of a field must have 1 to {MAX_FIELD_CHARS} characters")
            else:
                field_path = (*path, shown(name))
                parts.append(self._of_field(name, content, field_path, depth))
        return _all_of(parts)

    def _of_filters(self, name: str, content: object, path: FieldPath, depth: int) -> Expression:
        if depth > MAX_DEPTH:
            return self._too_deep(path)
        if name == "$not":
            return _negated(self.filter(content, path, depth))
        if not isinstance(content, list) or not content:
            self._note(path, "must be a list of at least one filter")
            return AllOf(())
        parts = [self.filter(part, (*path, number), depth) for number, part in enumerate(content)]
        return _all_of(parts) if name == "$and" else _any_of(parts)

    def _of_field(self, name: str, content: object, path: FieldPath, depth: int) -> Expression:
        if isinstance(content, dict):
            return self._operators(name, content, path, depth)
        self._count()
        return OneOf(name, (self._value(content, path),))

    def _operators(self, name: str, content: object, path: FieldPath, depth: int) -> Expression:
        """An object of operators of one field."""
        parts = []
        for symbol, operand in self._items(content, path, "operator"):
            if symbol in _ON_FIELDS:
                parts.append(self._operator(name, symbol, operand, (*path, symbol), depth))
            else:
                self._note((*path, "?"), f"unknown operator; fields have {', '.join(sorted(_ON_FIELDS))}")
        return _all_of(parts)

    def _operator(self, name: str, symbol: str, operand: object, path: FieldPath, depth: int) -> Expression:
        if symbol == "$not":
            if depth == MAX_DEPTH:
                return self._too_deep(path)
            return _negated(self._operators(name, operand, path, depth + 1))
        self._count()
        if symbol == "$exists":
            if not isinstance(operand, bool):
                self._note(path, "must be true or false")
            return Exists(name) if operand else Not(Exists(name))
        if symbol in ORDERS:
            if isinstance(operand, bool):
                self._note(path, "must be a number or a string")
            return Ordered(name, symbol, self._value(operand, path))
        members = self._members(operand, path) if symbol in {"$in", "$nin"} else (self._value(operand, path),)
        return OneOf(name, members) if symbol in {"$eq", "$in"} else Not(OneOf(name, members))

    def _members(self, operand: object, path: FieldPath) -> tuple[Value, ...]:
        if not isinstance(operand, list) or not 1 <= len(operand) <= MAX_MEMBERS:
            self._note(path, f"must be a list of 1 to {MAX_MEMBERS} values")
            return ()
        self.members += len(operand)
        if self.members > MAX_MEMBERS:
            text = f"must not have more than {MAX_MEMBERS} members of $in and $nin in all"
            raise Invalid.many([*self.errors, (self._path, text)])
        if set(map(type, operand)) == {str} and max(map(len, operand)) <= MAX_STRING_CHARS:
            return tuple(operand)  # long lists are of strings, mostly
        return tuple(self._value(member, (*path, number)) for number, member in enumerate(operand))

    def _value(self, operand: object, path: FieldPath) -> Value:
        if not isinstance(operand, str | bool | int | float):
            self._note(path, "must be a string, a number or a boolean")
            return ""
        if isinstance(operand, str) and len(operand) > MAX_STRING_CHARS:
            self._note(path, f"must not be longer than {MAX_STRING_CHARS} characters")
        elif isinstance(operand, int) and not -(2**63) <= operand < 2**64:
            self._note(path, "must be an integer of at most 64 bits")
        elif isinstance(operand, float) and not isfinite(operand):
            self._note(path, "must be a finite number")
        else:
            return operand
        return ""

    def _items(self, document: object, path: FieldPath, what: str) -> Iterable[tuple[str, object]]:
        if isinstance(document, dict) and document:
            return document.items()
        self._note(path, f"must be an object with at least one {what}")
        return ()

    def _too_deep(self, path: FieldPath) -> Expression:
        self._note(path, f"$and, $or and $not must not be nested more than {MAX_DEPTH} deep")
        return AllOf(())

    def _note(self, path: FieldPath, rule: str) -> None:
        self.errors.append((path, rule))
        if len(self.errors) == MAX_ERRORS:
            raise Invalid.many(self.errors)

    def _count(self) -> None:
        self.conditions += 1
        if self.conditions > MAX_CONDITIONS:
            text = f"must not have more than {MAX_CONDITIONS} conditions"
            raise Invalid.many([*self.errors, (self._path, text)])


def _negated(part: Expression) -> Expression:
    return part.part if isinstance(part, Not) else Not(part)


def _all_of(parts: Iterable[Expression]) -> Expression:
    return _joined(AllOf, parts)


def _any_of(parts: Iterable[Expression]) -> Expression:
    return _joined(AnyOf, parts)


def _joined(kind: type[AllOf | AnyOf], parts: Iterable[Expression]) -> Expression:
    """One expression of such parts, in the order of their keys, each once; nested ones become one."""
    flat = (piece for part in parts for piece in (part.parts if isinstance(part, kind) else (part,)))
    by_key = {part.key: part for part in flat}
    distinct = tuple(by_key[key] for key in sorted(by_key))
    return distinct[0] if len(distinct) == 1 else kind(distinct)


def text_of(value: Value) -> str:
    """Equal for equal values alone: 1 and 1.0 are one, 1, true and "1" are three."""
    if isinstance(value, str):
        return quoted(value)
    return repr(int(value) if isinstance(value, float) and value.is_integer() else value)


def _fields(expression: Expression) -> Iterable[str]:
    match expression:
        case OneOf(name) | Ordered(name) | Exists(name):
            yield name
        case Not(part):
            yield from _fields(part)
        case AllOf(parts) | AnyOf(parts):
            for part in parts:
                yield from _fields(part)


def _holds(expression: Expression, result: Mapping[str, list[Value]]) -> bool:
    match expression:
        case OneOf(name, members):
            return any(
                kind_of(value) is kind_of(member) and value == member
                for value in result.get(name, ())
                for member in members
            )
        case Ordered(name, symbol, bound):
            kind = kind_of(bound)
            return any(
                kind_of(value) is kind and ORDERS[symbol](value, bound) for value in result.get(name, ())
            )
        case Exists(name):
            return name in result
        case Not(part):
            return not _holds(part, result)
        case AllOf(parts):
            return all(_holds(part, result) for part in parts)
        case AnyOf(parts):
            return any(_holds(part, result) for part in parts)
