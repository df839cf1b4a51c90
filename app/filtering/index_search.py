"""A filtered search by the index of the catalogue: a graph, or whatever proposes arms there."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from app.filtering.filter_limits import FilterLimits
from app.indexes.eligible_rows import EligibleRows
from app.indexes.filtered_search import GATHER_ROWS, contenders, masked_contenders
from app.indexes.snapshot import Snapshot
from shortlist.index.index import IndexKind, ProposingIndex
from shortlist.index.table import TableSnapshot, not_in
from shortlist.mips.exact import ranked
from shortlist.types import NO_ROWS, Rows, TopK, Vector


@dataclass(frozen=True, eq=False)
class IndexSearch:
    """Asks ``index`` for ``ask`` arms for each wanted one, and keeps the matches of a filter.

    Rows added after the index was built are fresh: their matches are compared in addition. Requests for more
    than ``most_asked`` of all arms are left to an exact search.
    """

    eligible: EligibleRows
    index: ProposingIndex
    ask: int
    most_asked: float = FilterLimits().most_asked
    name: ClassVar[str] = "graph"
    is_exact: ClassVar[bool] = False

    @property
    def kind(self) -> IndexKind:
        return self.index.kind

    @cached_property
    def fresh(self) -> int:
        """The number of fresh matching rows."""
        return int(np.count_nonzero(self.eligible.mask[self.index.covered :]))

    @property
    def staleness(self) -> float:
        """Rows of a scan in the time of a look through the fresh rows / matching rows."""
        rows = min(GATHER_ROWS * self.fresh, len(self.eligible.mask) - self.index.covered)
        return rows / max(self.eligible.count, 1)

    def search(self, snapshot: Snapshot, query: Vector, k: int, exclude: Rows = NO_ROWS) -> TopK | None:
        """About the best ``k`` matching rows outside ``exclude``; None: too few were found."""
        ask = self.ask * k
        if ask > self.most_asked * self.index.arms:
            return None
        rows = self.index.search_among(query, ask + len(exclude), self.eligible.mask)
        if rows is None:
            return None
        if self.fresh:
            fresh = self._fresh_contenders(snapshot.table, query, k + len(exclude))
            rows = np.concatenate((rows, fresh))
        if len(exclude):
            rows = rows[not_in(rows, exclude)]
        return ranked(rows, k, snapshot.table.features, query, exact=False) if len(rows) >= k else None

    def _fresh_contenders(self, table: TableSnapshot, query: Vector, k: int) -> Rows:
        """Fresh rows with a chance of being among their best ``k``: few are gathered, many scanned."""
        if GATHER_ROWS * self.fresh < table.rows - self.index.covered:
            return contenders(table, self._fresh_rows, query, k)
        return masked_contenders(table, self.eligible.mask, query, k, first=self.index.covered)

    @cached_property
    def _fresh_rows(self) -> Rows:
        covered = self.index.covered
        return np.flatnonzero(self.eligible.mask[covered:]) + covered
