"""What an index of the catalogue is asked for a filter, on small tables with the answers written down."""

from __future__ import annotations

import numpy as np
import pytest

from app.filtering import index_search
from app.filtering.index_search import IndexSearch
from app.filters.filter import parse
from app.indexes.eligible_rows import EligibleRows, eligible_rows
from app.indexes.live import LiveIndex
from app.indexes.snapshot import Snapshot
from oracle import best_rows
from shortlist.types import NO_ROWS
from told_index import ToldIndex

DIM, COUNT = 3, 40
QUERIES = np.array([[1.0, 0.0, 0.0], [-0.3, 2.0, 0.7], [0.2, 0.1, -9.0]])


def numbered() -> Snapshot:
    index = LiveIndex(DIM)
    ids = [str(number) for number in range(COUNT)]
    index.upsert(ids, np.random.default_rng(0).normal(size=(COUNT, DIM)), range(COUNT))
    index.describe(ids, [((), {"number": number}) for number in range(COUNT)])
    return index.snapshot()


def matching(snapshot: Snapshot, first: int) -> EligibleRows:
    return eligible_rows(parse({"number": {"$gte": first}}), snapshot.table, snapshot.attributes)


def best_of(snapshot: Snapshot, rows, query, k: int) -> list[int]:
    return best_rows(snapshot.table.features, rows, query, k)


def test_the_index_is_asked_for_so_many_arms_and_those_let_in_are_kept():
    snapshot, query = numbered(), QUERIES[1]
    told = ToldIndex(np.arange(COUNT)[::-1])
    search = IndexSearch(matching(snapshot, 30), told, 6, most_asked=0.5)
    found = search.search(snapshot, query, 2)
    assert found.rows.tolist() == best_of(snapshot, range(30, 40), query, 2)
    assert not found.exact
    assert told.asked == [12]
    found = search.search(snapshot, query, 1, np.array([39, 38]))
    assert found.rows.tolist() == best_of(snapshot, range(32, 38), query, 1)
    assert told.asked == [12, 8], "as many more as are excluded"
    assert search.staleness == 0.0


def test_a_search_that_asks_for_too_many_is_left_to_an_exact_one():
    snapshot, told = numbered(), ToldIndex(np.arange(COUNT)[::-1])
    eligible = matching(snapshot, 30)
    assert IndexSearch(eligible, told, 6, most_asked=0.5).search(snapshot, QUERIES[1], 4) is None
    assert IndexSearch(eligible, told, 20, most_asked=0.5).search(snapshot, QUERIES[1], 1) is not None
    assert told.asked == [20]


@pytest.mark.parametrize("rows", [None, [1, 2, 3], [1, 2, 30]])
def test_an_index_that_finds_too_few_leaves_the_search_to_an_exact_one(rows):
    snapshot = numbered()
    told = ToldIndex(np.arange(COUNT), finds=lambda _: rows)
    search = IndexSearch(matching(snapshot, 30), told, 6, most_asked=9.0)
    assert search.search(snapshot, QUERIES[1], 2) is None


@pytest.mark.parametrize(("fresh", "gathered"), [(3, True), (4, False)])
def test_fresh_rows_are_looked_through(fresh: int, gathered: bool, monkeypatch):
    """28 rows came after the index. Three that are let in are gathered; four cost as much as all."""
    seen = []
    original = index_search.contenders

    def noted(table, rows, query, k):
        seen.append(rows.tolist())
        return original(table, rows, query, k)

    monkeypatch.setattr(index_search, "contenders", noted)
    snapshot, own = numbered(), list(range(40 - fresh, 40))
    search = IndexSearch(matching(snapshot, 40 - fresh), ToldIndex(np.arange(12), 12), 3, most_asked=9.0)
    assert search.staleness == pytest.approx(min(7 * fresh, 28) / fresh)
    for query in QUERIES:
        for k, exclude in ((1, NO_ROWS), (2, NO_ROWS), (1, np.array([39, 38]))):
            left = [row for row in own if row not in exclude]
            assert search.search(snapshot, query, k, exclude).rows.tolist() == best_of(
                snapshot, left, query, k
            )
    assert seen == ([own] * 9 if gathered else [])
