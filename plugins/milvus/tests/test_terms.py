"""What a row says of an arm: its terms tell values apart as filters do, and its ends are in their order."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.filters.fields import ValueKind
from shortlist_milvus import expressions
from shortlist_milvus.expressions import MORE, MOST_TERMS, arm_terms

NUMBERS = st.one_of(
    st.integers(-(2**63), 2**64 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([0, -0.0, 0.0, 2**53, 2**53 + 1, 2.0**53, 2**64 - 1, 2**64 - 2, 1.8446744073709552e19]),
)
STRINGS = st.text(st.characters(codec=None), max_size=24)


@given(one=NUMBERS, other=NUMBERS)
def test_keys_of_numbers_are_in_their_order_exactly(one, other):
    a, b = expressions.number_key(one), expressions.number_key(other)
    assert (a < b, a == b) == (one < other, one == other)
    assert len(a) == 19


@pytest.mark.rest
@given(value=st.integers(2**53, 2**64 - 2))
def test_neighbours_beyond_the_integers_of_floats_are_told_apart(value):
    assert expressions.number_key(value) < expressions.number_key(value + 1)
    assert expressions.number_key(-value - 1) < expressions.number_key(-value)


@given(one=STRINGS, other=STRINGS)
def test_keys_of_strings_are_in_the_order_of_code_points(one, other):
    a, b = expressions.string_key(one), expressions.string_key(other)
    if a != b:
        assert (a < b) == (one < other)
    else:
        assert (
            expressions.encoded(one)[: expressions.STRING_BYTES]
            == expressions.encoded(other)[: expressions.STRING_BYTES]
        )


@given(one=st.one_of(NUMBERS, STRINGS, st.booleans()), other=st.one_of(NUMBERS, STRINGS, st.booleans()))
def test_values_have_one_term_exactly_if_filters_find_them_equal(one, other):
    kinds = [isinstance(one, bool) == isinstance(other, bool), isinstance(one, str) == isinstance(other, str)]
    assert (expressions.equals("f", one) == expressions.equals("f", other)) == (all(kinds) and one == other)
    assert expressions.equals("f", one) != expressions.equals("g", one)


def test_a_row_says_what_an_arm_has():
    said = arm_terms(["new"], {"price": [3, 12.5], "name": "b", "none": None, "deep": {"at": True}})
    assert set(said.terms) == {
        *map(expressions.exists, ["tags", "price", "name", "none", "deep", "deep.at"]),
        expressions.has("price", ValueKind.NUMBER), expressions.has("name", ValueKind.STRING),
        expressions.has("tags", ValueKind.STRING),
        expressions.equals("tags", "new"), expressions.equals("price", 3), expressions.equals("price", 12.5),
        expressions.equals("name", "b"), expressions.equals("deep.at", True),
    }  # fmt: skip
    assert said.ends == {
        expressions.least("price", ValueKind.NUMBER): expressions.number_key(3),
        expressions.largest("price", ValueKind.NUMBER): expressions.number_key(12.5),
        **{end("name", ValueKind.STRING): "62" for end in (expressions.least, expressions.largest)},
        **{end("tags", ValueKind.STRING): b"new".hex() for end in (expressions.least, expressions.largest)},
    }


@pytest.mark.rest
def test_an_arm_of_more_terms_than_an_array_takes_says_so():
    said = arm_terms([], {"many": list(range(MOST_TERMS))})
    assert len(said.terms) == MOST_TERMS
    assert said.terms[-1] == MORE
    assert arm_terms([], {"few": list(range(100))}).terms[-1] != MORE


@pytest.mark.rest
def test_the_ends_of_the_most_fields_fit_into_a_field_of_json():
    fields = {f"f{i:03}": ["x" * 40, -math.pi, 2**63] for i in range(256)}
    ends = arm_terms(["t"], fields).ends
    assert sum(len(key) + len(value) + 6 for key, value in ends.items()) < 65_536
