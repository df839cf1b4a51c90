"""The plan of a filter's search, decided by expected reads and by one measurement on probes.

Notation
    n, K        arms matched by the filter, arms of the catalogue
    ask         how many arms the index of the catalogue is asked for

    1. A copy of the n rows is made if there is memory, and kept if clearly faster than a search without one.
    2. The index is tried if n is large, and if about ``ASKED`` of the requested arms should match: ask =
    ASKED K / n. The request doubles until the answers reach the catalogue's target, or take as long as the
    exact search. The index serves by the rule of ``shortlist.index.quality``.

``shortlist.index.planner`` decides between the indexes of a whole catalogue.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from app.filtering.filter_limits import FilterLimits
from app.filtering.index_search import IndexSearch
from app.filtering.row_copy import RowCopy
from app.indexes.eligible_rows import EligibleRows
from app.indexes.filtered_search import search_exactly
from app.indexes.snapshot import Snapshot
from shortlist.index.probes import Trial, compare, queries_like, solve, time_alternately, typical_us
from shortlist.index.quality import LEAST_SPEEDUP, choose_ef, is_settled
from shortlist.types import NO_ROWS, Matrix, TopK, Vector

PROBES = 400
TIMED = 100
ASKED = 30
NO_MEMORY = "every arm that matches is compared; there is no memory for a copy of them"


@dataclass(frozen=True, slots=True)
class FilterPlan:
    """The search that serves a filter, and its measurements. Times are in microseconds.

    ``count``: number of matched arms. ``index``: the number of the catalogue's index then, None
    without one. ``ask``: how many arms the index is asked for; 0: searches are exact. ``copy``: the rows side
    by side; None: they are not copied.
    """

    count: int
    index: int | None
    us: float
    exact_us: float
    copy: RowCopy | None = None
    ask: int = 0
    recall_at_1: float = 1.0
    ratio_mean: float = 1.0
    reason: str = "every arm that matches is compared"


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """``copy_bytes``: bound of a copy. ``target_recall``: least recall of the index. ``check`` may raise to
    stop.
    """

    copy_bytes: int
    target_recall: float
    limits: FilterLimits = FilterLimits()
    check: Callable[[], None] = lambda: None


def plan_filter(
    snapshot: Snapshot,
    eligible: EligibleRows,
    options: PlanOptions,
    *,
    recent: Sequence[Vector],
    rng: np.random.Generator,
) -> FilterPlan:
    """Measure and decide. For any thread. Cost: the copy, and about ``PROBES`` searches for each ``ask``.

    ``recent``: queries served with this filter; half of the probes are like them, for where queries look and
    where the eligible arms lie need not agree.
    """
    if not eligible.count:
        return FilterPlan(0, index_number(snapshot), 0.0, 0.0)
    queries, groups = queries_like(snapshot.table.dim, PROBES, recent, rng)
    plan = _plan_exact(snapshot, eligible, options, queries[:TIMED])
    index, limits = snapshot.proposing, options.limits
    ask = int(ASKED * snapshot.table.live / eligible.count)
    most = 0.0 if index is None else limits.most_asked * index.arms
    if index is None or ask > most or eligible.count * snapshot.table.dim <= limits.quick_numbers:
        return plan
    probes = solve(snapshot.table, queries, among=eligible.mask, groups=groups, check=options.check)
    exact, trials = _search(plan.copy, snapshot, eligible), dict[int, Trial]()
    while ask <= most:
        search = IndexSearch(eligible, index, ask, limits.most_asked)
        trials[ask] = compare(_search(search, snapshot, eligible), exact, probes)
        if is_settled(trials[ask], options.target_recall):
            break
        ask *= 2
    chosen = choose_ef(trials, options.target_recall)
    return plan if chosen is None else _by_index(plan, chosen, trials[chosen])


def index_number(snapshot: Snapshot) -> int | None:
    """The number of the index that proposes arms of a catalogue. Unchanged when rows are renumbered."""
    return None if snapshot.proposing is None else snapshot.proposing.number


def _plan_exact(
    snapshot: Snapshot, eligible: EligibleRows, options: PlanOptions, queries: Matrix
) -> FilterPlan:
    """An exact search, with a copy of the rows if clearly faster."""
    table, index, search_uncopied = snapshot.table, index_number(snapshot), _search(None, snapshot, eligible)
    if eligible.count * table.dim * table.working.itemsize > options.copy_bytes:
        us = typical_us(search_uncopied, queries)
        return FilterPlan(eligible.count, index, us, us, reason=NO_MEMORY)
    copy = RowCopy.of(table, eligible)
    _, us, plain_us = time_alternately(_search(copy, snapshot, eligible), search_uncopied, queries)
    if plain_us < LEAST_SPEEDUP * us:
        return FilterPlan(eligible.count, index, plain_us, plain_us)
    reason = f"a copy of the arms is scanned, {plain_us / us:.1f} times as fast as without one"
    return FilterPlan(eligible.count, index, us, us, copy, reason=reason)


def _by_index(plan: FilterPlan, ask: int, trial: Trial) -> FilterPlan:
    return replace(
        plan,
        ask=ask,
        us=trial.us,
        exact_us=trial.exact_us,
        recall_at_1=trial.least.recall_at_1,
        ratio_mean=trial.least.ratio_mean,
        reason=f"the index is asked for {ask} arms, {trial.speedup:.1f} times as fast as an exact search",
    )


def _search(
    strategy: RowCopy | IndexSearch | None, snapshot: Snapshot, eligible: EligibleRows
) -> Callable[[Vector], TopK]:
    """A search for the best arm by ``strategy``, and exactly where the strategy finds too few."""

    def search(query: Vector) -> TopK:
        best = strategy.search(snapshot, query, 1) if strategy is not None else None
        return best or search_exactly(snapshot.table, eligible, query, 1, NO_ROWS)

    return search
