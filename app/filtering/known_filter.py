"""One filter over one catalogue, in one process: its search, and whether a plan is due.

When a filter of few arms is used the second time, its arms are copied side by side. A filter of more arms is
planned after a few uses (``filter_plan``). Until then every matching arm is compared.

    planned     the filter was used often enough, and is not small
    planned     the index of the catalogue is another, the number of its arms has changed by a fifth, or
    again       a quarter of its copy is stale; not sooner than the last plan allows

This is a state machine: nothing here waits, starts work or reads a clock.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from app.filtering.filter_limits import FilterLimits
from app.filtering.filter_plan import FilterPlan, index_number
from app.filtering.filtered_snapshot import FilteredSnapshot, SearchStrategy
from app.filtering.index_search import IndexSearch
from app.filtering.row_copy import RowCopy
from app.filters.filter import Filter
from app.indexes.eligible_rows import EligibleRows
from app.indexes.filtered_search import exact_reads, is_gathered
from app.indexes.snapshot import Snapshot
from app.platform.documents import Answer
from shortlist.index.exact import measured_scan_cost
from shortlist.types import Vector

PLAN_AFTER = 64  # uses: so many queries the probes of a plan are like
RECENT = 128
GROWTH = 1.2
STALE = 0.25
KNOWN_BYTES = 2_000
TEXT_COPIES = 3  # of what a filter says: as given, read, and as its key
SMALL = "few arms match: they were copied side by side"


class FilterStatus(Answer, frozen=True, rename={"strategy": "way"}):
    """A filter in use. ``way``: how its arms are searched; recall and ratio as measured for it,
    ``expected_us`` the typical time of a search in microseconds.
    """

    schema_name: ClassVar[str] = "FilterView"

    filter: dict[str, Any]
    eligible: int
    strategy: str
    uses: int
    recall_at_1: float
    ratio_mean: float
    expected_us: float
    reason: str


@dataclass(slots=True, eq=False)
class KnownFilter:
    """``uses``: number of uses. ``snapshot``: the matching arms at the last use; None: to be made.

    ``plan``: without its copy, which is in ``copy`` and follows the catalogue. ``is_busy``: a plan is being
    made; ``plan_from``: none is made before this moment, in seconds.
    """

    arm_filter: Filter
    eligible: EligibleRows
    limits: FilterLimits = FilterLimits()
    plan: FilterPlan | None = None
    copy: RowCopy | None = None
    snapshot: FilteredSnapshot | None = None
    uses: int = 0
    is_busy: bool = False
    plan_from: float = 0.0
    recent: deque[Vector] = field(default_factory=lambda: deque(maxlen=RECENT))

    @property
    def memory_bytes(self) -> int:
        is_listed = self.snapshot is None or is_gathered(self.snapshot.table, self.eligible)
        size = KNOWN_BYTES + TEXT_COPIES * len(self.arm_filter.key)
        size += self.eligible.memory_bytes(listed=is_listed)
        return size + (self.copy.memory_bytes if self.copy is not None else 0)

    def is_of(self, all_arms: Snapshot) -> bool:
        """True if ``snapshot`` is of this moment, and was made for more than one use."""
        return self.snapshot is not None and self.snapshot.all_arms is all_arms and self.uses != 1

    def follow(self, all_arms: Snapshot, eligible: EligibleRows) -> None:
        """Be of this moment. Cost: O(changed rows); a copy of a few arms at the second use."""
        self.eligible = eligible
        if self.copy is not None:
            self.copy = self.copy.followed(all_arms.table, eligible)
            if self.copy is None:
                self.plan = None
        if self._is_small(all_arms) and (self.copy is None or self.copy.staleness > STALE):
            # What was used once may be used no more.
            self.copy = RowCopy.of(all_arms.table, eligible) if self.uses else None
        strategy = self._strategy(all_arms)
        self.snapshot = FilteredSnapshot(
            table=all_arms.table,
            structure=None,
            expected_us=self._expected_us(all_arms, strategy),
            recent=self.recent,
            attributes=all_arms.attributes,
            all_arms=all_arms,
            members=eligible,
            strategy=strategy,
        )

    def is_due(self, all_arms: Snapshot, now: float) -> bool:
        """True if a plan is due, the first or another."""
        plan = self.plan
        if self.is_busy or self.uses < PLAN_AFTER or now < self.plan_from or self._is_small(all_arms):
            return False
        if plan is None or plan.index != index_number(all_arms):
            return True
        if self.copy is not None and self.copy.staleness > STALE:
            return True
        return not plan.count / GROWTH <= self.eligible.count <= plan.count * GROWTH

    def take(self, plan: FilterPlan) -> None:
        """Serve by this plan from now on."""
        self.plan, self.copy = replace(plan, copy=None), plan.copy
        # To be made with what serves now, at the next use.
        self.snapshot = None

    def status(self, all_arms: Snapshot) -> FilterStatus:
        plan, strategy = self.plan, self._strategy(all_arms)
        by_index = plan if plan is not None and isinstance(strategy, IndexSearch) else None
        unplanned = SMALL if strategy is not None else "not measured yet"
        return FilterStatus(
            filter=dict(self.arm_filter.document),
            eligible=self.eligible.count,
            strategy=strategy.name if strategy is not None else "exact",
            uses=self.uses,
            recall_at_1=by_index.recall_at_1 if by_index else 1.0,
            ratio_mean=by_index.ratio_mean if by_index else 1.0,
            expected_us=self._expected_us(all_arms, strategy),
            reason=plan.reason if plan is not None else unplanned,
        )

    def _strategy(self, all_arms: Snapshot) -> SearchStrategy | None:
        """The search that serves the filter; None: an exact search without a copy."""
        plan, index = self.plan, all_arms.proposing
        if plan is None or not plan.ask or index is None:
            return self.copy
        if self.eligible.count * all_arms.table.dim <= self.limits.quick_numbers:
            return self.copy
        search = IndexSearch(self.eligible, index, plan.ask, self.limits.most_asked)
        # An index, with a scan of newer arms, may take as long as an exact search.
        return search if search.staleness <= 1.0 - plan.us / plan.exact_us else self.copy

    def _expected_us(self, all_arms: Snapshot, strategy: SearchStrategy | None) -> float:
        if strategy is None:
            return measured_scan_cost().us(exact_reads(all_arms.table, self.eligible))
        if self.plan is None:
            return measured_scan_cost().us(self.eligible.count * all_arms.table.dim)
        return self.plan.exact_us if strategy.is_exact else self.plan.us

    def _is_small(self, all_arms: Snapshot) -> bool:
        return self.eligible.count * all_arms.table.dim <= self.limits.small_numbers
