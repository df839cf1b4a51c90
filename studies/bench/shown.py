"""`shortlist bench shown`: what limits on what is shown cost a choice, in process.

Notation
    K, d          arms, standard normal; 32 dimensions. The index is the planner's choice
    quotas        of a bandit: each of the arms of a campaign, a quarter of them closed
    filtered      a filter that lets in a half of the arms; together: with 10,000 quotas, and 50 arms that the
                  key had too often
    added_us      median time of a search with them - that without, in microseconds; the arms of closed quotas
                  are found first, as they are after each change; added_mean_us: of the mean times
    ready_us      finding these arms, once for all choices until another quota closes or opens
    ratio         median time / that of the plain list of the same length; of together: / that of filtered

All take turns, so that all see the machine in one state. BLAS has one thread, as in the service. The round
trip to the store, which charges the choice, is not in these times.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from app.exposure_limits.known_quotas import KnownQuotas
from app.exposure_limits.rules import BanditQuota, QuotaRule
from app.filters.filter import parse
from app.indexes.live import IndexOptions, LiveIndex
from app.indexes.snapshot import Snapshot
from app.selection.rules import Diverse, DiverseSolver
from app.storage.types import QuotaChange, QuotaChanges, QuotasNow
from shortlist.types import NO_ROWS, Rows, Vector
from shortlist_client.progress import progress
from studies.bench.served_filters import ASKED, new_views, plan, served_catalogue
from studies.measurement import report

SIZES, QUICK_SIZES = (100_000, 1_000_000), (100_000,)
QUOTAS = (300, 10_000)
DIM, SEED, BATCH = 32, 38, 10_000
TURNS, TURN = 100, 25
LIST = 10
HAD = 50  # arms that a key has had
HALF = {"half": 1}
MOST = 10**9
DAY_MS = 86_400_000


def run(quick: bool) -> dict[str, Any]:
    """Time choices with and without limits; print and return the rows."""
    rows: list[dict[str, Any]] = []
    with threadpool_limits(1):
        for count in progress(QUICK_SIZES if quick else SIZES, "sizes"):
            index = filled(count)
            rows += lists(index.snapshot(), count)
            rows += asyncio.run(with_quotas(index, count))
    return report("shown", rows, seed=SEED)


def filled(count: int) -> LiveIndex:
    rng = np.random.default_rng(SEED)
    folder = Path(tempfile.mkdtemp())
    index = LiveIndex(DIM, IndexOptions(), cache=folder / "index", seed=SEED)
    for start in range(0, count, BATCH):
        ids = [f"a{number}" for number in range(start, start + BATCH)]
        index.upsert(ids, rng.standard_normal((BATCH, DIM)), range(start, start + BATCH))
        index.describe(
            ids, [((), {"campaign": int(n), "half": int(n) % 2}) for n in rng.integers(0, max(QUOTAS), BATCH)]
        )
    while (job := index.begin_maintenance()) is not None:
        job.run()
        index.finish(job)
    return index


async def with_quotas(index: LiveIndex, count: int) -> list[dict[str, Any]]:
    """The filter matches a half of the arms, and was asked for often enough to have a plan."""
    catalogue, wanted, views = served_catalogue(index, IndexOptions()), parse(HALF), new_views()
    await plan(views, catalogue, wanted, np.random.default_rng(SEED).standard_normal((ASKED, DIM)))
    return await quotas(index.snapshot(), await views.of(catalogue, wanted), count)


def timed(ways: dict[str, Callable[[Vector], object]]) -> dict[str, tuple[float, float]]:
    """Median and mean of a choice, in microseconds. Each way has its own queries: none finds caches warm."""
    rng, times = np.random.default_rng(SEED), {name: list[float]() for name in ways}
    for _ in range(TURNS):
        for name, way in ways.items():
            for query in rng.standard_normal((TURN, DIM)):
                began = time.perf_counter()
                way(query)
                times[name].append(1e6 * (time.perf_counter() - began))
    return {name: (statistics.median(each), statistics.fmean(each)) for name, each in times.items()}


def row(
    limit: str, k: int, count: int, own: tuple[float, float], base: tuple[float, float]
) -> dict[str, Any]:
    return {
        "limit": limit, "K": count, "k": k, "us": own[0], "ratio": own[0] / base[0],
        "added_us": own[0] - base[0], "added_mean_us": own[1] - base[1],
    }  # fmt: skip


def lists(snapshot: Snapshot, count: int) -> list[dict[str, Any]]:
    ways: dict[str, Callable[[Vector], object]] = {"plain": lambda query: snapshot.search(query, LIST)}
    for over in ("features", "campaign"):
        solver = DiverseSolver(snapshot, snapshot, Diverse(0.3, over), NO_ROWS, snapshot.table.dim)
        ways[f"diverse over {over}"] = partial(solver.search, k=LIST)
    found = timed(ways)
    return [row(name, LIST, count, each, found["plain"]) for name, each in found.items()]


async def quotas(snapshot: Snapshot, filtered: Snapshot, count: int) -> list[dict[str, Any]]:
    ways: dict[str, Callable[[Vector], object]] = {"plain": lambda query: snapshot.search(query, 1)}
    ready: dict[str, float] = {"plain": 0.0, "filtered": 0.0}
    for number in QUOTAS:
        known = await quotas_of(number)
        ready[f"{number} quotas"] = await made_ready(known, snapshot)
        ways[f"{number} quotas"] = partial(choose, known, snapshot)
    ways["filtered"] = lambda query: filtered.search(query, 1)
    ready["together"] = await made_ready(known, filtered)
    had = snapshot.rows_of([f"a{row}" for row in np.random.default_rng(SEED).integers(0, count, HAD)])
    ways["together"] = partial(choose, known, filtered, exclude=had)
    found = timed(ways)
    bases = {"together": "filtered"}
    return [
        row(name, 1, count, each, found[bases.get(name, "plain")]) | {"ready_us": ready[name]}
        for name, each in found.items()
    ]


async def quotas_of(number: int) -> KnownQuotas:
    """What a process knows of so many quotas, of which every fourth is closed for the day."""
    known = KnownQuotas(lambda: 0.0)
    rules = [QuotaRule(MOST, {"campaign": n}, per_s=86_400) for n in range(number)]
    records = {f"{n}": BanditQuota.of_rule(f"{n}", f"{n:016}", rule).record for n, rule in enumerate(rules)}
    closed = {name: DAY_MS for name in records if int(name) % 4 == 0}
    await known.replace(QuotasNow(0, "1-0", records, closed))
    return known


def choose(known: KnownQuotas, snapshot: Snapshot, query: Vector, exclude: Rows = NO_ROWS) -> None:
    eligible = at_once(known.closed().eligible(snapshot))
    hits = eligible.search(query, 1, exclude)
    known.members.quotas_of(snapshot, hits.rows.tolist())


def at_once(step: Coroutine[Any, Any, Any]) -> Any:
    """What it returns; nothing is awaited."""
    try:
        step.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError


async def made_ready(known: KnownQuotas, snapshot: Snapshot) -> float:
    """Microseconds to know that one more quota is closed, or open, and to find the arms that are left."""
    times = []
    for turn in range(TURNS):
        number = f"{turn + 2}-{len(known.by_id)}"
        change = QuotaChange(number, "1", DAY_MS if turn % 2 == 0 else 0, 0)
        began = time.perf_counter()
        known.hear(QuotaChanges(0, [change]), known.number)
        await known.closed().eligible(snapshot)
        times.append(1e6 * (time.perf_counter() - began))
    return statistics.median(times)
