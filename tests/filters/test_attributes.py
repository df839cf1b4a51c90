"""Compressed attributes answer as the definition of a filter does, whatever happened to them before."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from documents import BIG, DOCUMENTS, FIELDS, FILTERS
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from app.filters.attribute_snapshot import AttributeSnapshot
from app.filters.attributes import AttributeTable
from app.filters.fields import fields_of, kind_of
from app.filters.filter import Filter, parse

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
    filters, answers_of = [parse(document) for document in WANTED], list[list[bool]]()
    for document, wanted in zip(WANTED, filters, strict=True):
        expected = [wanted.matches(*document) for document in documents]
        answers_of.append([*expected, wanted.matches(*NOTHING)])
        assert view.evaluate(wanted).tolist() == expected, document
        for first in (1, 63, 1_500, 1_999, 2_000):
            assert view.evaluate(wanted, first).tolist() == expected[first:], document
    # also of more rows than a block has, and of a row without fields
    rows = np.tile(np.arange(2_001)[::-1], 1 if batches else 34)
    for expected, matches in zip(answers_of, view.matches(filters, rows), strict=True):
        assert matches.reshape(-1, 2_001).tolist() == [expected[::-1]] * (len(rows) // 2_001)
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
            assert next(view.matches([wanted], np.arange(16))).tolist() == expected

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
