"""Searches among the arms that a filter matches, against brute force, while arms and documents change."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from app.filtering.filter_plan import FilterPlan, PlanOptions, plan_filter
from app.filtering.filtered_snapshot import FilteredSnapshot, SearchStrategy
from app.filtering.index_search import IndexSearch
from app.filtering.row_copy import RowCopy
from app.filters.filter import Filter, parse
from app.indexes.eligible_rows import EligibleRows, eligible_rows
from app.indexes.filtered_search import gather, mask
from app.indexes.live import IndexOptions, LiveIndex, Maintenance
from app.indexes.snapshot import Snapshot
from oracle import best_rows
from shortlist.types import NO_ROWS, Rows, TopK, Vector
from tests.indexes.brute_force import limit

DIM = 3
FILTERS = [
    parse(document)
    for document in (
        {"stock": True},
        {"stock": {"$ne": True}},
        {"price": {"$lte": 2}},
        {"$or": [{"price": 3}, {"stock": {"$exists": False}}]},
    )
]
DOCUMENTS = [
    ([], {}),
    ([], {"stock": True, "price": 1}),
    ([], {"stock": True, "price": 3}),
    ([], {"stock": False, "price": 2}),
]


def searched(strategy: SearchStrategy | None, snapshot: Snapshot, eligible: EligibleRows) -> FilteredSnapshot:
    recent: deque[Vector] = deque(maxlen=4)
    return FilteredSnapshot(
        snapshot.table, None, 1.0, recent, snapshot.attributes, snapshot, eligible, strategy
    )


def brute(snapshot: Snapshot, rows: Rows, query: Vector, k: int) -> list[int]:
    return best_rows(snapshot.table.features, rows, query, k)


def numbered(count: int, *, without_fields: int = 0, dead: Sequence[int] = ()) -> Snapshot:
    """Arms "0" to count - 1 with the field ``lot``, their number, but for the last ones; some are dead."""
    index = LiveIndex(DIM)
    ids = [str(number) for number in range(count)]
    index.upsert(ids, np.random.default_rng(0).normal(size=(count, DIM)), range(count))
    described = count - without_fields
    index.describe(ids[:described], [((), {"lot": number}) for number in range(described)])
    index.remove([ids[number] for number in dead])
    return index.snapshot()


@pytest.mark.parametrize("count", [1, 7, 8, 65, 1_003])
@pytest.mark.parametrize("without_fields", [0, 1])
def test_few_rows_and_many_are_found_alike_whatever_was_evaluated_before(count, without_fields):
    """Filters are evaluated over one another: nothing of an earlier, larger one may be left."""
    everything = parse({"lot": {"$gte": 0}})
    larger = numbered(2_000)
    dead = [count // 2]
    snapshot = numbered(count, without_fields=without_fields, dead=dead)
    for bound in sorted({0, 1, 2, count // 100, count // 8, count // 7, count // 2, count}):
        for negated in (False, True):
            eligible_rows(everything, larger.table, larger.attributes)
            wanted = parse({"$not": {"lot": {"$lt": bound}}} if negated else {"lot": {"$lt": bound}})
            found = eligible_rows(wanted, snapshot.table, snapshot.attributes)
            lots = range(count - without_fields)
            expected = [row for row in range(count) if (row in lots and row < bound) != negated]
            expected = [row for row in expected if row not in dead]
            assert found.rows.tolist() == np.flatnonzero(found.mask).tolist() == expected
            assert (found.count, len(found.mask)) == (len(expected), count)


def test_what_was_found_stays_true_while_other_filters_are_evaluated():
    snapshot = numbered(200)
    filters = [parse({"lot": {"$lt": bound}}) for bound in (1, 20, 25, 100, 200)]
    found = [eligible_rows(wanted, snapshot.table, snapshot.attributes) for wanted in filters]
    assert [each.rows.tolist() for each in found] == [list(range(bound)) for bound in (1, 20, 25, 100, 200)]
    assert [int(each.mask.sum()) for each in found] == [1, 20, 25, 100, 200]


def begun_compaction(index: LiveIndex) -> Maintenance | None:
    """As when many arms have died."""
    limits = index.limits
    limit(index, least_dead=0, dead_share=0.0)
    job = index.begin_maintenance()
    index.limits = limits
    return job


class Shop(RuleBasedStateMachine):
    """Arms and documents come, change and go; what filters match is searched by every strategy."""

    def __init__(self) -> None:
        super().__init__()
        self.index = LiveIndex(DIM, IndexOptions(kind="hnsw"), threads=1)
        self.model: dict[str, tuple[list[float], int]] = {}
        self.rng = np.random.default_rng(0)
        self.revision = 0
        self.followed: dict[Filter, EligibleRows] = {}
        self.copies: list[tuple[Filter, RowCopy]] = []

    @initialize(seed=st.integers(0, 2**31))
    def begin(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    @rule(ids=st.lists(st.integers(0, 40), min_size=1, max_size=12, unique=True), kind=st.integers(0, 3))
    def put(self, ids: list[int], kind: int) -> None:
        names = [f"a{number}" for number in ids]
        features = self.rng.normal(size=(len(ids), DIM))
        revisions = [self.revision + place + 1 for place in range(len(ids))]
        self.revision += len(ids)
        self.index.upsert(names, features, revisions)
        self.index.describe(names, [DOCUMENTS[kind]] * len(ids))
        self.model |= {name: (row.tolist(), kind) for name, row in zip(names, features, strict=True)}

    @rule(ids=st.lists(st.integers(0, 40), min_size=1, max_size=12, unique=True), kind=st.integers(0, 3))
    def describe(self, ids: list[int], kind: int) -> None:
        names = [f"a{number}" for number in ids]
        self.index.describe(names, [DOCUMENTS[kind]] * len(ids))  # unknown ids are ignored
        for name in names:
            if name in self.model:
                self.model[name] = (self.model[name][0], kind)

    @rule(ids=st.lists(st.integers(0, 40), min_size=1, max_size=12, unique=True))
    def remove(self, ids: list[int]) -> None:
        names = [f"a{number}" for number in ids]
        self.index.remove(names)
        for name in names:
            self.model.pop(name, None)

    @rule()
    def maintain(self) -> None:
        job = self.index.begin_maintenance()
        if job is not None:
            job.run()
            self.index.finish(job)

    @rule()
    def compact(self) -> None:
        """As maintenance does when many arms have died; arms come and go while it runs."""
        self.index.rest_until = 0.0
        view = self.index.snapshot().table
        if not len(view.dead):
            return
        job = begun_compaction(self.index)
        assert job is not None
        job.run()
        self.put([0, 1, 2], 1)
        self.remove([1, 3])
        self.index.finish(job)
        assert self.index.snapshot().table.number != view.number

    @rule(wanted=st.sampled_from(FILTERS))
    def build(self, wanted: Filter) -> None:
        snapshot = self.index.snapshot()
        eligible = eligible_rows(wanted, snapshot.table, snapshot.attributes)
        self.copies.append((wanted, RowCopy.of(snapshot.table, eligible)))

    @invariant()
    def every_way_finds_what_brute_force_finds(self) -> None:
        snapshot = self.index.snapshot()
        query = self.rng.normal(size=DIM)
        for wanted in FILTERS:
            names = [n for n, (_, kind) in self.model.items() if wanted.matches(*DOCUMENTS[kind])]
            expected = np.sort(snapshot.rows_of(names))
            assert len(expected) == len(names)
            anew = eligible_rows(wanted, snapshot.table, snapshot.attributes)
            before = self.followed.get(wanted)
            followed = eligible_rows(wanted, snapshot.table, snapshot.attributes, before)
            self.followed[wanted] = followed
            if before is not None and before.table_number == followed.table_number:
                self._changed_as_said(before, followed)
            for found in (anew, followed):
                assert found.rows.tolist() == expected.tolist()
                assert found.count == len(expected)
            self._search(wanted, snapshot, followed, query)

    def _changed_as_said(self, before: EligibleRows, now: EligibleRows) -> None:
        change, were = now.since(before), set(before.rows.tolist())
        assert sorted(change.came.tolist()) == sorted(set(now.rows.tolist()) - were)
        assert sorted(change.went.tolist()) == sorted(were - set(now.rows.tolist()))

    def _search(self, wanted: Filter, snapshot: Snapshot, eligible: EligibleRows, query: Vector) -> None:
        rows, k = eligible.rows, 3
        exclude = rows[::4]
        left = rows[~np.isin(rows, exclude)]
        own: list[SearchStrategy | None] = [None]
        for place, (of, copy) in enumerate(self.copies):
            if of is wanted:
                followed = copy.followed(snapshot.table, eligible)
                assert followed is not None
                self.copies[place] = of, followed
                own.append(followed)
        if snapshot.proposing is not None:
            own.append(IndexSearch(eligible, snapshot.proposing, 1_000, most_asked=1e9))
        for strategy in own:
            view = searched(strategy, snapshot, eligible)
            if isinstance(strategy, IndexSearch):  # short arms are not in it
                found = view.search(query, k, exclude)
                assert set(found.rows.tolist()) <= set(left.tolist())
                assert len(found.rows) == min(k, len(left))
                assert not found.exact or found.rows.tolist() == brute(snapshot, left, query, k)
                continue
            assert view.search(query, k).rows.tolist() == brute(snapshot, rows, query, k)
            assert view.search(query, k, exclude).rows.tolist() == brute(snapshot, left, query, k)
            assert view.search_exact(query, 50).rows.tolist() == brute(snapshot, rows, query, 50)
            assert sorted(view.eligible(exclude).tolist()) == left.tolist()
        for exact in (
            gather(snapshot.table, rows, query, k),
            mask(snapshot.table, eligible, query, k, NO_ROWS),
        ):
            assert exact.rows.tolist() == brute(snapshot, rows, query, k)


TestShop = Shop.TestCase
TestShop.settings = settings(max_examples=12, stateful_step_count=20)


def shop(arms: int, dim: int = 8) -> tuple[LiveIndex, Snapshot]:
    index = LiveIndex(dim, IndexOptions(kind="hnsw"), threads=1, seed=5)
    ids = [f"a{number}" for number in range(arms)]
    features = np.random.default_rng(3).normal(size=(arms, dim))
    index.upsert(ids, features, range(arms))
    index.describe(ids, [([], {"share": number / arms, "even": number % 2 == 0}) for number in range(arms)])
    while (job := index.begin_maintenance()) is not None:
        job.run()
        index.finish(job)
    return index, index.snapshot()


def planned(snapshot: Snapshot, wanted: Filter) -> tuple[EligibleRows, FilterPlan]:
    eligible = eligible_rows(wanted, snapshot.table, snapshot.attributes)
    rng = np.random.default_rng(2)
    return eligible, plan_filter(snapshot, eligible, PlanOptions(1 << 30, 0.95), recent=[], rng=rng)


@pytest.mark.parametrize("share", [0.0, 0.001, 0.05, 0.6])
def test_whatever_is_planned_finds_the_best(share: float):
    _, snapshot = shop(4_000)
    wanted = parse({"share": {"$lt": share}})
    eligible, plan = planned(snapshot, wanted)
    view = searched(plan.copy, snapshot, eligible)
    queries = np.random.default_rng(1).normal(size=(50, 8))
    for query in queries:
        assert view.search(query, 2).rows.tolist() == brute(snapshot, eligible.rows, query, 2)


def test_an_answer_of_the_index_is_not_called_exact():
    _, snapshot = shop(2_000)
    eligible = eligible_rows(parse({"even": True}), snapshot.table, snapshot.attributes)
    assert snapshot.proposing is not None
    view = searched(IndexSearch(eligible, snapshot.proposing, 20), snapshot, eligible)
    found: TopK = view.search(np.ones(8), 1)
    assert not found.exact
    assert view.search_exact(np.ones(8), 1, NO_ROWS).exact
