"""What every index structure does, whichever it is, compared with a scan of all arms."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from app.indexes.live import LiveIndex
from shortlist.index.index import OWN_KINDS, Index, ProposingIndex
from shortlist.index.table import TableSnapshot

Build = Callable[[TableSnapshot], Index]
ARMS, DIM, QUERIES, K = 1_000, 8, 40, 5
FEATURES = np.random.default_rng(1).standard_normal((ARMS, DIM))
ASKED = np.random.default_rng(2).standard_normal((QUERIES, DIM))
EXCLUDED = np.arange(0, ARMS, 7)
GONE = np.arange(0, ARMS, 10)


def filled(rows: np.ndarray) -> LiveIndex:
    """The arms of these rows, in their order."""
    index = LiveIndex(DIM)
    index.upsert([f"a{row}" for row in rows.tolist()], FEATURES[rows], rows.tolist())
    return index


class IndexContract:
    """Give it a fixture ``build``: a function from a `TableSnapshot` to a structure over its living rows.

    ``recall``: of the best arms of random queries at least this share is found.
    """

    recall = 0.95

    def check(self, index: Index, table: TableSnapshot, eligible: np.ndarray, excluded: np.ndarray) -> None:
        """Answers have the best of the eligible rows, with exact scores, the best first."""
        found = 0
        for query in ASKED:
            hits = index.search(table, query, K, excluded)
            if hits is None:  # a scan is to answer
                assert not index.is_exact
                found += K
                continue
            scores = table.features[hits.rows] @ query
            best = eligible[np.argsort(-(table.features[eligible] @ query), kind="stable")[:K]]
            assert hits.scores == pytest.approx(scores, rel=1e-6)
            assert (np.diff(hits.scores) <= 0).all()
            assert len(set(hits.rows.tolist())) == K
            assert set(hits.rows.tolist()) <= set(eligible.tolist())
            found += len(set(hits.rows.tolist()) & set(best.tolist()))
        assert found >= QUERIES * K * (1.0 if index.is_exact else self.recall)

    def test_the_best_arms_are_found_but_for_those_that_are_excluded(self, build: Build) -> None:
        table = filled(np.arange(ARMS)).snapshot().table
        index = build(table)
        assert index.covered == ARMS
        self.check(index, table, np.arange(ARMS), np.empty(0, np.int64))
        self.check(index, table, np.setdiff1d(np.arange(ARMS), EXCLUDED), EXCLUDED)

    def test_arms_that_died_are_not_found(self, build: Build) -> None:
        live = filled(np.arange(ARMS))
        index = build(live.snapshot().table)
        live.remove([f"a{row}" for row in GONE.tolist()])
        index.tombstone(GONE)
        index.tombstone(GONE[:3])  # they died before: nothing happens
        table = live.snapshot().table
        self.check(index, table, np.setdiff1d(np.arange(ARMS), GONE), np.empty(0, np.int64))

    def test_it_is_the_same_after_its_rows_were_renumbered(self, build: Build) -> None:
        index, living = build(filled(np.arange(ARMS)).snapshot().table), np.setdiff1d(np.arange(ARMS), GONE)
        index.tombstone(GONE)
        position = np.full(ARMS, -1)
        position[living] = np.arange(len(living))
        moved, table = index.moved(position, len(living)), filled(living).snapshot().table
        assert (moved.covered, moved.kind) == (len(living), index.kind)
        self.check(moved, table, np.arange(len(living)), np.empty(0, np.int64))

    def test_one_that_proposes_finds_what_a_filter_lets_in(self, build: Build) -> None:
        table = filled(np.arange(ARMS)).snapshot().table
        index, let_in = build(table), np.arange(ARMS) % 2 == 0
        if not isinstance(index, ProposingIndex):
            return
        for query in ASKED:
            rows = index.search_among(query, 200, let_in)
            if rows is not None:
                assert let_in[rows].all()
                best = np.flatnonzero(let_in)[np.argmax(table.features[let_in] @ query)]
                assert best in rows

    def test_it_says_what_it_is_and_takes(self, build: Build) -> None:
        index = build(filled(np.arange(ARMS)).snapshot().table)
        assert isinstance(index.kind, str)
        assert index.kind in OWN_KINDS or not index.kind.startswith("exact")
        assert sorted(index.rows[index.rows >= 0].tolist()) == list(range(ARMS))
        assert index.arms == ARMS
        assert index.memory_bytes > 0
        assert index.number != build(filled(np.arange(ARMS)).snapshot().table).number
