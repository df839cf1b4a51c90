"""The arms of a table and what was built over them: a structure, segments after it, a scan of the rest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from shortlist.index.exact import contenders, scan
from shortlist.index.index import Index, IndexKind, ProposingIndex
from shortlist.index.segments import Segment
from shortlist.index.table import TableSnapshot
from shortlist.mips.exact import ranked
from shortlist.types import NO_ROWS, Rows, TopK, Vector

_NOTHING = TopK(NO_ROWS, np.empty(0), exact=True)


@dataclass(frozen=True, slots=True, eq=False)
class SearchedTable:
    """A ``MipsSolver`` over the living rows of ``table``, for any thread.

    ``structure`` None: every search is a plain scan, but for what ``segments`` have. ``segments``: of rows
    that it does not cover, in their order; rows after them are fresh, and scanned.
    """

    table: TableSnapshot
    structure: Index | None
    segments: tuple[Segment, ...]

    @property
    def fresh(self) -> int:
        """How many rows come after the structure and the segments."""
        if self.segments:
            return self.table.rows - self.segments[-1].covered
        return self.table.rows - self.structure.covered if self.structure is not None else 0

    @property
    def kind(self) -> IndexKind:
        """What searches it."""
        if self.structure is not None:
            return self.structure.kind
        return "inverted_file" if self.segments else "exact"

    @property
    def is_exact(self) -> bool:
        """Whether every search compares all arms, or those that it leaves out cannot win."""
        parts = (self.structure, *(segment.structure for segment in self.segments))
        return all(part is None or part.is_exact for part in parts)

    @property
    def proposing(self) -> ProposingIndex | None:
        """The structure that proposes arms which are scored again, None: there is none."""
        return self.structure if isinstance(self.structure, ProposingIndex) else None

    def search(self, query: Vector, k: int, exclude: Rows = NO_ROWS) -> TopK:
        """Return the ``k`` arms of largest score outside ``exclude``; fewer only if there are no more.

        Shapes: query (d,), exclude (e,) distinct rows -> (m,). Raises: NonFinite.
        """
        table, structure = self.table, self.structure
        hits = _NOTHING if self.segments else None
        if structure is not None:
            # lists suffer more from deaths than single answers: see decision 5
            is_lost = k > 1 and structure.degradation.has_lost(k)
            hits = None if is_lost else structure.search(table, query, k, exclude)
            if hits is not None and table.rows == structure.covered:
                return hits
        if hits is None:
            return scan(table, query, k, exclude)
        # A segment that was made while the structure was built may have rows of both.
        rows = np.unique(np.concatenate((hits.rows, *self._newer(query, k, exclude))))
        # the arms that lack are there, but were not proposed: a list is never shorter for that
        if len(rows) < k:
            return scan(table, query, k, exclude)
        is_exact = hits.exact and all(segment.structure.is_exact for segment in self.segments)
        return ranked(rows, k, table.features, query, exact=is_exact)

    def propose(self, query: Vector, count: int, exclude: Rows = NO_ROWS) -> Rows | None:
        """About the ``count`` arms of largest score outside ``exclude``, and others, each once.

        None where the structure proposes none. Shapes: query (d,), exclude (e,) -> (m,).
        """
        structure = self.proposing
        if structure is None or structure.degradation.has_lost(count):
            return None
        rows = structure.propose(self.table, query, count, exclude)
        if rows is None or self.table.rows == structure.covered:
            return rows
        return np.unique(np.concatenate((rows, *self._newer(query, count, exclude))))

    def _newer(self, query: Vector, k: int, exclude: Rows) -> Iterator[Rows]:
        """Rows outside of the structure that could be the best ``k``: of each segment, and the fresh ones."""
        table = self.table
        for segment in self.segments:
            yield segment.structure.contenders(table, query, k, exclude)
        if self.fresh:
            scaled, error = table.scaled(query)
            yield contenders(table, scaled, error, k, exclude, first=table.rows - self.fresh)
