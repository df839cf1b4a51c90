"""The index of one catalogue in one process: exact at once, faster after maintenance, always up to date.

All changes come from one thread, the event loop; searches run over immutable snapshots in any thread.
Long work (compaction, building, measuring) is done by a ``Maintenance`` in another thread over a frozen
snapshot, while the table goes on growing; ``finish_maintenance`` then applies what happened since, and swaps.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from app.filters.attributes import AttributeTable, Compaction, Document
from app.indexes.arm_rows import DescribedRows
from app.indexes.index import Index
from app.indexes.limits import LIMITS, IndexLimits
from app.indexes.maintenance import Maintenance, Measurement, Measuring
from app.indexes.planner import IndexOptions, Plan
from app.indexes.publishing import Adoption, Publishing
from app.indexes.segments import Segment, SegmentBuild, end_of, fitting
from app.indexes.serving import IndexStatus, Serving
from app.indexes.shared_arms import SharedArms
from app.indexes.shared_format import sweep
from app.indexes.snapshot import Snapshot
from app.indexes.table import ArmTable, TableSnapshot
from app.platform.cpus import usable_cpus
from app.platform.errors import DimensionMismatch
from shortlist import checks
from shortlist.types import Matrix, Rows, Vector

__all__ = ["IndexOptions", "IndexStatus", "LiveIndex", "Maintenance", "Snapshot"]

_RECENT_QUERIES = 256
# When to make a publication: arms and attributes that are not in the last one are this share of what is in
# it, and at rest this one.
_OWN_SHARE, _OWN_AT_REST = 0.4, 0.05
# Several processes leave compactions to their maker. One that waits for it so long that this share is dead
# compacts its own arms. One that waits for segments scans this share of its arms.
_DEAD_ALONE = 0.5
_FRESH_ALONE = 0.15


class LiveIndex:
    """See the module. Everything but ``Maintenance.run`` and searching is for one thread.

    ``cache``: the file that keeps a structure between runs. ``seed`` fixes graphs and probes. ``threads``: of
    a build, by default all cores but one. ``shared``: what several processes share, None: there is only one.
    ``version``: of the catalogue, all of whose changes are here. ``limits``: when work is due.
    """

    holds_arms: Literal[True] = True  # in memory, all of them

    def __init__(
        self,
        dim: int,
        options: IndexOptions | None = None,
        *,
        cache: Path | None = None,
        seed: int = 0,
        threads: int | None = None,
        shared: SharedArms | None = None,
        limits: IndexLimits = LIMITS,
    ) -> None:
        self.limits = limits
        self.failures: dict[str, str] = {}
        self._version = 0
        self._shared = shared
        self.adopted: int | None = None  # the last publication that was looked at,
        self._mapped: int | None = None  # and the one whose arms the table has
        self._shared_plan: Plan | None = None
        self._described = DescribedRows(limits.described_rows)
        self._dim = dim
        self._options = options or IndexOptions()
        self._cache = cache
        self._seed = seed
        self._threads = threads or max(1, usable_cpus() - 1)
        self._table = ArmTable(dim)
        self._attributes = AttributeTable()
        self.structure: Index | None = None
        self.plan: Plan | None = None
        self.segments: tuple[Segment, ...] = ()
        self._job: Maintenance | None = None
        self._job_positions: Rows | None = None  # where its rows are now, if they were renumbered
        self._segment_job: SegmentBuild | None = None
        self._measuring = Measuring()
        self._sharing_job: Adoption | None = None
        self.shares_from = 0.0
        self._snapshot: Snapshot | None = None
        self.rest_until = 0.0
        self._changes = 0
        self.written_at = self._died_at = 0.0
        self._recent: deque[Vector] = deque(maxlen=_RECENT_QUERIES)
        if cache is not None:
            sweep(cache)

    @property
    def version(self) -> int:
        """All changes of the catalogue up to this version are here."""
        return self._version

    @version.setter
    def version(self, version: int) -> None:
        self._version = version
        if self._shared is not None:
            self._described.reached(version)

    @property
    def failure(self) -> str | None:
        """Why the last work failed, of any kind; of shared arms, also where the maker failed."""
        own = next(iter(self.failures.values()), None)
        return own if own is not None or self._shared is None else self._shared.failure

    def __len__(self) -> int:
        return len(self._table)

    def __contains__(self, arm_id: str) -> bool:
        return self._table.row_of(arm_id) is not None

    def reserve(self, arms: int) -> None:
        """Have room for so many arms in all, so that none is copied while they come."""
        self._table.reserve(arms)

    def upsert(self, ids: Sequence[str], features: NDArray[np.float64], revisions: Sequence[int]) -> None:
        """Insert or replace; an arm that is there with this or a later revision is left alone.

        Shapes: ids, revisions (n,), features (n, d). Of an id given twice the last counts.
        Raises: DimensionMismatch, InvalidShape, NonFinite; then nothing was changed.
        """
        self._check(ids, features, revisions)
        rows = self._table.rows_of(ids)
        new = self._table.changed(ids, rows, revisions)
        if not new:
            return
        replaced = [row for row in (rows[position] for position in new) if row is not None]
        if replaced:
            self._tombstone(np.array(replaced, dtype=np.int64))
        self._table.append([ids[position] for position in new], features[new], np.array(revisions)[new])
        self._changes += len(new)
        self.written_at = time.monotonic()
        self._snapshot = None

    def describe(self, ids: Sequence[str], documents: Sequence[Document]) -> None:
        """Give arms their tags and metadata, in place of what they had; unknown ids are ignored.

        An arm that ``upsert`` replaced has none until it is described. Shapes: ids, documents (n,).
        """
        # a catalogue without tags and metadata pays nothing for them
        if self._shared is None and not self._attributes.entries and not any(map(any, documents)):
            return
        rows = self._table.rows_of(ids)
        if self._shared is not None:
            self._described.note(np.array([row for row in rows if row is not None], dtype=np.int64))
        known = [
            (row, document)
            for row, document in zip(rows, documents, strict=True)
            if row is not None and (any(document) or self._attributes.has(row))
        ]
        if known:
            self._attributes.append(
                np.array([row for row, _ in known], dtype=np.int64), [document for _, document in known]
            )
            self._snapshot = None

    def remove(self, ids: Sequence[str]) -> None:
        """Remove arms; unknown ids are ignored."""
        rows = [row for row in self._table.rows_of([*dict.fromkeys(ids)]) if row is not None]
        if rows:
            self._tombstone(np.array(rows, dtype=np.int64))

    def snapshot(self) -> Snapshot:
        """The catalogue as it is now, in constant time."""
        if self._snapshot is None:
            now = self._now
            if now.structure is not None:
                now.structure.refresh(now.table)
            self._snapshot = now.snapshot(self._recent, self._attributes.snapshot())
        return self._snapshot

    def begin_maintenance(self) -> Maintenance | None:
        """Work that is due, or None; also None while earlier work is not finished.

        Of several processes that share their arms one plans and builds.
        """
        if self._job is not None:
            return None
        shared = self._sharing
        if self._compaction_is_due(self.limits.dead_share if shared is None else _DEAD_ALONE):
            self._job = self._maintenance(compaction=True)
        elif self._attributes.is_wasteful:
            self._job = self._maintenance(attributes=self._attributes.begin_compaction())
        elif self._plan_is_due() and (shared is None or shared.is_maker()):
            self._job = self._maintenance(growing=None if self._is_at_rest else self._now.growing)
        self._job_positions = None
        return self._job

    def begin_sharing(self) -> Adoption | None:
        """A publication to adopt, or one to make that is due; None: neither, or that is being done."""
        # while it has no arms nobody knows yet whether it is too small to be shared
        shared = self._shared if self._is_untouched else self._sharing
        if shared is None or self._sharing_job is not None:
            return None
        number = shared.current
        if number is not None and number != self.adopted:
            self._sharing_job = self._adoption(shared)
        elif len(self) and self._publication_is_due(number) and shared.is_maker():
            self._sharing_job = self._publishing(shared, number)
        return self._sharing_job

    def finish_sharing(self, job: Adoption) -> None:
        """Serve what was adopted or made. Work that was cancelled or failed changes nothing."""
        if job is not self._sharing_job:
            return
        self._sharing_job = None
        if isinstance(job, Publishing):
            self.shares_from = time.monotonic() + self.limits.rest * job.seconds
            job.shared.tell(self.failures.get(Publishing.__name__) if job.number is None else None)
        # a table that was compacted meanwhile numbers its rows differently
        if job.number is None or job.table.number != self._table.snapshot().number:
            return
        if job.from_start and not self._is_untouched:
            return
        self.adopted = job.number
        if job.compacted is None:
            return
        self._mapped, self._shared_plan = job.number, job.plan
        if isinstance(job, Publishing):
            self._swap_shared(job, job.compacted)
        else:
            self.structure, self.segments = None, ()  # those of the publication take their place
            self._swap_shared(job, job.compacted)
            self._adopt_search(job)
        if job.from_start:
            self.version = job.version
        self._snapshot = None

    def finish_maintenance(self, job: Maintenance) -> None:
        """Apply what happened since the work began to its result, and serve that.

        Work that was cancelled or failed changes nothing.
        """
        if job is not self._job:
            return
        self._job = None
        if job.attributes is not None:
            self._attributes.finish_compaction(job.attributes)
        elif job.compacted is not None:
            if job.table.number == self._table.snapshot().number:  # else its rows have other numbers now
                self._swap_table(job.compacted, job.table, job.positions)
        elif job.plan is not None:
            self._take_plan(job.plan, job.structure, job.table)
        now = self._now
        is_growing = now.has_grown or now.growing is not None
        rest = self.limits.short_rest if is_growing else self.limits.rest
        self.rest_until = time.monotonic() + rest * job.seconds
        self._snapshot = None

    def begin_segment(self) -> SegmentBuild | None:
        """A segment of fresh arms that is due, or None; it may be made while other work is going on."""
        now = self._now
        if self._segment_job is not None or not now.segment_is_due:
            return None
        if self._awaits_graph() or self._awaits_segments():
            return None
        self._segment_job = now.segment_build(self._recent, self._seed)
        return self._segment_job

    def finish_segment(self, job: SegmentBuild) -> None:
        """Serve the segment. One that was cancelled or whose rows have other numbers now changes nothing."""
        if job is not self._segment_job:
            return
        self._segment_job = None
        made, table = job.segment, self._table.snapshot()
        if made is None or job.table.number != table.number:
            return
        made.structure.tombstone(table.dead[len(job.table.dead) :])
        others = tuple(segment for segment in self.segments if segment.covered <= made.first)
        self.segments = fitting((*others, made), self.structure)
        self._snapshot = None

    def begin_measurement(self) -> Measurement | None:
        """Measuring a graph again after deaths, or None; it may go on while there is other work."""
        graph, died_s = self.structure, time.monotonic() - self._died_at
        if graph is None or not graph.is_remeasured:
            return None
        is_at_rest = died_s > self.limits.at_rest_s
        if not self._measuring.is_due(graph, self._recent, self.limits, is_at_rest=is_at_rest):
            return None
        return self._measuring.begin(self._table.snapshot(), graph, self._recent, self._seed)

    def finish_measurement(self, job: Measurement) -> None:
        """Tell what was found, unless the graph serves no longer."""
        self._measuring.finish(job, self.structure, self._options.target_recall)
        self._snapshot = None

    def status(self) -> IndexStatus:
        own = self._table.memory_bytes + self._attributes.memory_bytes
        return self._now.status(
            self.snapshot(),
            is_building=self._job is not None,
            memory_bytes=own + sum(part.memory_bytes for part in self._structures),
            failure=self.failure,
            seed=self._seed,
            build_threads=self._threads,
        )

    def _maintenance(
        self, *, compaction: bool = False, attributes: Compaction | None = None, growing: Index | None = None
    ) -> Maintenance:
        return Maintenance(
            table=self._table.snapshot(),
            options=self._options,
            compaction=compaction,
            load_from=self._cache if self.plan is None else None,
            save_to=self._cache,
            seed=self._seed,
            recent=tuple(self._recent),
            threads=self._threads,
            attributes=attributes,
            growing=growing,
            limits=self.limits,
        )

    def _adoption(self, shared: SharedArms) -> Adoption:
        return Adoption(
            shared=shared,
            table=self._table.snapshot(),
            own=self._attributes.snapshot(),
            described=self._described.until_now(),
            from_start=self._is_untouched,
        )

    def _publishing(self, shared: SharedArms, number: int | None) -> Publishing:
        return Publishing(
            shared=shared,
            table=self._table.snapshot(),
            own=self._attributes.snapshot(),
            described=self._described.until_now(),
            version=self.version,
            plan=self.plan,
            structure=self.structure,
            segments=self._now.segments,
            same_arms=number if self._table.is_as_mapped and self._mapped == number else None,
            cache=self._cache,
        )

    def _publication_is_due(self, number: int | None) -> bool:
        """Whether the last publication, of this number, lacks a part of what is here, or much of it died."""
        if number is None or (self.plan is not self._shared_plan and not self._now.is_interim):
            return True
        if time.monotonic() < self.shares_from:
            return False
        table, attributes = self._table.snapshot(), self._attributes
        mapped = table.ids.mapped
        own = max(table.rows - mapped, attributes.entries - attributes.mapped)
        if own > (_OWN_AT_REST if self._is_at_rest else _OWN_SHARE) * mapped:
            return True
        return self._compaction_is_due(self.limits.dead_share)

    @property
    def _sharing(self) -> SharedArms | None:
        """What is shared with others, None of a catalogue that each process scans for itself."""
        is_small = len(self) * self._dim < self.limits.shared_numbers and not self._options.is_forced
        return None if is_small else self._shared

    @property
    def _is_untouched(self) -> bool:
        """Whether nothing of the catalogue was ever here."""
        return not self._version and not self._table.snapshot().rows

    def _tombstone(self, rows: Rows) -> None:
        self._died_at = time.monotonic()
        self._table.tombstone(rows)
        for structure in self._structures:
            structure.tombstone(rows)
        self._snapshot = None

    @property
    def _structures(self) -> list[Index]:
        """All that is searched, but for fresh arms."""
        main = [] if self.structure is None else [self.structure]
        return [*main, *(segment.structure for segment in self.segments)]

    def _adopt_search(self, job: Adoption) -> None:
        """Search as the maker of a publication does."""
        self.plan, self.structure, self.segments = job.plan, job.structure, job.segments
        for structure in self._structures:
            structure.tombstone(self._table.snapshot().dead)
        self._changes = 0

    def _take_plan(self, plan: Plan, structure: Index | None, since: TableSnapshot) -> None:
        """Serve by a structure that was built over an earlier moment; keep the segments that follow it."""
        self.plan, self._changes = plan, 0
        if structure is None and not self._now.has_grown:
            self.segments = ()  # a scan is better
        table, positions = self._table.snapshot(), self._job_positions
        if structure is not None and positions is not None:
            # Arms that died before a compaction have no row after it: the structure knows their old rows.
            structure.tombstone(np.flatnonzero(since.is_alive(np.arange(since.rows)) & (positions < 0)))
            structure = structure.moved(positions, end_of(positions[: structure.covered]))
        if structure is not None:
            # after a compaction the list of dead rows starts again
            structure.tombstone(table.dead[len(since.dead) if positions is None else 0 :])
        self.structure = structure
        self.segments = fitting(self.segments, structure)

    def _swap_table(self, table: ArmTable, since: TableSnapshot, position: Rows) -> None:
        """Take a table that was made of an earlier moment; ``position``: of the rows of ``since`` in it."""
        positions = self._swap_arms(table, since, position)
        self._attributes.moved(positions)
        self._described = self._described.after(-1, positions)

    def _swap_arms(self, table: ArmTable, since: TableSnapshot, position: Rows) -> Rows:
        """Take such a table, and say where all rows are now. The attributes are for the caller."""
        until = self._table.snapshot()
        positions = table.catch_up(since, until, position)
        table.replaces(until, positions)
        there = positions[positions >= 0]
        if (there[1:] > there[:-1]).all():
            if self.structure is not None:
                self.structure = self.structure.moved(positions, end_of(positions[: self.structure.covered]))
            self.segments = tuple(segment.moved(positions) for segment in self.segments)
            self._follow_job(positions)
        else:  # rows that a structure has are between others now, those of one that is being built too
            self.structure, self.segments, self._job = None, (), None
        self._table = table
        return positions

    def _follow_job(self, positions: Rows) -> None:
        """Note where the rows are now that the work under way is about."""
        if self._job is not None:
            before = self._job_positions
            known = np.arange(self._job.table.rows) if before is None else before
            self._job_positions = np.append(positions, -1)[known]

    def _swap_shared(self, job: Adoption, table: ArmTable) -> None:
        """Take the arms and attributes of a publication, and what came since the work on it began."""
        described, since = self._described, self._described.since(job.described)
        positions = self._swap_arms(table, job.table, job.positions)
        made = job.attributes or AttributeTable()
        made.take_rows(self._attributes.snapshot(), since[positions[since] >= 0], positions)
        made.follow(self._attributes, positions)
        self._attributes = made
        self._described = described.after(job.version, positions)

    @property
    def _now(self) -> Serving:
        """What there is at this moment."""
        table, options = self._table.snapshot(), self._options
        return Serving(table, options, self.plan, self.structure, self.segments, self.limits)

    def _awaits_segments(self) -> bool:
        """Whether another process will soon have made segments of the fresh arms for all."""
        now = self._now
        few = now.fresh < _FRESH_ALONE * now.table.rows
        return few and self._sharing is not None and not self._sharing.is_maker()

    def _awaits_graph(self) -> bool:
        """Whether the graph of an earlier run may soon serve most arms."""
        return self.plan is None and self._cache is not None and self._cache.exists()

    def _compaction_is_due(self, share: float) -> bool:
        table = self._table.snapshot()
        return len(table.dead) > max(self.limits.least_dead, share * table.rows)

    def _plan_is_due(self) -> bool:
        now, moment = self._now, time.monotonic()
        if not now.table.live:
            return False
        if now.is_too_small:
            return now.is_wasteful
        if moment < self.rest_until and not now.is_urgent:
            return False
        changed = self.limits.changed_share
        if now.plan is None or now.has_grown or self._changes > changed * now.plan.size:
            return True
        return now.growing is not None or now.is_stale(at_rest=self._is_at_rest)

    @property
    def _is_at_rest(self) -> bool:
        return time.monotonic() > self.written_at + self.limits.at_rest_s

    def _check(self, ids: Sequence[str], features: Matrix, revisions: Sequence[int]) -> None:
        checks.shape("features", features, (len(ids), None))
        if features.shape[1] != self._dim:
            raise DimensionMismatch(f"features must have {self._dim} numbers", path=("features",))
        checks.shape("revisions", np.asarray(revisions), (len(ids),))
        checks.finite("features", features)
