"""Equal values of a field have the same number, and different ones have not, however a column is stored."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from documents import DOCUMENTS, FIELDS
from hypothesis import given, settings
from hypothesis import strategies as st
from test_attributes import documents_of, table_of

from app.filters.attribute_snapshot import AttributeSnapshot
from app.filters.coded_values import ascending, coded


def check(view: AttributeSnapshot, field: str, rows: np.ndarray, few: int) -> None:
    found, expected = coded(view, field, rows, few), view.values_of(field, rows)
    assert ((found.codes >= 0) & (found.codes < found.count)).all()
    by_code, by_value = dict[int, set[int]](), dict[Any, set[int]]()
    for place, code in zip(found.places.tolist(), found.codes.tolist(), strict=True):
        by_code.setdefault(code, set()).add(place)
    for place, own in enumerate(expected):
        for value in own:
            by_value.setdefault(value, set()).add(place)
    assert sorted(map(sorted, by_code.values())) == sorted(map(sorted, by_value.values()))


@given(
    st.lists(DOCUMENTS, max_size=12),
    st.lists(st.integers(0, 5), max_size=4),
    FIELDS,
    st.sampled_from([0, 1, 10**9]),
)
@settings(max_examples=100)
def test_equal_values_have_equal_codes(documents, batches, field, few):
    view = table_of(documents, batches).snapshot()
    rows = np.array([*range(len(documents)), len(documents), 0, -1, 10**6])
    check(view, field, rows, few)


@pytest.mark.rest
@pytest.mark.parametrize("batches", [[], [1] * 100, [500] * 4, [300, 700, 10, 900]])
@pytest.mark.parametrize("few", [0, 10**9])
def test_so_they_have_in_large_columns_of_every_sort_and_of_a_view_of_before(batches, few):
    documents = documents_of(2_000, seed=1)
    table = table_of(documents, batches)
    before = table.snapshot()
    table.append(np.arange(0, 2_000, 2), documents_of(1_000, seed=2))
    every, some = np.random.default_rng(0).permutation(2_000), np.arange(0, 2_000, 17)
    for view in (before, table.snapshot()):
        for field in ("sizes", "mixed", "serial", "title", "rare", "tags", "maker.name", "cents", "nobody"):
            for rows in (every, some, some[:0]):
                check(view, field, rows, few)


@given(st.lists(st.integers(0, 2**18), max_size=50))
def test_numbers_are_put_in_order_and_equal_ones_stay_as_they_stood(numbers):
    array = np.array(numbers, dtype=np.int32)
    assert ascending(array).tolist() == np.argsort(array, kind="stable").tolist()
