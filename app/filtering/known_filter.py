"""One filter over one catalogue, as this process knows it: what serves it, and which work is due.

When a filter is used the second time and lets in few arms, they are copied side by side. For more arms, the
strategies to search them are measured after a few uses (``filter_plan``), and the best one serves from then
on. Until then every arm that matches is compared. What was built is built again when it is stale.

This is a state machine: nothing here waits, starts work or reads a clock.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

from app.filtering.filter_plan import FilterPlan, graph_number
from app.filtering.filtered_snapshot import FilteredSnapshot
from app.filtering.limits import FilterLimits
from app.filtering.strategies import OwnCopy, SearchStrategy
from app.filters.filter import Filter
from app.indexes.eligible_rows import EligibleRows
from app.indexes.filtered_search import exact_reads, is_gathered
from app.indexes.snapshot import Snapshot
from app.platform.documents import Answer
from shortlist.index.exact import measured_scan_cost
from shortlist.types import Vector

PLAN_AFTER = 4  # uses
GRAPH_AFTER = 64
RECENT = 128
GROWTH = 1.2
COOLDOWN_FACTOR = 20.0  # times what planning took
STALE = 0.25  # share of what was built that came or went since: it is made again
LOST, MOST_LOST = 0.02, 0.4  # of the probes of a graph, by deaths: it is measured again; serves no longer
AFTER_FAILURE_S = 60.0
KNOWN_BYTES = 2_000
TEXT_COPIES = 3  # of what a filter says: as given, read, and as its key
SMALL = "few arms match: they were copied side by side"

Work = Literal["plan", "renew", "renew_fallback"]
"""Measure all strategies; rebuild what serves; rebuild the fallback."""


class FilterStatus(Answer, frozen=True, rename={"strategy": "way"}):
    """A filter in use. ``way``: the strategy by which its arms are searched; recall and ratio as measured for
    it, ``expected_us`` the typical time of a search in microseconds.
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
    """``uses``: how often it was used. ``snapshot``: the arms that it let in then; None: to be made.

    ``strategy`` is of that moment. It may be there without a ``plan``, and may have been lost since the plan
    was made. ``fallback``: an exact strategy, which serves while ``strategy`` is a graph that changes have
    degraded, or is lost. ``lost``: share of the probes of a graph whose best arm no longer matches.
    ``is_quick``: so few arms match that they are compared. ``is_busy``: work on it is under way.
    Times are in seconds.
    """

    arm_filter: Filter
    eligible: EligibleRows
    limits: FilterLimits = FilterLimits()
    plan: FilterPlan | None = None
    strategy: SearchStrategy | None = None
    fallback: SearchStrategy | None = None
    snapshot: FilteredSnapshot | None = None
    uses: int = 0
    lost: float = 0.0
    is_quick: bool = False
    is_busy: bool = False
    plan_from: float = 0.0
    renew_from: float = 0.0
    recent: deque[Vector] = field(default_factory=lambda: deque(maxlen=RECENT))

    @property
    def memory_bytes(self) -> int:
        is_listed = self.snapshot is None or is_gathered(self.snapshot.table, self.eligible)
        held = KNOWN_BYTES + TEXT_COPIES * len(self.arm_filter.key)
        held += self.eligible.memory_bytes(listed=is_listed)
        return held + sum(
            strategy.memory_bytes for strategy in (self.strategy, self.fallback) if strategy is not None
        )

    @property
    def serving(self) -> SearchStrategy | None:
        """``strategy`` unless it is lost or a degraded graph; None: nothing that was made."""
        strategy, plan = self.strategy, self.plan
        if strategy is None:
            return self.fallback
        if plan is None or strategy.is_exact:
            return strategy
        # A graph, with a scan of what came and went, may take as long as an exact search.
        is_slow = strategy.staleness > max(0.0, 1.0 - plan.us / plan.exact_us)
        return self.fallback if is_slow or self.is_quick or self.lost > MOST_LOST else strategy

    def is_of(self, whole: Snapshot) -> bool:
        """Whether ``snapshot`` is of this moment, and is made as one that is used again."""
        return self.snapshot is not None and self.snapshot.all_arms is whole and self.uses != 1

    def follow(self, whole: Snapshot, eligible: EligibleRows) -> None:
        """Be of this moment. Cost: O(changed rows); a copy of a few arms at the second use."""
        strategy = self.strategy.followed(whole, eligible) if self.strategy is not None else None
        if self._is_small(whole, eligible) and (strategy is None or strategy.staleness > STALE):
            # What was used once may be used no more.
            strategy = OwnCopy.of(whole.table, eligible) if self.uses else None
        if self.plan is not None and strategy is not None:
            self.plan = replace(self.plan, strategy=strategy)  # lets go of the earlier one
        self.lost = 0.0
        self.is_quick = eligible.count * whole.table.dim <= self.limits.quick_numbers
        if self.plan is not None and self.plan.winners is not None:
            winners = self.plan.winners.followed(whole.table)
            self.plan, self.lost = replace(self.plan, winners=winners), winners.lost(eligible)
        self.eligible, self.strategy = eligible, strategy
        self.fallback = self.fallback.followed(whole, eligible) if self.fallback is not None else None
        self.snapshot = FilteredSnapshot(
            table=whole.table,
            structure=None,
            segments=(),
            expected_us=self._expected_us(whole),
            recent=self.recent,
            attributes=whole.attributes,
            all_arms=whole,
            among=eligible,
            strategy=self.serving,
        )

    def due(self, whole: Snapshot, now: float) -> Work | None:
        """The work that is due, measuring or rebuilding; None: nothing."""
        plan = self.plan
        if self.is_busy or self.uses < PLAN_AFTER or self._is_small(whole, self.eligible):
            return None
        if now >= self.plan_from and (plan is None or self._is_stale(plan, whole)):
            return "plan"
        if self.fallback is not None and self.fallback.staleness > STALE:
            return "renew_fallback"
        if plan is not None and now >= self.renew_from and self._is_worth_renewing(plan, whole):
            return "renew"
        return None

    def take(self, outcome: FilterPlan | SearchStrategy | None) -> None:
        """Serve by this plan, or with this fallback strategy, from now on."""
        # To be made with what serves now, at the next use.
        self.snapshot = None
        if not isinstance(outcome, FilterPlan):
            self.fallback = outcome
            return
        if outcome.fallback is not None:
            self.fallback = outcome.fallback
        strategy = self.fallback if outcome.is_refuted else outcome.strategy
        if strategy is None or strategy.is_exact:
            self.fallback = None  # there is no graph that it could stand in for
        self.plan, self.strategy = replace(outcome, strategy=strategy, fallback=None), strategy

    def rest(self, work: Work, now: float, seconds: float) -> None:
        """Begin no such work again for a while after it took so long."""
        if work == "plan":
            self.plan_from = now + COOLDOWN_FACTOR * seconds
        elif work == "renew":
            self.renew_from = now + self.limits.renewal_rest * seconds

    def failed(self, now: float) -> None:
        self.plan_from = self.renew_from = now + AFTER_FAILURE_S

    def status(self, whole: Snapshot) -> FilterStatus:
        plan, serving = self.plan, self.serving
        served = plan if plan is not None and serving is not None and serving is self.strategy else None
        reason = SMALL if serving is not None else "not measured yet"
        return FilterStatus(
            filter=dict(self.arm_filter.document),
            eligible=self.eligible.count,
            strategy=serving.name if serving is not None else "exact",
            uses=self.uses,
            recall_at_1=max(0.0, served.recall_at_1 - self.lost) if served else 1.0,
            ratio_mean=max(0.0, served.ratio_mean - self.lost) if served else 1.0,
            expected_us=self._expected_us(whole),
            reason=plan.reason if plan is not None else reason,
        )

    def _expected_us(self, whole: Snapshot) -> float:
        serving, plan = self.serving, self.plan
        if serving is None:
            return measured_scan_cost().us(exact_reads(whole.table, self.eligible))
        if plan is None:
            return measured_scan_cost().us(self.eligible.count * whole.table.dim)
        return plan.us if serving is self.strategy else plan.exact_us

    def _is_stale(self, plan: FilterPlan, whole: Snapshot) -> bool:
        """Whether so much has changed that all strategies must be measured again."""
        # A graph takes seconds to build: a filter that is used a few times is not worth it.
        if plan.is_refuted or (plan.wants_graph and self.uses >= GRAPH_AFTER):
            return True
        if (plan.graph is None) != (graph_number(whole) is None):
            return True
        return not plan.count / GROWTH <= self.eligible.count <= plan.count * GROWTH

    def _is_worth_renewing(self, plan: FilterPlan, whole: Snapshot) -> bool:
        """Whether the serving strategy must be rebuilt, or its recall measured again."""
        if plan.strategy is None:
            return False
        # made again, what is borrowed would have the same fresh arms
        if self.strategy is not None and self.strategy.is_borrowed:
            return plan.graph != graph_number(whole) or self.lost > LOST
        return self.strategy is None or self.strategy.staleness > STALE or self.lost > LOST

    def _is_small(self, whole: Snapshot, eligible: EligibleRows) -> bool:
        return eligible.count * whole.table.dim <= self.limits.small_numbers
