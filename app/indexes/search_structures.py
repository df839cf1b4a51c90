"""The answer to searches at one moment: by which structures, how fast, and with which work due."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from app.filters.attribute_snapshot import AttributeSnapshot
from app.indexes.index_kinds import is_forced
from app.indexes.index_limits import IndexLimits
from app.indexes.snapshot import Snapshot
from shortlist.index.exact import measured_scan_cost
from shortlist.index.index import GrowingIndex, Index, IndexKind
from shortlist.index.planner import IndexOptions, Plan, is_small
from shortlist.index.quality import falls_short
from shortlist.index.table import TableSnapshot
from shortlist.types import Vector

# When to plan again.
_NEWER_AT_REST = 0.2  # a scan of the arms beside the structure takes this share of its time
_DEAD_IN_INDEX = 0.1  # this share of the index is dead
_DEAD_IN_SEARCH = 0.25  # this share of the arms that a search comes across is dead
_RESERVE_USED = 0.4  # this share of the reserve of long arms is dead


Stage = Literal["empty", "small", "unplanned", "planned", "growing"]
"""How far a catalogue has come. ``small``: too small for a structure. ``unplanned``: nothing was measured
yet. ``growing``: it was planned, and has become so much larger or smaller that another plan is due.
"""


@dataclass(frozen=True, slots=True)
class IndexStatus:
    """The state of a catalogue's index: the structure, its measured quality, and its cost. ``reason``
    explains ``kind``.

    ``recall_at_10``: share of the ten best arms in a list of ten. Probes whose best arm died since their
    answer count as missed, until others were answered. ``exact``: every search is exact, also one by
    ``norm_pruned``. ``fresh``: scanned arms. ``failure``: why the last work failed; the former structure
    serves on. ``build_left_s``: seconds until the next structure is built, by its progress; the measurement
    follows. None while none is built, and until its first part is.

    A choice can be repeated: a ``LiveIndex`` of the same arms in the same order, with the same options and
    ``seed``, draws the same probes, except for ``recent_probes`` of them, served queries. With one of
    ``build_threads`` the graph is the same, too.
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

    ``plan``: the last one, None: nothing was measured yet. ``structure``: None where all arms are scanned.
    """

    table: TableSnapshot
    options: IndexOptions
    plan: Plan | None
    structure: Index | None
    limits: IndexLimits = IndexLimits()

    @property
    def fresh(self) -> int:
        """Scanned arms: they came after the structure was built."""
        return self.table.rows - self.structure.covered if self.structure is not None else 0

    def scan_us(self, rows: float | None = None) -> float:
        """Time of a plain scan of so many rows; None: of all."""
        count = self.table.rows if rows is None else rows
        if self.plan is None or not self.plan.size:
            return measured_scan_cost().us(count * self.table.dim)
        return self.plan.scan_us * count / self.plan.size

    @cached_property
    def search_us(self) -> float:
        """Time of a search of the structure and of all rows beside it."""
        if self.structure is None or self.plan is None:
            return self.scan_us()
        return self.plan.expected_us * self.structure.degradation.slowdown + self.newer_us

    @property
    def newer_us(self) -> float:
        """Time of scanning fresh arms and substitutes."""
        missing = self.structure.degradation.missing if self.structure is not None else 0
        return self.scan_us(self.fresh + missing)

    @property
    def is_scan_better(self) -> bool:
        """True if a scan is faster now, or the structure is too degraded for good answers."""
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
        """True if another plan is due, after so many ``changes`` since the last one.

        ``is_resting``: the last one was just made. ``is_at_rest``: nobody writes.
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
        """True if all arms are scanned for the catalogue's small size, whatever structure there was."""
        return not is_forced(self.options) and is_small(self.table, self.limits.small_numbers)

    @property
    def is_wasteful(self) -> bool:
        """True if a too small catalogue still keeps a structure."""
        is_approximate = self.structure is not None and not self.structure.is_exact
        return is_approximate or (self.structure is not None and self.has_grown)

    @property
    def falls_short(self) -> bool:
        """True if a measurement after deaths found less than the structure found when it was planned."""
        structure, plan = self.structure, self.plan
        if plan is None or structure is None or structure.is_exact or not structure.degradation.dead:
            return False
        return falls_short(structure.degradation.measured, min(self.options.target_recall, plan.recall_at_1))

    @property
    def has_grown(self) -> bool:
        """True if the catalogue has grown or shrunk enough for another plan."""
        return self.plan is not None and self.plan.is_outgrown(self.table.live)

    @property
    def is_interim(self) -> bool:
        """True if the structure was made while the catalogue was growing."""
        return isinstance(self.structure, GrowingIndex) and self.structure.is_interim

    @property
    def growing(self) -> GrowingIndex | None:
        """The structure, if it has to take over newer arms, and can grow."""
        structure = self.structure
        if not isinstance(structure, GrowingIndex) or not structure.can_grow or self.is_spoilt:
            return None
        return structure if self.is_outweighed(self.limits.newer_share) else None

    def is_outweighed(self, share: float) -> bool:
        """True if a scan of the arms beside the structure takes more than this share of a search with it."""
        if self.plan is None or self.structure is None:
            return False
        return self.newer_us > share * self.plan.expected_us

    @property
    def is_urgent(self) -> bool:
        """True if the structure serves no longer, or soon will not."""
        if self.plan is None or self.structure is None:
            return False
        lost = self.structure.degradation
        return self.search_us > self.scan_us() or lost.reserve_used > 1.0 or lost.is_degraded

    def is_stale(self, *, at_rest: bool) -> bool:
        """True if enough arms died, or came, for another structure; ``at_rest`` fewer are enough."""
        if self.is_spoilt or (at_rest and self.is_interim):
            return True
        return self.is_outweighed(_NEWER_AT_REST if at_rest else self.limits.newer_share)

    @property
    def is_spoilt(self) -> bool:
        """True if enough arms died for the structure to be built again."""
        if self.plan is None or self.structure is None:
            return False
        lost = self.structure.degradation
        return (
            lost.load_share > _DEAD_IN_SEARCH
            or lost.dead > _DEAD_IN_INDEX * self.structure.arms
            or lost.reserve_used > _RESERVE_USED
            or self.falls_short
        )

    def snapshot(self, recent: deque[Vector], attributes: AttributeSnapshot) -> Snapshot:
        """The snapshot for searches, whatever changes afterwards."""
        structure, us = (None, self.scan_us()) if self.is_scan_better else (self.structure, self.search_us)
        return Snapshot(self.table, structure, us, recent, attributes)
