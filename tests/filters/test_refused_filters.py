"""Filters that are refused, and limits of those that are not."""

from __future__ import annotations

import math

import pytest
from documents import DOCUMENTS, FILTERS
from hypothesis import given, settings

from app.filters.filter import MAX_CONDITIONS, MAX_DEPTH, MAX_ERRORS, MAX_MEMBERS, Filter, parse
from app.platform.errors import Invalid

pytestmark = pytest.mark.rest


@pytest.mark.parametrize(
    ("positive", "negative"),
    [
        ({"a": {"$eq": 1}}, {"a": {"$ne": 1}}),
        ({"a": {"$in": [1, "b"]}}, {"a": {"$nin": ["b", 1]}}),
        ({"a": {"$gt": 0}}, {"a": {"$not": {"$gt": 0}}}),
        ({"a.b": {"$exists": True}}, {"a.b": {"$exists": False}}),
    ],
)
@given(DOCUMENTS)
@settings(max_examples=60)
def test_negations_are_exact(positive, negative, document):
    assert parse(positive).matches(*document) is not parse(negative).matches(*document)


@given(FILTERS, FILTERS, DOCUMENTS)
@settings(max_examples=200)
def test_both_and_and_or_and_not_are_those_of_logic(one, other, document):
    a, b = parse(one), parse(other)
    first, second = a.matches(*document), b.matches(*document)
    assert a.both(b).matches(*document) is (first and second)
    assert a.both(b) == b.both(a)
    if one and other:
        assert parse({"$and": [one, other]}).matches(*document) is (first and second)
        assert parse({"$and": [one, other]}) == a.both(b)
        assert parse({"$or": [one, other]}).matches(*document) is (first or second)
        assert parse({"$not": one}).matches(*document) is not first


OPERAND = "must be a string, a number or a boolean"
ORDER = "must be a number or a string"
INTEGER = "must be an integer of at most 64 bits"
OBJECT = "must be an object with at least one field"
OPERATOR = "must be an object with at least one operator"
NAME = "the name of a field must have 1 to 256 characters"
ON_FILTERS = "unknown operator; filters have $and, $not, $or"
ON_FIELDS = "unknown operator; fields have $eq, $exists, $gt, $gte, $in, $lt, $lte, $ne, $nin, $not"
MEMBERS = "must be a list of 1 to 1000 values"
LIST = "must be a list of at least one filter"
DEEP = "$and, $or and $not must not be nested more than 5 deep"


def nested(depth, inner):
    return inner if depth == 0 else {"$and": [nested(depth - 1, inner)]}


REFUSED = [
    (None, (), OBJECT),
    ("secret", (), OBJECT),
    ({"$secret": 1}, ("?",), ON_FILTERS),
    ({"": 1}, ("?",), NAME),
    ({"x" * 257: 1}, ("?",), NAME),
    ({"a": {}}, ("a",), OPERATOR),
    ({"a": {"$secret": 1}}, ("a", "?"), ON_FIELDS),
    ({"a": {"$and": []}}, ("a", "?"), ON_FIELDS),
    ({"a": None}, ("a",), OPERAND),
    ({"a": {"$eq": [1]}}, ("a", "$eq"), OPERAND),
    ({"a": math.nan}, ("a",), "must be a finite number"),
    ({"a": {"$in": [1, math.nan]}}, ("a", "$in", 1), "must be a finite number"),
    ({"a": 2**64}, ("a",), INTEGER),
    ({"a": {"$gt": -(2**63) - 1}}, ("a", "$gt"), INTEGER),
    ({"a": {"$gt": True}}, ("a", "$gt"), ORDER),
    ({"a": {"$lte": [1]}}, ("a", "$lte"), OPERAND),
    ({"a": "x" * 8_193}, ("a",), "must not be longer than 8192 characters"),
    ({"a": {"$in": ["x" * 8_193]}}, ("a", "$in", 0), "must not be longer than 8192 characters"),
    ({"a": {"$in": []}}, ("a", "$in"), MEMBERS),
    ({"a": {"$in": [1] * 1_001}}, ("a", "$in"), MEMBERS),
    ({"a": {"$in": [1, [2]]}}, ("a", "$in", 1), OPERAND),
    ({"a": {"$exists": 1}}, ("a", "$exists"), "must be true or false"),
    ({"a": {"$not": 1}}, ("a", "$not"), OPERATOR),
    ({"a": {"$not": {"$gt": True}}}, ("a", "$not", "$gt"), ORDER),
    ({"$and": []}, ("$and",), LIST),
    ({"$or": {"a": 1}}, ("$or",), LIST),
    ({"$or": [{"a": 1}, {}]}, ("$or", 1), OBJECT),
    ({"$not": {}}, ("$not",), OBJECT),
    ({"maker.name": None}, ("?",), OPERAND),
    ({"x" * 33: None}, ("?",), OPERAND),
    (nested(6, {"a": 1}), ("$and", 0) * 5 + ("$and",), DEEP),
    (nested(5, {"$not": {"a": 1}}), ("$and", 0) * 5 + ("$not",), DEEP),
    (nested(5, {"a": {"$not": {"$gt": 1}}}), ("$and", 0) * 5 + ("a", "$not"), DEEP),
]


@pytest.mark.parametrize(("document", "place", "rule"), REFUSED, ids=range(len(REFUSED)))
def test_a_mistake_is_named_by_its_place(document, place, rule):
    with pytest.raises(Invalid) as caught:
        parse(document, ("items", 3, "filter"))
    assert caught.value.errors == [(("items", 3, "filter", *place), rule)]
    assert caught.value.detail == rule
    assert "secret" not in repr(caught.value.errors)


def test_several_mistakes_are_named_at_once_but_not_more_than_twenty():
    with pytest.raises(Invalid) as caught:
        parse({"a": None, "b": {"$in": []}, "$or": [{"c": {"$gt": True}}]})
    assert [loc for loc, _ in caught.value.errors] == [
        ("filter", "a"),
        ("filter", "b", "$in"),
        ("filter", "$or", 0, "c", "$gt"),
    ]
    with pytest.raises(Invalid) as caught:
        parse({"a": {"$in": [None] * 500}})
    assert len(caught.value.errors) == MAX_ERRORS


def test_the_number_of_conditions_is_bounded():
    assert parse({f"f{i}": {"$gt": 1} for i in range(MAX_CONDITIONS)}).conditions == MAX_CONDITIONS
    for document in (
        {f"f{i}": 1 for i in range(MAX_CONDITIONS + 1)},
        {"$or": [{"a": {"$gt": 1, "$lt": 3}}] * (MAX_CONDITIONS // 2 + 1)},
        {"a": {"$not": {"$in": [1]}}, "$and": [{"a": 1}] * MAX_CONDITIONS},
    ):
        with pytest.raises(Invalid) as caught:
            parse(document)
        assert caught.value.errors == [(("filter",), "must not have more than 100 conditions")]


def test_what_is_just_allowed():
    parse(nested(MAX_DEPTH, {"a": 1}))
    parse(nested(MAX_DEPTH - 1, {"a": {"$not": {"$gt": 1}}}))
    parse({"x" * 256: "y" * 8_192})
    half = MAX_MEMBERS // 2
    parse({"a": {"$in": list(range(half))}, "b": {"$nin": list(range(half))}})
    with pytest.raises(Invalid):  # all members together
        parse({"a": {"$in": list(range(half))}, "b": {"$nin": list(range(half + 1))}})
    parse({"a": {"$in": list(range(MAX_MEMBERS))}})
    parse({"a": {"$gt": -(2**63), "$lt": 2**64 - 1, "$gte": "", "$exists": True}})


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ({"a": {"$gt": 1, "$lt": 2}}, {"a": {"$lt": 2.0, "$gt": 1.0}}),
        ({"a": 1}, {"a": {"$eq": 1}}),
        ({"a": 1}, {"a": {"$in": [1, 1.0]}}),
        ({"a": {"$in": [1, "x", True]}}, {"a": {"$in": ["x", True, 1]}}),
        ({"a": {"$ne": 1}}, {"a": {"$not": {"$eq": 1}}}),
        ({"a": 1, "b": 2}, {"$and": [{"b": 2}, {"a": 1}, {"a": 1}]}),
        ({"$or": [{"a": 1}, {"b": 2}]}, {"$or": [{"b": 2}, {"$or": [{"a": 1}]}]}),
        ({"$not": {"$not": {"a": 1}}}, {"a": 1}),
        ({"a": -0.0}, {"a": 0}),
    ],
)
def test_equal_meaning_has_an_equal_key(one, other):
    assert parse(one).key == parse(other).key
    assert parse(one) == parse(other)
    assert len({parse(one), parse(other)}) == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": 1}, {"a": True}),
        ({"a": 1}, {"a": "1"}),
        ({"a": True}, {"a": "true"}),
        ({"a": 1}, {"b": 1}),
        ({"a": {"$gt": 1}}, {"a": {"$gte": 1}}),
        ({"a": 2**53}, {"a": 2**53 + 1}),
        ({"a": 'x", "y'}, {"a": {"$in": ["x", "y"]}}),
        ({'a" in [1]; "b': 1}, {"a": 1, "b": 1}),
        ({"$or": [{"a": 1}, {"b": 1}]}, {"a": 1, "b": 1}),
        ({"$not": {"a": 1, "b": 1}}, {"a": {"$ne": 1}, "b": {"$ne": 1}}),
        ({}, {"a": 1}),
    ],
)
def test_other_meaning_has_another_key(one, other):
    assert parse(one).key != parse(other).key
    assert parse(one) != parse(other)


def test_a_filter_names_its_fields_and_gives_its_document_back():
    document = {"a": 1, "$or": [{"b.c": {"$not": {"$gt": 1}}}, {"tags": {"$exists": False}}]}
    found = parse(document)
    assert isinstance(found, Filter)
    assert found.fields == {"a", "b.c", "tags"}
    assert found.conditions == 3
    assert found.document == document
    with pytest.raises(AttributeError):
        found.key = "other"
