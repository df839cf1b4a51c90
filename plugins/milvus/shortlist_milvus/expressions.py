"""Filters as expressions of Milvus: the row of an arm there, and the expression of a filter.

Milvus compares numbers, strings and lists by rules of its own, and a missing path is neither true nor false.
For expressions with the meaning of filters, no value is stored in a row as it is. Each field becomes

    terms   digests: one if the field is there, one for each of its values, one for each kind of value with an
            order. Only equal values have equal digests, and an array is never missing
    ends    the least and the largest of its numbers, and of its strings, as text in the same order

Numbers are ordered exactly, integers of 64 bits too; of strings the first ``STRING_BYTES`` bytes are.

An expression is true for every arm matched by its filter. Another arm may fulfil it only where a row cannot
say enough: where a bound is a long string, or an arm has more values than an array takes. Therefore every
found arm is checked again by ``Filter.matches``. To keep this property through a negation there are two
translations of each part: one true for all arms which fulfil the part, and one true for none but those. An
expression is never unknown: a path into ``ends`` is followed only where a term says: it exists.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from json.encoder import encode_basestring_ascii as quoted
from math import inf, nextafter
from typing import Any

from shortlist_service.engines import (
    AllOf,
    AnyOf,
    Exists,
    Expression,
    Filter,
    Not,
    OneOf,
    Ordered,
    Value,
    ValueKind,
    fields_of,
    kind_of,
    text_of,
)

MOST_TERMS = 4_096  # in an array of Milvus
TERM_CHARS = 24
STRING_BYTES = 16  # the ends of 256 fields fit into the 65,536 bytes of a JSON field

_SIGN = 1 << 63
_ALL_BITS = (1 << 64) - 1
ORDERED = (ValueKind.NUMBER, ValueKind.STRING)
_KNOWN = 256
_OPERATORS = {"$gt": ">", "$gte": ">=", "$lt": "<", "$lte": "<="}


@dataclass(frozen=True, slots=True)
class ArmTerms:
    """The row of one arm."""

    terms: Sequence[str]
    ends: Mapping[str, str]


def arm_terms(tags: Iterable[str], metadata: Mapping[str, Any]) -> ArmTerms:
    """The terms and the ends of an arm. Beyond ``MOST_TERMS`` terms there is ``MORE``."""
    terms: dict[str, None] = {}
    ends: dict[str, str] = {}
    for field, values in fields_of(tags, metadata).items():
        terms[exists(field)] = None
        for kind in ORDERED:
            keys = [key_of(value) for value in values if kind_of(value) is kind]
            if keys:
                terms[has(field, kind)] = None
                ends[least(field, kind)], ends[largest(field, kind)] = min(keys), max(keys)
        terms.update(dict.fromkeys(equals(field, value) for value in values))
    if len(terms) <= MOST_TERMS:
        return ArmTerms(list(terms), ends)
    return ArmTerms([*list(terms)[: MOST_TERMS - 1], MORE], ends)


def exists(field: str) -> str:
    return _digest("exists", field)


def has(field: str, kind: ValueKind) -> str:
    """The term of arms with a value of this kind in the field."""
    return _digest(f"has {kind}", field)


def equals(field: str, value: Value) -> str:
    return _digest(f"equals {text_of(value)}", field)


def least(field: str, kind: ValueKind) -> str:
    """The key of an end."""
    return _digest(f"least {kind}", field)


def largest(field: str, kind: ValueKind) -> str:
    return _digest(f"largest {kind}", field)


def key_of(value: Value) -> str:
    """Text in the order of the values of one kind."""
    return string_key(value) if isinstance(value, str) else number_key(value)


def string_key(value: str) -> str:
    """In the order of code points, as of the bytes of UTF-8; equal beyond ``STRING_BYTES``."""
    return encoded(value)[:STRING_BYTES].hex()


def encoded(value: str) -> bytes:
    return value.encode("utf-8", "surrogatepass")


def number_key(value: float) -> str:
    """The bits of the largest float64 not above the number, as an unsigned integer in the order of floats,
    and the distance of an integer from the float64: less than 2,048, for an integer has 64 bits.
    """
    low = float(value)
    if low > value:
        low = nextafter(low, -inf)
    above = int(value) - int(low) if isinstance(value, int) else 0
    (bits,) = struct.unpack(">Q", struct.pack(">d", low + 0.0))  # 0.0 for -0.0
    ordered = bits ^ (_ALL_BITS if bits & _SIGN else _SIGN)
    return f"{ordered:016x}{above:03x}"


def _digest(what: str, field: str) -> str:
    text = f"{quoted(field)} {what}".encode("ascii")
    return blake2b(text, digest_size=TERM_CHARS // 2).hexdigest()


MORE = _digest("more", "")  # no field has an empty name
NEVER = _digest("never", "")


_ALWAYS = f'not array_contains(terms, "{NEVER}")'
_NEVER = f'array_contains(terms, "{NEVER}")'


@lru_cache(_KNOWN)
def expression_of(arm_filter: Filter) -> str:
    """The expression of a filter; "" where it matches everything. Cost: O(its length), once."""
    if arm_filter.expression == AllOf(()):
        return ""
    return _translated(arm_filter.expression, above=True)


def _translated(part: Expression, *, above: bool) -> str:
    """True for all arms that fulfil the part, and with ``above`` maybe for more; else maybe for fewer."""
    match part:
        case OneOf(field, members):
            return _any_term((equals(field, member) for member in members), above=above)
        case Exists(field):
            return _any_term([exists(field)], above=above)
        case Ordered():
            return _ordered(part, above=above)
        case Not(inner):
            return f"not ({_translated(inner, above=not above)})"
        case AllOf(parts):
            return _joined("and", parts, _ALWAYS, lambda part_of: _translated(part_of, above=above))
        case AnyOf(parts):
            return _joined("or", parts, _NEVER, lambda part_of: _translated(part_of, above=above))


def _joined(word: str, parts: Iterable[Expression], empty: str, say: Callable[[Expression], str]) -> str:
    return f" {word} ".join(f"({say(part)})" for part in parts) or empty


def _any_term(wanted: Iterable[str], *, above: bool) -> str:
    """Some of the terms; with ``above`` also where a row has not all of its terms."""
    listed = sorted(set(wanted))
    if above:
        listed.append(MORE)
    return f"array_contains_any(terms, [{', '.join(map(_quoted, listed))}])"


def _ordered(part: Ordered, *, above: bool) -> str:
    """A value is above (below) the bound where the largest (the least) one is.

    A value with the beginning of a long bound has no known order to it.
    """
    kind = ValueKind.STRING if isinstance(part.bound, str) else ValueKind.NUMBER
    if kind_of(part.bound) is not kind:
        return _NEVER  # booleans have no order
    sign = _OPERATORS[part.operator]
    if isinstance(part.bound, str) and len(encoded(part.bound)) >= STRING_BYTES:
        sign = sign[0] + "=" * above
    end = (largest if sign[0] == ">" else least)(part.field, kind)
    has_kind = _any_term([has(part.field, kind)], above=False)
    condition = f'{has_kind} and ends["{end}"] {sign} {_quoted(key_of(part.bound))}'
    return f"({condition}) or array_contains(terms, {_quoted(MORE)})" if above else condition


def _quoted(text: str) -> str:
    """Digests and keys are hexadecimal: nothing in them could end a string."""
    return f'"{text}"'
