"""JSON merge patches: the algorithm of RFC 7396, and models of patches."""

import copy
from typing import Annotated

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field, ValidationError

from app.api.resource_changes import as_json, merged, patch_model
from app.platform.documents import Document, fields_of

pytestmark = pytest.mark.rest

# The examples of RFC 7396, appendix A: (target, patch, result).
EXAMPLES = [
    ({"a": "b"}, {"a": "c"}, {"a": "c"}),
    ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
    ({"a": "b"}, {"a": None}, {}),
    ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
    ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
    ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
    ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
    ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
    (["a", "b"], ["c", "d"], ["c", "d"]),
    ({"a": "b"}, ["c"], ["c"]),
    ({"a": "foo"}, None, None),
    ({"a": "foo"}, "bar", "bar"),
    ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
    ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
    ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
]
VALUES = st.recursive(
    st.none() | st.integers(0, 3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=12,
)


@pytest.mark.parametrize(("target", "patch", "result"), EXAMPLES)
def test_the_examples_of_the_standard(target, patch, result):
    before = copy.deepcopy((target, patch))
    assert merged(target, patch) == result
    assert (target, patch) == before


def difference(before, after):
    """A patch that makes ``after`` of ``before``; there is one unless ``after`` holds a null in an object."""
    if not (isinstance(before, dict) and isinstance(after, dict)):
        return after
    patch = {name: difference(before.get(name), value) for name, value in after.items()}
    patch.update(dict.fromkeys(before.keys() - after.keys()))
    return patch


def without_nulls(value):
    if isinstance(value, dict):
        return {name: without_nulls(inner) for name, inner in value.items() if inner is not None}
    return value


@given(VALUES, VALUES)
def test_a_patch_of_the_difference_makes_the_other(before, after):
    after = without_nulls(after)
    assert merged(before, difference(before, after)) == after


@given(VALUES, VALUES)
def test_a_patch_twice_is_a_patch_once(target, patch):
    once = merged(target, patch)
    assert merged(once, patch) == once


class Inner(Document, frozen=True):
    low: Annotated[float, Field(ge=0)] = 1.0
    high: float | None = None


class Whole(Document, frozen=True):
    name: str
    count: Annotated[int, Field(ge=1)] = 3
    inner: Inner = Inner()
    maybe: Inner | None = None


Patch = patch_model("WholePatch", fields_of(Whole), Whole.__doc__)


@pytest.mark.parametrize(
    "patch",
    [
        {}, {"name": "a"}, {"name": None, "count": None, "inner": None, "maybe": None},
        {"inner": {"low": 2, "high": None}}, {"maybe": {"low": None}}, {"inner": {}},
    ],
    ids=str,
)  # fmt: skip
def test_a_patch_is_read_as_it_was_sent(patch):
    assert as_json(Patch.model_validate(patch)) == patch


@pytest.mark.parametrize(
    ("patch", "loc"),
    [
        ({"count": 0}, ("count",)), ({"count": "1"}, ("count",)), ({"other": 1}, ("other",)),
        ({"inner": {"low": -1}}, ("inner", "low")), ({"maybe": {"low": True}}, ("maybe", "low")),
        ({"inner": {"x": None}}, ("inner", "x")), ({"inner": 1}, ("inner",)), ([], ()), (None, ()), ("a", ()),
    ],
    ids=str,
)  # fmt: skip
def test_a_field_of_a_patch_is_held_to_its_rule(patch, loc):
    with pytest.raises(ValidationError) as caught:
        Patch.model_validate(patch)
    assert caught.value.errors()[0]["loc"] == loc
