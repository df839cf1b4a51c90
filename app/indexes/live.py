"""The index of one catalogue in one process: exact at once, faster after maintenance, always up to date.

The stages of a catalogue (``Serving.stage``), and the work between them:

    empty
      |  arms come
      v
    small, unplanned    all arms are scanned
      |  begin_maintenance: probes are answered by each possible structure
      v
    planned             the fastest structure serves, or a scan; arms that came since are scanned beside it.
      |                 After deaths it is measured again (begin_measurement), and scanned where it finds too
      |                 little
      |  many arms come or go: to scan those beside it takes as long as to search it
      v
    growing             it serves on. The arms are added to a copy of it, or another one is built:
      |  begin_maintenance
      v
    planned

Dead rows are taken out by a compaction, which renumbers the rows (begin_maintenance). Of several processes
one makes publications, and the others take arms and structures from these (begin_sharing).

All changes come from one thread, the event loop; searches run over immutable snapshots in any thread. Work is
done in another thread over a frozen snapshot, while the catalogue goes on changing: ``finish`` applies all
changes since, and serves the result. Cancelled or failed work changes nothing.

Three kinds of work may be under way at once, one of each kind; all but sharing take turns (``cancellation``).
New and deleted arms spoil none of them. Work of another kind may, by renumbering the rows:

    begin_         what it does                 when rows were renumbered meanwhile
    maintenance    compacts the arms            dropped: only a publication can have done that
                   compacts the attributes      dropped: likewise
                   plans and builds             follows the rows; dropped, if their order is another one
    measurement    probes a graph again         holds, as long as the graph is the same
    sharing        takes or makes arms of all   dropped, and begun again

The caller who runs work finishes it, however it ended.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from app.filters.attributes import Document
from app.indexes.content import IndexContent
from app.indexes.described_rows import DescribedRows
from app.indexes.index_kinds import is_forced, saving_of
from app.indexes.index_limits import IndexLimits
from app.indexes.maintenance import Maintenance, Measurement, Measuring
from app.indexes.publishing import Adoption, Publishing
from app.indexes.search_structures import IndexStatus, Serving
from app.indexes.shared_arms import SharedArms
from app.indexes.sharing import Sharing
from app.indexes.snapshot import Snapshot
from app.platform.errors import DimensionMismatch
from app.platform.machine import usable_cpus
from shortlist import checks
from shortlist.index.index import RemeasuredIndex
from shortlist.index.planner import SMALL, IndexOptions
from shortlist.index.quality import EXACT
from shortlist.index.shared_format import sweep
from shortlist.types import Vector

__all__ = ["IndexOptions", "IndexStatus", "LiveIndex", "Maintenance", "Work"]

_RECENT_QUERIES = 256
# Several processes leave compactions to their maker. A process which waits until this share is dead compacts
# its own arms.
_DEAD_ALONE = 0.5

Work = Maintenance | Measurement | Adoption
"""Long work that ``run`` does in any thread, and that stops early once it is told to ``cancel``."""


class LiveIndex:
    """See the module. Everything but ``run`` of a job and searching is for one thread.

    ``cache``: the file with a structure, kept between runs. ``seed`` fixes graphs and probes. ``threads``: of
    a build, by default all cores but one. ``shared``: the files of several processes, None for one process.
    ``limits``: when work is due.

    ``content``      the arms, their attributes and the structure
    ``sharing``      with other processes; None: there is only one
    ``failures``     why the last work of a kind failed, by the kind
    ``rest_until``   no plan is made earlier, unless the present structure soon cannot serve
    ``written_at``   when an arm last came
    ``settles_at``   without due work after this moment, none will be due until a change, which moves this
                     moment
    """

    def __init__(
        self,
        dim: int,
        options: IndexOptions | None = None,
        *,
        cache: Path | None = None,
        seed: int = 0,
        threads: int | None = None,
        shared: SharedArms | None = None,
        limits: IndexLimits = IndexLimits(),
    ) -> None:
        self.limits = limits
        self.failures: dict[str, str] = {}
        self.sharing = None if shared is None else Sharing(shared, limits)
        self.rest_until = 0.0
        self.written_at = self._died_at = 0.0
        self._dim = dim
        self._options = options or IndexOptions()
        self._cache = cache
        self._seed = seed
        self._threads = threads or max(1, usable_cpus() - 1)
        self.content = IndexContent(dim, DescribedRows(limits.described_rows))
        self._version = 0
        self._job: Maintenance | None = None
        self._measuring = Measuring()
        self._snapshot: Snapshot | None = None
        self._recent: deque[Vector] = deque(maxlen=_RECENT_QUERIES)
        if cache is not None:
            sweep(cache)
        self._note_change()

    @property
    def version(self) -> int:
        """All changes of the catalogue up to this version are here."""
        return self._version

    @version.setter
    def version(self, version: int) -> None:
        self._version = version
        # A number alone changes no answer, but a publication is of a version.
        if self.sharing is not None:
            self.content.described.reached(version)
            self._note_change()

    @property
    def failure(self) -> str | None:
        """Why the last work failed, of any kind; of shared arms, also where the maker failed."""
        failure = next(iter(self.failures.values()), None)
        return failure if failure is not None or self.sharing is None else self.sharing.shared.failure

    @property
    def resident(self) -> LiveIndex:
        """All arms of the catalogue in memory: itself. None of a catalogue whose arms are in an engine."""
        return self

    def __len__(self) -> int:
        return len(self.content.table)

    def __contains__(self, arm_id: str) -> bool:
        return self.content.table.row_of(arm_id) is not None

    def reserve(self, arms: int) -> None:
        """Have room for so many arms in all, so none is copied while they come."""
        self.content.table.reserve(arms)

    def upsert(
        self,
        ids: Sequence[str],
        features: NDArray[np.float64],
        revisions: Sequence[int],
        came: Sequence[int] | None = None,
    ) -> None:
        """Insert or replace; an arm already there with this or a later revision is left alone.

        Shapes: ids, revisions, came (n,), features (n, d). Of an id given twice the last counts.
        ``came`` None: it is not known when any of them came.
        Raises: DimensionMismatch, InvalidShape, NonFinite; then nothing was changed.
        """
        checks.shape("features", features, (len(ids), None))
        if features.shape[1] != self._dim:
            raise DimensionMismatch(f"features must have {self._dim} numbers", path=("features",))
        checks.shape("revisions", np.asarray(revisions), (len(ids),))
        checks.finite("features", features)
        replaced = self.content.upsert(ids, features, revisions, came)
        if replaced is None:
            return
        self.written_at = time.monotonic()
        if replaced:
            self._died_at = self.written_at
        self._note_change()

    def describe(self, ids: Sequence[str], documents: Sequence[Document]) -> None:
        """Give arms their tags and metadata, in place of the former ones; unknown ids are ignored.

        A replaced arm (``upsert``) has none until it is described. Shapes: ids, documents (n,).
        """
        content = self.content
        # a catalogue without tags and metadata pays nothing for them
        if self.sharing is None and not content.attributes.entries and not any(map(any, documents)):
            return
        rows = content.table.rows_of(ids)
        if self.sharing is not None:
            content.described.note(np.array([row for row in rows if row is not None], dtype=np.int64))
        if content.describe(rows, documents):
            self._note_change()

    def remove(self, ids: Sequence[str]) -> None:
        """Remove arms; unknown ids are ignored."""
        rows = [row for row in self.content.table.rows_of([*dict.fromkeys(ids)]) if row is not None]
        if rows:
            self.content.tombstone(np.array(rows, dtype=np.int64))
            self._died_at = time.monotonic()
            self._note_change()

    def snapshot(self) -> Snapshot:
        """The catalogue as it is now, in constant time."""
        if self._snapshot is None:
            serving = self._serving
            if serving.structure is not None:
                serving.structure.refresh(serving.table)
            self._snapshot = serving.snapshot(self._recent, self.content.attributes.snapshot())
        return self._snapshot

    def begin_maintenance(self) -> Maintenance | None:
        """Due work, or None; also None while earlier work is not finished.

        A compaction comes first, for a plan is of the remaining rows. Of several processes with shared arms
        one plans and builds.
        """
        if self._job is not None:
            return None
        serving, content = self._serving, self.content
        compaction, attributes, growing, is_at_rest = False, None, None, self._is_at_rest
        if self.limits.compaction_is_due(serving.table, _DEAD_ALONE if self._is_shared else None):
            compaction = True
        elif content.attributes.is_wasteful:
            attributes = content.attributes.begin_compaction()
        elif (
            serving.plan_is_due(
                content.changes, is_resting=time.monotonic() < self.rest_until, is_at_rest=is_at_rest
            )
            and not self._others_make
        ):
            growing = None if is_at_rest else serving.growing  # built anew it is better, and nobody waits
        else:
            return None
        self._job = Maintenance(
            table=serving.table,
            options=self._options,
            compaction=compaction,
            load_from=self._cache if content.plan is None else None,  # what an earlier run has built
            save_to=self._cache,
            seed=self._seed,
            recent=tuple(self._recent),
            threads=self._threads,
            attributes=attributes,
            growing=growing,
            limits=self.limits,
        )
        return self._job

    def begin_measurement(self) -> Measurement | None:
        """Measuring a graph again after deaths, or None; it may go on while there is other work."""
        graph = self.content.structure
        if not isinstance(graph, RemeasuredIndex):
            return None
        is_at_rest = time.monotonic() - self._died_at > self.limits.at_rest_s
        if not self._measuring.is_due(graph, self._recent, self.limits, is_at_rest=is_at_rest):
            return None
        return self._measuring.begin(self.content.table.snapshot(), graph, self._recent, self._seed)

    def begin_sharing(self) -> Adoption | None:
        """A publication to adopt, or a due one to make; None: neither, or the work is under way."""
        if self.sharing is None or not self._may_be_shared:
            return None
        return self.sharing.begin(
            self.content,
            self._serving,
            self.version,
            self._cache,
            from_start=self._is_untouched,
            is_at_rest=self._is_at_rest,
        )

    def finish(self, job: Work, error: Exception | None = None) -> None:
        """Serve the result of work of any kind, unless dropped meanwhile. ``error``: the reason of a
        failure.
        """
        if error is None:
            self.failures.pop(type(job).__name__, None)
        else:
            self.failures[type(job).__name__] = f"{type(error).__name__}: {error}"
        content = self.content
        if isinstance(job, Measurement):
            self._measuring.finish(job, content.structure, self._options.target_recall)
        elif isinstance(job, Adoption) and self.sharing is not None:
            # Others are told why there is no publication.
            failure, is_untouched = self.failures.get(Publishing.__name__), self._is_untouched
            compacted = self.sharing.finish(job, content, failure, is_untouched=is_untouched)
            if compacted is None:
                return
            positions, is_in_order = content.take_publication(job, compacted)
            if not is_in_order:  # work under way is about rows that are between others now
                self._job = None
            elif self._job is not None:
                self._job.follow(positions)
            if job.from_start:
                self.version = job.version
        elif isinstance(job, Maintenance) and job is self._job:
            self._job = None
            content.take(job)
            rest_factor = (
                self.limits.short_rest if self._serving.stage == "growing" else self.limits.work_rest
            )
            self.rest_until = time.monotonic() + rest_factor * job.seconds
        else:
            return
        self._note_change()

    def status(self) -> IndexStatus:
        serving, snapshot, job = self._serving, self.snapshot(), self._job
        plan, structure = serving.plan, serving.structure
        quality = EXACT if snapshot.structure is None else snapshot.structure.quality
        return IndexStatus(
            kind=snapshot.kind,
            exact=snapshot.is_exact,
            state="ready" if job is None else "building",
            size=snapshot.size,
            target_recall=self._options.target_recall,
            recall_at_1=quality.recall_at_1,
            recall_at_10=quality.recall_at_10,
            recall_at_100=quality.recall_at_100,
            ratio_mean=quality.ratio_mean,
            ratio_min=quality.ratio_min,
            build_s=plan.build_s if plan else 0.0,
            build_left_s=None if job is None else job.left_s(),
            arms_in_graph=0 if structure is None or structure.is_exact else structure.arms,
            fresh=snapshot.fresh,
            dead=len(serving.table.dead),
            ef_search=plan.ef_search if plan and snapshot.structure is not None else None,
            expected_us=snapshot.expected_us,
            memory_bytes=self.content.memory_bytes,
            reason=plan.reason if plan else SMALL if serving.is_too_small else self._why_unplanned,
            failure=self.failure,
            seed=self._seed,
            build_threads=self._threads,
            recent_probes=plan.recent_probes if plan else 0,
        )

    def _note_change(self) -> None:
        """Drop the snapshot: what it serves is outdated, and work may be due."""
        self._snapshot = None
        # Queries and other processes can make work due too: of graphs, and of what is shared or may be.
        if self._may_be_shared or isinstance(self.content.structure, RemeasuredIndex):
            self.settles_at = math.inf
        else:
            self.settles_at = max(time.monotonic() + self.limits.at_rest_s, self.rest_until)

    @property
    def _serving(self) -> Serving:
        """The arms and the structure at this moment."""
        content = self.content
        return Serving(content.table.snapshot(), self._options, content.plan, content.structure, self.limits)

    @property
    def _is_shared(self) -> bool:
        """True if other processes take these arms from publications. Each scans a small catalogue itself."""
        is_small = len(self) * self._dim < self.limits.shared_numbers and not is_forced(self._options)
        return self.sharing is not None and not is_small

    @property
    def _may_be_shared(self) -> bool:
        """As ``_is_shared``, and True without arms: the size of the catalogue is still unknown."""
        return self._is_shared or (self.sharing is not None and self._is_untouched)

    @property
    def _is_untouched(self) -> bool:
        """True if no part of the catalogue was ever here."""
        return not self._version and not self.content.table.snapshot().rows

    @property
    def _is_at_rest(self) -> bool:
        return time.monotonic() > self.written_at + self.limits.at_rest_s

    @property
    def _why_unplanned(self) -> str:
        if not self._others_make:
            return "not measured yet"
        kind = self._options.kind
        if is_forced(self._options) and saving_of(kind) is None:
            return f"{kind} serves in the process that builds it: it is not shared between processes"
        return "not measured here: another process measures for all"

    @property
    def _others_make(self) -> bool:
        """True if another process plans, builds and publishes for this one."""
        return self.sharing is not None and self._is_shared and not self.sharing.shared.is_maker()
