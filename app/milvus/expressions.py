"""Filters as expressions of Milvus, over the terms and the ends of arms (see ``terms``).

An expression is true for every arm that its filter lets in. It may be true for another one only where a row
cannot say enough: where a bound is a long string, or an arm has more values than an array takes. Therefore
what is found is asked once more (``Filter.matches``).

To keep that through a negation there are two translations of each part: one that is true for all arms that
fulfil it, and one that is true for none but those. An expression is never unknown: a path into ``ends`` is
followed only where a term says that it is there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache

from app.filters.fields import ValueKind, kind_of
from app.filters.filter import AllOf, AnyOf, Exists, Expression, Filter, Not, OneOf, Ordered
from app.milvus import terms

_KNOWN = 256
_OPERATORS = {"$gt": ">", "$gte": ">=", "$lt": "<", "$lte": "<="}
_ALWAYS = f'not array_contains(terms, "{terms.NEVER}")'
_NEVER = f'array_contains(terms, "{terms.NEVER}")'


@lru_cache(_KNOWN)
def expression_of(arm_filter: Filter) -> str:
    """The expression of a filter; "" where it lets in everything. Cost: O(its length), once."""
    if arm_filter.expression == AllOf(()):
        return ""
    return _said(arm_filter.expression, above=True)


def _said(part: Expression, *, above: bool) -> str:
    """True for all arms that fulfil the part, and with ``above`` maybe for more; else maybe for fewer."""
    match part:
        case OneOf(field, members):
            return _any_term((terms.equals(field, member) for member in members), above=above)
        case Exists(field):
            return _any_term([terms.exists(field)], above=above)
        case Ordered():
            return _ordered(part, above=above)
        case Not(inner):
            return f"not ({_said(inner, above=not above)})"
        case AllOf(parts):
            return _joined("and", parts, _ALWAYS, lambda each: _said(each, above=above))
        case AnyOf(parts):
            return _joined("or", parts, _NEVER, lambda each: _said(each, above=above))


def _joined(word: str, parts: Iterable[Expression], empty: str, said: Callable[[Expression], str]) -> str:
    return f" {word} ".join(f"({said(part)})" for part in parts) or empty


def _any_term(wanted: Iterable[str], *, above: bool) -> str:
    """Some of the terms; with ``above`` also where a row has not all of its terms."""
    listed = sorted(set(wanted))
    if above:
        listed.append(terms.MORE)
    return f"array_contains_any(terms, [{', '.join(map(_quoted, listed))}])"


def _ordered(part: Ordered, *, above: bool) -> str:
    """A value is above (below) the bound where the largest (the least) one is.

    What begins as a long bound does is in no order to it that is known.
    """
    kind = ValueKind.STRING if isinstance(part.bound, str) else ValueKind.NUMBER
    if kind_of(part.bound) is not kind:
        return _NEVER  # booleans have no order
    sign = _OPERATORS[part.operator]
    if isinstance(part.bound, str) and len(terms.encoded(part.bound)) >= terms.STRING_BYTES:
        sign = sign[0] + "=" * above
    end = (terms.largest if sign[0] == ">" else terms.least)(part.field, kind)
    known = _any_term([terms.has(part.field, kind)], above=False)
    said = f'{known} and ends["{end}"] {sign} {_quoted(terms.key_of(part.bound))}'
    return f"({said}) or array_contains(terms, {_quoted(terms.MORE)})" if above else said


def _quoted(text: str) -> str:
    """Digests and keys are hexadecimal: nothing in them could end a string."""
    return f'"{text}"'
