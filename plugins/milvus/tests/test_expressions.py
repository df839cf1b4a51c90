"""Filters as expressions of Milvus let in what they let in: by rules written again, and in Milvus Lite."""

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.filters.filter import Filter, parse
from shortlist_milvus import expressions
from shortlist_milvus.engine import ArmRow, MilvusEngine
from shortlist_milvus.expressions import ArmTerms, arm_terms, expression_of

pytestmark = [pytest.mark.anyio, pytest.mark.rest]

FIELDS = ["a", "b", "c.d", 'q"x', "tags"]
LONG = "long string, the same for "
VALUES = st.sampled_from([
    0, 1, -1, 2, 0.5, 1.0, -0.0, 2**53, 2**53 + 1, float(2**53), 2**64 - 1, -(2**63), 1e300,
    True, False, "", "a", "ab", "b", "é", "\U0001f600", '"', "\\", LONG, LONG + "a", LONG + "b", "1", "true",
])  # fmt: skip
ORDERED = VALUES.filter(lambda value: not isinstance(value, bool))
SCALAR = st.one_of(VALUES, st.none())
METADATA = st.dictionaries(
    st.sampled_from(["a", "b", 'q"x', "tags"]),
    st.one_of(SCALAR, st.lists(SCALAR, max_size=3), st.just({})),
    max_size=3,
).flatmap(
    lambda flat: st.one_of(
        st.just(flat), st.one_of(SCALAR, st.lists(SCALAR, max_size=3)).map(lambda v: {**flat, "c": {"d": v}})
    )
)
TAGS = st.lists(st.sampled_from(["a", "b", LONG + "a"]), max_size=2, unique=True)
OPERATORS = st.one_of(
    st.fixed_dictionaries({}, optional=dict.fromkeys(("$gt", "$gte", "$lt", "$lte"), ORDERED)),
    st.fixed_dictionaries({"$eq": VALUES}),
    st.fixed_dictionaries({"$ne": VALUES}),
    st.fixed_dictionaries({"$in": st.lists(VALUES, min_size=1, max_size=3)}),
    st.fixed_dictionaries({"$nin": st.lists(VALUES, min_size=1, max_size=3)}),
    st.fixed_dictionaries({"$exists": st.booleans()}),
).filter(bool)
CONDITION = st.one_of(OPERATORS, OPERATORS.map(lambda inner: {"$not": inner}), VALUES)
LEAVES = st.dictionaries(st.sampled_from(FIELDS), CONDITION, min_size=1, max_size=2)
FILTERS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: {"$and": parts}),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: {"$or": parts}),
        inner.map(lambda part: {"$not": part}),
    ),
    max_leaves=4,
)


def holds(expression: str, said: ArmTerms) -> bool:
    """What an expression says of a row, by Python's own evaluation: missing paths are False, not unknown."""
    text = re.sub(r'ends\["(\w+)"\]', r'ends.get("\1")', expression) or "True"
    names: dict[str, Any] = {
        "terms": set(said.terms),
        "ends": said.ends,
        "array_contains": lambda expressions, term: term in expressions,
        "array_contains_any": lambda expressions, some: not expressions.isdisjoint(some),
    }
    return bool(eval(text, {"__builtins__": {}}, names))  # of our own making


def has_long(document: object) -> bool:
    if isinstance(document, dict):
        return any(map(has_long, document.values()))
    if isinstance(document, list):
        return any(map(has_long, document))
    return isinstance(document, str) and len(expressions.encoded(document)) >= expressions.STRING_BYTES


@settings(max_examples=400)
@given(document=FILTERS, tags=TAGS, metadata=METADATA)
def test_what_a_filter_lets_in_its_expression_lets_in(document, tags, metadata):
    wanted = parse(document)
    said = holds(expression_of(wanted), arm_terms(tags, metadata))
    assert said >= wanted.matches(tags, metadata)
    if not has_long(document):
        assert said == wanted.matches(tags, metadata), "only long strings are not said exactly"


@settings(max_examples=200)
@given(document=FILTERS, tags=TAGS, metadata=METADATA)
def test_an_arm_of_too_many_values_is_never_left_out(document, tags, metadata):
    crowded = {"0": list(range(expressions.MOST_TERMS)), **metadata}
    said = arm_terms(tags, crowded)
    assert expressions.MORE in said.terms
    wanted = parse(document)
    assert holds(expression_of(wanted), said) >= wanted.matches(tags, crowded)


def test_everything_is_no_expression():
    assert expression_of(parse({})) == ""


ROWS = 150


@pytest.fixture(scope="module")
async def collection(milvus_uri):
    """A collection of arms that Hypothesis would draw, and those arms."""
    engine = MilvusEngine(milvus_uri)
    await engine.open()
    rng = np.random.default_rng(7)
    values = [*range(3), 0.5, 2**53, 2**53 + 1, True, False, "", "a", "ab", "é", '"', LONG + "a", LONG + "b"]

    def drawn() -> Any:
        some = [values[i] for i in rng.integers(len(values), size=rng.integers(0, 3))]
        return some if rng.random() < 0.5 else next(iter(some), None)

    arms = []
    for number in range(ROWS):
        metadata = {field: drawn() for field in ("a", "b", 'q"x') if rng.random() < 0.6}
        if rng.random() < 0.5:
            metadata["c"] = {"d": drawn()}
        tags = [tag for tag in ("a", "b") if rng.random() < 0.3]
        arms.append((f"arm-{number}", tags, metadata))
    rows = []
    for number, (arm, tags, metadata) in enumerate(arms):
        said = arm_terms(tags, metadata)
        rows.append(ArmRow(arm, number, np.ones(2, np.float32), said.terms, said.ends))
    await engine.create("expressions", 2, m=16, ef_construction=100)
    await engine.write_rows("expressions", rows)
    yield engine, arms
    await engine.drop("expressions")
    await engine.close()


@settings(max_examples=40)
@given(document=FILTERS)
async def test_the_engine_means_what_filters_mean(
    collection: tuple[MilvusEngine, list[Any]], document: Any
) -> None:
    engine, arms = collection
    wanted: Filter = parse(document)
    query = np.ones(2, np.float32)
    found = await engine.search_where("expressions", query, 256, expression=expression_of(wanted), ef=256)
    ids = set(found)
    assert ids == {arm for arm, *said in arms if holds(expression_of(wanted), arm_terms(*said))}
    assert ids >= {arm for arm, *said in arms if wanted.matches(*said)}
