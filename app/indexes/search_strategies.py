"""Ways to search the arms that a filter lets in, by what was made for it.

Notation
    K, d        rows of the table, dimension
    n           rows that the filter lets in
    ask         how many arms a graph is asked for

    copy        the n rows side by side, copied once for a filter that is asked often: n d reads in a row
    blocks      such a copy in the order of the norms, read until no later row can be among the best
    graph       asks the graph of the catalogue for more arms and keeps those that the filter lets in
    own_graph   a graph over the n rows alone

Copy and blocks compare every arm that is let in, so their answers are exact. What was made follows the
changes: rows that were let in later are scanned in addition, and rows that are let in no longer are struck
out. Every strategy checks what it returns against the filter.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Protocol

import numpy as np

from app.indexes.eligible_rows import Change, EligibleRows, renumbered
from app.indexes.filtered_search import GATHER_ROWS, contenders, strike_out
from app.indexes.hnsw import HnswGraph
from app.indexes.norm_pruned import NormBlocks
from app.indexes.row_copy import RowCopy
from app.indexes.snapshot import Snapshot, merged
from app.indexes.structure import Kind
from app.indexes.table import ArmView, not_in
from shortlist.mips.exact import candidates, ranked, unit_scale
from shortlist.types import NO_ROWS, Rows, TopK, Vector

# A graph that is asked for so large a share of its arms takes longer than comparing all.
MOST_ASKED = 0.05

MakeGraph = Callable[[Snapshot, Rows], HnswGraph | None]
"""Builds a graph over some rows of a snapshot; None where there is no memory for it."""


class SearchStrategy(Protocol):
    """One strategy to search the arms that one filter lets in, at one moment. It may be searched in any
    thread.
    """

    @property
    def name(self) -> str: ...
    @property
    def kind(self) -> Kind: ...
    @property
    def memory_bytes(self) -> int: ...

    @property
    def staleness(self) -> float:
        """Rows that came or went since it was made, and make searches slower / rows that it was made of."""
        ...

    def followed(self, snapshot: Snapshot, eligible: EligibleRows) -> SearchStrategy | None:
        """The same at a later moment; None if it cannot follow. For one thread, which asks each strategy
        once.

        Cost: O(changed rows); O(K) after a compaction.
        """
        ...

    def renewed(self, snapshot: Snapshot, eligible: EligibleRows) -> SearchStrategy | None:
        """The same, made anew, at the cost of the first time; None without memory for it. For any thread."""
        ...

    def search(self, snapshot: Snapshot, query: Vector, k: int, exclude: Rows) -> TopK | None:
        """About the best ``k`` rows outside ``exclude``, which the filter lets in; None: it found too few."""
        ...


class _Copied:
    """Rows that are let in, side by side: all, or those that came since something was built over the others.

    ``copy`` is None until there are some.
    """

    def __init__(self, eligible: EligibleRows, copy: RowCopy | None = None) -> None:
        self.eligible = eligible
        self.copy = copy

    def __len__(self) -> int:
        return len(self.copy) + self.copy.gone if self.copy is not None else 0

    @property
    def memory_bytes(self) -> int:
        return self.copy.memory_bytes if self.copy is not None else 0

    def followed(self, view: ArmView, eligible: EligibleRows) -> tuple[_Copied, Change] | None:
        """The same at a later moment, and what changed until then, by the row numbers of that moment."""
        before, copy = _as_numbered(self.eligible, view), self.copy
        if before is None or (copy is not None and copy.dtype != view.working.dtype):
            return None
        if copy is not None and before is not self.eligible and view.renumbered is not None:
            copy = copy.moved(view.renumbered.places, view.rows)
        change = eligible.since(before)
        if copy is None and len(change.came):
            copy = RowCopy(view, change.came)
        elif copy is not None:
            copy = copy.followed(view, change)
        return _Copied(eligible, copy), change

    def contenders(self, view: ArmView, query: Vector, k: int) -> Rows:
        """The rows that could be the best ``k`` of them."""
        if self.copy is None:
            return NO_ROWS
        scaled, query_norm = unit_scale(query)
        slope, offset = view.error_line
        return self.copy.contenders(scaled, slope * query_norm + offset, k)


class OwnCopy:
    """The features of the rows side by side. Memory: 4 d + 8 bytes a row, and 4 bytes a row of the table."""

    name: ClassVar[str] = "copy"
    kind: ClassVar[Kind] = "exact"

    def __init__(self, view: ArmView, eligible: EligibleRows, rows: _Copied | None = None) -> None:
        self._rows = _Copied(eligible, RowCopy(view, eligible.rows)) if rows is None else rows

    @property
    def memory_bytes(self) -> int:
        return self._rows.memory_bytes

    @property
    def staleness(self) -> float:
        copy = self._rows.copy
        return copy.gone / max(len(copy), 1) if copy is not None else 0.0

    def followed(self, snapshot: Snapshot, eligible: EligibleRows) -> OwnCopy | None:
        followed = self._rows.followed(snapshot.view, eligible)
        return None if followed is None else OwnCopy(snapshot.view, eligible, followed[0])

    def renewed(self, snapshot: Snapshot, eligible: EligibleRows) -> OwnCopy:
        return OwnCopy(snapshot.view, eligible)

    def search(self, snapshot: Snapshot, query: Vector, k: int, exclude: Rows) -> TopK | None:
        view = snapshot.view
        rows = self._rows.contenders(view, query, k + len(exclude))
        if len(exclude):
            rows = rows[not_in(rows, exclude)]
        return ranked(rows, k, view.features, query)


class OwnBlocks:
    """The rows in blocks of descending norm. Memory: 4 d + 16 bytes a row, and 4 bytes a row of the table.

    Shapes: struck (s,), rows of the blocks that are alive, as far as that is known, and no longer let in.
    """

    name: ClassVar[str] = "blocks"
    kind: ClassVar[Kind] = "norm_pruned"

    def __init__(self, view: ArmView, eligible: EligibleRows) -> None:
        self._blocks = NormBlocks(view, eligible.rows)
        self._added = _Copied(eligible)
        self._struck = NO_ROWS
        self._went = 0

    @property
    def memory_bytes(self) -> int:
        return self._blocks.memory_bytes + self._added.memory_bytes + int(self._struck.nbytes)

    @property
    def staleness(self) -> float:
        return (len(self._added) + self._went) / max(self._blocks.arms, 1)

    def followed(self, snapshot: Snapshot, eligible: EligibleRows) -> OwnBlocks | None:
        view = snapshot.view
        followed = self._added.followed(view, eligible)
        if followed is None:
            return None
        other = OwnBlocks.__new__(OwnBlocks)
        other._blocks, struck = self._blocks, self._struck
        if view.table != self._added.eligible.table and view.renumbered is not None:
            places = view.renumbered.places.astype(np.int64)
            other._blocks = self._blocks.moved(places, view.rows)
            struck = places[struck]
        other._added, change = followed
        struck = np.concatenate((struck[struck >= 0], change.went))
        other._struck = struck[view.is_alive(struck)]
        other._went = self._went + len(change.went)
        return other

    def renewed(self, snapshot: Snapshot, eligible: EligibleRows) -> OwnBlocks:
        return OwnBlocks(snapshot.view, eligible)

    def search(self, snapshot: Snapshot, query: Vector, k: int, exclude: Rows) -> TopK | None:
        view, hidden = snapshot.view, exclude
        if len(self._struck):
            hidden = np.union1d(exclude, self._struck)
        found = self._blocks.search(view, query, k, hidden)
        rows = self._added.contenders(view, query, k + len(exclude))
        if not len(rows):
            return found
        if len(exclude):
            rows = rows[not_in(rows, exclude)]
        return merged(found, ranked(rows, k, view.features, query), k)


class CatalogueGraph:
    """The graph of the catalogue, asked for ``ask`` arms.

    ``fresh``: how many of the rows that are let in came after the graph was built.
    """

    name: ClassVar[str] = "graph"
    kind: ClassVar[Kind] = "hnsw"
    memory_bytes: ClassVar[int] = 0

    def __init__(self, snapshot: Snapshot, eligible: EligibleRows, ask: int) -> None:
        self._eligible = eligible
        self._ask = ask
        graph = snapshot.structure
        self._graph = graph if isinstance(graph, HnswGraph) else None
        covered = self._graph.covered if self._graph is not None else 0
        self._covered = covered
        self._fresh = int(np.count_nonzero(eligible.mask[covered:]))

    @property
    def staleness(self) -> float:
        """Rows of a scan that looking through the fresh ones takes / rows that are let in."""
        rows = min(GATHER_ROWS * self._fresh, len(self._eligible.mask) - self._covered)
        return rows / max(self._eligible.count, 1)

    def followed(self, snapshot: Snapshot, eligible: EligibleRows) -> CatalogueGraph | None:
        return CatalogueGraph(snapshot, eligible, self._ask)

    def search(self, snapshot: Snapshot, query: Vector, k: int, exclude: Rows) -> TopK | None:
        graph, ask = self._graph, self._ask * k
        if graph is None or ask > MOST_ASKED * graph.arms:
            return None
        fresh = self._fresh_contenders(snapshot.view, query, k + len(exclude))
        return _Wanted(snapshot.view, self._eligible, query, k, exclude).by_graph(graph, ask, fresh)

    def _fresh_contenders(self, view: ArmView, query: Vector, k: int) -> Rows:
        """The fresh rows that could be the best ``k`` of them: gathered if they are few, else scanned."""
        if not self._fresh:
            return NO_ROWS
        first, mask = self._covered, self._eligible.mask[self._covered :]
        if GATHER_ROWS * self._fresh < len(mask):
            return contenders(view, self._fresh_rows, query, k)
        scaled, query_norm = unit_scale(query)
        working = view.working[first:]
        approximate = working @ scaled.astype(working.dtype, copy=False)
        strike_out(approximate, mask)
        slope, offset = view.error_line
        return candidates(approximate, slope * query_norm + offset, k) + first

    @cached_property
    def _fresh_rows(self) -> Rows:
        return np.flatnonzero(self._eligible.mask[self._covered :]) + self._covered

    def renewed(self, snapshot: Snapshot, eligible: EligibleRows) -> CatalogueGraph:
        return CatalogueGraph(snapshot, eligible, self._ask)


class OwnGraph:
    """A graph over the rows alone, asked for ``ask`` arms. ``make`` built it, and may build another."""

    name: ClassVar[str] = "own_graph"
    kind: ClassVar[Kind] = "hnsw"

    def __init__(self, graph: HnswGraph, eligible: EligibleRows, *, ask: int, make: MakeGraph) -> None:
        self._graph = graph
        self._make = make
        self._added = _Copied(eligible)
        self._ask = ask

    @property
    def memory_bytes(self) -> int:
        return self._graph.memory_bytes + self._added.memory_bytes

    @property
    def staleness(self) -> float:
        return (len(self._added) + self._graph.dead) / self._graph.arms

    def followed(self, snapshot: Snapshot, eligible: EligibleRows) -> OwnGraph | None:
        view, graph = snapshot.view, self._graph
        followed = self._added.followed(view, eligible)
        if followed is None:
            return None
        if view.table != self._added.eligible.table and view.renumbered is not None:
            graph = graph.moved(view.renumbered.places.astype(np.int64), view.rows)
        added, change = followed
        graph.tombstone(change.went)
        other = OwnGraph(graph, eligible, ask=self._ask, make=self._make)
        other._added = added
        return other

    def search(self, snapshot: Snapshot, query: Vector, k: int, exclude: Rows) -> TopK | None:
        view, eligible = snapshot.view, self._added.eligible
        more = self._added.contenders(view, query, k + len(exclude))
        wanted = _Wanted(view, eligible, query, k, exclude)
        return wanted.by_graph(self._graph, max(self._ask, 2 * k), more)

    def renewed(self, snapshot: Snapshot, eligible: EligibleRows) -> OwnGraph | None:
        graph = self._make(snapshot, eligible.rows)
        if graph is None:
            return None
        graph.tuned(self._graph.ef, shortlist=self._ask, most=graph.arms)
        return OwnGraph(graph, eligible, ask=self._ask, make=self._make)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What is searched for: the best ``k`` rows of ``eligible`` outside ``exclude``."""

    view: ArmView
    eligible: EligibleRows
    query: Vector
    k: int
    exclude: Rows

    def by_graph(self, graph: HnswGraph, ask: int, more: Rows) -> TopK | None:
        """The best of the arms that a graph proposes and the filter lets in, and of the rows ``more``."""
        count = min(ask + len(self.exclude), graph.arms - graph.dead)
        labels = graph.nearest(self.query, count) if count > 0 else None
        if labels is None:
            return None
        rows = graph.rows[labels]
        rows = rows[rows >= 0]
        rows = rows[self.eligible.mask[rows]]
        if len(more):
            rows = np.concatenate((rows, more))
        if len(self.exclude):
            rows = rows[not_in(rows, self.exclude)]
        if len(rows) < self.k:
            return None
        return ranked(rows, self.k, self.view.features, self.query, exact=False)


def _as_numbered(eligible: EligibleRows, view: ArmView) -> EligibleRows | None:
    """The rows by their numbers in this view; None if it is of a table that is too late."""
    return eligible if eligible.table == view.table else renumbered(eligible, view)
