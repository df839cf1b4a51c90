"""The arms of a table and what was built over them: a structure, and a scan of the arms that came since."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shortlist.index.exact import contenders, scan
from shortlist.index.index import Index, IndexKind, ProposingIndex
from shortlist.index.table import TableSnapshot
from shortlist.mips.exact import ranked
from shortlist.types import NO_ROWS, Rows, TopK, Vector


@dataclass(frozen=True, slots=True, eq=False)
class SearchedTable:
    """A ``MipsSolver`` over the living rows of ``table``, for any thread.

    ``structure`` None: every search is a plain scan. Rows that it does not cover are fresh, and scanned.
    """

    table: TableSnapshot
    structure: Index | None

    @property
    def fresh(self) -> int:
        """The number of rows added after the structure was built."""
        return self.table.rows - self.structure.covered if self.structure is not None else 0

    @property
    def kind(self) -> IndexKind:
        """The kind of the searching structure."""
        return self.structure.kind if self.structure is not None else "exact"

    @property
    def is_exact(self) -> bool:
        """True if every search compares all arms, or those left out cannot win."""
        return self.structure is None or self.structure.is_exact

    @property
    def proposing(self) -> ProposingIndex | None:
        """The structure that proposes arms which are scored again, None: there is none."""
        return self.structure if isinstance(self.structure, ProposingIndex) else None

    def search(self, query: Vector, k: int, exclude: Rows = NO_ROWS) -> TopK:
        """Return the ``k`` arms of largest score outside ``exclude``; fewer only if there are no more.

        Shapes: query (d,), exclude (e,) distinct rows -> (m,). Raises: NonFinite.
        """
        table, structure = self.table, self.structure
        # lists suffer more from deaths than single answers: see decision 5
        if structure is None or (k > 1 and structure.degradation.has_lost(k)):
            return scan(table, query, k, exclude)
        hits = structure.search(table, query, k, exclude)
        if hits is None:
            return scan(table, query, k, exclude)
        if not self.fresh:
            return hits
        rows = np.concatenate((hits.rows, self._newer(query, k, exclude)))
        # the arms that lack are there, but were not proposed: a list is never shorter for that
        if len(rows) < k:
            return scan(table, query, k, exclude)
        return ranked(rows, k, table.features, query, exact=hits.exact)

    def propose(self, query: Vector, count: int, exclude: Rows = NO_ROWS) -> Rows | None:
        """About the ``count`` arms of largest score outside ``exclude``, and others, each once.

        None where the structure proposes none. Shapes: query (d,), exclude (e,) -> (m,).
        """
        structure = self.proposing
        if structure is None or structure.degradation.has_lost(count):
            return None
        rows = structure.propose(self.table, query, count, exclude)
        if rows is None or not self.fresh:
            return rows
        return np.concatenate((rows, self._newer(query, count, exclude)))

    def _newer(self, query: Vector, k: int, exclude: Rows) -> Rows:
        """Fresh rows that could be the best ``k``, ascending."""
        scaled, error = self.table.scaled(query)
        return contenders(self.table, scaled, error, k, exclude, first=self.table.rows - self.fresh)
