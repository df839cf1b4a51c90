"""Several graphs over the same arms, as independent as HNSW allows: the solvers inside the adaptive one.

Each has its own random levels and its own random order of insertion. They are made for one table and go on
serving while arms come and go, like the graph of ``live``: fresh arms are scanned exactly, dead ones are left
out. Nobody has proved that HNSW answers a fixed query with probability 0.9, so nothing is promised.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from app.indexes.snapshot import Snapshot
from shortlist.index.index import Index
from shortlist.index.planner import IndexOptions, build_over
from shortlist.index.table import TableSnapshot

_EF = 64
_CHANGED_SHARE = 0.2


@dataclass(frozen=True, slots=True, eq=False)
class IndependentGraphs:
    """``graphs`` over the arms that were alive in ``table``."""

    table: TableSnapshot
    graphs: tuple[Index, ...]

    @classmethod
    def build(
        cls, table: TableSnapshot, copies: int, options: IndexOptions, *, seed: int, check: Callable[[], None]
    ) -> IndependentGraphs:
        """Build ``copies`` graphs on one core. ``check`` is called now and then, and may raise to stop."""
        graphs = []
        for copy in range(copies):
            rows = np.random.default_rng(seed + copy).permutation(table.live_rows)
            graph = build_over(table, rows, options, seed=seed + copy, check=check)
            ef = options.ef_search or _EF
            graph.tuned(ef, shortlist=options.shortlist, most=graph.arms)
            graphs.append(graph)
        return cls(table, tuple(graphs))

    @property
    def memory_bytes(self) -> int:
        return sum(graph.memory_bytes for graph in self.graphs)

    def follows(self, table: TableSnapshot) -> bool:
        """Whether ``table`` is a later moment of the same table."""
        return table.number == self.table.number and table.rows >= self.table.rows

    def is_stale(self, table: TableSnapshot) -> bool:
        """Whether so much has changed since that the graphs should be built again."""
        changed = table.rows - self.table.rows + len(table.dead) - len(self.table.dead)
        return not self.follows(table) or changed > _CHANGED_SHARE * self.table.live

    def solvers(self, snapshot: Snapshot) -> list[Snapshot]:
        """The arms of ``snapshot``, searched by each of the graphs."""
        return [snapshot.searched_by(graph) for graph in self.graphs]
