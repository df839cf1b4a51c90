"""The library's `LinearBandit` and the service search arms by one code, and so find the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from shortlist.index import arm_index, graph_file
from shortlist.index.planner import IndexOptions
from shortlist.index.table import table_of
from shortlist.linear import sub_ts
from shortlist.linear.bandit import LinearBandit
from tests.indexes.brute_force import filled, maintain

pytestmark = pytest.mark.rest

ARMS = np.random.default_rng(3).standard_normal((3_000, 8))


@pytest.mark.parametrize("kind", ["exact", "hnsw"])
def test_a_bandit_of_the_library_chooses_what_the_service_would(kind: str) -> None:
    """One graph of one seed. Of lists as many arms are proposed as the times of the machine allow."""
    options = IndexOptions(kind, ef_search=48)
    catalogue = filled(ARMS, options, seed=5, threads=1)
    maintain(catalogue)
    snapshot, index = catalogue.snapshot(), arm_index.build(ARMS, options, seed=5)
    assert snapshot.kind == index.kind == kind
    bandit = LinearBandit(ARMS, index=index, exploration=0.5, intercept=False, rng=np.random.default_rng(1))
    bandit.partial_fit(np.arange(50), ARMS[:50, 0])
    rng = np.random.default_rng(1)
    for exclude in [(), (7,), (7, 100)] * 20:
        rows = np.array(exclude, dtype=np.int64)
        of_service = sub_ts.choose(bandit.posterior, snapshot, k=1, exploration=0.5, rng=rng, exclude=rows)
        assert bandit.choose(exclude=rows).tolist() == of_service.rows.tolist()


def test_a_graph_file_of_the_service_is_read_by_the_library(tmp_path: Path) -> None:
    """And by the service a file that the library wrote: one format."""
    options, path = IndexOptions("hnsw"), tmp_path / "0a1b.index"
    maintain(filled(ARMS, options, cache=path, threads=1))
    table = table_of(ARMS)
    graph = graph_file.read(path, table, m=options.m, ef_construction=options.ef_construction)
    assert graph is not None
    assert 0 < len({*graph.rows.tolist()}) == graph.arms  # those that can win
    written = path.stat()
    graph_file.write(path, graph, table)
    again = filled(ARMS, options, cache=path, threads=1)
    maintain(again)
    assert again.snapshot().structure.checksum == graph.checksum
    assert path.stat().st_size == written.st_size
