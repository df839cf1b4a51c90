"""Ways to search the arms that a filter lets in.

Notation
    K, d        rows of the table, dimension
    n           rows that the filter lets in
    ask         how many arms a graph is asked for

    gather      copies the n rows side by side and multiplies: n d reads at random places
    mask        multiplies all K rows and strikes out the others: K d reads in a row
    own copy    the n rows side by side, copied once for a filter that is asked often: n d reads in a row
    own blocks  such a copy in the order of the norms, read until no later row can be among the best
    graph       asks the graph of the catalogue for more arms and keeps those that the filter lets in
    own graph   a graph over the n rows alone

The first four compare every arm that is let in, so their answers are exact. A copy or a graph is made once;
rows that were let in later are gathered in addition, and rows that are let in no longer are struck out.
Every way checks what it returns against the filter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np

from app.algorithms.mips.exact import best, candidates, error_line, ranked, unit_scale
from app.algorithms.types import NO_ROWS, Rows, TopK, Vector
from app.indexes.eligible_rows import EligibleRows
from app.indexes.hnsw import HnswGraph
from app.indexes.norm_pruned import NormBlocks
from app.indexes.snapshot import Snapshot, merged
from app.indexes.structure import Kind
from app.indexes.table import ArmView, not_in

# A row that is gathered takes about as long as this many rows of a scan (measured: 6 to 8).
GATHER_ROWS = 7
# A graph that is asked for so large a share of its arms takes longer than comparing all.
MOST_ASKED = 0.05


class Way(Protocol):
    """One way to search the arms that one filter lets in. For any thread."""

    @property
    def name(self) -> str: ...
    @property
    def kind(self) -> Kind: ...
    @property
    def memory_bytes(self) -> int: ...

    def serves(self, snapshot: Snapshot) -> bool:
        """Whether it was made for the table of this snapshot."""
        ...

    def search(
        self, snapshot: Snapshot, eligible: EligibleRows, query: Vector, k: int, exclude: Rows
    ) -> TopK | None:
        """About the best ``k`` rows of ``eligible`` outside ``exclude``; None where it found too few."""
        ...


def search_exactly(view: ArmView, eligible: EligibleRows, query: Vector, k: int, exclude: Rows) -> TopK:
    """The best ``k`` rows that are let in, by gathering or by a mask, whichever should be faster."""
    if GATHER_ROWS * eligible.count < view.rows:
        return gather(view, eligible.rows, query, k, exclude)
    return mask(view, eligible, query, k, exclude)


def exact_reads(view: ArmView, eligible: EligibleRows) -> int:
    """The work of ``search_exactly``, in numbers that a scan would read in the same time."""
    return min(GATHER_ROWS * eligible.count, view.rows) * view.dim


def gather(view: ArmView, rows: Rows, query: Vector, k: int, exclude: Rows = NO_ROWS) -> TopK:
    """The best ``k`` of ``rows`` (n,) outside ``exclude``. Cost: n d reads at random places."""
    if len(exclude):
        rows = rows[not_in(rows, exclude)]
    return ranked(_contenders(view, rows, query, k), k, view.features, query)


def mask(view: ArmView, eligible: EligibleRows, query: Vector, k: int, exclude: Rows = NO_ROWS) -> TopK:
    """As ``gather``, by a scan of all rows. Cost: K d reads."""
    scaled, query_norm = unit_scale(query)
    approximate = view.working @ scaled.astype(view.working.dtype, copy=False)
    np.copyto(approximate, -np.inf, where=eligible.barred)
    if len(exclude):
        approximate[exclude] = -np.inf
    slope, offset = view.error_line
    return best(approximate, slope * query_norm + offset, k, view.features, query)


def _contenders(view: ArmView, rows: Rows, query: Vector, k: int) -> Rows:
    """Those of ``rows`` that could be the best ``k`` of them.

    Gathered in float64, for there a row's numbers are side by side.
    """
    if len(rows) <= k:
        return rows
    scaled, query_norm = unit_scale(query)
    slope, offset = error_line(view.dim, view.largest_norm, view.features.dtype)
    approximate = view.features.take(rows, axis=0) @ scaled
    return rows[candidates(approximate, slope * query_norm + offset, k)]


@dataclass(frozen=True, slots=True, eq=False)
class _Since:
    """What changed since a copy or a graph was made: rows let in, and places of rows let in no longer."""

    eligible: EligibleRows
    added: Rows
    gone: Rows


class BuiltRows:
    """The rows that a copy or a graph was made of. Shapes: rows (n,) ascending."""

    def __init__(self, eligible: EligibleRows) -> None:
        self.table = eligible.table
        self.rows = eligible.rows
        self._since = _Since(eligible, NO_ROWS, NO_ROWS)

    def since(self, eligible: EligibleRows) -> _Since:
        """What changed until ``eligible``. Cost: K the first time, then nothing."""
        since = self._since
        if since.eligible is not eligible:
            added = eligible.mask.copy()
            added[self.rows] = False
            gone = np.flatnonzero(eligible.barred[self.rows])
            since = self._since = _Since(eligible, np.flatnonzero(added), gone)
        return since


class OwnCopy:
    """The features of the rows side by side. Memory: 4 d + 8 bytes a row."""

    name: ClassVar[str] = "copy"
    kind: ClassVar[Kind] = "exact"

    def __init__(self, view: ArmView, eligible: EligibleRows) -> None:
        self._built = BuiltRows(eligible)
        self._features = np.asfortranarray(view.working[eligible.rows])

    @property
    def memory_bytes(self) -> int:
        return int(self._features.nbytes + self._built.rows.nbytes)

    def serves(self, snapshot: Snapshot) -> bool:
        return (
            snapshot.view.table == self._built.table and snapshot.view.working.dtype == self._features.dtype
        )

    def search(
        self, snapshot: Snapshot, eligible: EligibleRows, query: Vector, k: int, exclude: Rows
    ) -> TopK | None:
        view, built = snapshot.view, self._built.rows
        since = self._built.since(eligible)
        scaled, query_norm = unit_scale(query)
        slope, offset = view.error_line
        approximate = self._features @ scaled.astype(self._features.dtype, copy=False)
        if len(since.gone):
            approximate[since.gone] = -np.inf
        if len(exclude):
            places = built.searchsorted(exclude)
            inside = places < len(built)
            places, sought = places[inside], exclude[inside]
            approximate[places[built[places] == sought]] = -np.inf
        rows = built[candidates(approximate, slope * query_norm + offset, k)]
        if len(since.added):
            more = since.added[not_in(since.added, exclude)] if len(exclude) else since.added
            rows = np.concatenate((rows, _contenders(view, more, query, k)))
        return ranked(rows, k, view.features, query)


class OwnBlocks:
    """The rows in blocks of descending norm. Memory: 4 d + 16 bytes a row, and 4 bytes a row of the table."""

    name: ClassVar[str] = "blocks"
    kind: ClassVar[Kind] = "norm_pruned"

    def __init__(self, view: ArmView, eligible: EligibleRows) -> None:
        self._built = BuiltRows(eligible)
        self._blocks = NormBlocks(view, eligible.rows)

    @property
    def memory_bytes(self) -> int:
        return self._blocks.memory_bytes + int(self._built.rows.nbytes)

    def serves(self, snapshot: Snapshot) -> bool:
        return snapshot.view.table == self._built.table

    def search(
        self, snapshot: Snapshot, eligible: EligibleRows, query: Vector, k: int, exclude: Rows
    ) -> TopK | None:
        since = self._built.since(eligible)
        gone = self._built.rows[since.gone]
        found = self._blocks.search(
            snapshot.view, query, k, np.union1d(exclude, gone) if len(gone) else exclude
        )
        if not len(since.added):
            return found
        return merged(found, gather(snapshot.view, since.added, query, k, exclude), k)


@dataclass(frozen=True, slots=True, eq=False)
class CatalogueGraph:
    """The graph of the catalogue, asked for more arms."""

    table: int
    ask: int
    name: ClassVar[str] = "graph"
    kind: ClassVar[Kind] = "hnsw"
    memory_bytes: ClassVar[int] = 0

    def serves(self, snapshot: Snapshot) -> bool:
        return snapshot.view.table == self.table and isinstance(snapshot.structure, HnswGraph)

    def search(
        self, snapshot: Snapshot, eligible: EligibleRows, query: Vector, k: int, exclude: Rows
    ) -> TopK | None:
        graph = snapshot.structure
        if not isinstance(graph, HnswGraph) or self.ask * k > MOST_ASKED * graph.arms:
            return None
        fresh = np.flatnonzero(eligible.mask[graph.covered :]) + graph.covered
        return _Wanted(snapshot.view, eligible, query, k, exclude).by_graph(graph, self.ask * k, fresh)


class OwnGraph:
    """A graph over the rows alone."""

    name: ClassVar[str] = "own_graph"
    kind: ClassVar[Kind] = "hnsw"

    def __init__(self, graph: HnswGraph, eligible: EligibleRows, *, ask: int) -> None:
        self._graph = graph
        self._built = BuiltRows(eligible)
        self._ask = ask

    @property
    def memory_bytes(self) -> int:
        return self._graph.memory_bytes + int(self._built.rows.nbytes)

    def serves(self, snapshot: Snapshot) -> bool:
        return snapshot.view.table == self._built.table

    def search(
        self, snapshot: Snapshot, eligible: EligibleRows, query: Vector, k: int, exclude: Rows
    ) -> TopK | None:
        since = self._built.since(eligible)
        if 2 * len(since.gone) > len(self._built.rows):
            return None
        wanted = _Wanted(snapshot.view, eligible, query, k, exclude)
        return wanted.by_graph(self._graph, max(self._ask, 2 * k), since.added)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What is searched for: the best ``k`` rows of ``eligible`` outside ``exclude``."""

    view: ArmView
    eligible: EligibleRows
    query: Vector
    k: int
    exclude: Rows

    def by_graph(self, graph: HnswGraph, ask: int, added: Rows) -> TopK | None:
        """The best of the arms that a graph proposes and the filter lets in, and of the rows ``added``."""
        count = min(ask + len(self.exclude), graph.arms - graph.dead)
        labels = graph.nearest(self.query, count) if count > 0 else None
        if labels is None:
            return None
        rows = graph.rows[labels]
        rows = rows[rows >= 0]
        rows = rows[self.eligible.mask[rows]]
        if len(added):
            more = _contenders(self.view, added, self.query, self.k + len(self.exclude))
            rows = np.concatenate((rows, more))
        if len(self.exclude):
            rows = rows[not_in(rows, self.exclude)]
        if len(rows) < self.k:
            return None
        return ranked(rows, self.k, self.view.features, self.query, exact=False)
