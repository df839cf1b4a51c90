"""Attributes in large columns that are moved and compacted, and the memory that they take."""

from __future__ import annotations

import sys
import threading

import numpy as np
import pytest
from test_attributes import NOTHING, documents_of, table_of

from app.filters import columns
from app.filters.attributes import AttributeTable
from app.filters.filter import ORDERS, parse
from shortlist.errors import InvalidShape

pytestmark = pytest.mark.rest


def test_any_choice_of_repeated_values_is_found():
    documents = [((), {"a": i * 3 % 7}) for i in range(200)]
    view = table_of(documents).snapshot()
    for choice in range(1, 2**7):
        wanted = parse({"a": {"$in": [value for value in range(7) if choice >> value & 1]}})
        assert view.evaluate(wanted).tolist() == [wanted.matches(*document) for document in documents]


def test_an_order_of_repeated_numbers_compares_codes_alone(monkeypatch) -> None:
    table = AttributeTable()
    prices = np.random.default_rng(1).integers(0, 500, 5_000).tolist()
    table.append(np.arange(5_000), [((), {"price": price}) for price in prices])
    view = table.snapshot()
    monkeypatch.setattr(columns.OrderTest, "__call__", None)
    for symbol, order in ORDERS.items():
        found = view.evaluate(parse({"price": {symbol: 250}}))
        assert found.tolist() == [order(price, 250) for price in prices]


def test_views_can_be_asked_while_the_table_is_appended_to():
    documents = documents_of(3_000, seed=5)
    table = table_of(documents[:1_000])
    wanted = parse({"price": {"$lt": 50}, "maker.name": {"$gt": "maker-2"}, "tags": {"$ne": "new"}})
    expected = np.array([wanted.matches(*document) for document in documents])
    views = [table.snapshot()]
    done = threading.Event()
    wrong: list[int] = []

    def ask() -> None:
        while True:
            last = done.is_set()
            view = views[-1]
            if (view.evaluate(wanted) != expected[: view.entries]).any():
                wrong.append(view.entries)
            if last:
                return

    threads = [threading.Thread(target=ask) for _ in range(2)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        for row in range(1_000, 3_000, 10):
            table.append(np.arange(row, row + 10), documents[row : row + 10])
            views.append(table.snapshot())
    finally:
        done.set()
        for thread in threads:
            thread.join()
        sys.setswitchinterval(interval)
    assert wrong == []


def test_entries_keep_their_numbers_until_the_generation_grows():
    table = table_of([((), {"a": 1}), ((), {"a": 2}), ((), {"a": 3})])
    table.moved(np.array([7, -1, 2]))
    view = table.snapshot()
    assert (view.generation, view.rows.tolist()) == (0, [7, -1, 2])
    table.append(np.array([2]), [((), {"a": 4})])
    view = table.snapshot()
    assert (view.generation, view.rows.tolist()) == (0, [7, -1, 2, 2])
    table.append(np.array([2]), [((), {"a": 5})])
    view = table.snapshot()
    assert (view.generation, view.rows.tolist()) == (1, [7, 2])
    assert view.evaluate(parse({"a": 5})).tolist() == [False, True]


def test_rows_and_documents_that_do_not_fit_are_refused():
    table = table_of([NOTHING, NOTHING])
    with pytest.raises(InvalidShape):
        table.append(np.array([1]), [])
    with pytest.raises(InvalidShape):
        table.moved(np.array([0]))
    assert table.snapshot().rows.tolist() == [0, 1]


def test_strings_and_fields_that_nobody_uses_are_freed():
    table = AttributeTable()
    for turn in range(6):
        table.append(np.arange(500), [((), {f"field-{turn}": f"string {turn} {row}"}) for row in range(500)])
        names = table.snapshot().names
        assert len(names.values) <= 1_000
        assert len(names.fields) <= 2
