"""The planner: which index serves a catalogue, decided by measuring on probes.

    plain scan      always possible, always exact; small catalogues never need more
    norm-pruned     exact; worth it when the best arm's score bounds most norms
    hnsw            approximate; built when neither of them answers within ``SMALL_US``

hnsw searches with the smallest ef whose quality is GOOD; when no ef within the time ``budget`` is, with
the largest one within it that is FAIR; when none is, with the smallest ef that is FAIR within our
``patience``; at last with the largest ef within the budget. Whatever is below the FLOOR does not serve. An
approximate index must be 1.25 times as fast as the best exact one, or 8 times if it is less than FAIR.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol

import numpy as np

from app.algorithms.types import NO_ROWS, Matrix, Rows, TopK, Vector
from app.indexes.beside import ArmsBeside
from app.indexes.exact import scan
from app.indexes.hnsw import HnswGraph
from app.indexes.norm_pruned import NormBlocks
from app.indexes.probes import Probes, Quality, make_queries, measure, solve, typical_us
from app.indexes.table import ArmView

Kind = Literal["exact", "norm_pruned", "hnsw"]

SMALL_US = 100.0
BUDGET_SHARE = 28
GOOD = (0.99, 0.999)
FAIR = (0.95, 0.998)
FLOOR = (0.80, 0.99)
LADDER = (32, 48, 64, 96, 128, 192, 256, 384, 512)

_PROBES = 400
_TIMED = 25
_WORTH_PRUNING = 0.6
_FASTER = 0.9
_MUCH_FASTER = 1.25
_FAR_FASTER = 8.0
_CORE_QUANTILE = 0.02
_CORE_MARGIN = 1.25
_RESERVE = 0.05
_LARGEST_CORE = 0.75
_SUBSTITUTES = 6  # for each arm of the reserve


class Structure(Protocol):
    """An index over the rows of a view below ``covered``; later rows are fresh, and scanned beside it."""

    @property
    def kind(self) -> Kind: ...
    @property
    def arms(self) -> int: ...
    @property
    def memory_bytes(self) -> int: ...

    covered: int
    dead: int

    def search(self, view: ArmView, query: Vector, k: int, exclude: Rows = NO_ROWS) -> TopK | None: ...
    def bury(self, rows: Rows) -> None: ...
    def moved(self, position: Rows, covered: int) -> Structure: ...


@dataclass(frozen=True, slots=True)
class Plan:
    """What was decided for a catalogue of ``size`` arms, and what was measured (times in microseconds)."""

    kind: Kind
    size: int
    scan_us: float
    expected_us: float
    recall_at_1: float = 1.0
    ratio_mean: float = 1.0
    ratio_min: float = 1.0
    ef_search: int | None = None
    build_s: float = 0.0
    reason: str = "the plain scan is fast enough"


@dataclass(frozen=True, slots=True)
class GraphOptions:
    """``wanted`` forces a graph; ``ef_search`` None means: measure. ``make`` builds one over given rows."""

    wanted: bool
    ef_search: int | None
    shortlist: int
    make: Callable[[Rows], HnswGraph]


def plan(
    view: ArmView, graph: GraphOptions | None, *, recent: Sequence[Vector], rng: np.random.Generator
) -> tuple[Plan, Structure | None]:
    """Measure, build what is needed, decide. ``graph`` None: the plain scan alone is allowed."""
    queries = make_queries(view.dim, _PROBES, recent, rng)
    scan_us = typical_us(lambda query: scan(view, query, 1), queries[:_TIMED])
    plain = Plan("exact", view.live, scan_us, scan_us)
    if graph is None or not view.live:
        return replace(plain, reason="as configured"), None
    if graph.wanted:
        return _with_graph(view, graph, plain, solve(view, queries))
    if scan_us <= SMALL_US / 2:
        return plain, None
    probes = solve(view, queries)
    exact, blocks = _pruned(view, plain, probes)
    if exact.expected_us <= SMALL_US:
        return exact, blocks
    found, structure = _with_graph(view, graph, exact, probes)
    is_fair = found.recall_at_1 >= FAIR[0] and found.ratio_mean >= FAIR[1]
    least = _MUCH_FASTER if is_fair else _FAR_FASTER
    if structure is None or found.expected_us * least > exact.expected_us:
        return replace(exact, reason=f"a graph was tried: {found.reason}"), blocks
    return found, structure


def _pruned(view: ArmView, plain: Plan, probes: Probes) -> tuple[Plan, Structure | None]:
    """Norm-pruned search if it is faster than the plain scan; built only if the norms promise that."""
    norms = np.sort(view.norms[view.live_rows])
    least = probes.best / np.linalg.norm(probes.queries, axis=1)
    share_read = 1.0 - norms.searchsorted(least).mean() / len(norms)
    if share_read > _WORTH_PRUNING:
        return plain, None
    blocks = NormBlocks(view)
    us = typical_us(lambda query: blocks.search(view, query, 1), probes.queries[: 4 * _TIMED])
    if us > _FASTER * plain.scan_us:
        return plain, None
    return replace(plain, kind="norm_pruned", expected_us=us, reason=f"reads {share_read:.0%}"), blocks


def _with_graph(
    view: ArmView, options: GraphOptions, exact: Plan, probes: Probes
) -> tuple[Plan, Structure | None]:
    """A plan with a graph; without a structure if the graph's quality is below the floor."""
    if not np.isfinite(view.largest_norm):
        return replace(exact, reason="norms out of range"), None
    started = time.perf_counter()
    rows, reserve, substitutes = core(view, probes.queries)
    graph = options.make(rows)
    graph.with_head(view)
    graph.with_reserve(reserve, ArmsBeside.copied(view, substitutes))
    build_s = time.perf_counter() - started
    measured = _climb(view, graph, options, probes, exact.scan_us)
    ef = choose_ef(measured, budget(exact.scan_us), patience(exact.scan_us))
    quality = measured[ef]
    if not _reaches(quality, FLOOR):
        reason = f"recall {quality.recall_at_1:.3f}, ratio {quality.ratio_mean:.4f}: below the floor"
        return replace(exact, build_s=build_s, reason=reason), None
    # A request for more than ``most`` arms would take longer than the scan.
    most = max(options.shortlist, int(ef * exact.scan_us / quality.us))
    graph.tuned(ef, shortlist=options.shortlist, most=most)
    graph.weigh(probes.queries)
    return _measured(exact, ef, quality, build_s), graph


def _measured(exact: Plan, ef: int, quality: Quality, build_s: float) -> Plan:
    return replace(
        exact,
        kind="hnsw",
        expected_us=quality.us,
        recall_at_1=quality.recall_at_1,
        ratio_mean=quality.ratio_mean,
        ratio_min=quality.ratio_min,
        ef_search=ef,
        build_s=build_s,
        reason=f"{exact.scan_us / quality.us:.1f} times as fast as the plain scan",
    )


def core(view: ArmView, queries: Matrix) -> tuple[Rows, int, Rows]:
    """The live rows that are long enough to win though the reserve died, the reserve's size, and substitutes.

    The core has the norms of 98 % of those winners, and a quarter more arms; substitutes are the longest of
    the others. Where the core is most of the catalogue, all of it is taken, and there is no reserve.
    """
    rows = view.live_rows
    norms = view.norms[rows]
    reserve = max(1, int(_RESERVE * len(rows)))
    shortest = float(np.partition(norms, len(rows) - reserve)[len(rows) - reserve])
    winners = solve(view, queries, shorter_than=shortest).winners
    count = int(_CORE_MARGIN * np.count_nonzero(norms >= np.quantile(view.norms[winners], _CORE_QUANTILE)))
    if count >= _LARGEST_CORE * len(rows):
        return rows, 0, NO_ROWS
    standing = min(count + _SUBSTITUTES * reserve, len(rows) - 1)
    order = np.argpartition(-norms, (count, standing))
    return rows[order[:count]], reserve, rows[order[count:standing]]


def budget(scan_us: float) -> float:
    """Time that a search of a graph should take, in microseconds."""
    return min(max(SMALL_US, scan_us / BUDGET_SHARE), scan_us / 2.0)


def patience(scan_us: float) -> float:
    """Time that it may take if its quality would not be FAIR otherwise."""
    return max(scan_us / 4.0, min(scan_us / _MUCH_FASTER, SMALL_US))


def choose_ef(measured: dict[int, Quality], budget_us: float, patience_us: float) -> int:
    """The rule of the module's notation, over ef -> quality in ascending order of ef."""
    within = [ef for ef, quality in measured.items() if quality.us <= budget_us]
    good = [ef for ef in within if _reaches(measured[ef], GOOD)]
    fair = [ef for ef in within if _reaches(measured[ef], FAIR)]
    slow = [ef for ef, q in measured.items() if _reaches(q, FAIR) and q.us <= patience_us]
    return (good[:1] or fair[-1:] or slow[:1] or within[-1:] or list(measured)[:1])[0]


def _climb(
    view: ArmView, graph: HnswGraph, options: GraphOptions, probes: Probes, scan_us: float
) -> dict[int, Quality]:
    """Measure one ef after the other until the quality is good or the time is too long."""
    measured: dict[int, Quality] = {}
    for ef in LADDER if options.ef_search is None else (options.ef_search,):
        graph.tuned(ef, shortlist=options.shortlist, most=graph.arms)
        measured[ef] = measure(lambda query: graph.search(view, query, 1) or scan(view, query, 1), probes)
        if _reaches(measured[ef], GOOD) or measured[ef].us > patience(scan_us):
            break
    return measured


def _reaches(quality: Quality, least: tuple[float, float]) -> bool:
    return quality.recall_at_1 >= least[0] and quality.ratio_mean >= least[1]
