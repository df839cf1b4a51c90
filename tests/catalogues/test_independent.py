"""Independent graphs over a catalogue that changes: what they answer, and when they are to be built again."""

from __future__ import annotations

import numpy as np
import pytest

from app.catalogues.adaptive_solver import COPIES, IndependentGraphs
from app.indexes.live import IndexOptions, LiveIndex

pytestmark = pytest.mark.rest

DIM, ARMS = 6, 600


def made():
    rng = np.random.default_rng(7)
    index = LiveIndex(DIM, IndexOptions(kind="hnsw"), seed=1)
    index.upsert([f"a{i}" for i in range(ARMS)], rng.standard_normal((ARMS, DIM)), range(ARMS))
    graphs = IndependentGraphs.build(index.snapshot().table, IndexOptions(), check=lambda: None, seed=5)
    return index, graphs, rng


def test_each_graph_was_made_in_an_order_of_its_own():
    _, graphs, _ = made()
    orders = [graph.rows.tolist() for graph in graphs.graphs]
    assert len({tuple(order) for order in orders}) == COPIES
    assert all(sorted(order) == list(range(ARMS)) for order in orders)
    assert graphs.memory_bytes == sum(graph.memory_bytes for graph in graphs.graphs)


def test_arms_that_came_are_found_and_those_that_went_are_not():
    index, graphs, rng = made()
    queries = rng.standard_normal((20, DIM))
    for _ in range(3):
        best = {f"a{int(row)}" for row in (index.snapshot().search_exact(q, 1).rows[0] for q in queries)}
        index.remove(sorted(best))
        came = range(len(index.snapshot().table.ids), len(index.snapshot().table.ids) + 10)
        index.upsert([f"a{i}" for i in came], 2 * rng.standard_normal((10, DIM)), came)
        snapshot = index.snapshot()
        assert graphs.follows(snapshot.table)
        for query in queries:
            wanted = snapshot.search_exact(query, 1)
            found = [snapshot.searched_by(graph).search(query, 1) for graph in graphs.graphs]
            assert max(one.scores[0] for one in found) >= 0.999 * wanted.scores[0]
            for one in found:
                assert snapshot.table.is_alive(one.rows).all()
                assert one.scores[0] == snapshot.features_of(one.rows)[0] @ query or np.isclose(
                    one.scores[0], snapshot.features_of(one.rows)[0] @ query, rtol=1e-12
                )


def test_they_are_stale_after_a_fifth_and_worth_nothing_after_a_compaction():
    index, graphs, rng = made()
    assert not graphs.is_stale(index.snapshot().table)
    index.remove([f"a{i}" for i in range(ARMS // 5)])
    assert not graphs.is_stale(index.snapshot().table)
    index.upsert(["new"], rng.standard_normal((1, DIM)), [ARMS])
    view = index.snapshot().table
    assert graphs.follows(view)
    assert graphs.is_stale(view)
    other, _, _ = made()
    assert not graphs.follows(other.snapshot().table)
    assert graphs.is_stale(other.snapshot().table)
