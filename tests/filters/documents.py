"""Random documents of arms and random filters over them: few fields and values, so that many match."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

BIG = 2**53
STRINGS = st.sampled_from(["", "a", "b", "ab", "é", "\U0001f600", "\uffff", "a\x00", "1", "true", "A"])
NUMBERS = st.one_of(
    st.integers(-3, 3),
    st.sampled_from([BIG, BIG + 1, BIG + 2, BIG + 3, -BIG - 1, 2**63, 2**64 - 1, -(2**63), 2**63 - 1]),
    st.sampled_from(
        [0.0, -0.0, 0.1, 0.5, 1.0, float(BIG), 1e300, -1e300, 5e-324, 300.0, 70_000.0, 16777217.0]
    ),
    st.sampled_from([0.1 + 2**-30, 255, 256, 65_535, 65_536, 2**32, 2**31, -129, -32_769, 1.5]),
)
VALUES = st.one_of(STRINGS, NUMBERS, st.booleans())
KEYS = st.sampled_from(["a", "b", "a.b", "tags", "", "c"])
FIELDS = st.sampled_from(["a", "b", "a.b", "a.a", "b.a", "a.b.a", "tags", "c", "nobody", "tags.a", "a."])


def _content(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=3))


CONTENT = st.recursive(st.one_of(VALUES, VALUES, st.none()), _content, max_leaves=6)
METADATA = st.dictionaries(KEYS, CONTENT, max_size=4)
DOCUMENTS = st.tuples(st.lists(STRINGS, max_size=2), METADATA)

_ORDER = st.sampled_from(["$gt", "$gte", "$lt", "$lte"])
_EQUAL = st.sampled_from(["$eq", "$ne"])
_LIST = st.sampled_from(["$in", "$nin"])
OPERATORS = st.recursive(
    st.one_of(
        st.dictionaries(_ORDER, st.one_of(STRINGS, NUMBERS), min_size=1, max_size=2),
        st.dictionaries(_EQUAL, VALUES, min_size=1, max_size=2),
        st.dictionaries(_LIST, st.lists(VALUES, min_size=1, max_size=5), min_size=1, max_size=2),
        st.fixed_dictionaries({"$exists": st.booleans()}),
    ),
    lambda inner: st.fixed_dictionaries({"$not": inner}),
    max_leaves=2,
)
_SIMPLE = st.dictionaries(FIELDS, st.one_of(VALUES, OPERATORS, OPERATORS), min_size=1, max_size=2)
FILTERS = st.one_of(
    st.just({}),
    st.recursive(
        _SIMPLE,
        lambda inner: st.one_of(
            st.fixed_dictionaries({"$and": st.lists(inner, min_size=1, max_size=3)}),
            st.fixed_dictionaries({"$or": st.lists(inner, min_size=1, max_size=3)}),
            st.fixed_dictionaries({"$not": inner}),
        ),
        max_leaves=3,
    ),
)
