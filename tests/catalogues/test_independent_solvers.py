"""The independent graphs of a catalogue are asked only about the table that they were built over."""

from __future__ import annotations

from typing import Any

import numpy as np

from app.catalogues.adaptive_solver import COPIES, IndependentSolvers
from app.catalogues.catalogue import Catalogue
from app.catalogues.catalogue_kinds import options_of
from app.indexes.live import LiveIndex
from app.records.records import CatalogueRecord

ARMS, DIM = 100, 4
INDEX: dict[str, Any] = {"kind": "hnsw", "m": 8, "ef_construction": 40, "ef_search": None, "shortlist": 30}
RECORD = CatalogueRecord(DIM, INDEX)


def searched_by_a_graph() -> LiveIndex:
    index = LiveIndex(DIM, options_of(RECORD), seed=1)
    features = np.random.default_rng(3).standard_normal((ARMS, DIM))
    index.upsert([f"a{i}" for i in range(ARMS)], features, range(ARMS))
    job = index.begin_maintenance()
    assert job is not None
    job.run()
    index.finish(job)
    assert index.snapshot().proposes
    return index


def test_graphs_of_another_table_are_not_asked():
    """A compaction makes another table, in which their rows are those of other arms."""
    before, after = searched_by_a_graph(), searched_by_a_graph().snapshot()
    catalogue = Catalogue("c", "1", RECORD, before)
    solvers = IndependentSolvers(capacity_bytes=1 << 30)
    try:
        assert len(solvers.of(catalogue, before.snapshot())) == 1
        # private: waits for the thread that builds graphs
        solvers._pool.submit(lambda: None).result()  # when the graphs are built
        assert len(solvers.of(catalogue, before.snapshot())) == 1 + COPIES
        assert solvers.of(catalogue, after) == [after]
    finally:
        solvers.close()
