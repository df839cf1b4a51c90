"""Inverted files: how many lists are read, and what is found in them."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shortlist.index.exact import scan
from shortlist.index.inverted_file import Centroids, InvertedFile
from shortlist.index.probes import ExactLists, Quality, make_queries, solve
from shortlist.index.table import ArmTable, TableSnapshot, table_of

QUERIES = 1_000
TARGET = 0.95


def gaussian(count: int, dim: int = 8, seed: int = 0):
    return np.random.default_rng(seed).standard_normal((count, dim))


def file_of(features, target: float = TARGET) -> tuple[InvertedFile, TableSnapshot]:
    """An inverted file that reads lists, however long that takes, and its table."""
    table = table_of(features)
    file = InvertedFile.build(table, target, seed=1)
    queries, _ = make_queries(table.dim, 256, (), np.random.default_rng(1))
    # private: with queries that the test knows
    file.probed = file._least_probed(queries, solve(table, queries).winners, target)
    return file, table


def recall_of(file: InvertedFile, table: TableSnapshot) -> float:
    queries, _ = make_queries(table.dim, QUERIES, (), np.random.default_rng(2))
    found = [file.search(table, query, 1) for query in queries]
    winners = solve(table, queries).winners
    return float(np.mean([hits and hits.rows[0] == best for hits, best in zip(found, winners, strict=True)]))


@pytest.mark.rest
@pytest.mark.parametrize("dim", [4, 24])
def test_as_many_lists_are_read_as_the_target_asks_for(dim):
    """Recall on other queries than the probes. False alarm: below 1e-4, by five standard errors of both."""
    file, table = file_of(gaussian(20_000, dim))
    error = math.sqrt(TARGET * (1.0 - TARGET) * (1.0 / QUERIES + 1.0 / 256))
    assert file.probed < len(file.centroids) / 2
    assert recall_of(file, table) >= TARGET - 5.0 * error


@pytest.mark.rest
@pytest.mark.parametrize("share", [0.5, 0.25])
def test_fewer_lists_would_not_do(share):
    """The test above notices half of the lists."""
    file, table = file_of(gaussian(20_000))
    enough, file.probed = recall_of(file, table), max(1, int(share * file.probed))
    assert recall_of(file, table) < enough - 0.03


@pytest.mark.rest
def test_centroids_are_where_lloyds_algorithm_puts_them():
    """Each row is in the list of the centroid that is nearest by the slow and obvious way."""
    file, table = file_of(gaussian(3_000))
    distances = np.linalg.norm(table.features[file.rows][:, None] - file.centroids.points, axis=2)
    chosen = np.concatenate(
        [distances[start:stop, each] for each, (start, stop) in enumerate(pairwise(file.starts))]
    )
    assert (chosen <= distances.min(axis=1) + 1e-5).all()
    trained = float((chosen**2).mean())
    drawn = table.features[np.random.default_rng(0).choice(3_000, len(file.centroids), replace=False)]
    untrained = np.linalg.norm(table.features[:, None] - drawn, axis=2).min(axis=1)
    assert trained < 0.9 * float((untrained**2).mean())


@pytest.mark.rest
@given(
    dead=st.sets(st.integers(0, 149)), k=st.integers(1, 20), excluded=st.sets(st.integers(0, 149), max_size=9)
)
def test_reading_all_lists_is_a_scan_of_what_is_alive(dead, k, excluded):
    arms = ArmTable(3)
    arms.append([str(row) for row in range(150)], gaussian(150, 3), np.arange(150))
    table = arms.snapshot()
    centroids = Centroids.trained(table, table.live_rows, np.random.default_rng(0))
    file = InvertedFile(table, centroids, table.live_rows, centroids.nearest(table.working))
    gone = np.array(sorted(dead), dtype=np.int64)
    arms.tombstone(gone)
    file.tombstone(gone)
    table, exclude = arms.snapshot(), np.array(sorted(excluded), dtype=np.int64)
    left = [row for row in range(150) if row not in dead | excluded]
    query = np.random.default_rng(k).standard_normal(3)
    wanted = sorted(left, key=lambda row: -float(table.features[row] @ query))[:k]
    for file.probed in (None, len(centroids)):
        found = file.search(table, query, k, exclude)
        assert found is None if len(left) < k else found.rows.tolist() == wanted


def test_all_rows_are_read_since_the_best_of_most_probes_died():
    """Before that they count as missed."""
    features = gaussian(2_000)
    arms = ArmTable(8)
    arms.append([str(row) for row in range(2_000)], features, np.arange(2_000))
    file, table = file_of(features)
    queries, groups = make_queries(table.dim, 256, (), np.random.default_rng(3))
    probes = solve(table, queries, groups=groups)
    file.answered(Quality(0.95, 1.0, 1.0, 0.01), probes, ExactLists.of(table, queries[:40], groups[:40]))
    gone = np.unique(probes.winners)
    file.tombstone(gone[:10])
    assert 0.0 < file.quality.recall_at_1 < 0.95
    file.tombstone(gone)
    arms.tombstone(gone)
    left = arms.snapshot()
    for query in queries[:50]:
        assert file.search(left, query, 5).rows.tolist() == scan(left, query, 5).rows.tolist()
