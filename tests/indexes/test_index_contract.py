"""The structures of the service keep the contract of indexes; one of the tests does so too."""

from __future__ import annotations

import numpy as np
import pytest

from shortlist.index.inverted_file import Centroids, InvertedFile
from shortlist.index.norm_pruned import NormBlocks
from shortlist.index.planner import IndexOptions, build_over
from shortlist.index.table import TableSnapshot
from shortlist_service.testing import Build, IndexContract


def graph(table: TableSnapshot):
    index = build_over(table, table.live_rows, IndexOptions(), seed=1, check=lambda: None)
    index.tuned(100, shortlist=50, most=500)
    return index


def lists(table: TableSnapshot) -> InvertedFile:
    centroids = Centroids.trained(table, table.live_rows, np.random.default_rng(1))
    labels = centroids.nearest(table.working[table.live_rows])
    return InvertedFile(table, centroids, table.live_rows, labels, first=0, check=lambda: None)


class TestStructures(IndexContract):
    @pytest.fixture(params=[NormBlocks, lists, graph], ids=["norm_pruned", "inverted_file", "hnsw"])
    def build(self, request: pytest.FixtureRequest) -> Build:
        return request.param
