"""Compressed attributes answer as the definition of a filter does, whatever happened to them before."""

from __future__ import annotations

import random
import sys
import threading
import tracemalloc
from typing import Any

import numpy as np
import pytest
from documents import BIG, DOCUMENTS, FIELDS, FILTERS
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from app.filters import attribute_snapshot, columns
from app.filters.attribute_snapshot import AttributeSnapshot
from app.filters.attributes import AttributeTable
from app.filters.fields import fields_of, kind_of
from app.filters.filter import ORDERS, Filter, parse
from shortlist.errors import InvalidShape

NOTHING = ((), {})


def table_of(documents: list[Any], batches: list[int] | None = None, **limits: int) -> AttributeTable:
    """Entry i is of row i; appended in batches of these sizes, then the rest."""
    table = AttributeTable(**limits)
    first = 0
    for size in [*(batches or []), len(documents)]:
        part = documents[first : first + size]
        table.append(np.arange(first, first + len(part)), part)
        first += len(part)
    return table


def labelled(document: Any, field: str) -> set[Any]:
    return {(kind_of(value), value) for value in fields_of(*document).get(field, ())}


def answers(view: AttributeSnapshot, wanted: Filter, rows: int) -> list[bool]:
    """What a caller makes of a view: one answer for each row."""
    mask = np.full(rows, wanted.matches(*NOTHING))
    known = view.rows >= 0
    mask[view.rows[known]] = view.evaluate(wanted)[known]
    return mask.tolist()


def documents_of(count: int, seed: int) -> list[Any]:
    """Many documents in which every sort of column occurs."""
    rng = random.Random(seed)
    return [
        (
            rng.sample(["new", "sale", "old"], rng.randrange(3)),
            {
                "stock": rng.random() < 0.7,
                "price": rng.random() * 100,
                "cents": round(rng.random() * 100, 2),
                "size": rng.choice([rng.randrange(300), rng.randrange(-40_000, 2**31)]),
                "title": f"title {rng.randrange(10**9)}",
                "maker": {"name": f"maker-{rng.randrange(500)}"},
                "sizes": [rng.randrange(10) for _ in range(rng.randrange(4))],
                "serial": BIG + rng.randrange(1_000),
                "mixed": rng.choice([True, 1, "1", None, [1, "1"], {"x": 1}]),
                **({"rare": rng.randrange(5)} if rng.random() < 0.02 else {}),
                **({"float": float(np.float32(rng.random()))} if rng.random() < 0.5 else {}),
                f"own-{rng.randrange(10**6)}": 1,
            },
        )
        for _ in range(count)
    ]


WANTED = [
    {},
    {"stock": True},
    {"stock": {"$ne": True}, "price": {"$lt": 20}},
    {"price": {"$gte": 20, "$lt": 40.5}, "maker.name": {"$in": [f"maker-{i}" for i in range(0, 500, 3)]}},
    {"cents": {"$in": [1.25, 0.3, 99.99, 17]}},
    {"cents": {"$gt": 99.5}},
    {"size": {"$lte": 255}},
    {"size": {"$gt": 255.5}},
    {"size": {"$in": list(range(0, 300, 7))}},
    {"title": {"$gt": "title 5"}},
    {"title": {"$in": ["title 1", "title 2"]}},
    {"maker.name": {"$lt": "maker-3"}},
    {"maker.name": "maker-77"},
    {"maker.name": {"$in": ["maker-1", "maker-2", "maker-400"]}},
    {"maker": {"$exists": True}},
    {"sizes": {"$gt": 8}},
    {"sizes": {"$nin": [1, 2, 3]}},
    {"sizes": {"$not": {"$gt": 2, "$lt": 5}}},
    {"serial": {"$gt": BIG + 501}},
    {"serial": {"$in": [BIG + 1, BIG + 2, BIG + 3]}},
    {"mixed": 1},
    {"mixed": True},
    {"mixed": "1"},
    {"mixed": {"$exists": True}, "mixed.x": {"$exists": False}},
    {"rare": {"$gte": 2}},
    {"rare": {"$exists": False}},
    {"float": {"$lt": 0.5}},
    {"float": {"$exists": True}},
    {"tags": "new"},
    {"$or": [{"tags": {"$in": ["sale", "old"]}}, {"$not": {"price": {"$lt": 90}}}]},
    {"own-1": 1},
    {"nobody": {"$ne": 1}},
]


@given(st.lists(DOCUMENTS, max_size=12), st.lists(st.integers(0, 5), max_size=4), FILTERS, st.integers(0, 13))
@settings(max_examples=120)
def test_a_filter_lets_in_what_the_definition_says(documents, batches, document, first):
    wanted = parse(document)
    view = table_of(documents, batches).snapshot()
    expected = [wanted.matches(*document) for document in documents]
    assert view.evaluate(wanted).tolist() == expected
    assert view.evaluate(wanted, first).tolist() == expected[first:]
    assert view.work(wanted, first) >= 0


@given(st.lists(DOCUMENTS, max_size=12), st.lists(st.integers(0, 5), max_size=4), FIELDS)
@settings(max_examples=100)
def test_values_are_those_of_the_document_and_keep_their_type(documents, batches, field):
    rows = np.array([*range(len(documents)), len(documents), 0, -1, 10**6])
    found = table_of(documents, batches).snapshot().values_of(field, rows)
    expected = [
        labelled((documents[row] if 0 <= row < len(documents) else NOTHING), field) for row in rows.tolist()
    ]
    assert [set(values) for values in found] == expected
    assert [len(values) for values in found] == [len(values) for values in expected]


@pytest.mark.parametrize("batches", [[], [1] * 100, [500] * 4, [300, 700, 10, 900]])
def test_large_columns_of_every_sort_answer_as_the_definition_does(batches):
    documents = documents_of(2_000, seed=1)
    view = table_of(documents, batches).snapshot()
    for document in WANTED:
        wanted = parse(document)
        expected = [wanted.matches(*document) for document in documents]
        assert view.evaluate(wanted).tolist() == expected, document
        for first in (1, 63, 1_500, 1_999, 2_000):
            assert view.evaluate(wanted, first).tolist() == expected[first:], document
    rows = np.arange(0, 2_000, 17)
    for field in ("sizes", "mixed", "serial", "title", "rare", "tags", "maker.name", "cents"):
        found = view.values_of(field, rows)
        assert [set(values) for values in found] == [labelled(documents[row], field) for row in rows.tolist()]


@pytest.mark.parametrize("bare_first", [False, True])
def test_a_field_that_only_one_of_two_blocks_has_stays_at_its_rows(bare_first: bool):
    blocks = [[((), {"price": row % 7}) for row in range(100)], [NOTHING] * 100]
    documents = [*blocks[bare_first], *blocks[not bare_first]]
    wanted = parse({"price": {"$gt": 3}})
    expected = [wanted.matches(*document) for document in documents]
    assert answers(table_of(documents, [100, 100]).snapshot(), wanted, 200) == expected


@pytest.mark.rest
def test_any_choice_of_repeated_values_is_found():
    documents = [((), {"a": i * 3 % 7}) for i in range(200)]
    view = table_of(documents).snapshot()
    for choice in range(1, 2**7):
        wanted = parse({"a": {"$in": [value for value in range(7) if choice >> value & 1]}})
        assert view.evaluate(wanted).tolist() == [wanted.matches(*document) for document in documents]


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.uint32, np.float32, np.float64])
def test_an_order_is_found_in_ascending_numbers_without_comparing_all(dtype) -> None:
    """By a search among the different numbers of a column, with the answer that comparing each gives."""
    numbers = [0, 1, 3, 200] if np.dtype(dtype).kind == "u" else [-7, 0, 1, 100]
    if np.dtype(dtype).kind == "f":
        numbers = [*numbers, 100.5]
    ascending = np.array(numbers, dtype=dtype)
    bounds = [
        0,
        -0.0,
        0.5,
        1,
        1.5,
        100,
        100.49999999999999,
        255,
        256,
        -1,
        -7,
        -8,
        -1e300,
        1e300,
        2**40,
        2**70,
    ]
    for bound in bounds:
        for symbol in ORDERS:
            test = columns.OrderTest(*attribute_snapshot._float_order(symbol, bound))
            low, high = test.span(ascending)
            expected = [place for place, number in enumerate(numbers) if ORDERS[symbol](number, bound)]
            assert list(range(low, high)) == expected
            assert np.flatnonzero(test(ascending)).tolist() == expected
    assert test.span(ascending[:0]) == (0, 0)


@pytest.mark.rest
def test_an_order_of_repeated_numbers_compares_codes_alone(monkeypatch) -> None:
    table = AttributeTable()
    prices = np.random.default_rng(1).integers(0, 500, 5_000).tolist()
    table.append(np.arange(5_000), [((), {"price": price}) for price in prices])
    view = table.snapshot()
    monkeypatch.setattr(columns.OrderTest, "__call__", None)
    for symbol, order in ORDERS.items():
        found = view.evaluate(parse({"price": {symbol: 250}}))
        assert found.tolist() == [order(price, 250) for price in prices]


@pytest.mark.rest
def test_large_columns_stay_right_when_two_thirds_are_replaced_and_the_table_compacts():
    documents = documents_of(1_500, seed=2)
    newer = documents_of(1_500, seed=3)
    table = table_of(documents, [500] * 3)
    before = table.snapshot()
    table.append(np.arange(1_500), newer)
    table.append(np.arange(0, 1_500, 3), newer[::3])
    after = table.snapshot()
    assert after.generation > before.generation
    assert after.entries == 1_500
    for document in WANTED:
        wanted = parse(document)
        assert answers(before, wanted, 1_500) == [wanted.matches(*document) for document in documents]
        assert answers(after, wanted, 1_500) == [wanted.matches(*document) for document in newer]
    assert [set(values) for values in before.values_of("title", np.arange(1_500))] == [
        labelled(document, "title") for document in documents
    ]


@pytest.mark.rest
@pytest.mark.parametrize("left", [1, 40, 90])
def test_large_columns_stay_right_when_few_entries_are_left(left):
    documents = documents_of(500, seed=4)
    table = table_of(documents)
    kept = random.Random(left).sample(range(500), left)
    position = np.full(500, -1)
    position[kept] = np.arange(left)
    table.moved(position)
    view = table.snapshot()
    assert (view.generation, view.entries) == (1, left)
    for document in WANTED:
        wanted = parse(document)
        assert answers(view, wanted, left) == [wanted.matches(*documents[row]) for row in kept]
    for field in ("sizes", "mixed", "serial", "title", "rare", "tags", "maker.name"):
        found = view.values_of(field, np.arange(left))
        assert [set(values) for values in found] == [labelled(documents[row], field) for row in kept]


class Machine(RuleBasedStateMachine):
    """Appends, replacements and moves, beside a dict of documents; earlier views are kept and asked again."""

    @initialize()
    def start(self):
        self.table = AttributeTable()
        self.documents: dict[int, Any] = {}
        self.kept: list[tuple[AttributeSnapshot, dict[int, Any], list[int]]] = []

    @rule(documents=st.lists(st.tuples(st.integers(0, 15), DOCUMENTS), max_size=6))
    def append(self, documents):
        generation, entries = self.table.snapshot().generation, self.table.snapshot().entries
        self.table.append(
            np.array([row for row, _ in documents], dtype=np.int64), [one for _, one in documents]
        )
        self.documents.update(documents)
        if self.table.snapshot().generation == generation:
            assert self.table.snapshot().rows[entries:].tolist() == [row for row, _ in documents]

    @rule(seed=st.integers(0, 2**32 - 1), share=st.sampled_from([0.0, 0.3, 0.8, 1.0]))
    def move(self, seed, share):
        rng = random.Random(seed)
        places = rng.sample(range(16), 16)
        position = np.array([-1 if rng.random() < share else place for place in places])
        self.table.moved(position)
        self.documents = {
            int(position[row]): document for row, document in self.documents.items() if position[row] >= 0
        }

    @rule()
    def keep(self):
        view = self.table.snapshot()
        self.kept = [*self.kept[-2:], (view, dict(self.documents), view.rows.tolist())]

    @rule(document=FILTERS)
    def ask(self, document):
        wanted = parse(document)
        current = (self.table.snapshot(), self.documents, self.table.snapshot().rows.tolist())
        for view, documents, _ in [*self.kept, current]:
            expected = [wanted.matches(*documents.get(row, NOTHING)) for row in range(16)]
            assert answers(view, wanted, 16) == expected

    @rule(field=FIELDS)
    def values(self, field):
        for view, documents, rows in [*self.kept, (self.table.snapshot(), self.documents, None)]:
            found = view.values_of(field, np.arange(16))
            expected = [labelled(documents.get(row, NOTHING), field) for row in range(16)]
            assert [set(values) for values in found] == expected
            assert rows is None or view.rows.tolist() == rows

    @invariant()
    def at_most_half_is_waste(self):
        if hasattr(self, "table"):
            assert self.table.snapshot().entries <= 2 * len(self.documents)


TestMachine = Machine.TestCase
TestMachine.settings = settings(max_examples=60, stateful_step_count=25)


@pytest.mark.rest
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


@pytest.mark.rest
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


@pytest.mark.rest
def test_the_rows_of_a_view_cannot_be_changed():
    with pytest.raises(ValueError, match="read-only"):
        table_of([NOTHING]).snapshot().rows[0] = 3


@pytest.mark.rest
def test_rows_and_documents_that_do_not_fit_are_refused():
    table = table_of([NOTHING, NOTHING])
    with pytest.raises(InvalidShape):
        table.append(np.array([1]), [])
    with pytest.raises(InvalidShape):
        table.moved(np.array([0]))
    assert table.snapshot().rows.tolist() == [0, 1]


@pytest.mark.rest
def test_blocks_are_few_however_entries_come():
    one_by_one = table_of([((), {"a": i % 7}) for i in range(2_000)], [1] * 2_000)
    assert len(one_by_one.snapshot().blocks) <= 12
    falling = table_of([((), {"a": 1})] * 5_050, list(range(100, 0, -1)))
    assert len(falling.snapshot().blocks) <= 14


@pytest.mark.rest
def test_only_blocks_with_new_entries_are_read():
    view = table_of([((), {"a": i}) for i in range(950)], [600, 250, 80]).snapshot()
    wanted = parse({"a": {"$gte": 0}, "b": {"$exists": False}})
    sizes = [block.size for block in view.blocks]
    assert sizes == [600, 250, 80, 20]
    assert view.work(wanted, 949) < view.work(wanted) / 5
    assert view.work(wanted, 950) == view.work(wanted, 10**6) < 500


@pytest.mark.rest
def test_work_tells_orders_of_strings_from_cheap_conditions():
    view = table_of([((), {"title": f"t{i}", "price": i / 7}) for i in range(2_000)]).snapshot()
    cheap = view.work(parse({"price": {"$lt": 3}}))
    assert 2_000 <= cheap < 10_000
    assert view.work(parse({"title": {"$lt": "t3"}})) > 10 * cheap
    assert view.work(parse({"title": {"$in": [f"t{i}" for i in range(1_000)]}})) > 2_000 + 1_000


def shop(count: int, seed: int) -> list[Any]:
    rng = np.random.default_rng(seed)
    columns = (rng.random(count) < 0.7, rng.integers(8, size=count), rng.integers(5_000, size=count))
    prices, genres = rng.random(count) * 100, rng.integers(20, size=count)
    return [
        (
            (),
            {
                "stock": stock,
                "language": f"language-{language}",
                "maker": f"maker-{maker}",
                "price": price,
                "genre": f"genre-{genre}",
            },
        )
        for stock, language, maker, price, genre in zip(
            *(column.tolist() for column in (*columns, prices, genres)), strict=True
        )
    ]


@pytest.mark.slow
def test_an_arm_of_five_fields_costs_less_than_40_bytes():
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        table = AttributeTable()
        for first in range(0, 100_000, 1_000):
            table.append(np.arange(first, first + 1_000), shop(1_000, seed=first))
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert taken < 40 * 100_000
    assert taken / 1.25 < table.memory_bytes < taken * 1.25


@pytest.mark.rest
@pytest.mark.parametrize("keys_each", [5, 200])
def test_keys_of_their_own_cost_memory_in_proportion(keys_each):
    tracemalloc.start()
    try:
        count = 20_000 // keys_each
        before = tracemalloc.get_traced_memory()[0]
        table = AttributeTable()
        for first in range(0, count, 100):
            part = range(first, min(first + 100, count))
            table.append(
                np.array(part), [((), {f"key-{row}-{i}": i for i in range(keys_each)}) for row in part]
            )
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    # The name of a field is a string, a number and two places where they stand; its value costs 14 bytes.
    assert taken < 300 * 20_000
    assert taken / 1.4 < table.memory_bytes < taken * 1.4


@pytest.mark.rest
def test_long_lists_cost_a_few_bytes_for_each_member():
    table = AttributeTable()
    for row in range(100):
        table.append(np.array([row]), [((), {"a": list(range(row, row + 1_000))})])
    assert table.memory_bytes < 10 * 100_000
    assert table.snapshot().evaluate(parse({"a": 1_050})).sum() == 49


@pytest.mark.rest
def test_strings_and_fields_that_nobody_uses_are_freed():
    table = AttributeTable()
    for turn in range(6):
        table.append(np.arange(500), [((), {f"field-{turn}": f"string {turn} {row}"}) for row in range(500)])
        names = table.snapshot().names
        assert len(names.values) <= 1_000
        assert len(names.fields) <= 2


@pytest.mark.parametrize("meanwhile", ["nothing", "appended", "moved", "not run"])
def test_a_compaction_beside_what_goes_on_changes_no_answer(meanwhile: str):
    documents = documents_of(300, seed=5)
    table = table_of(documents, [100] * 3, small_values=0)
    for seed in (6, 7):
        documents = documents_of(300, seed=seed)
        table.append(np.arange(300), documents)
    before = table.snapshot()
    assert table.is_wasteful
    work = table.begin_compaction()
    if meanwhile != "not run":
        work.run()
    if meanwhile == "appended":
        newer = documents_of(150, seed=8)
        table.append(np.arange(200, 350), newer)
        documents = [*documents[:200], *newer]
    if meanwhile == "moved":
        table.moved(np.arange(300)[::-1])
        documents = documents[::-1]
    table.finish_compaction(work)
    after = table.snapshot()
    if meanwhile == "appended":
        assert set(range(200, 350)) <= set(after.given_since(before.stamp).tolist())
    is_taken_over = meanwhile in {"nothing", "appended"}
    assert (after.generation > before.generation) == is_taken_over
    assert table.is_wasteful != is_taken_over
    for document in WANTED:
        wanted = parse(document)
        expected = [wanted.matches(*document) for document in documents]
        assert answers(after, wanted, len(documents)) == expected
    assert [set(values) for values in after.values_of("title", np.arange(len(documents)))] == [
        labelled(document, "title") for document in documents
    ]
