"""How searches are answered at one moment: by which structures, how fast, and which work is due."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from typing import Literal

import numpy as np

from app.filters.attribute_snapshot import AttributeSnapshot
from app.indexes.candidates import is_forced
from app.indexes.limits import IndexLimits
from app.indexes.snapshot import ResidentSnapshot
from shortlist.index.exact import measured_scan_cost
from shortlist.index.index import GrowingIndex, Index, IndexKind
from shortlist.index.planner import GROWTH, IndexOptions, Plan, is_small
from shortlist.index.quality import falls_short
from shortlist.index.segments import Segment, SegmentBuild, joined
from shortlist.index.table import TableSnapshot
from shortlist.types import Vector

# When to plan again.
_ADDED = 1.1  # the catalogue has grown by this factor, and the arms that came can be added to the graph
_NEWER_SHARE = 0.2  # what is searched beside the structure takes this share of its time, at rest
_DEAD_IN_INDEX = 0.1  # this share of the index is dead
_DEAD_IN_SEARCH = 0.25  # this share of the arms that a search comes across is dead
_RESERVE_USED = 0.4  # this share of the reserve of long arms is dead


Stage = Literal["empty", "small", "unplanned", "planned", "growing"]
"""How far a catalogue has come. ``small``: too small for a structure. ``unplanned``: nothing was measured
yet. ``growing``: it was planned, and has become so much larger or smaller that another plan is due.
"""


@dataclass(frozen=True, slots=True)
class IndexStatus:
    """What serves, how good it was measured to be, and what it costs. ``reason`` explains ``kind``.

    Recall and ratios are the least of the structure's and the segments'; ``recall_at_10`` is the share that a
    list of ten has of the ten best arms. Of probes whose best arm died since
    they were answered it is not known what is found: they count as missed, until others were answered.
    ``exact``: every search is, also one by ``norm_pruned``. ``fresh``: arms that are scanned.
    ``failure``: why the last work on it failed; what served before serves on. ``build_left_s``: for how many
    seconds more the next structure will be built, by its progress; it is measured after that. None while
    none is built, and until the first part of it is.

    A choice can be repeated: a ``LiveIndex`` of the same arms in the same order, with the same options and
    ``seed``, draws the same probes, except for ``recent_probes`` of them, which are queries that were served.
    Where ``build_threads`` is 1 it also builds the same graph.
    """

    kind: IndexKind
    exact: bool
    state: Literal["ready", "building"]
    size: int
    target_recall: float
    recall_at_1: float
    recall_at_10: float
    recall_at_100: float
    ratio_mean: float
    ratio_min: float
    build_s: float
    build_left_s: float | None
    arms_in_graph: int
    segments: int
    fresh: int
    dead: int
    ef_search: int | None
    expected_us: float
    memory_bytes: int
    reason: str
    failure: str | None
    seed: int
    build_threads: int
    recent_probes: int


@dataclass(frozen=True, eq=False)
class Serving:
    """The parts of an index at one moment: not to be kept, since deaths change them. Times in microseconds.

    ``plan``: the last one, None: nothing was measured yet. ``structure``: None where all arms are scanned, or
    in segments. ``made``: all segments, in their order.
    """

    table: TableSnapshot
    options: IndexOptions
    plan: Plan | None
    structure: Index | None
    made: tuple[Segment, ...]
    limits: IndexLimits = IndexLimits()

    @cached_property
    def segments(self) -> tuple[Segment, ...]:
        """Those that serve: from the first on that leaves out no arm which could win.

        After many deaths shorter arms can: then others are made.
        """
        cut = self.cut_norm
        return tuple(takewhile(lambda segment: segment.cut <= cut, self.made))

    @property
    def cut_norm(self) -> float:
        """Shorter arms cannot win."""
        return self.structure.cut_norm if self.structure is not None else 0.0

    @property
    def covered(self) -> int:
        """Rows below are for the structure."""
        return self.structure.covered if self.structure is not None else 0

    @property
    def fresh(self) -> int:
        """Arms that come after the structure and the segments: they are scanned."""
        segments = self.segments
        return self.table.rows - (segments[-1].covered if segments else self.covered)

    def scan_us(self, rows: float | None = None) -> float:
        """Time of a plain scan of so many rows; None: of all."""
        count = self.table.rows if rows is None else rows
        if self.plan is None or not self.plan.size:
            return measured_scan_cost().us(count * self.table.dim)
        return self.plan.scan_us * count / self.plan.size

    @cached_property
    def search_us(self) -> float:
        """Time of a search of the structure and of all beside it."""
        if self.structure is None or self.plan is None:
            return self.newer_us
        return self.plan.expected_us * self.structure.degradation.slowdown + self.newer_us

    @property
    def newer_us(self) -> float:
        """Time of searching the segments and scanning fresh arms and substitutes."""
        missing = self.structure.degradation.missing if self.structure is not None else 0
        return self.scan_us(self.fresh + missing + sum(segment.scan_rows for segment in self.segments))

    @property
    def is_scan_better(self) -> bool:
        """Whether a scan is faster now, or the structure is too degraded for good answers."""
        if self.structure is not None and self.structure.degradation.is_degraded:
            return True
        is_approximate = self.structure is None or not self.structure.is_exact
        if is_approximate and self.is_too_small:
            return True
        return not is_forced(self.options) and self.search_us > self.scan_us()

    @property
    def stage(self) -> Stage:
        if not self.table.live:
            return "empty"
        if self.is_too_small:
            return "small"
        if self.plan is None:
            return "unplanned"
        return "growing" if self.has_grown or self.growing is not None else "planned"

    def plan_is_due(self, changes: int, *, is_resting: bool, is_at_rest: bool) -> bool:
        """Whether another plan is due, after so many ``changes`` since the last one.

        ``is_resting``: that was just made. ``is_at_rest``: nothing is being written.
        """
        stage, plan = self.stage, self.plan
        if stage == "empty":
            return False
        if stage == "small":
            return self.is_wasteful
        if is_resting and not self.is_urgent:
            return False
        if plan is None or stage == "growing" or changes > self.limits.changed_share * plan.size:
            return True
        return self.is_stale(at_rest=is_at_rest)

    @property
    def is_too_small(self) -> bool:
        """Whether all arms are scanned, however they were searched before."""
        return not is_forced(self.options) and is_small(self.table, self.limits.small_numbers)

    @property
    def is_wasteful(self) -> bool:
        """Whether a catalogue that is too small keeps what it was searched by."""
        is_approximate = self.structure is not None and not self.structure.is_exact
        return is_approximate or bool(self.made) or (self.structure is not None and self.has_grown)

    @property
    def falls_short(self) -> bool:
        """Whether a measurement after deaths found less than the structure found when it was planned."""
        structure, plan = self.structure, self.plan
        if plan is None or structure is None or structure.is_exact or not structure.degradation.dead:
            return False
        return falls_short(structure.degradation.measured, min(self.options.target_recall, plan.recall_at_1))

    @property
    def has_grown(self) -> bool:
        """Whether the catalogue has grown or shrunk so much since the plan that another is due."""
        return self.plan is not None and self.plan.is_outgrown(self.table.live)

    @property
    def is_interim(self) -> bool:
        """Whether the structure was made while the catalogue was growing."""
        return isinstance(self.structure, GrowingIndex) and self.structure.is_interim

    @property
    def growing(self) -> GrowingIndex | None:
        """The structure, if so many arms came since the plan that they are to be added to it, and can be."""
        structure, plan = self.structure, self.plan
        if plan is None or self.table.live <= _ADDED * plan.size or not isinstance(structure, GrowingIndex):
            return None
        return structure if structure.can_grow and not self.is_stale(at_rest=False) else None

    @property
    def is_urgent(self) -> bool:
        """Whether the structure serves no longer, or soon will not."""
        if self.plan is None or self.structure is None:
            return False
        lost = self.structure.degradation
        return self.search_us > self.scan_us() or lost.reserve_used > 1.0 or lost.is_degraded

    def is_stale(self, *, at_rest: bool) -> bool:
        """Whether deaths have spoilt the structure or, ``at_rest``, a better one is worth its while."""
        if self.plan is None or self.structure is None:
            return False
        lost = self.structure.degradation
        return (
            (at_rest and (self.is_interim or self.newer_us > _NEWER_SHARE * self.plan.expected_us))
            or lost.load_share > _DEAD_IN_SEARCH
            or lost.dead > _DEAD_IN_INDEX * self.structure.arms
            or lost.reserve_used > _RESERVE_USED
            or self.falls_short
        )

    @property
    def segment_is_due(self) -> bool:
        """Whether scanning the fresh arms takes long, or a segment has mostly arms that the structure has."""
        if self.options.kind == "exact" or self.table.working.dtype != np.float32 or self.is_too_small:
            return False
        if self.structure is None or self.plan is None:
            # Where a scan was found to be the best, it is until there are many more arms.
            is_planned = self.plan is not None and self.table.live <= self.plan.size * GROWTH
            is_spoilt = any(segment.is_spoilt for segment in self.segments)
            return is_spoilt or (not is_planned and self.fresh * self.table.dim >= self.limits.small_numbers)
        if self._is_half_covered or any(segment.is_spoilt for segment in self.segments):
            return True
        is_slow = self.scan_us(self.fresh) > self.limits.fresh_share * self.plan.expected_us
        return is_slow and self.fresh >= self.limits.least_fresh

    def snapshot(self, recent: deque[Vector], attributes: AttributeSnapshot) -> ResidentSnapshot:
        """What searches go on with, whatever changes."""
        if self.is_scan_better:
            return ResidentSnapshot(self.table, None, (), self.scan_us(), recent, attributes)
        return ResidentSnapshot(self.table, self.structure, self.segments, self.search_us, recent, attributes)

    def segment_build(self, recent: Iterable[Vector], seed: int) -> SegmentBuild:
        """The work that makes the next segment."""
        first, last = self.next_segment(), self.made[-1].structure if self.made else None
        return SegmentBuild(
            table=self.table,
            structure=self.structure,
            first=first,
            cut=self.cut_norm,
            joined=tuple(segment for segment in self.made if segment.covered > first),
            last=last,
            target=self.options.target_recall,
            seed=seed,
            recent=tuple(recent),
        )

    def next_segment(self) -> int:
        """The first row of the segment to make: it takes in the last ones that are not much larger."""
        together = self.made if self._is_half_covered else joined(self.segments, self.fresh)
        firsts = [joined_segment.first for joined_segment in together[:1]]
        firsts += [segment.first for segment in self.segments if segment.is_spoilt]
        return max(min(firsts, default=self.table.rows - self.fresh), self.covered)

    @property
    def _is_half_covered(self) -> bool:
        """Whether the structure has most of the arms of the first segment, which was made meanwhile."""
        first = self.made[0] if self.made else None
        return first is not None and 2 * (self.covered - first.first) > first.covered - first.first
