"""Fields and contexts that cannot be encoded, and what others become."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_encoding import FIELDS, NAMED

from app.platform.errors import DimensionMismatch, Invalid
from app.records.encoding import ContextRule, EncodedField, Encoding, completed

pytestmark = pytest.mark.rest

PLAIN = Encoding(completed(ContextRule(dim=3)))


def errors_of(encoding: Encoding, context: object) -> dict[tuple[str | int, ...], str]:
    with pytest.raises(Invalid) as raised:
        encoding.encode(context)
    return dict(raised.value.errors)


def test_the_columns_say_what_each_number_means():
    assert NAMED.dim == 13
    assert NAMED.columns == [
        "device=mobile", "device=desktop", "hour.cos", "hour.sin", "age", *(f"query.{i}" for i in range(8)),
    ]  # fmt: skip
    assert PLAIN.columns is None


@pytest.mark.parametrize(
    "context",
    [{}, {"device": None, "hour": None, "age": None, "query": None}, {"device": "tablet"}, {"query": " \t"}],
)
def test_what_is_missing_or_unknown_is_zeros(context: dict[str, object]):
    assert not NAMED.encode(context).any()


def test_words_count_whatever_their_case_order_and_white_space():
    texts = ["red shoes", "Shoes  RED", "\tshoes\nred ", "red\u0020shoes"]
    texts += [f"red{space}shoes" for space in "\t\n\v\f\r "]
    found = {NAMED.encode({"query": text}).tobytes() for text in texts}
    assert len(found) == 1
    # Only A to Z have a case, and other characters are parts of words: no table of Unicode is asked.
    assert NAMED.encode({"query": "ÄPFEL"}).tobytes() != NAMED.encode({"query": "äpfel"}).tobytes()
    assert NAMED.encode({"query": "red\u00a0shoes"}).tobytes() not in found
    many = Encoding(ContextRule(fields=[EncodedField("q", "hash", size=512)]))
    halves = {many.encode({"q": half}).tobytes() for half in ("\ud800", "\udfff", "?", "\ufffd")}
    assert len(halves) == 4, "half of a pair, as JSON may hold it, is a character too"
    one, both = many.encode({"q": "red"}), many.encode({"q": "red shoes"})
    assert np.abs(one).sum() == 1.0
    assert float(one @ both) == pytest.approx(math.sqrt(0.5))


def test_every_wrong_field_is_named_and_nothing_is_repeated():
    found = errors_of(
        NAMED,
        {"device": 1, "hour": "noon", "age": True, "query": ["a"], "colour": 1, "<script>": 2, "x" * 99: 3},
    )
    assert set(found) == {("context", name) for name in ("device", "hour", "age", "query", "colour", "?")}
    assert not any("noon" in text or "script" in text for text in found.values())


BAD_NUMBERS = [math.nan, math.inf, -math.inf, 10**400, -(10**400), 1e16, "5", True, [1], {}]


@pytest.mark.parametrize("bad", BAD_NUMBERS, ids=lambda bad: str(bad)[:9])
@pytest.mark.parametrize("name", ["hour", "age"])
def test_a_field_takes_numbers_within_bounds(name: str, bad: object):
    assert set(errors_of(NAMED, {name: bad})) == {("context", name)}


@pytest.mark.parametrize("bad", [*BAD_NUMBERS, None, 1e6 + 1], ids=lambda bad: str(bad)[:9])
def test_a_vector_takes_numbers_within_bounds(bad: object):
    assert set(errors_of(PLAIN, [0.5, bad, 1])) == {("context", 1)}


def test_a_number_too_far_from_its_mean_is_refused():
    near = Encoding(ContextRule(fields=[EncodedField("n", "number", mean=0.0, scale=1e-3)]))
    assert near.encode({"n": 999.0})[0] == pytest.approx(999e3)
    for far in (1001.0, -1001.0):
        assert set(errors_of(near, {"n": far})) == {("context", "n")}


def test_a_text_is_not_longer_than_its_bound():
    for letter in ("a", "ä", "\N{GRINNING FACE}"):  # characters, not bytes
        NAMED.encode({"query": letter * 1_024})
    assert set(errors_of(NAMED, {"query": "a" * 1_025})) == {("context", "query")}


def test_the_texts_of_a_context_are_bounded_together():
    many = Encoding(ContextRule(fields=[EncodedField(f"t{n}", "hash", size=2) for n in range(9)]))
    most = {f"t{n}": "a" * 1_024 for n in range(8)}
    many.encode(most)
    assert errors_of(many, {**most, "t8": "a"})[("context",)].startswith("the texts of a context")


@pytest.mark.parametrize("wrong", [[], [1, 2], [1, 2, 3, 4]])
def test_a_vector_has_its_length(wrong: list[object]):
    with pytest.raises(DimensionMismatch) as raised:
        PLAIN.encode(wrong)
    assert raised.value.errors[0][0] == ("context",)


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        (EncodedField("a", "category"), "values"),
        (EncodedField("a", "category", values=["x", "x"]), "values"),
        (EncodedField("a", "category", values=["x"], size=2), "size"),
        (EncodedField("a", "cycle"), "period"),
        (EncodedField("a", "cycle", period=7.0, mean=1.0), "mean"),
        (EncodedField("a", "number", period=7.0), "period"),
        (EncodedField("a", "hash"), "size"),
        (EncodedField("a", "hash", size=4, values=["x"]), "values"),
    ],
)
def test_a_field_has_the_parameters_of_its_kind(field: EncodedField, wrong: str):
    with pytest.raises(Invalid) as raised:
        completed(ContextRule(fields=[field]))
    assert [loc for loc, _ in raised.value.errors] == [("context", "fields", 0, wrong)]


def test_a_rule_is_a_dim_or_fields_with_names_of_their_own():
    for rule in (ContextRule(), ContextRule(dim=1, fields=FIELDS)):
        with pytest.raises(Invalid) as raised:
            completed(rule)
        assert raised.value.errors[0][0] == ("context",)
    twice = [EncodedField("a", "number"), EncodedField("b", "number"), EncodedField("a", "hash", size=2)]
    with pytest.raises(Invalid) as raised:
        completed(ContextRule(fields=twice))
    assert [loc for loc, _ in raised.value.errors] == [("context", "fields", 2, "name")]


VALUES = {
    "device": st.none() | st.text(max_size=8) | st.sampled_from(["mobile", "desktop"]),
    "hour": st.none() | st.floats(-1e15, 1e15) | st.integers(-(10**15), 10**15),
    "age": st.none() | st.floats(-1e6, 1e6),
    "query": st.none() | st.text(max_size=60),
}


@given(st.fixed_dictionaries({}, optional=VALUES))
@settings(max_examples=300)
def test_any_context_is_encoded_the_same_each_time_and_field_by_field(context: dict[str, object]):
    found = NAMED.encode(context)
    assert found.shape == (NAMED.dim,)
    assert np.isfinite(found).all()
    assert found.tobytes() == NAMED.encode(dict(reversed(context.items()))).tobytes()
    alone = sum((NAMED.encode({name: value}) for name, value in context.items()), np.zeros(13, np.float32))
    assert found.tobytes() == (alone + np.float32(0)).tobytes() or np.array_equal(found, alone)
    assert found[:2].sum() in (0.0, 1.0)
    assert np.square(found[2:4]).sum() == pytest.approx(0.0 if context.get("hour") is None else 1.0, abs=1e-6)
    length = float(np.square(found[5:]).sum())
    assert length == pytest.approx(1.0, abs=1e-6) or length == 0.0


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(
    anything
    | st.dictionaries(st.sampled_from(["device", "hour", "age", "query", "other"]), anything)
    | st.lists(anything, min_size=3, max_size=3)
)
@settings(max_examples=300)
def test_anything_is_encoded_or_refused_by_name(context: object):
    for encoding in (NAMED, PLAIN):
        refused: list[tuple[str | int, ...]] = []
        try:
            found = encoding.encode(context)
        except Invalid as error:
            refused = [path[:1] for path, _ in error.errors]
            found = np.zeros(encoding.dim, dtype=np.float32)
        assert set(refused) <= {("context",)}
        assert found.shape == (encoding.dim,)
        assert np.isfinite(found).all()


def test_a_vector_is_kept_in_float32():
    found = PLAIN.encode([0.1, 1, -1e6])
    assert found.tobytes() == np.array([0.1, 1.0, -1e6], dtype=np.float32).tobytes()


def test_categories_take_one_or_many_and_mark_each_once():
    many = Encoding(completed(ContextRule(fields=[EncodedField("g", "categories", values=["a", "b", "c"])])))
    assert many.columns == ["g=a", "g=b", "g=c"]
    for value, numbers in [
        ("b", [0, 1, 0]),
        (["c", "a"], [1, 0, 1]),
        (["a", "a", "x"], [1, 0, 0]),
        ([], [0, 0, 0]),
    ]:
        assert many.encode({"g": value}).tolist() == numbers
    for wrong in (1, [1], ["a", None], {"a": 1}, True, [["a"]]):
        assert errors_of(many, {"g": wrong}) == {("context", "g"): "must be a string, or a list of strings"}


def test_a_logarithm_is_of_one_more_and_ends_at_minus_one():
    own = EncodedField("n", "number", mean=2.0, scale=0.5, log=True)
    counts = Encoding(completed(ContextRule(fields=[own])))
    for value in (0, 0.5, 99, -0.999, 1e15):
        assert counts.encode({"n": value})[0] == pytest.approx((math.log1p(value) - 2.0) / 0.5, rel=1e-6)
    assert counts.encode({})[0] == 0.0, "missing is the mean"
    for wrong in (-1, -1.0, -5):
        assert "above -1" in errors_of(counts, {"n": wrong})["context", "n"]
    (plain,) = completed(ContextRule(fields=[EncodedField("n", "number", log=False)])).fields or ()
    assert plain.log is None, "as where it is absent, so that a repeated PUT is the same"
