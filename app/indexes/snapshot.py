"""A catalogue at one moment: how its arms are found and read."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from app.filters.attribute_snapshot import AttributeSnapshot
from shortlist import checks
from shortlist.index.exact import scan
from shortlist.index.index import Index
from shortlist.index.searched_table import SearchedTable
from shortlist.types import NO_ROWS, Matrix, Rows, TopK, Vector

NOTHING = TopK(NO_ROWS, np.empty(0), exact=True)


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot(SearchedTable):
    """The arms of a catalogue in memory, as a ``MipsSolver``; later changes of the catalogue are not in the
    snapshot. It can be searched from any thread. ``structure`` None: every search is a plain scan; rows
    beyond the structure are fresh, and scanned. ``expected_us``: typical time of a search in microseconds,
    with which a caller runs long ones in a thread. ``recent`` collects the last queries. ``attributes``: tags
    and metadata of the arms of ``table`` at the same moment.
    """

    expected_us: float
    recent: deque[Vector]
    attributes: AttributeSnapshot

    @property
    def size(self) -> int:
        """The number of arms."""
        return self.table.live

    @property
    def proposes(self) -> bool:
        """True if searches propose arms to score again: to ask for more then finds better ones."""
        return self.proposing is not None

    @property
    def is_scanned(self) -> bool:
        """True if every search is a plain scan."""
        return self.structure is None

    @property
    def largest_norm(self) -> float:
        """A bound on the norms of the features."""
        return self.table.largest_norm

    @property
    def is_filtered(self) -> bool:
        """True if some arms of the catalogue are left out of this snapshot."""
        return False

    @property
    def is_of_one_request(self) -> bool:
        """True if the snapshot was made for one request: its results are not worth keeping."""
        return False

    @property
    def eligible_count(self) -> int | None:
        """The number of arms of the catalogue which may be found here; None: unknown."""
        return self.size

    @property
    def whole(self) -> Snapshot:
        """The snapshot of all arms of the catalogue."""
        return self

    @property
    def plain(self) -> Snapshot:
        """Itself: its features are the catalogue's own."""
        return self

    def searched_by(self, structure: Index) -> Snapshot:
        """The same arms, searched by another structure of the same table alone."""
        return replace(self, structure=structure)

    def search(self, query: Vector, k: int, exclude: Rows = NO_ROWS) -> TopK:
        """Return the ``k`` arms of largest score outside ``exclude``.

        Shapes: query (d,), exclude (e,) distinct rows -> rows, scores (m,); m = min(k, eligible arms), also
        when the answer is not exact. Raises: InvalidShape, NonFinite, InvalidParameter (k < 1).
        """
        self._check(query, k)
        # the next plan and measurements take some of their probes from the served queries From any thread: to
        # append to a deque with a maximum is one step.
        self.recent.append(query)
        if not self.table.rows:
            return NOTHING
        if self.structure is None:  # as the table's search does
            return scan(self.table, query, k, exclude)
        return SearchedTable.search(self, query, k, exclude)

    def propose(self, query: Vector, count: int, exclude: Rows = NO_ROWS) -> Rows | None:
        """About the ``count`` arms of largest score outside ``exclude``, and others, each once.

        None where the structure proposes none. Shapes: query (d,), exclude (e,) -> (m,).
        """
        self._check(query, count)
        rows = SearchedTable.propose(self, query, count, exclude)
        if rows is not None:  # else ``search`` is asked, which notes the query
            self.recent.append(query)
        return rows

    def search_exact(self, query: Vector, k: int, exclude: Rows = NO_ROWS) -> TopK:
        """As ``search``, and every eligible arm is compared."""
        if self.is_exact and not self.is_scanned:
            return self.search(query, k, exclude)
        self._check(query, k)
        return scan(self.table, query, k, exclude)

    def rows_of(self, ids: Iterable[str]) -> Rows:
        """Rows of the arms in this snapshot; unknown ids are left out."""
        return self.table.rows_of(ids)

    def id_of(self, row: int) -> str:
        """The id of an arm."""
        return self.table.ids[row]

    def revision_of(self, row: int) -> int:
        """The revision of an arm."""
        return self.table.revisions.item(row)

    def catalogue_query(self, query: Vector) -> Vector:
        """The query among the features of the catalogue: itself."""
        return query

    def constant_score(self, query: Vector) -> float:  # noqa: ARG002
        """The query's score for every arm alike, besides the features of the catalogue: 0."""
        return 0.0

    def features_of(self, rows: Rows) -> Matrix:
        """A copy of the features. Shapes: rows (m,) -> (m, d) float64."""
        # ``take``: of 128 rows a seventh of the time of brackets.
        return self.table.features.take(rows, axis=0)

    @property
    def listed(self) -> Rows:
        """All rows of this snapshot, ascending. Shape: (n,). Cost: K the first time, then nothing."""
        return self.table.live_rows

    def lets_in(self, rows: Rows) -> NDArray[np.bool_]:
        """True for rows of this snapshot. Shapes: (m,) -> (m,)."""
        return self.table.is_alive(rows)

    def eligible(self, exclude: Rows = NO_ROWS) -> Rows:
        """All rows of this snapshot but those excluded, by revision. Shapes: exclude (e,) -> (m,)."""
        rows, _ = self.table.by_revision
        return rows[~np.isin(rows, exclude)] if len(exclude) else rows

    def page(self, after_revision: int, limit: int) -> Rows:
        """The first ``limit`` rows of larger revision, in ascending revision order."""
        rows, revisions = self.table.by_revision
        start = int(revisions.searchsorted(after_revision, side="right"))
        return rows[start : start + limit]

    def sample(self, seed: int, limit: int) -> Rows:
        """At most ``limit`` rows, drawn uniformly without replacement, in the order of the draw.

        The same arms at the same revisions give the same draw in every process.
        """
        rows, _ = self.table.by_revision
        return rows[np.random.default_rng(seed).choice(len(rows), min(limit, len(rows)), replace=False)]

    def _check(self, query: Vector, k: int) -> None:
        if query.shape != (self.table.dim,):
            checks.shape("query", query, (self.table.dim,))
        if k < 1:
            checks.in_range("k", k, least=1)
