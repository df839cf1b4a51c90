"""The index of one catalogue in one process: exact at once, faster after maintenance, always up to date.

All changes come from one thread, the event loop; searches run over immutable snapshots in any thread.
Long work (compaction, building, measuring) is done by a ``Maintenance`` in another thread over a frozen
view, while the table goes on growing; ``finish_maintenance`` then applies what happened since, and swaps.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from app.algorithms import checks
from app.algorithms.types import NO_ROWS, Matrix, Rows, TopK, Vector
from app.errors import DimensionMismatch
from app.indexes.exact import scan
from app.indexes.table import ArmTable, ArmView

Kind = Literal["exact", "norm_pruned", "hnsw"]

_LEAST_DEAD = 1_024
_DEAD_SHARE = 0.2
_US_PER_READ = 1.3e-3


@dataclass(frozen=True, slots=True)
class IndexOptions:
    """What a catalogue's owner may fix; the rest is measured.

    ``m`` and ``ef_construction`` shape the HNSW graph; ``ef_search`` None means: chosen by measuring;
    ``shortlist`` is the number of arms that are scored again in float64.
    """

    kind: Literal["auto", "exact", "hnsw"] = "auto"
    m: int = 16
    ef_construction: int = 80
    ef_search: int | None = None
    shortlist: int = 30


@dataclass(frozen=True, slots=True)
class IndexStatus:
    """What serves, how good it was measured to be, and what it costs."""

    kind: Kind
    state: Literal["ready", "building"]
    size: int
    recall_at_1: float = 1.0
    ratio_mean: float = 1.0
    ratio_min: float = 1.0
    build_s: float = 0.0
    arms_in_graph: int = 0
    fresh: int = 0
    dead: int = 0
    ef_search: int | None = None
    expected_us: float = 0.0
    memory_bytes: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """The catalogue at one moment; safe to search from any thread. A ``MipsSolver``."""

    view: ArmView
    expected_us: float

    @property
    def size(self) -> int:
        return self.view.live

    def search(self, query: Vector, k: int, exclude: Rows = NO_ROWS) -> TopK:
        """Return the ``k`` arms of largest score outside ``exclude``. Raises NonFinite, InvalidShape."""
        return self.search_exact(query, k, exclude)

    def search_exact(self, query: Vector, k: int, exclude: Rows = NO_ROWS) -> TopK:
        """As ``search``, and every eligible arm is compared."""
        self._check(query, k)
        return scan(self.view, query, k, exclude)

    def rows_of(self, ids: Iterable[str]) -> Rows:
        """Rows of the arms that are in this snapshot; unknown ids are left out."""
        return self.view.rows_of(ids)

    def id_of(self, row: int) -> str:
        return self.view.ids[row]

    def revision_of(self, row: int) -> int:
        return int(self.view.revisions[row])

    def features_of(self, rows: Rows) -> Matrix:
        """A copy of the features. Shapes: rows (m,) -> (m, d) float64."""
        return self.view.features[rows]

    def page(self, after_revision: int, limit: int) -> Rows:
        """The first ``limit`` rows of larger revision, in ascending revision order."""
        rows = self.view.by_revision
        start = int(self.view.revisions[rows].searchsorted(after_revision, side="right"))
        return rows[start : start + limit]

    def _check(self, query: Vector, k: int) -> None:
        if query.shape != (self.view.dim,):
            checks.shape("query", query, (self.view.dim,))
        if k < 1:
            checks.in_range("k", k, least=1)


class Maintenance:
    """Long work on a frozen view: ``run`` in any thread, then ``LiveIndex.finish_maintenance``."""

    def __init__(self, view: ArmView) -> None:
        self.view = view
        self.table: ArmTable | None = None

    def run(self) -> None:
        self.table = ArmTable.compacted(self.view)


class LiveIndex:
    """See the module. Everything but ``Maintenance.run`` and searching is for one thread."""

    def __init__(
        self, dim: int, options: IndexOptions | None = None, *, cache: Path | None = None, seed: int = 0
    ) -> None:
        self._dim = dim
        self._options = options or IndexOptions()
        self._cache = cache
        self._seed = seed
        self._table = ArmTable(dim)
        self._job: Maintenance | None = None
        self._snapshot: Snapshot | None = None

    def __len__(self) -> int:
        return len(self._table)

    def __contains__(self, arm_id: object) -> bool:
        return arm_id in self._table

    def upsert(self, ids: Sequence[str], features: NDArray[np.float64], revisions: Sequence[int]) -> None:
        """Insert or replace; an arm that is there with this or a later revision is left alone.

        Shapes: ids, revisions (n,), features (n, d). Of an id given twice the last counts.
        Raises: DimensionMismatch, InvalidShape, NonFinite; then nothing was changed.
        """
        self._check(ids, features, revisions)
        new = self._table.changed(ids, revisions)
        if not new:
            return
        rows = [row for row in map(self._table.row_of, (ids[i] for i in new)) if row is not None]
        self._bury(rows)
        self._table.append([ids[i] for i in new], features[new], np.array([revisions[i] for i in new]))
        self._snapshot = None

    def remove(self, ids: Sequence[str]) -> None:
        """Remove arms; unknown ids are ignored."""
        self._bury([row for row in map(self._table.row_of, dict.fromkeys(ids)) if row is not None])

    def snapshot(self) -> Snapshot:
        """The catalogue as it is now, in constant time."""
        if self._snapshot is None:
            view = self._table.view()
            self._snapshot = Snapshot(view, expected_us=view.rows * view.dim * _US_PER_READ / 4)
        return self._snapshot

    def begin_maintenance(self) -> Maintenance | None:
        """Work that is due, or None; also None while earlier work is not finished."""
        view = self._table.view()
        due = len(view.dead) > max(_LEAST_DEAD, _DEAD_SHARE * view.rows)
        if self._job is not None or not due:
            return None
        self._job = Maintenance(view)
        return self._job

    def finish_maintenance(self, job: Maintenance) -> None:
        """Apply what happened since the work began to its result, and serve that."""
        if job is not self._job:
            return
        self._job = None
        if job.table is not None:
            job.table.catch_up(job.view, self._table.view())
            self._table = job.table
        self._snapshot = None

    def status(self) -> IndexStatus:
        snapshot = self.snapshot()
        return IndexStatus(
            kind="exact",
            state="building" if self._job else "ready",
            size=snapshot.size,
            dead=len(snapshot.view.dead),
            expected_us=snapshot.expected_us,
        )

    def _bury(self, rows: Sequence[int]) -> None:
        if rows:
            self._table.kill(np.array(rows, dtype=np.int64))
            self._snapshot = None

    def _check(self, ids: Sequence[str], features: Matrix, revisions: Sequence[int]) -> None:
        checks.shape("features", features, (len(ids), None))
        if features.shape[1] != self._dim:
            raise DimensionMismatch(f"features must have {self._dim} numbers", loc=("features",))
        checks.shape("revisions", np.asarray(revisions), (len(ids),))
        checks.finite("features", features)
