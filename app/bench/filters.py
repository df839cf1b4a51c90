"""`shortlist bench filters`: searches among the arms that a filter lets in, beside plain numpy.

Notation
    K, d         arms; their dimension, 32
    norms        gaussian: standard normal arms; lognormal: the same with norms exp(N(0, 0.75^2))
    placement    where the eligible arms lie. independent: anywhere. clustered: furthest in a direction which
                 every query avoids, so the best arms of the catalogue are hardly ever eligible
    filter       new: never asked before, so it is evaluated first. known: asked often and planned, as by the
                 service, which is where both searches come from (``FilteredViews``)
    exact        share of the answers that say so; false_exact: how many of them brute force contradicts
    ineligible   answers that the filter does not let in
    reported     recall as the service shows it
    numpy        the faster of two float32 programs that are given the evaluated filter: a scan with a mask,
                 or a gather of the eligible rows
    vs_numpy     time / time of numpy; vs_unfiltered: / that of a search of all arms for the same queries
    prepare_ms   of a known filter: evaluation and plan; of a new one: evaluation, which its times contain

All searches take turns, so that all see the machine in one state; ratios are medians over the turns. BLAS has
one thread, as in the service. Recall and ratio are by brute force on every query. What HTTP adds is left out.
Two further tables: searches while the arms are replaced (``filter_churn``), and memory of attributes.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from types import CoroutineType
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from app.algorithms.types import Matrix, TopK, Vector
from app.bench import attribute_memory, choose, filter_churn
from app.bench.served_filters import ASKED, new_views, plan, served_catalogue
from app.filters.filter import parse
from app.indexes.eligible_rows import eligible_rows
from app.indexes.filtered_search import GATHER_ROWS
from app.indexes.live import IndexOptions, LiveIndex
from app.measurement import record, table
from app.progress import progress
from app.services.catalogues.catalogues import Catalogue

Norms = Literal["gaussian", "lognormal"]
Placement = Literal["independent", "clustered"]
Floats = NDArray[np.float32]

SEED = 1_515
DIM = 32
QUICK_SIZES: Sequence[int] = (100_000,)
SIZES: Sequence[int] = (100_000, 1_000_000)
NORMS: Sequence[Norms] = ("gaussian", "lognormal")
PLACEMENTS: Sequence[Placement] = ("independent", "clustered")
SHARES = (0.5, 0.1, 0.01, 0.001, 0.0001)
QUERIES, QUICK_QUERIES = 1_000, 300
TURN = 50
LOTS = 10_000
AVERSION = 2.0  # least component of a query against the direction, in standard deviations of an arm's
DESCRIBED_TOGETHER = 10_000
_SAME_SCORE = 1e-6
_TRIED = 10


@dataclass(frozen=True, slots=True, eq=False)
class Arms:
    """A catalogue of arms to search, and what brute force needs of it.

    Shapes: features (K, d); lots (K,) by placement: the arms of a lot below 10,000 s are a share s of all;
    away (d,) the direction that queries avoid where the placement is clustered.
    """

    norms: Norms
    catalogue: Catalogue
    features: Matrix
    working: Floats
    lots: dict[Placement, NDArray[np.int64]]
    away: Vector


@dataclass(slots=True)
class Method:
    """One way to answer queries. ``search`` gives a row, or an answer that may have to be waited for."""

    search: Callable[[Vector], int | TopK | Coroutine[Any, Any, TopK]]
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
            self.rows.append(int(found.rows[0]) if is_answer else found)  # type: ignore[union-attr, arg-type]
            self.exact.append(is_answer and found.exact)  # type: ignore[union-attr]
        self.turns.append(float(np.median(self.us[-len(queries) :])))

    def times(self, other: Method) -> float:
        """How many times as long as the other it takes."""
        return float(np.median(np.array(self.turns) / np.array(other.turns)))


def run(quick: bool) -> dict[str, Any]:
    """All three parts: 100,000 arms (full: 1,000,000 as well); print and return the rows of all."""
    with threadpool_limits(1):
        rows = asyncio.run(_searches(quick))
        print(table(rows))
        churn = filter_churn.rows(quick)
        print(table(churn))
        memory = [attribute_memory.row(quick)]
        print(table(memory))
    return record("filters", [*rows, *churn, *memory], seed=SEED)


async def _searches(quick: bool) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    sizes = QUICK_SIZES if quick else SIZES
    for count, norms in progress([(count, norms) for count in sizes for norms in NORMS], "catalogues"):
        arms = make(count, norms)
        for placement in PLACEMENTS:
            for share in SHARES:
                rows += await case(arms, placement, share, QUICK_QUERIES if quick else QUERIES)
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
        index.finish_maintenance(job)
    return Arms(
        norms, served_catalogue(index, IndexOptions()), features, features.astype(np.float32), lots, away
    )


async def case(arms: Arms, placement: Placement, share: float, count: int) -> list[dict[str, Any]]:
    """Time the filter that lets in this share, new and known: a row for each."""
    catalogue, bound = arms.catalogue, round(LOTS * share)
    wanted = parse({placement: {"$lt": bound}})
    let_in = arms.lots[placement] < bound
    rng = np.random.default_rng((SEED, len(let_in), bound))
    queries = queries_of(arms, placement, count, rng)
    views = new_views()
    started = time.perf_counter()
    await plan(views, catalogue, wanted, queries_of(arms, placement, ASKED, rng))
    plan_ms = (time.perf_counter() - started) * 1e3
    snapshot = catalogue.index.snapshot()
    name, rival = fastest(arms.working, let_in, queries[:_TRIED])

    async def known(query: Vector) -> TopK:
        return (await views.of(catalogue, wanted)).search(query, 1)

    async def new(query: Vector) -> TopK:
        unused = new_views()
        return (await unused.of(catalogue, wanted)).search(query, 1)

    unfiltered, numpy_ = Method(lambda query: snapshot.search(query, 1)), Method(rival)
    ours = {"new": Method(new), "known": Method(known)}
    await take_turns([unfiltered, numpy_, *ours.values()], queries)
    best = _best(arms.features[let_in], queries)
    (status,) = views.in_use(catalogue, 1)
    exact_way = "gather" if GATHER_ROWS * status.eligible < len(let_in) else "mask"
    view, attributes = snapshot.view, snapshot.attributes
    evaluation_us = _median_us(lambda _: eligible_rows(wanted, view, attributes).count, queries[:_TRIED])
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
            "way": exact_way if state == "new" or status.way == "exact" else status.way,
            "p50_us": float(np.median(method.us)),
            "p99_us": float(np.quantile(method.us, 0.99)),
            **quality(method, arms.features, let_in, queries, best),
            "reported": 1.0 if state == "new" else status.recall_at_1,
            "numpy": name,
            "numpy_us": float(np.median(numpy_.us)),
            "vs_numpy": method.times(numpy_),
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


def fastest(
    working: Floats, let_in: NDArray[np.bool_], queries: Matrix
) -> tuple[str, Callable[[Vector], int]]:
    """The faster of the two programs in numpy, and its name. Shapes: working (K, d), let_in (K,)."""
    programs = {"mask": masked_scan(working, let_in), "gather": gathering(working, let_in)}
    us = {name: _median_us(program, queries) for name, program in programs.items()}
    name = min(us, key=lambda name: us[name])
    return name, programs[name]


def masked_scan(working: Floats, let_in: NDArray[np.bool_]) -> Callable[[Vector], int]:
    """One product with all arms, and -inf added where an arm is not let in; no memory is allocated."""
    penalty = np.where(let_in, 0.0, -np.inf).astype(np.float32)
    scores = np.empty(len(working), dtype=np.float32)

    def search(query: Vector) -> int:
        np.dot(working, query.astype(np.float32), out=scores)
        np.add(scores, penalty, out=scores)
        return int(scores.argmax())

    return search


def gathering(working: Floats, let_in: NDArray[np.bool_]) -> Callable[[Vector], int]:
    """The rows that are let in, copied side by side for each query, into memory that is there already."""
    rows = np.flatnonzero(let_in)
    gathered = np.empty((len(rows), working.shape[1]), dtype=np.float32)
    scores = np.empty(len(rows), dtype=np.float32)

    def search(query: Vector) -> int:
        working.take(rows, axis=0, out=gathered, mode="clip")
        np.dot(gathered, query.astype(np.float32), out=scores)
        return int(rows[scores.argmax()])

    return search


def _median_us(program: Callable[[Vector], int], queries: Matrix) -> float:
    seconds = []
    program(queries[0])
    for query in queries:
        started = time.perf_counter()
        program(query)
        seconds.append(time.perf_counter() - started)
    return float(np.median(seconds) * 1e6)


async def take_turns(methods: Sequence[Method], queries: Matrix) -> None:
    """Let every method answer every query, each another block of them in a turn.

    So none finds in the cache what the one before it has read.
    """
    for method in methods:
        await Method(method.search).answer(queries[:1])  # what is made by the first search is not timed
    blocks = np.array_split(queries, max(len(methods), len(queries) // TURN))
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
