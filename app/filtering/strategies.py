"""Strategies to search the arms that a filter matches, by what was made for it.

Notation
    K, d        rows of the table, dimension
    n           rows that the filter matches
    ask         how many arms a graph is asked for

    copy        the n rows side by side, copied once for a filter that is used often: n d reads in a row
    blocks      such a copy in the order of the norms, read until no later row can be among the best
    graph       asks the graph of the catalogue for more arms and keeps those that the filter matches
    own_graph   a graph over the n rows alone

Copy and blocks compare every arm that matches, so their answers are exact. What was made follows the
changes: rows that matched later are scanned in addition, and rows that no longer match are struck
out. Every strategy checks what it returns against the filter.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar, TypeAlias

import numpy as np

from app.filtering.limits import FilterLimits
from app.filtering.row_copy import RowCopy
from app.indexes.eligible_rows import Change, EligibleRows, renumbered
from app.indexes.filtered_search import GATHER_ROWS, contenders, masked_contenders
from app.indexes.snapshot import Snapshot
from shortlist.index.exact import merged
from shortlist.index.index import IndexKind, ProposingIndex, TunableIndex
from shortlist.index.norm_pruned import NormBlocks
from shortlist.index.table import TableSnapshot, not_in
from shortlist.mips.exact import ranked
from shortlist.types import NO_ROWS, Rows, TopK, Vector

MakeGraph = Callable[[Snapshot, Rows], TunableIndex | None]
"""Builds a graph over some rows of a snapshot; None where there is no memory for it."""
SearchStrategy: TypeAlias = "OwnCopy | OwnBlocks | CatalogueGraph | OwnGraph"
"""One strategy to search the arms that one filter matches, at one moment. It may be searched in any thread.

is_exact    every arm that matches is compared, or cannot win; else its recall is measured
is_borrowed it searches by what the catalogue has, and has built nothing itself
staleness   rows that came or went since it was made, and make searches slower / rows that it was made of
followed    the same at a later moment; None if it cannot follow. For one thread, once for each strategy.
            Cost: O(changed rows); O(K) after a compaction
renewed     the same, made again, at the cost of the first time; None without memory for it. For any thread
search      about the best ``k`` rows outside ``exclude``, which the filter matches; None: it found too few
"""


@dataclass(frozen=True, slots=True, eq=False)
class OwnCopy:
    """The features of the rows side by side. Memory: 4 d + 8 bytes a row, and 4 bytes a row of the table."""

    eligible: EligibleRows
    copy: RowCopy
    name: ClassVar[str] = "copy"
    kind: ClassVar[IndexKind] = "exact"
    is_exact: ClassVar[bool] = True
    is_borrowed: ClassVar[bool] = False

    @classmethod
    def of(cls, table: TableSnapshot, eligible: EligibleRows) -> OwnCopy:
        return cls(eligible, RowCopy.of(table, eligible.rows))

    @property
    def memory_bytes(self) -> int:
        return self.copy.memory_bytes

    @property
    def staleness(self) -> float:
        return len(self.copy.gone) / max(len(self.copy), 1)

    def followed(self, snapshot: Snapshot, eligible: EligibleRows) -> OwnCopy | None:
        followed = _followed(self.copy, self.eligible, snapshot.table, eligible)
        return None if followed is None else OwnCopy(eligible, followed[0])

    def renewed(self, snapshot: Snapshot, eligible: EligibleRows) -> OwnCopy:
        return OwnCopy.of(snapshot.table, eligible)

    def search(self, snapshot: Snapshot, query: Vector, k: int, exclude: Rows) -> TopK | None:
        rows = self.copy.contenders(snapshot.table, query, k + len(exclude))
        return _ranked(snapshot.table, rows, query, k, exclude)


@dataclass(frozen=True, slots=True, eq=False)
class OwnBlocks:
    """The rows in blocks of descending norm. Memory: 4 d + 16 bytes a row, and 4 bytes a row of the table.

    Shapes: struck (s,), rows of the blocks that are alive, as far as that is known, and no longer let in.
    """

    eligible: EligibleRows
    blocks: NormBlocks
    added: RowCopy = field(default_factory=RowCopy.of_nothing)
    struck: Rows = field(default_factory=lambda: NO_ROWS)
    went: int = 0
    name: ClassVar[str] = "blocks"
    kind: ClassVar[IndexKind] = "norm_pruned"
    is_exact: ClassVar[bool] = True
    is_borrowed: ClassVar[bool] = False

    @classmethod
    def of(cls, table: TableSnapshot, eligible: EligibleRows) -> OwnBlocks:
        return cls(eligible, NormBlocks(table, eligible.rows))

    @property
    def memory_bytes(self) -> int:
        return self.blocks.memory_bytes + self.added.memory_bytes + int(self.struck.nbytes)

    @property
    def staleness(self) -> float:
        return (self.added.size + self.went) / max(self.blocks.arms, 1)

    def followed(self, snapshot: Snapshot, eligible: EligibleRows) -> OwnBlocks | None:
        table = snapshot.table
        followed = _followed(self.added, self.eligible, table, eligible)
        if followed is None:
            return None
        added, change, position = followed
        blocks, struck = self.blocks, self.struck
        if position is not None:
            blocks, struck = blocks.moved(position, table.rows), position[struck]
        struck = np.concatenate((struck[struck >= 0], change.went))
        went = self.went + len(change.went)
        # the blocks leave out dead rows themselves
        return OwnBlocks(eligible, blocks, added, struck[table.is_alive(struck)], went)

    def renewed(self, snapshot: Snapshot, eligible: EligibleRows) -> OwnBlocks:
        return OwnBlocks.of(snapshot.table, eligible)

    def search(self, snapshot: Snapshot, query: Vector, k: int, exclude: Rows) -> TopK | None:
        table, hidden = snapshot.table, exclude
        if len(self.struck):
            # Blocks pass over what is excluded without changing themselves: so a filter that lets arms in no
            # longer needs no new blocks.
            hidden = np.union1d(exclude, self.struck)
        result = self.blocks.search(table, query, k, hidden)
        rows = self.added.contenders(table, query, k + len(exclude))
        if len(exclude):
            rows = rows[not_in(rows, exclude)]
        return merged(result, ranked(rows, k, table.features, query), k) if len(rows) else result


class CatalogueGraph:
    """The graph of the catalogue, or whatever proposes arms there, asked for ``ask`` arms.

    ``fresh``: how many of the rows that match came after the graph was built. ``most_asked``: a search that
    needs a larger share of its arms is left to the exact one.
    """

    name: ClassVar[str] = "graph"
    is_exact: ClassVar[bool] = False
    is_borrowed: ClassVar[bool] = True
    memory_bytes: ClassVar[int] = 0

    def __init__(
        self,
        snapshot: Snapshot,
        eligible: EligibleRows,
        ask: int,
        most_asked: float = FilterLimits().most_asked,
    ) -> None:
        self._eligible = eligible
        self._most_asked = most_asked
        self._ask = ask
        self._graph = snapshot.proposing
        self.kind: IndexKind = "exact" if self._graph is None else self._graph.kind
        self._covered = self._graph.covered if self._graph is not None else 0
        self._fresh = int(np.count_nonzero(eligible.mask[self._covered :]))

    @property
    def staleness(self) -> float:
        """Rows of a scan that looking through the fresh ones takes / rows that match."""
        rows = min(GATHER_ROWS * self._fresh, len(self._eligible.mask) - self._covered)
        return rows / max(self._eligible.count, 1)

    def followed(self, snapshot: Snapshot, eligible: EligibleRows) -> CatalogueGraph:
        return CatalogueGraph(snapshot, eligible, self._ask, self._most_asked)

    # the catalogue builds its own graph: there is nothing to build here
    renewed = followed

    def search(self, snapshot: Snapshot, query: Vector, k: int, exclude: Rows) -> TopK | None:
        graph, ask = self._graph, self._ask * k
        if graph is None or ask > self._most_asked * graph.arms:
            return None
        fresh = self._fresh_contenders(snapshot.table, query, k + len(exclude))
        rows = _proposed(graph, query, ask + len(exclude), self._eligible, fresh)
        return _ranked(snapshot.table, rows, query, k, exclude, exact=False)

    def _fresh_contenders(self, table: TableSnapshot, query: Vector, k: int) -> Rows:
        """The fresh rows that could be the best ``k`` of them: gathered if they are few, else scanned."""
        if not self._fresh:
            return NO_ROWS
        if GATHER_ROWS * self._fresh < table.rows - self._covered:
            return contenders(table, self._fresh_rows, query, k)
        return masked_contenders(table, self._eligible.mask, query, k, first=self._covered)

    @cached_property
    def _fresh_rows(self) -> Rows:
        return np.flatnonzero(self._eligible.mask[self._covered :]) + self._covered


@dataclass(frozen=True, slots=True, eq=False)
class OwnGraph:
    """A graph over the rows alone, asked for ``ask`` arms. ``make`` built it, and may build another."""

    graph: TunableIndex
    eligible: EligibleRows
    ask: int
    make: MakeGraph
    added: RowCopy = field(default_factory=RowCopy.of_nothing)
    name: ClassVar[str] = "own_graph"
    is_exact: ClassVar[bool] = False
    is_borrowed: ClassVar[bool] = False

    @property
    def kind(self) -> IndexKind:
        return self.graph.kind

    @property
    def memory_bytes(self) -> int:
        return self.graph.memory_bytes + self.added.memory_bytes

    @property
    def staleness(self) -> float:
        return (self.added.size + self.graph.degradation.dead) / self.graph.arms

    def followed(self, snapshot: Snapshot, eligible: EligibleRows) -> OwnGraph | None:
        followed = _followed(self.added, self.eligible, snapshot.table, eligible)
        if followed is None:
            return None
        added, change, position = followed
        graph = self.graph if position is None else self.graph.moved(position, snapshot.table.rows)
        # The graph is of this filter alone, so an arm that it matches no longer is as good as dead.
        graph.tombstone(change.went)
        return replace(self, graph=graph, eligible=eligible, added=added)

    def renewed(self, snapshot: Snapshot, eligible: EligibleRows) -> OwnGraph | None:
        graph = self.make(snapshot, eligible.rows)
        if graph is None:
            return None
        graph.tuned(self.graph.degradation.ef, shortlist=self.ask, most=graph.arms)
        return OwnGraph(graph, eligible, self.ask, self.make)

    def search(self, snapshot: Snapshot, query: Vector, k: int, exclude: Rows) -> TopK | None:
        added = self.added.contenders(snapshot.table, query, k + len(exclude))
        ask = max(self.ask, 2 * k) + len(exclude)
        rows = _proposed(self.graph, query, ask, self.eligible, added)
        return _ranked(snapshot.table, rows, query, k, exclude, exact=False)


def _followed(
    copy: RowCopy, before: EligibleRows, table: TableSnapshot, eligible: EligibleRows
) -> tuple[RowCopy, Change, Rows | None] | None:
    """The copy at a later moment, what changed until then, and where rows are now if they were renumbered.

    ``before``: the rows at the moment of the copy. None: the copy cannot follow.
    """
    position = None
    if before.table_number != table.number:
        # Two compactions since: the way of the rows is known only for the last.
        if table.renumbered is None or table.renumbered.number != before.table_number:
            return None
        position = table.renumbered.positions.astype(np.int64)
        before, copy = renumbered(before, position, table), copy.moved(position, table.rows)
    # a long arm came, so the table is scanned in float64 from now on
    if copy.size and copy.features.dtype != table.working.dtype:
        return None
    change = eligible.since(before)
    return copy.followed(table, change), change, position


def _proposed(graph: ProposingIndex, query: Vector, count: int, eligible: EligibleRows, more: Rows) -> Rows:
    """Eligible rows among about the best ``count`` of a graph, and ``more``; none if it reached fewer."""
    rows = graph.search_among(query, count, eligible.mask)
    if rows is None:
        return NO_ROWS
    return np.concatenate((rows, more)) if len(more) else rows


def _ranked(
    table: TableSnapshot, rows: Rows, query: Vector, k: int, exclude: Rows, *, exact: bool = True
) -> TopK | None:
    """The best ``k`` of ``rows`` outside ``exclude``; None if there are fewer and others may be let in."""
    if len(exclude):
        rows = rows[not_in(rows, exclude)]
    return ranked(rows, k, table.features, query, exact=exact) if exact or len(rows) >= k else None
