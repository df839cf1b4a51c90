"""A snapshot of some arms of a catalogue: the matches of a filter, or all but some rows."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from app.filtering.filter_limits import FilterLimits
from app.filtering.index_search import IndexSearch
from app.filtering.row_copy import RowCopy
from app.filters.filter import Filter
from app.indexes.eligible_rows import EligibleRows, eligible_rows, rows_left
from app.indexes.filtered_search import search_exactly
from app.indexes.snapshot import Snapshot
from shortlist.index.index import IndexKind
from shortlist.index.table import not_in
from shortlist.types import NO_ROWS, Rows, TopK, Vector

SPARE, MORE = 2, 4  # arms asked for besides those wanted, and how many times as many after too few
FEW_GONE = 10  # no more are asked for if not even one of so many lists would lack an arm
_MOST_ASKED = FilterLimits().most_asked
ALONE_GONE = 3  # likewise of single arms: to ask for a second takes half as long again

SearchStrategy: TypeAlias = "RowCopy | IndexSearch | AskedForMore"
"""How some arms of a catalogue are searched. It may be searched in any thread; None: it found too few."""


@dataclass(frozen=True, slots=True, eq=False)
class FilteredSnapshot(Snapshot):
    """As ``Snapshot``, of the arms of ``members`` alone. ``table`` still has all arms of the catalogue.

    ``all_arms``: the snapshot of all arms. ``strategy``: how to search, at this moment; None: every
    search is exact.
    ``expected_us``: of a search by ``strategy``. ``recent``: queries of this filter.
    """

    all_arms: Snapshot
    members: EligibleRows
    strategy: SearchStrategy | None

    @property
    def is_filtered(self) -> bool:
        return True

    @property
    def whole(self) -> Snapshot:
        return self.all_arms

    @property
    def size(self) -> int:
        return self.members.count

    @property
    def kind(self) -> IndexKind:
        return self.strategy.kind if self.strategy is not None else "exact"

    @property
    def proposes(self) -> bool:
        return self.strategy is not None and not self.strategy.is_exact

    @property
    def is_scanned(self) -> bool:
        return self.strategy is None

    def search(self, query: Vector, k: int, exclude: Rows = NO_ROWS) -> TopK:
        self._check(query, k)
        self.recent.append(query)
        if len(exclude):
            exclude = self._inside(exclude)
        if self.strategy is not None:
            count = self.members.count
            result = self.strategy.search(self.all_arms, query, min(k, count) or 1, exclude)
            if result is not None and len(result.rows) >= min(k, count - len(exclude)):
                return result
        return search_exactly(self.table, self.members, query, k, exclude)

    def search_exact(self, query: Vector, k: int, exclude: Rows = NO_ROWS) -> TopK:
        self._check(query, k)
        return search_exactly(self.table, self.members, query, k, self._inside(exclude))

    def rows_of(self, ids: Iterable[str]) -> Rows:
        """Rows of the matching arms; others are left out, as unknown ids are."""
        return self._inside(self.all_arms.rows_of(ids))

    @property
    def listed(self) -> Rows:
        return self.members.rows

    def lets_in(self, rows: Rows) -> NDArray[np.bool_]:
        let_in: NDArray[np.bool_] = self.members.mask[rows]
        return let_in

    def eligible(self, exclude: Rows = NO_ROWS) -> Rows:
        rows, _ = self.table.by_revision
        rows = rows[self.members.mask[rows]]
        return rows[not_in(rows, exclude)] if len(exclude) else rows

    def _inside(self, rows: Rows) -> Rows:
        return rows[self.members.mask[rows]] if len(rows) else rows


@dataclass(frozen=True, slots=True, eq=False)
class AskedForMore:
    """Asks a snapshot for more arms, and keeps those in ``left``; too few are no answer."""

    base: Snapshot
    left: EligibleRows
    name: ClassVar[str] = "asked for more"

    @property
    def kind(self) -> IndexKind:
        return self.base.kind

    @property
    def is_exact(self) -> bool:
        return not self.base.proposes

    def search(self, snapshot: Snapshot, query: Vector, k: int, exclude: Rows) -> TopK | None:  # noqa: ARG002
        ask, gone = k, self.base.size - self.left.count
        if (FEW_GONE if k > 1 else ALONE_GONE) * k * gone > self.base.size:
            ask = (k + SPARE) * self.base.size // max(self.left.count, 1)
        while ask <= max(k, _MOST_ASKED * self.base.size):
            hits = self.base.search(query, ask, exclude)
            first = hits.rows[:k]
            if len(first) == k and all(map(self.left.mask.item, first.tolist())):
                return TopK(first, hits.scores[:k], hits.exact)
            left_rows = np.flatnonzero(self.left.mask[hits.rows])[:k]
            if len(left_rows) == k or len(hits.rows) < ask:
                return TopK(hits.rows[left_rows], hits.scores[left_rows], hits.exact)
            ask *= MORE
        return None


def matched(base: Snapshot, arm_filter: Filter) -> NDArray[np.bool_]:
    """The rows of the table matched by a filter of one use: a mask (rows,). Cost: one evaluation of the
    filter.
    """
    if base.whole.is_of_one_request:  # its attributes may be a part of the catalogue's
        (mask,) = base.attributes.matches([arm_filter], np.arange(base.table.rows))
        return mask
    return eligible_rows(arm_filter, base.table, base.attributes).mask


def without_rows(base: Snapshot, gone: NDArray[np.bool_]) -> Snapshot:
    """``base`` without the rows where ``gone`` (rows,) is True. Cost: O(rows of the table)."""
    stays = np.logical_not(gone)
    if isinstance(base, FilteredSnapshot):
        stays &= base.members.mask
    else:
        stays[base.table.dead] = False
    left = rows_left(base.table, base.attributes, stays)
    if left.count == base.size:
        return base
    # A scan leaves rows out in less time than a larger request takes.
    strategy = None if base.is_scanned else AskedForMore(base, left)
    return FilteredSnapshot(
        table=base.table,
        structure=None,
        expected_us=base.expected_us,
        recent=deque(maxlen=1),
        attributes=base.attributes,
        all_arms=base.whole,
        members=left,
        strategy=strategy,
    )
