"""What a row of Milvus says of an arm's tags and metadata, so that expressions can mean what filters mean.

Milvus compares numbers, strings and lists by rules of its own, and a path that is missing is neither true nor
false. So no value stands in a row as it is. Each field becomes

    terms   one for its being there, one for each of its values, one for each kind of value that has an order:
            digests, of which equal values alone have equal ones. An array is never missing.
    ends    the least and the largest of its numbers, and of its strings, as text in the same order

Numbers are ordered exactly, integers of 64 bits too. Of strings the first ``STRING_BYTES`` bytes are.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from json.encoder import encode_basestring_ascii as quoted
from math import inf, nextafter
from typing import Any

from app.filters.fields import Value, ValueKind, fields_of, kind_of
from app.filters.filter import text_of

MOST_TERMS = 4_096  # in an array of Milvus
TERM_CHARS = 24
STRING_BYTES = 16  # the ends of 256 fields fit into the 65,536 bytes of a JSON field

_SIGN = 1 << 63
_ALL_BITS = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Said:
    """What a row says of one arm."""

    terms: Sequence[str]
    ends: Mapping[str, str]


def said_of(tags: Iterable[str], metadata: Mapping[str, Any]) -> Said:
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
        return Said(list(terms), ends)
    return Said([*list(terms)[: MOST_TERMS - 1], MORE], ends)


def exists(field: str) -> str:
    return _digest("exists", field)


def has(field: str, kind: ValueKind) -> str:
    """The term of arms that have a value of this kind in the field."""
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
    """In the order of code points, which is that of the bytes of UTF-8; equal beyond ``STRING_BYTES``."""
    return encoded(value)[:STRING_BYTES].hex()


def encoded(value: str) -> bytes:
    return value.encode("utf-8", "surrogatepass")


def number_key(value: float) -> str:
    """The bits of the largest float64 that is not above the number, as an unsigned integer that has the order
    of floats, and what an integer is above it: less than 2,048, for it has 64 bits.
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


ORDERED = (ValueKind.NUMBER, ValueKind.STRING)
MORE = _digest("more", "")  # no field has an empty name
NEVER = _digest("never", "")
