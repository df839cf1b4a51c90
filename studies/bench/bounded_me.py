"""`shortlist bench bounded-me`: BoundedME and racing beside a scan, the paper's baselines, a graph and faiss.

Notation
    n, N, k     vectors, coordinates, vectors to find
    R           range of the rewards of a query, see algorithms/shortlist/mips/columns.py
    reads       coordinates read, or products computed, as a share of n N
    time        of a search, over that of the scan: the top k of one float32 BLAS product
    follows     speed-up times reads: 1 when time follows reads

Plans are made from costs that are measured at the start, as in the service.

With ``--data`` the vectors are also factors of MovieLens' films, and factors of users are the queries. They
are so few that a scan is faster than any sampling, so plans count reads alone there.

Every query is answered by the scan and by a method in turn, at least ``REPEATS`` times each and for
50 ms, and the least of each counts, so that both see the machine in one state. Times are
processor seconds of the one thread, so that others on the machine do not count. Where the schedule saves
nothing the method is the scan, as in the service.
``for_1``, ``for_100``, ``for_10000``: speed-up over the scan when that many queries share the preparation.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from shortlist.guarantee import Guarantee
from shortlist.mips import blocked
from shortlist.mips.answer import Answer
from shortlist.mips.blocked import BlockedArms
from shortlist.mips.bounded_me import bounded_me, follow, rounds, saves
from shortlist.mips.measured_costs import measure
from shortlist.mips.racing import racing
from shortlist.mips.read_costs import READS_ALONE, ReadCosts
from shortlist.mips.rewards import blocked_rewards
from shortlist_client.progress import progress
from studies.bench.one_shot_method import Find, Method, Result, Rows
from studies.bench.screening_methods import SWEEP, Sweep, screening_methods
from studies.experiments import movielens
from studies.experiments.coordinates import Data, Single, make
from studies.measurement import report

SEED = 11
ARMS = 10_000
DIMS = (4_096, 16_384, 65_536)
QUICK_DIMS = (4_096,)
DATA: tuple[Data, ...] = ("gaussian", "uniform", "low_rank")
KS = (5, 10)
DELTA = 0.05
REPEATS = 3
# Peers hold a copy of their own, and a graph takes minutes to build beyond this.
MOST_PEER_NUMBERS = 200_000_000
# Factors of MovieLens' ratings, as many as the paper's own source has of Netflix and Yahoo.
FACTORS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What is swept. ``shares``: epsilon / R, from a schedule that reads everything to one that reads next to
    nothing. ``least_s``: how long a query is measured at least.
    """

    shares: Sequence[float] = (0.01, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 1.0)
    ef_search: Sequence[int] = (16, 64, 256)
    screening: Sweep = SWEEP
    least_s: float = 0.05


SETTINGS = Settings()


def run(quick: bool, data: Path | None = None) -> dict[str, Any]:
    """Run every case (quick: the smallest N) with 3 or 5 queries; print and return the rows."""
    rows: list[dict[str, Any]] = []
    dims = QUICK_DIMS if quick else DIMS
    cases = [(kind, dim) for dim in dims for kind in DATA]
    with threadpool_limits(1):
        costs = measure(time.thread_time, np.random.default_rng(0))
        for kind, dim in progress(cases, "cases"):
            rows += case(kind, ARMS, dim, 3 if quick else 5, costs)
        if data is not None:
            rows += films(data, 10 if quick else 50)
    if find_spec("faiss") is None:
        print("faiss is not installed (.venv/bin/pip install -e '.[peers]'): it has no rows")
    return report("bounded-me", rows, seed=SEED)


def case(
    data: Data, n: int, dim: int, queries: int, costs: ReadCosts, *, settings: Settings = SETTINGS
) -> list[dict[str, Any]]:
    """All methods on one set of vectors; plans are made from the ``costs``."""
    rng = np.random.default_rng((SEED, dim, DATA.index(data)))
    vectors, asked = make(data, n, dim, queries, rng)
    return _rows(data, (vectors, asked), costs, rng, settings)


def films(folder: Path, queries: int, settings: Settings = SETTINGS) -> list[dict[str, Any]]:
    """All methods on factors of MovieLens, asked for ``queries`` users. Raises FileNotFoundError."""
    rng = np.random.default_rng((SEED, FACTORS))
    items, users = movielens.rating_factors(movielens.read(folder), FACTORS)
    asked = users[rng.choice(len(users), size=queries, replace=False)]
    pair = items.astype(np.float32), asked.astype(np.float32)
    return _rows("movielens", pair, READS_ALONE, rng, settings)


def _rows(
    data: str,
    vectors_and_queries: tuple[Single, Single],
    costs: ReadCosts,
    rng: np.random.Generator,
    settings: Settings,
) -> list[dict[str, Any]]:
    vectors, asked = vectors_and_queries
    started = time.thread_time()
    arms = blocked.build(vectors, rng=rng, costs=costs)
    build_s = time.thread_time() - started
    found = []
    for method in (*_sampled(vectors, arms, build_s, costs, settings), *_peers(vectors, settings)):
        for k in KS:
            row = _measure(vectors, asked, method, k, settings.least_s)
            found.append({"data": data, "n": len(vectors), "N": vectors.shape[1], "k": k, **row})
    return found


def _measure(vectors: Single, asked: Single, method: Method, k: int, least_s: float) -> dict[str, Any]:
    """Medians over the queries."""
    columns: dict[str, list[float]] = {
        "precision": [],
        "suboptimality": [],
        "reads": [],
        "time": [],
        "scan": [],
    }
    kinds = set()
    epsilon = None
    for query in asked:
        scan_s, (best, means), search_s, result = _in_turn(
            partial(scan, vectors, query, k), partial(method.find, query, k), least_s
        )
        columns["precision"].append(len(set(best.tolist()) & set(result.rows.tolist())) / k)
        # Candidates can be fewer than k: what is missing counts as the worst vector.
        worst = means[result.rows].min() if len(result.rows) == k else means.min()
        columns["suboptimality"].append(float(means[best].min() - worst) / len(query))
        columns["reads"].append(np.nan if result.reads is None else result.reads / vectors.size)
        columns["time"].append(search_s / scan_s)
        columns["scan"].append(scan_s)
        kinds.add(result.kind)
        epsilon = result.epsilon
    middle = {name: float(np.median(values)) for name, values in columns.items()}
    reads = None if np.isnan(middle["reads"]) else middle["reads"]
    scan_s = middle["scan"]
    return {
        "method": method.name,
        "setting": method.setting,
        "epsilon": epsilon,
        "guarantee": "/".join(sorted(kinds)),
        "precision": float(np.mean(columns["precision"])),
        "suboptimality": float(np.max(columns["suboptimality"])),
        "reads": reads,
        "time": middle["time"],
        "follows": None if reads is None else reads / middle["time"],
        "scan_ms": 1e3 * scan_s,
        "build_s": method.build_s,
        **{
            f"for_{count}": count * scan_s / (method.build_s + count * scan_s * middle["time"])
            for count in (1, 100, 10_000)
        },
    }


def _in_turn(
    one: Callable[[], Any], other: Callable[[], Any], least_s: float
) -> tuple[float, Any, float, Any]:
    """The least times of both, and what they return."""
    seconds = list[tuple[float, float]]()
    while len(seconds) < REPEATS or np.sum(seconds) < least_s:
        started = time.thread_time()
        first = one()
        between = time.thread_time()
        second = other()
        seconds.append((between - started, time.thread_time() - between))
    least = np.min(seconds, axis=0)
    return float(least[0]), first, float(least[1]), second


def scan(vectors: Single, query: Single, k: int) -> tuple[Rows, Single]:
    """The best k rows, and all products: what an expert would write."""
    products = vectors @ query
    return np.argpartition(products, len(products) - k)[len(products) - k :], products


def _sampled(
    vectors: Single, arms: BlockedArms, build_s: float, costs: ReadCosts, settings: Settings
) -> Iterator[Method]:
    def find(search: Callable[..., Answer], share: float) -> Find:
        def found(query: Single, k: int) -> Result:
            rewards = blocked_rewards(arms, query, costs=costs)
            epsilon = share * rewards.bounds.spread
            if search is bounded_me:
                steps = rounds(rewards, k=k, epsilon=epsilon, delta=DELTA)
                if not saves(steps, rewards):
                    return Result(scan(vectors, query, k)[0], vectors.size, "exact", epsilon)
                answer = follow(steps, rewards, k, Guarantee("pac", epsilon, DELTA))
            else:
                answer = search(rewards, k=k, epsilon=epsilon, delta=DELTA)
            return Result(answer.rows, answer.reads, answer.guarantee.kind, epsilon)

        return found

    for search in (bounded_me, racing):
        for share in settings.shares:
            yield Method(search.__name__, share, build_s, find(search, share))


def _peers(vectors: Single, settings: Settings) -> Iterator[Method]:
    if vectors.size > MOST_PEER_NUMBERS:
        return
    yield from screening_methods(vectors, SEED, settings.screening)
    yield from _faiss(vectors)
    yield from _hnsw(vectors, settings.ef_search)


def _faiss(vectors: Single) -> Iterator[Method]:
    if find_spec("faiss") is None:
        return
    import faiss  # noqa: PLC0415 - a peer that need not be installed

    faiss.omp_set_num_threads(1)
    started = time.thread_time()
    index = faiss.IndexFlatIP(vectors.shape[1])
    index.add(vectors)
    build_s = time.thread_time() - started

    def find(query: Single, k: int) -> Result:
        return Result(index.search(query[None], k)[1][0], vectors.size, "exact")

    yield Method("faiss_flat", None, build_s, find)


def _hnsw(vectors: Single, ef_search: Sequence[int]) -> Iterator[Method]:
    import hnswlib  # noqa: PLC0415 - here as a peer; the service's own is algorithms/shortlist/index/hnsw.py

    index = hnswlib.Index(space="ip", dim=vectors.shape[1])
    started = time.thread_time()
    index.init_index(len(vectors), M=16, ef_construction=100, random_seed=SEED)
    index.add_items(vectors, num_threads=1)
    build_s = time.thread_time() - started

    def find(ef: int) -> Find:
        def found(query: Single, k: int) -> Result:
            index.set_ef(max(ef, k))
            return Result(index.knn_query(query, k, num_threads=1)[0][0].astype(np.int64), None, "none")

        return found

    for ef in ef_search:
        yield Method("hnswlib", ef, build_s, find(ef))
