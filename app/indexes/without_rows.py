"""A snapshot without some of its rows: for its searches there are no others."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from app.indexes.eligible_rows import EligibleRows, rows_left
from app.indexes.filtered_snapshot import FilteredSnapshot
from app.indexes.search_strategies import MOST_ASKED, SearchStrategy
from app.indexes.snapshot import IndexKind, Snapshot
from shortlist.types import Rows, TopK, Vector

SPARE, MORE = 2, 4  # arms asked for besides those wanted, and how many times as many after too few
FEW_GONE = 10  # no more are asked for if not even one of so many lists would lack an arm


@dataclass(frozen=True, slots=True, eq=False)
class AskedForMore:
    """Asks a snapshot for more arms, and keeps those that are left; too few are no answer."""

    base: Snapshot
    left: EligibleRows
    name: ClassVar[str] = "asked for more"

    @property
    def kind(self) -> IndexKind:
        return self.base.kind

    def search(self, snapshot: Snapshot, query: Vector, k: int, exclude: Rows) -> TopK | None:  # noqa: ARG002
        ask, gone = k, self.base.size - self.left.count
        if FEW_GONE * k * gone > self.base.size:
            ask = (k + SPARE) * self.base.size // max(self.left.count, 1)
        while ask <= max(k, MOST_ASKED * self.base.size):
            hits = self.base.search(query, ask, exclude)
            kept = np.flatnonzero(self.left.mask[hits.rows])[:k]
            if len(kept) == k or len(hits.rows) < ask:
                return TopK(hits.rows[kept], hits.scores[kept], hits.exact)
            ask *= MORE
        return None


def without_rows(base: Snapshot, gone: NDArray[np.bool_]) -> Snapshot:
    """``base`` without the rows where ``gone`` (rows,) is True. Cost: O(rows of the table)."""
    stays = np.logical_not(gone)
    if isinstance(base, FilteredSnapshot):
        stays &= base.among.mask
    else:
        stays[base.table.dead] = False
    left = rows_left(base.table, base.attributes, stays)
    if left.count == base.size:
        return base
    strategy: SearchStrategy = AskedForMore(base, left)  # type: ignore[assignment]  # never made anew
    return FilteredSnapshot(
        table=base.table,
        structure=None,
        segments=(),
        expected_us=base.expected_us,
        recent=deque(maxlen=1),
        attributes=base.attributes,
        all_arms=base.whole,
        among=left,
        strategy=strategy,
    )
