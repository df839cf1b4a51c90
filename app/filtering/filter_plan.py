"""Which strategy serves a filter, decided by measuring on probes.

Which index serves a whole catalogue is decided by ``shortlist.index.planner``; when the work is done, by
``filter_worker``.

Notation
    n, K        arms that the filter matches, arms of the catalogue
    target      the recall that the catalogue's owner wants; what reaches it: see ``quality``
    speedup     time of the fastest exact strategy / time of a strategy, timed alternately

    1. The exact strategies are timed: gather, mask, and two sorts of copies if there is memory for them.
    2. If the fastest is quick enough already, it serves.
    3. Otherwise the graph of the catalogue is asked for more and more arms, until what the filter matches of
       them reaches the target, or takes as long as the exact strategy.
    4. A filter that is used often, and is not served by 3, gets a graph of its own, if that reaches it.
    5. A graph serves if its speedup is at least 1.25.

A plan outlives the arms that it was measured on: what was built is made again when it is stale
(``renew``), and the recall of a graph is measured again each time, also when the best arms of its probes
died. A graph that falls short of the target by then (``quality``) serves no longer. The exact strategy that
it was compared with is kept: it follows changes at little cost, and serves when the graph does not.

Where nobody has measured yet, ``search_exactly`` serves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from app.filtering.limits import FilterLimits
from app.filtering.strategies import (
    CatalogueGraph,
    MakeGraph,
    OwnBlocks,
    OwnCopy,
    OwnGraph,
    SearchStrategy,
)
from app.indexes.eligible_rows import EligibleRows
from app.indexes.filtered_search import gather, mask, search_exactly
from app.indexes.snapshot import Snapshot
from shortlist.index.index import TunableIndex
from shortlist.index.probes import Probes, compare, queries_like, solve, time_alternately, typical_us
from shortlist.index.quality import LADDER, falls_short, reaches
from shortlist.index.table import TableSnapshot
from shortlist.types import NO_ROWS, Matrix, Rows, TopK, Vector

PROBES = 400
TIMED = 30
TIMED_EXACT = 100
ASKED = 30
GRAPH_SHORTLIST = 30
NO_MEMORY = "there is no memory for a graph of its own"
_SAME_NORM = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class Winners:
    """The best arms of the probes by which a graph was measured: rows of the table ``number``, -1 for those
    that are gone, in an array (n,) for each group of probes.
    """

    number: int
    groups: tuple[Rows, ...]

    @classmethod
    def of(cls, table: TableSnapshot, probes: Probes) -> Winners:
        groups = (probes.winners[probes.groups == group] for group in np.unique(probes.groups))
        return cls(table.number, tuple(groups))

    def followed(self, table: TableSnapshot) -> Winners:
        """The same in a later table; all are gone in one that is not made of theirs."""
        if table.number == self.number:
            return self
        renumbered = table.renumbered
        if renumbered is None or renumbered.number != self.number:
            return Winners(table.number, tuple(np.full_like(rows, -1) for rows in self.groups))
        positions = np.append(renumbered.positions, -1).astype(np.int64)
        return Winners(table.number, tuple(positions[rows] for rows in self.groups))

    def lost(self, eligible: EligibleRows) -> float:
        """The share of the worst group that no longer matches: what is found for it was not measured."""
        still_matches = np.append(eligible.mask, False)
        return max(1.0 - float(np.count_nonzero(still_matches[rows])) / len(rows) for rows in self.groups)


@dataclass(frozen=True, slots=True)
class FilterPlan:
    """What serves a filter, and what was measured of it. Times are in microseconds.

    ``strategy`` None: ``search_exactly``. ``count``: how many arms the filter matched. ``graph``: number of
    the graph of the catalogue then, None without one. ``wants_graph``: a graph of its own might be faster,
    and was not tried. ``is_refuted``: its recall was measured again, and was too low. ``fallback``: where a
    graph serves, the fastest exact strategy that was made, None if none was worth its memory.
    """

    strategy: SearchStrategy | None
    count: int
    graph: int | None
    us: float
    exact_us: float
    recall_at_1: float = 1.0
    ratio_mean: float = 1.0
    wants_graph: bool = False
    is_refuted: bool = False
    fallback: SearchStrategy | None = None
    reason: str = "every arm that matches is compared"
    winners: Winners | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """``copy_bytes``: the most that a copy may take; ``graph_bytes``: the most that a graph of its own may
    take, 0: none is wanted yet. ``make`` builds a graph over some rows of a snapshot; None: too large.
    ``target_recall``: what a graph has to reach. ``asked``: of the first arms of
    a graph, about so many match.
    """

    copy_bytes: int
    graph_bytes: int
    make: MakeGraph
    target_recall: float
    limits: FilterLimits = FilterLimits()
    asked: int = ASKED


def plan_filter(
    snapshot: Snapshot,
    eligible: EligibleRows,
    options: PlanOptions,
    *,
    recent: Sequence[Vector],
    rng: np.random.Generator,
) -> FilterPlan:
    """Measure and decide. For any thread. Cost: about ``PROBES`` searches of each strategy, and what is
    built.

    ``recent``: queries that this filter served; half of the probes are like them, and a graph has to
    reach the target on these as well as on the others. Where they look and where the eligible arms lie need
    not agree.
    """
    if not eligible.count:
        return FilterPlan(None, 0, graph_number(snapshot), 0.0, 0.0)
    queries, groups = queries_like(snapshot.table.dim, PROBES, recent, rng)
    plain = _fastest_exact(snapshot, eligible, options, queries)
    if eligible.count * snapshot.table.dim <= options.limits.quick_numbers:
        return plain
    probes = solve(snapshot.table, queries, among=eligible.mask, groups=groups)
    trials = _Trials(snapshot, eligible, plain, probes, options)
    by_catalogue_graph = trials.first_that_reaches(trials.catalogue_graph())
    if by_catalogue_graph is not None:
        return by_catalogue_graph
    if not options.graph_bytes:
        return replace(plain, wants_graph=True)
    graph = options.make(snapshot, eligible.rows)
    if graph is None or graph.memory_bytes > options.graph_bytes:
        return replace(plain, reason=f"{plain.reason}; {NO_MEMORY}")
    return trials.first_that_reaches(trials.own_graph(graph)) or plain


def renew(
    plan: FilterPlan,
    snapshot: Snapshot,
    eligible: EligibleRows,
    *,
    target_recall: float,
    recent: Sequence[Vector],
    rng: np.random.Generator,
) -> FilterPlan:
    """Rebuild what serves, as it was planned, and measure the recall of a graph again. For any thread."""
    plain = replace(plan, strategy=None, us=plan.exact_us, recall_at_1=1.0, ratio_mean=1.0)
    strategy = (
        plan.strategy.renewed(snapshot, eligible) if plan.strategy is not None and eligible.count else None
    )
    if strategy is None or not eligible.count:
        return replace(plain, is_refuted=True, reason="what served cannot be built again")
    if strategy.is_exact:
        return replace(plan, strategy=strategy, graph=graph_number(snapshot))
    queries, groups = queries_like(snapshot.table.dim, PROBES, recent, rng)
    probes = solve(snapshot.table, queries, among=eligible.mask, groups=groups)
    search, exact = _searching(strategy, snapshot, eligible), _searching(None, snapshot, eligible)
    trial = compare(search, exact, probes)
    quality = trial.least
    if falls_short(quality, target_recall):
        measured = f"recall {quality.recall_at_1:.3f}, mean ratio {quality.ratio_mean:.4f}"
        return replace(plain, is_refuted=True, us=trial.exact_us, reason=f"a graph had {measured} by now")
    return replace(
        plan,
        strategy=strategy,
        graph=graph_number(snapshot),
        us=trial.us,
        recall_at_1=quality.recall_at_1,
        ratio_mean=quality.ratio_mean,
        winners=Winners.of(snapshot.table, probes),
    )


def graph_number(snapshot: Snapshot) -> int | None:
    """The number of what proposes the arms of a catalogue; it stays the same when rows are renumbered."""
    return None if snapshot.proposing is None else snapshot.proposing.number


def _fastest_exact(
    snapshot: Snapshot, eligible: EligibleRows, options: PlanOptions, queries: Matrix
) -> FilterPlan:
    """The fastest exact strategy. A copy is kept only if it is clearly faster than what needs none."""
    table, timed_queries = snapshot.table, queries[:TIMED]
    gather_us = typical_us(lambda query: gather(table, eligible.rows, query, 1), timed_queries)
    mask_us = typical_us(lambda query: mask(table, eligible, query, 1, NO_ROWS), timed_queries)
    us = min(gather_us, mask_us)
    plain = FilterPlan(None, eligible.count, graph_number(snapshot), us, us)
    if eligible.count * table.dim * table.working.itemsize > options.copy_bytes:
        return plain
    best = plain
    strategies: dict[str, Callable[[TableSnapshot, EligibleRows], SearchStrategy]] = {
        "is scanned": OwnCopy.of
    }
    norms = table.norms[eligible.rows]
    if norms.min() < (1.0 - _SAME_NORM) * norms.max():  # else every search reads all blocks
        strategies["is read by norm"] = OwnBlocks.of
    for what, make in strategies.items():
        strategy = make(table, eligible)  # one at a time: what does not serve is let go
        _, us, exact_us = time_alternately(
            _searching(strategy, snapshot, eligible),
            _searching(best.strategy, snapshot, eligible),
            queries[:TIMED_EXACT],
        )
        if exact_us >= options.limits.least_speedup * us:
            reason = f"a copy of the arms {what}, {plain.us / us:.1f} times as fast as without one"
            best = replace(plain, strategy=strategy, us=us, exact_us=us, reason=reason)
    return best


@dataclass(frozen=True, slots=True)
class _Trials:
    """Trials of graphs against the best exact strategy, which ``plain`` says."""

    snapshot: Snapshot
    eligible: EligibleRows
    plain: FilterPlan
    probes: Probes
    options: PlanOptions

    def catalogue_graph(self) -> Iterator[tuple[str, SearchStrategy]]:
        """The graph of the catalogue, asked for more and more arms, and a name for each."""
        graph = self.snapshot.proposing
        if graph is None:
            return
        most = self.options.limits.most_asked
        ask = int(self.options.asked * self.snapshot.table.live / self.eligible.count)
        while ask <= most * graph.arms:
            strategy = CatalogueGraph(self.snapshot, self.eligible, ask, most)
            yield f"the graph is asked for {ask} arms", strategy
            ask *= 2

    def own_graph(self, graph: TunableIndex) -> Iterator[tuple[str, SearchStrategy]]:
        """A graph over the arms that match, searched with larger and larger ef, and a name for each."""
        for ef in LADDER[::2]:  # all are measured, up to the first that serves
            graph.tuned(ef, shortlist=GRAPH_SHORTLIST, most=graph.arms)
            strategy = OwnGraph(graph, self.eligible, GRAPH_SHORTLIST, self.options.make)
            yield f"a graph of its own at ef {ef}", strategy

    def first_that_reaches(self, strategies: Iterator[tuple[str, SearchStrategy]]) -> FilterPlan | None:
        """A plan for the first that does, None if one before it is too slow. Later ones are slower."""
        exact = _searching(self.plain.strategy, self.snapshot, self.eligible)
        for name, strategy in strategies:
            search = _searching(strategy, self.snapshot, self.eligible)
            trial = compare(search, exact, self.probes)
            if trial.speedup < self.options.limits.least_speedup:
                return None
            quality = trial.least
            if reaches(quality, self.options.target_recall):
                return replace(
                    self.plain,
                    strategy=strategy,
                    fallback=self.plain.strategy,
                    us=trial.us,
                    exact_us=trial.exact_us,
                    recall_at_1=quality.recall_at_1,
                    ratio_mean=quality.ratio_mean,
                    winners=Winners.of(self.snapshot.table, self.probes),
                    reason=f"{name}, {trial.speedup:.1f} times as fast as an exact search",
                )
        return None


def _searching(
    strategy: SearchStrategy | None, snapshot: Snapshot, eligible: EligibleRows
) -> Callable[[Vector], TopK]:
    """A search for the best arm by ``strategy``, and exactly where that finds too few."""

    def search(query: Vector) -> TopK:
        result = strategy.search(snapshot, query, 1, NO_ROWS) if strategy is not None else None
        return result or search_exactly(snapshot.table, eligible, query, 1, NO_ROWS)

    return search
