"""`shortlist bench filters`: searches among the arms that a filter matches, beside plain numpy.

Notation
    K, d         arms; their dimension, 32
    norms        gaussian: standard normal arms; lognormal: the same with norms exp(N(0, 0.75^2))
    placement    where the eligible arms lie. independent: anywhere. clustered: furthest in a direction which
                 every query avoids, so the best arms of the catalogue are hardly ever eligible
    filter       new: never asked before, so it is evaluated first. known: asked often and planned, as by the
                 service, which is where both searches come from (``FilteredSnapshots``)
    exact        share of the answers that say so; false_exact: how many of them brute force contradicts
    ineligible   answers that the filter does not match
    reported     recall as the service shows it
    numpy        the fastest of two float32 programs: a scan with a mask, or a gather of the eligible rows.
                 They give what our search gives: the row, the arm's id, and its score in float64. Of a known
                 filter they are given what it matches; for a new one they evaluate it on a column of numbers
    vs_numpy     time / time of numpy; vs_unfiltered: / that of a search of all arms for the same queries
    missed       targets that the row misses, see ``TARGETS``
    prepare_ms   of a known filter: evaluation and plan; of a new one: evaluation, which its times contain

All searches take turns, so that all see the machine in one state; ratios are medians over the turns. BLAS has
one thread, as in the service. Recall and ratio are by brute force on every query. What HTTP adds is left out.
Three further tables: how long the largest filter holds up other requests (``largest_filter``), searches while
the arms are replaced (``filter_churn``), and memory of attributes. The exit status says whether every answer
was right; targets of time are printed, for they depend on the machine.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from types import CoroutineType
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from app.catalogues.catalogue import Catalogue
from app.filtering.filter_limits import FilterLimits
from app.filters.filter import parse
from app.indexes.eligible_rows import eligible_rows
from app.indexes.filtered_search import GATHER_ROWS
from app.indexes.live import IndexOptions, LiveIndex
from app.indexes.snapshot import Snapshot
from app.platform.command_line import table
from shortlist.types import Matrix, TopK, Vector
from shortlist_client.progress import progress
from studies.bench import attribute_memory, choose, filter_churn, largest_filter
from studies.bench.served_filters import ASKED, new_views, plan, served_catalogue
from studies.measurement import record

Norms = Literal["gaussian", "lognormal"]
Placement = Literal["independent", "clustered"]
Floats = NDArray[np.float32]
Found = tuple[int, str, float]
"""The row of the best arm, its id and its score."""
Program = Callable[[Vector], Found]

SEED = 1_515
DIM = 32
NORMS: Sequence[Norms] = ("gaussian", "lognormal")
PLACEMENTS: Sequence[Placement] = ("independent", "clustered")
MANY_ARMS, QUERIES_OF_MANY = 1_000_000, 200
LOTS = 10_000
AVERSION = 2.0  # least component of a query against the direction, in standard deviations of an arm's
DESCRIBED_TOGETHER = 10_000
Targets = Mapping[str, tuple[Literal["least", "most"], float]]
TARGETS: Targets = {
    "recall_at_1": ("least", 0.98),
    "ratio_mean": ("least", 0.999),
    "false_exact": ("most", 0),
    "ineligible": ("most", 0),
    "dead": ("most", 0),
    "vs_numpy": ("most", 1.1),
    "vs_unfiltered": ("most", 3.0),  # of known filters
    "p99_ratio": ("most", 3.0),
    "bytes_an_arm": ("most", 40.0),
    "loop_ms": ("most", 20.0),
}
OF_ANSWERS = frozenset({"recall_at_1", "ratio_mean", "false_exact", "ineligible", "dead"})
NEW_STEP = 1e-6  # between the bounds of filters that let in the same arms
_SAME_SCORE = 1e-6
_MINUS_INF = np.uint32(0xFF800000)  # its bits
_TRIED = 10
_TURNS = 10  # further questions: one is not timed


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """``turn``: queries of a turn. ``limits``: which filters are planned. ``largest``, ``memory``: arms of
    these parts.
    """

    arms: Sequence[int] = (100_000, 1_000_000)
    norms: Sequence[Norms] = NORMS
    placements: Sequence[Placement] = PLACEMENTS
    shares: Sequence[float] = (0.5, 0.1, 0.01, 0.001, 0.0001)
    queries: int = 600
    turn: int = 50
    limits: FilterLimits = FilterLimits()
    largest: int = 1_000_000
    churn: filter_churn.Sizes = filter_churn.WHOLE
    memory: int = 1_000_000


WHOLE = Sizes()
QUICK = Sizes(arms=(100_000,), queries=300, largest=100_000, churn=filter_churn.QUICK, memory=100_000)


@dataclass(frozen=True, slots=True, eq=False)
class Plain:
    """The same arms in numpy. Shapes: features (K, d) float64, working (K, d) float32, ids (K,)."""

    features: Matrix
    working: Floats
    ids: Sequence[str]


@dataclass(frozen=True, slots=True, eq=False)
class Arms:
    """A catalogue of arms to search, and what brute force needs of it.

    Shapes: features (K, d); lots (K,) by placement: the arms of a lot below 10,000 s are a share s of all;
    away (d,) the direction that queries avoid where the placement is clustered.
    """

    norms: Norms
    catalogue: Catalogue
    features: Matrix
    plain: Plain
    lots: dict[Placement, NDArray[np.int64]]
    away: Vector


@dataclass(slots=True)
class Method:
    """One way to answer queries. ``search`` gives an answer, which may have to be waited for."""

    search: Callable[[Vector], Found | TopK | Coroutine[Any, Any, TopK]]
    us: list[float] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    exact: list[bool] = field(default_factory=list)
    turns: list[float] = field(default_factory=list)

    async def answer(self, queries: Matrix) -> None:
        """Answer and time these queries in a row: one turn."""
        for query in queries:
            started = time.perf_counter()
            found = self.search(query)
            if type(found) is CoroutineType:
                found = await found
            self.us.append((time.perf_counter() - started) * 1e6)
            is_answer = isinstance(found, TopK)
            self.rows.append(int(found.rows[0]) if is_answer else found[0])  # type: ignore[union-attr, index]
            self.exact.append(is_answer and found.exact)  # type: ignore[union-attr]
        self.turns.append(float(np.median(self.us[-len(queries) :])))

    def times(self, other: Method) -> float:
        """How many times as long as the other it takes."""
        return float(np.median(np.array(self.turns) / np.array(other.turns)))


def run(quick: bool, sizes: Sizes | None = None, targets: Targets = TARGETS) -> dict[str, Any]:
    """All parts: 100,000 arms (full: 1,000,000 as well); print and return their rows, and what missed."""
    sizes = sizes or (QUICK if quick else WHOLE)
    with threadpool_limits(1):
        parts = [asyncio.run(_searches(sizes)), [largest_filter.row(sizes.largest)]]
        parts += [filter_churn.rows(sizes.churn), [attribute_memory.row(sizes.memory)]]
    for rows in parts:
        for row in rows:
            row["missed"] = " ".join(missed(row, targets)) or "-"
        print(table(rows))
    found = [(row, name) for rows in parts for row in rows for name in missed(row, targets)]
    for row, name in found:
        print(f"missed: {_said(row)}: {name} {row[name]:.4g}, {' '.join(map(str, targets[name]))}")
    wrong = sum(name in OF_ANSWERS for _, name in found)
    print(f"{len(found)} targets missed, {wrong} of them by wrong answers")
    return record("filters", [row for rows in parts for row in rows], seed=SEED) | {"failed": wrong > 0}


def missed(row: Mapping[str, Any], targets: Targets = TARGETS) -> list[str]:
    """The columns of a row that miss their target."""
    names = [name for name in targets if row.get(name) is not None]
    if row.get("filter") == "new":
        names.remove("vs_unfiltered")
    return [name for name in names if not _is_within(row[name], *targets[name])]


def _is_within(value: float, side: Literal["least", "most"], bound: float) -> bool:
    return value >= bound if side == "least" else value <= bound


def _said(row: Mapping[str, Any]) -> str:
    names = ("part", "K", "norms", "placement", "share", "filter")
    return ", ".join(f"{row[name]}" for name in names if name in row)


async def _searches(sizes: Sizes) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for count, norms in progress(list(product(sizes.arms, sizes.norms)), "catalogues"):
        arms = make(count, norms)
        for placement, share in product(sizes.placements, sizes.shares):
            rows += await case(arms, placement, share, sizes)
        del arms
        gc.collect()
    return rows


def make(count: int, norms: Norms) -> Arms:
    """A catalogue whose index is built; each arm has its lot in every placement as a field."""
    rng = np.random.default_rng((SEED, count, NORMS.index(norms)))
    features = choose.make(count, DIM, norms, rng)
    away = rng.standard_normal(DIM)
    away /= np.linalg.norm(away)
    ranks = np.arange(count) * LOTS // count
    lots: dict[Placement, NDArray[np.int64]] = {
        "independent": rng.permutation(ranks),
        "clustered": np.empty(count, dtype=np.int64),
    }
    lots["clustered"][np.argsort(-(features @ away))] = ranks
    index = LiveIndex(DIM, seed=SEED)
    ids = [str(row) for row in range(count)]
    index.upsert(ids, features, range(count))
    for start in range(0, count, DESCRIBED_TOGETHER):
        part = slice(start, start + DESCRIBED_TOGETHER)
        pairs = zip(*(lots[placement][part].tolist() for placement in PLACEMENTS), strict=True)
        index.describe(ids[part], [((), dict(zip(PLACEMENTS, pair, strict=True))) for pair in pairs])
    while (job := index.begin_maintenance()) is not None:
        job.run()
        index.finish(job)
    plain = Plain(features, features.astype(np.float32), ids)
    return Arms(norms, served_catalogue(index, IndexOptions()), features, plain, lots, away)


async def case(arms: Arms, placement: Placement, share: float, sizes: Sizes) -> list[dict[str, Any]]:
    """Time the filter that lets in this share, new and known: a row for each."""
    catalogue, bound = arms.catalogue, round(LOTS * share)
    wanted = parse({placement: {"$lt": bound}})
    let_in = arms.lots[placement] < bound
    count = QUERIES_OF_MANY if len(let_in) >= MANY_ARMS else sizes.queries
    rng = np.random.default_rng((SEED, len(let_in), bound))
    queries = queries_of(arms, placement, count, rng)
    views = new_views(sizes.limits)
    started = time.perf_counter()
    await plan(views, catalogue, wanted, queries_of(arms, placement, ASKED, rng))
    plan_ms = (time.perf_counter() - started) * 1e3
    snapshot = catalogue.index.snapshot()
    column = arms.lots[placement].astype(np.float64)
    rivals = {
        "new": fastest(of_new(arms.plain, column, bound), queries[:_TRIED]),
        "known": fastest(of_known(arms.plain, let_in), queries[:_TRIED]),
    }
    others = iter([parse({placement: {"$lt": bound - NEW_STEP * n}}) for n in range(1, count + _TURNS)])
    of_others = new_views(sizes.limits)

    async def known(query: Vector) -> TopK:
        return _answer(await views.of(catalogue, wanted), query)

    async def new(query: Vector) -> TopK:
        return _answer(await of_others.of(catalogue, next(others)), query)

    unfiltered = Method(lambda query: _answer(snapshot, query))
    numpy_ = {state: Method(program) for state, (_, program) in rivals.items()}
    ours = {"new": Method(new), "known": Method(known)}
    await take_turns([unfiltered, *numpy_.values(), *ours.values()], queries, sizes.turn)
    best = _best(arms.features[let_in], queries)
    (status,) = views.in_use(catalogue, 1)
    exact_way = "gather" if GATHER_ROWS * status.eligible < len(let_in) else "mask"
    view, attributes = snapshot.table, snapshot.attributes
    evaluation_us = _median_us(lambda _: eligible_rows(wanted, view, attributes), queries[:_TRIED])
    prepare_ms = {"new": evaluation_us / 1e3, "known": plan_ms}
    views.close()
    return [
        {
            "part": "search",
            "K": len(let_in),
            "norms": arms.norms,
            "placement": placement,
            "share": share,
            "filter": state,
            "eligible": status.eligible,
            "way": exact_way if state == "new" or status.strategy == "exact" else status.strategy,
            "p50_us": float(np.median(method.us)),
            "p99_us": float(np.quantile(method.us, 0.99)),
            **quality(method, arms.features, let_in, queries, best),
            "reported": 1.0 if state == "new" else status.recall_at_1,
            "numpy": rivals[state][0],
            "numpy_us": float(np.median(numpy_[state].us)),
            "vs_numpy": method.times(numpy_[state]),
            "unfiltered_us": float(np.median(unfiltered.us)),
            "vs_unfiltered": method.times(unfiltered),
            "prepare_ms": prepare_ms[state],
        }
        for state, method in ours.items()
    ]


def queries_of(arms: Arms, placement: Placement, count: int, rng: np.random.Generator) -> Matrix:
    """Gaussian queries (count, d); where the placement is clustered, turned against ``away``."""
    queries = rng.standard_normal((count, DIM))
    if placement == "clustered":
        along = queries @ arms.away
        queries -= np.outer(along + np.abs(along) + AVERSION, arms.away)
    return queries


def _answer(snapshot: Snapshot, query: Vector) -> TopK:
    """The best arm, with its id."""
    found = snapshot.search(query, 1)
    snapshot.id_of(int(found.rows[0]))
    return found


def fastest(programs: Mapping[str, Program], queries: Matrix) -> tuple[str, Program]:
    """The fastest program, and its name."""
    us = {name: _median_us(program, queries) for name, program in programs.items()}
    name = min(us, key=lambda name: us[name])
    return name, programs[name]


def of_known(plain: Plain, let_in: NDArray[np.bool_]) -> Mapping[str, Program]:
    """Programs in numpy that are given what a filter matches (K,)."""
    rows, penalty, scores = np.flatnonzero(let_in), _penalty(let_in), _room(len(let_in))
    gathered, of_gathered = _room(len(rows), plain.working.shape[1]), _room(len(rows))
    return {
        "mask": lambda query: _masked_scan(plain, penalty, query, scores),
        "gather": lambda query: _gathering(plain, rows, query, gathered, of_gathered),
    }


def of_new(plain: Plain, column: Vector, bound: float) -> Mapping[str, Program]:
    """Programs in numpy that evaluate the filter first: what is below the bound in a column (K,)."""
    scores, most = _room(len(column)), int(np.count_nonzero(column < bound))
    gathered, of_gathered = _room(most, plain.working.shape[1]), _room(most)
    return {
        "mask": lambda query: _masked_scan(plain, _penalty(column < bound), query, scores),
        "gather": lambda query: _gathering(
            plain, np.flatnonzero(column < bound), query, gathered, of_gathered
        ),
    }


def _penalty(let_in: NDArray[np.bool_]) -> Floats:
    """0 or -inf for every arm; the fastest way to make it that was found."""
    return np.multiply((~let_in).view(np.uint8), _MINUS_INF, dtype=np.uint32).view(np.float32)


def _room(*shape: int) -> Floats:
    return np.empty(shape, dtype=np.float32)


def _masked_scan(plain: Plain, penalty: Floats, query: Vector, scores: Floats) -> Found:
    """One product with all arms, and -inf added where an arm is not let in; ``scores`` is overwritten."""
    np.dot(plain.working, query.astype(np.float32), out=scores)
    np.add(scores, penalty, out=scores)
    return _scored(plain, int(scores.argmax()), query)


def _gathering(
    plain: Plain, rows: NDArray[np.int64], query: Vector, gathered: Floats, scores: Floats
) -> Found:
    """The rows that match, copied side by side for each query, into memory that is there already."""
    plain.working.take(rows, axis=0, out=gathered, mode="clip")
    np.dot(gathered, query.astype(np.float32), out=scores)
    return _scored(plain, int(rows[scores.argmax()]), query)


def _scored(plain: Plain, row: int, query: Vector) -> Found:
    return row, plain.ids[row], float(plain.features[row] @ query)


def _median_us(program: Callable[[Vector], object], queries: Matrix) -> float:
    seconds = []
    program(queries[0])
    for query in queries:
        started = time.perf_counter()
        program(query)
        seconds.append(time.perf_counter() - started)
    return float(np.median(seconds) * 1e6)


async def take_turns(methods: Sequence[Method], queries: Matrix, size: int) -> None:
    """Let every method answer every query, each another block of ``size`` in a turn.

    So none finds in the cache what the one before it has read.
    """
    for method in methods:
        await Method(method.search).answer(queries[:1])  # what is made by the first search is not timed
    blocks = np.array_split(queries, max(len(methods), len(queries) // size))
    for turn in range(len(blocks)):
        for place, method in enumerate(methods):
            await method.answer(blocks[(turn + place) % len(blocks)])
    for place, method in enumerate(methods):  # back into the order of the queries
        order = np.concatenate([_places(blocks, (turn + place) % len(blocks)) for turn in range(len(blocks))])
        back = np.argsort(order)
        method.rows = [method.rows[i] for i in back]
        method.exact = [method.exact[i] for i in back]


def _places(blocks: Sequence[Matrix], number: int) -> NDArray[np.int64]:
    first = sum(len(block) for block in blocks[:number])
    return np.arange(first, first + len(blocks[number]))


def quality(
    method: Method, features: Matrix, let_in: NDArray[np.bool_], queries: Matrix, best: Vector
) -> dict[str, float]:
    """Compare every answer with brute force. Shapes: queries (q, d), best (q,)."""
    scores = np.einsum("ij,ij->i", features[method.rows], queries)
    missing, scale = best - scores, np.abs(best)
    right, exact = missing <= _SAME_SCORE * scale, np.array(method.exact)
    return {
        "recall_at_1": float(right.mean()),
        "ratio_mean": float((1.0 - missing / scale).mean()),
        "exact": float(exact.mean()),
        "false_exact": int(np.count_nonzero(exact & ~right)),
        "ineligible": int(np.count_nonzero(~let_in[method.rows])),
    }


def _best(features: Matrix, queries: Matrix) -> Vector:
    best: Vector = np.full(len(queries), -np.inf)
    for start in range(0, len(features), 20_000):
        np.maximum(best, (features[start : start + 20_000] @ queries.T).max(axis=0), out=best)
    return best
