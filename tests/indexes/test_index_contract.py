"""The structures of the service keep the contract of indexes; one of the tests does so too."""

from __future__ import annotations

import pytest

from shortlist.index.inverted_file import InvertedFile
from shortlist.index.norm_pruned import NormBlocks
from shortlist.index.planner import IndexOptions, build_over
from shortlist.index.table import TableSnapshot
from shortlist_service.testing import Build, IndexContract


def graph(table: TableSnapshot):
    index = build_over(table, table.live_rows, IndexOptions(), seed=1, check=lambda: None)
    index.tuned(100, shortlist=50, most=500)
    return index


def lists(table: TableSnapshot) -> InvertedFile:
    return InvertedFile.build(table, target=0.95, seed=1)


class TestStructures(IndexContract):
    @pytest.fixture(params=[NormBlocks, lists, graph], ids=["norm_pruned", "inverted_file", "hnsw"])
    def build(self, request: pytest.FixtureRequest) -> Build:
        return request.param
