"""The planner: which index serves a catalogue, decided by measuring on probes.

    plain scan      always possible and always exact; small catalogues never need more
    norm-pruned     exact; faster than the scan where the norms differ much
    hnsw            approximate; takes longer to build than all searches of a small catalogue would gain

    1. A catalogue of fewer than 500,000 numbers (arms times dimension) is scanned.
    2. Of the two exact searches the faster one is kept, and serves if it takes no longer than scanning
    500,000 numbers.
    3. Otherwise the candidates are built and measured against it: of a graph ``quality`` decides the ef for
    serving, if any.

Why 500,000: Gaussian and unit arms of dimension 8 to 64 were searched at ef 32 and more. A graph over 320,000
numbers took longer than the scan each time (speedup .2 to .9); over 640,000 it was the faster one mostly (.9
to 2.5). A scan of so few numbers stays in the cache of one core.

Everything but times is a function of the arms, the options, the ``rng`` and the recent queries.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from shortlist import checks
from shortlist.index import graph_file, norm_pruned
from shortlist.index import quality as ef_choice
from shortlist.index.exact import scan
from shortlist.index.hnsw import FEW_DEAD, HnswGraph
from shortlist.index.index import Build, Index, IndexKind, Saving
from shortlist.index.norm_pruned import NormBlocks
from shortlist.index.probes import (
    LIST,
    SERVED,
    ExactLists,
    Probes,
    Trial,
    compare,
    make_queries,
    solve,
    time_alternately,
    typical_us,
)
from shortlist.index.quality import LADDER, LARGEST_TARGET, LEAST_TARGET, TARGET_RECALL, choose_ef
from shortlist.index.table import TableSnapshot, longest_first
from shortlist.types import NO_ROWS, Rows, TopK, Vector

SMALL_NUMBERS = 500_000  # a catalogue with fewer is scanned
LEAST_PROBES = 1_000
SMALL = "small enough to be scanned"
GROWTH = 1.5  # a catalogue that has grown or shrunk by this factor is planned again

# The more probes, the less is left to chance, and the smaller an ef is sure to reach the recall. Each takes a
# scan, at every start again: together they scan _MOST_SCANNED numbers, or are the least number of probes.
_MOST_PROBES, _ARMS_A_PROBE = 4_000, 100
_MOST_SCANNED = 128 * 10**9
_FEWER_PROBES = 400
_TIMED = 25
_LISTS, _LIST_COUNTS = 100, (30, 40, 50, 60, 80, 100, 120, 160, 200, 300, 400, 600, 800)
_TIMED_EXACT = 200
# Blocks are built if they promise to read at most this share, and kept if they are this many times as fast.
_MOST_READ = 0.6
_LEAST_EXACT_SPEEDUP = 1.1
# A norm-pruned search takes this many times as long as a scan for every number read (measured: 1.3 to 1.8).
_PRUNED_COST = 1.5

_CORE_QUANTILE = 0.02
_CORE_MARGIN = 1.25
_RESERVE = 0.02
_LARGEST_CORE = 0.75
_PROBE_SALT = 0x70726F62
_SUBSTITUTES = 15  # for each arm of the reserve


@dataclass(frozen=True, slots=True)
class Plan:
    """The decision for a catalogue of ``size`` arms, and its measurements (times in microseconds).

    ``scan_us``: a plain scan; ``expected_us``: a search of the chosen structure. ``recent_probes``: number of
    recent queries among the probes; the others follow from the seed.
    """

    kind: IndexKind
    size: int
    scan_us: float
    expected_us: float
    recall_at_1: float = 1.0
    ratio_mean: float = 1.0
    ratio_min: float = 1.0
    ef_search: int | None = None
    build_s: float = 0.0
    recent_probes: int = 0
    reason: str = SMALL

    def is_outgrown(self, arms: int) -> bool:
        """True if the catalogue has so many more or fewer arms that another plan is due."""
        return not self.size / GROWTH <= arms <= self.size * GROWTH


@dataclass(frozen=True, slots=True)
class IndexOptions:
    """The choices of a catalogue's owner; all else is measured.

    ``m``: links of an arm in the HNSW graph. ``ef_construction``, ``ef_search``: lengths of the candidate
    lists of an insertion and of a search; ``ef_search`` None: chosen by measuring. ``shortlist``: number of
    proposed arms, scored again in float64. ``target_recall``: share of the queries whose best arm is to be
    found. Raises InvalidParameter (m outside 2..256, target_recall outside .8...999, the others below 1).
    """

    kind: str = "auto"  # or "exact", or the kind of a candidate
    m: int = 16
    ef_construction: int = 100
    ef_search: int | None = None
    shortlist: int = 30
    target_recall: float = TARGET_RECALL

    def __post_init__(self) -> None:
        checks.in_range("m", self.m, least=2, most=256)
        checks.in_range("ef_construction", self.ef_construction, least=1)
        checks.in_range("ef_search", self.ef_search if self.ef_search is not None else 1, least=1)
        checks.in_range("shortlist", self.shortlist, least=1)
        checks.in_range("target_recall", self.target_recall, least=LEAST_TARGET, most=LARGEST_TARGET)


@dataclass(frozen=True, slots=True)
class ExactSearch:
    """The best exact search: its plan, its index if it has one, and its work.

    ``numbers``: a scan of this many numbers takes about as long.
    """

    plan: Plan
    search: Callable[[Vector], TopK]
    blocks: NormBlocks | None
    numbers: float


def probe_generator(seed: int) -> np.random.Generator:
    """For probes: features may well have been drawn from the seed of the index itself."""
    return np.random.default_rng((seed, _PROBE_SALT))


def is_small(table: TableSnapshot, small_numbers: int) -> bool:
    """Return whether the catalogue has too few numbers for an index."""
    return table.live * table.dim < small_numbers


def plan(
    table: TableSnapshot,
    options: IndexOptions,
    build: Build,
    *,
    recent: Sequence[Vector],
    rng: np.random.Generator,
    candidates: Sequence[Candidate] | None = None,
    small_numbers: int = SMALL_NUMBERS,
    least_probes: int = LEAST_PROBES,
) -> tuple[Plan, Index | None]:
    """Measure, build the needed structures as ``build`` says, and decide.

    ``recent``: queries served lately, each (d,); half of the probes are taken from them. ``candidates``:
    structures to try; None: ``OURS``. ``small_numbers``: fewer are scanned. ``least_probes``: a plan is
    measured by so many queries at least. For a growing catalogue the plan serves for a short while only. So
    it is quick, and its graph is small.
    """
    candidates = OURS if candidates is None else candidates
    is_forced = any(options.kind == candidate.kind for candidate in candidates)
    is_growing = build.growing is not None
    queries, groups = make_queries(table.dim, _probes_for(table, is_growing, least_probes), recent, rng)
    scan_us = typical_us(lambda query: scan(table, query, 1), queries[:_TIMED])
    recent_probes = int(np.count_nonzero(groups == SERVED))
    exact_plan = Plan("exact", table.live, scan_us, scan_us, recent_probes=recent_probes)
    if options.kind == "exact" or not table.live:
        return replace(exact_plan, reason="as configured"), None
    if is_small(table, small_numbers) and not is_forced:
        return exact_plan, None
    reserve = reserve_of(table, is_growing=is_growing)
    probes = solve(table, queries, reserve=reserve, groups=groups, check=build.check)
    exact = ExactSearch(exact_plan, lambda query: scan(table, query, 1), None, table.live * table.dim)
    if not is_forced:
        exact = _faster_exact(table, exact, probes)
        if exact.numbers < small_numbers:
            return exact.plan, exact.blocks
    tried = [
        candidate.attempt(Task(table, options, build.of_kind(candidate.kind), exact, probes))
        for candidate in candidates
        if options.kind in ("auto", candidate.kind)
    ]
    serving = [attempt for attempt in tried if attempt[1] is not None]
    if not tried:
        return replace(exact.plan, reason=f"no loaded plug-in provides {options.kind}"), exact.blocks
    # what was tried for nothing says why
    return min(serving, key=lambda attempt: attempt[0].expected_us) if serving else tried[0]


def _probes_for(table: TableSnapshot, is_growing: bool, least_probes: int) -> int:
    if is_growing:
        return _FEWER_PROBES
    affordable = _MOST_SCANNED // max(1, table.live * table.dim)
    return max(least_probes, min(table.live // _ARMS_A_PROBE, _MOST_PROBES, affordable))


def _faster_exact(table: TableSnapshot, plain: ExactSearch, probes: Probes) -> ExactSearch:
    """Norm-pruned search if faster than the plain scan; tried only if the norms promise so."""
    norms = np.sort(table.norms[table.live_rows])
    # by Cauchy-Schwarz no shorter arm can be the best one of its probe
    least = probes.best / np.linalg.norm(probes.queries, axis=1)
    share_read = 1.0 - float(norms.searchsorted(least).mean()) / len(norms)
    if share_read > _MOST_READ:
        return plain
    blocks = NormBlocks(table)

    def search(query: Vector) -> TopK:
        return blocks.search(table, query, 1)

    _, us, scan_us = time_alternately(search, plain.search, probes.queries[:_TIMED_EXACT])
    if scan_us < _LEAST_EXACT_SPEEDUP * us:
        return plain
    pruned = replace(plain.plan, kind="norm_pruned", scan_us=scan_us, expected_us=us)
    reason = f"pruning by norm reads {share_read:.0%}"
    return ExactSearch(
        replace(pruned, reason=reason), search, blocks, _PRUNED_COST * share_read * plain.numbers
    )


@dataclass(frozen=True, slots=True)
class Task:
    """The task of a structure: arms, their owner's options, and probes with known best arms.

    ``build``: how. ``exact``: the search to beat.
    """

    table: TableSnapshot
    options: IndexOptions
    build: Build
    exact: ExactSearch
    probes: Probes

    @property
    def is_forced(self) -> bool:
        """True if the owner asked for this structure, however large the catalogue is."""
        return self.options.kind != "auto"


def measured(task: Task, index: Index, build_s: float) -> tuple[Plan, Index | None]:
    """The plan of an approximate structure without tuning, if it may serve; else the exact search's.

    A structure serves if it reaches the target of the catalogue, and is 1.25 times as fast, or asked for by
    the owner. Cost: a search and an exact one for each probe.
    """
    table, probes, target = task.table, task.probes, task.options.target_recall

    def search(query: Vector, k: int) -> TopK:
        return find(table, index, query, k)

    trial = compare(lambda query: search(query, 1), task.exact.search, probes)
    comparison = _comparison(task.exact, trial, target, index.kind)
    if choose_ef({0: trial}, target, forced=task.is_forced) is None:
        plan = replace(task.exact.plan, build_s=build_s, reason=f"{index.kind} was tried: {comparison}")
        return plan, task.exact.blocks
    lists = ExactLists.of(table, probes.queries[:_LISTS], probes.groups[:_LISTS], last=index.covered)
    index.answered(lists.measured(trial.least, search), probes, lists)
    return _served(task.exact, index.kind, trial, ef=None, build_s=build_s, reason=comparison), index


@dataclass(frozen=True, slots=True)
class Candidate:
    """A structure for the planner to try. ``kind``: its name for owners.

    ``attempt`` builds and measures one. It returns the plan and the structure, or the plan of the exact
    search, with the reason, and the exact search's own structure. ``measured`` does so for a structure
    without tuning. ``saving``: the way to other processes; None: they scan where it serves. ``missing``: the
    package to be installed before a build; None: none. Catalogues of this kind are refused until then.
    """

    kind: IndexKind
    attempt: Callable[[Task], tuple[Plan, Index | None]]
    saving: Saving | None = None
    missing: str | None = None


def _with_graph(task: Task) -> tuple[Plan, Index | None]:
    """A graph and its plan if some ef may serve, else the exact search."""
    table, options, exact, probes = task.table, task.options, task.exact, task.probes
    if not np.isfinite(table.largest_norm):
        return replace(exact.plan, reason="norms out of range"), exact.blocks
    started = time.perf_counter()
    chosen = core(table, probes)
    shape = {"m": options.m, "ef_construction": options.ef_construction}
    graph, substitutes = graph_file.make(table, chosen.rows, task.build, **shape), chosen.substitutes
    if graph.covered < table.rows:  # of an earlier run: arms that came since are searched beside it
        covered = np.arange(table.rows) < graph.covered
        probes = solve(table, probes.queries, among=covered, groups=probes.groups)
        substitutes = substitutes[substitutes < graph.covered]
    graph.with_head(table)
    graph.with_reserve(table, chosen.reserve, substitutes)
    build_s = time.perf_counter() - started
    trials = _measured_efs(task, graph, probes)
    ef = choose_ef(trials, options.target_recall, forced=task.is_forced)
    if ef is None:
        ef, trial = list(trials.items())[-1]
        reason = f"a graph was tried: {_comparison(exact, trial, options.target_recall, f'ef {ef}')}"
        return replace(exact.plan, build_s=build_s, reason=reason), exact.blocks
    trial = trials[ef]
    # A request for more than ``most`` arms would take longer than the exact search.
    most = max(options.shortlist, int(ef * trial.speedup))
    graph.tuned(ef, shortlist=options.shortlist, most=most)
    # After ``tuned``: how often an arm is passed depends on the ef that serves.
    graph.weigh(probes.queries)
    lists = ExactLists.of(table, probes.queries[:_LISTS], probes.groups[:_LISTS], last=graph.covered)
    _tune_for_lists(table, graph, lists, options, most)
    quality = lists.measured(trial.least, lambda query, k: find(table, graph, query, k))
    graph.answered(quality, probes, lists)
    comparison = _comparison(exact, trial, options.target_recall, f"ef {ef}")
    return _served(exact, graph.kind, trial, ef=ef, build_s=build_s, reason=comparison), graph


def _measured_efs(task: Task, graph: HnswGraph, probes: Probes) -> dict[int, Trial]:
    """Measure some ef: by bisection the least for which it is settled that no larger one is chosen."""
    table, options, exact = task.table, task.options, task.exact
    trials: dict[int, Trial] = {}

    def settles(ef: int) -> bool:
        task.build.check()
        graph.tuned(ef, shortlist=options.shortlist, most=graph.arms)
        trials[ef] = compare(lambda query: find(table, graph, query, 1), exact.search, probes)
        return ef_choice.is_settled(trials[ef], options.target_recall, forced=task.is_forced)

    # By bisection, since recall and time both grow with ef: some six efs are measured instead of forty.
    bisect_left(LADDER if options.ef_search is None else (options.ef_search,), True, key=settles)
    return dict(sorted(trials.items()))


def _tune_for_lists(
    table: TableSnapshot, graph: HnswGraph, lists: ExactLists, options: IndexOptions, most: int
) -> None:
    """Ask for as many arms as a list of ten needs to reach the target; all are scanned where too many are."""
    counts = [count for count in _LIST_COUNTS if count <= most]

    def reaches(count: int) -> bool:
        graph.tuned_for_lists(count)
        return lists.recall(lambda query, k: find(table, graph, query, k), LIST) >= options.target_recall

    position = bisect_left(counts, True, key=reaches)
    graph.tuned_for_lists(counts[position] if position < len(counts) else None)


def find(table: TableSnapshot, index: Index, query: Vector, k: int) -> TopK:
    """The ``k`` best arms by the structure, or by a scan where that would take longer."""
    return index.search(table, query, k) or scan(table, query, k)


def _served(
    exact: ExactSearch, kind: IndexKind, trial: Trial, *, ef: int | None, build_s: float, reason: str
) -> Plan:
    quality, before = trial.least, exact.plan
    return replace(
        before,
        kind=kind,
        # Both exact searches as they were when this was timed.
        scan_us=before.scan_us * trial.exact_us / before.expected_us,
        expected_us=trial.us,
        recall_at_1=quality.recall_at_1,
        ratio_mean=quality.ratio_mean,
        ratio_min=quality.ratio_min,
        ef_search=ef,
        build_s=build_s,
        reason=reason,
    )


def _comparison(exact: ExactSearch, trial: Trial, target: float, where: str) -> str:
    quality, other = trial.quality, "plain scan" if exact.blocks is None else "norm-pruned search"
    result = f"recall {quality.recall_at_1:.3f} and ratio {quality.ratio_mean:.4f} at {where}"
    if not ef_choice.reaches(quality, target):
        result += f", which does not reach {target:g} for certain"
    return f"{trial.speedup:.1f} times as fast as the {other}, {result}"


@dataclass(frozen=True, slots=True, eq=False)
class Core:
    """The arms for a graph: the longest.

    ``rows`` (n,): the longest first. ``reserve``: how many of the longest may be dead. ``substitutes`` (m,):
    rows of the longest of the others.
    """

    rows: Rows
    reserve: int
    substitutes: Rows


def core(table: TableSnapshot, probes: Probes) -> Core:
    """The arms for a graph: those long enough to win if the reserve of the ``probes`` were dead.

    They are as long as 98 % of the fallback winners of the ``probes``, and a quarter more arms are added. If
    that is most of the catalogue, all arms are taken, without a reserve.
    """
    rows = table.live_rows
    norms, reserve = table.norms[rows], probes.reserve
    cut = float(np.quantile(table.norms[probes.fallback_winners], _CORE_QUANTILE))
    count = int(_CORE_MARGIN * np.count_nonzero(norms >= cut))
    if count >= _LARGEST_CORE * len(rows):
        return Core(longest_first(table, rows), 0, NO_ROWS)
    last_substitute = min(count + _SUBSTITUTES * reserve, len(rows) - 1)
    order = np.argpartition(-norms, (count, last_substitute))
    return Core(longest_first(table, rows[order[:count]]), reserve, rows[order[count:last_substitute]])


def reserve_of(table: TableSnapshot, *, is_growing: bool = False) -> int:
    """The number of longest arms which may die before arms outside of the core begin to win.

    Few while the catalogue ``is_growing``: then it will soon be planned again.
    """
    return max(1, int((FEW_DEAD if is_growing else _RESERVE) * table.live))


OURS = (Candidate("hnsw", _with_graph, graph_file.SAVING),)
"""What is tried where no exact search is quick enough, without plug-ins."""


def saving_of(kind: IndexKind, candidates: Sequence[Candidate] = OURS) -> Saving | None:
    """The ``Saving`` of a kind of structure; None: the kind is not shared."""
    savings = {candidate.kind: candidate.saving for candidate in candidates}
    return savings.get(kind, norm_pruned.SAVING if kind == NormBlocks.kind else None)


def build_over(
    table: TableSnapshot, rows: Rows, options: IndexOptions, *, seed: int, check: Callable[[], None]
) -> HnswGraph:
    """The structure that the adaptive solver builds over some live rows (n,), in this order.

    On one core; ``check`` is called now and then, and may raise to stop.
    """
    return HnswGraph.build(
        table, rows, m=options.m, ef_construction=options.ef_construction, seed=seed, threads=1, check=check
    )
