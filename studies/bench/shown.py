"""`shortlist bench shown`: what limits on what is shown cost a choice, in process.

Notation
    K, d          arms, standard normal; 32 dimensions. The index is the planner's choice
    quotas        of a bandit: each of the arms of a campaign, every third with an even pace, a tenth used up.
                  Of those with a pace a half holds back in each slice
    any filters   likewise, of every shape: a campaign and more, several campaigns, an interval of them, one
                  or the other; and one quota of all arms. They overlap
    found_s       seconds to find which arms quotas are for, once
    filtered      a filter that lets in a half of the arms; together: with 10,000 quotas, and 50 arms that the
                  key had too often
    added_us      median time of a search with them - that without, in microseconds; the state of the quotas
                  is made ready first, as it is for each slice of 100 ms; added_mean_us: of the mean times
    ready_us      making that state, once for all choices of a slice: which quotas hold back, and which arms
                  are out
    ratio         median time / that of the plain list of the same length; of together: / that of filtered

All take turns, so that all see the machine in one state. BLAS has one thread, as in the service. The store is
one that grants what is asked for: nothing waits for it but a refill, which is not of a choice.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from threadpoolctl import threadpool_limits

from app.filters.filter import parse
from app.indexes.live import IndexOptions, LiveIndex
from app.indexes.snapshot import Snapshot
from app.policies.rules import Diverse, DiverseSolver
from app.quotas.ledger import QuotaLedger
from app.quotas.rules import MAX_FILTERS, BanditQuota, QuotaRule
from app.quotas.share import Window
from app.storage.types import Share, ShareAsked
from shortlist.types import NO_ROWS, Rows, Vector
from shortlist_client.files.progress import progress
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


class Generous:
    """A store in the middle of a day. A tenth is used up, by others."""

    async def share(
        self, _bandit: str, _process: str, _number: int, asked: Sequence[ShareAsked]
    ) -> tuple[int, Sequence[Share]]:
        shares = [
            Share(
                True, True, 0, DAY_MS, ask.spent + ask.wanted, MOST if int(ask.id) % 10 == 0 else ask.spent,
                MOST // 2, 0, MOST, MOST,
            )
            for ask in asked
        ]  # fmt: skip
        return DAY_MS // 2, shares


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
        solver = DiverseSolver(snapshot, snapshot, Diverse(0.3, over), NO_ROWS)
        ways[f"diverse over {over}"] = partial(solver.search, k=LIST)
    found = timed(ways)
    return [row(name, LIST, count, each, found["plain"]) for name, each in found.items()]


async def quotas(snapshot: Snapshot, filtered: Snapshot, count: int) -> list[dict[str, Any]]:
    ways: dict[str, Callable[[Vector], object]] = {"plain": lambda query: snapshot.search(query, 1)}
    ready: dict[str, float] = {"plain": 0.0, "filtered": 0.0}
    facts: dict[str, dict[str, float]] = {}
    kept = {}
    shapes = {f"{number} quotas": (number, plain_filter) for number in QUOTAS}
    shapes[f"{MAX_FILTERS} quotas of any filters"] = MAX_FILTERS, any_filter
    for name, (number, shape) in shapes.items():
        began = time.perf_counter()
        shares = kept[name] = await shares_of(number, snapshot, shape)
        facts[name] = {"found_s": time.perf_counter() - began}
        ready[name] = await made_ready(shares, snapshot)
        ways[name] = partial(choose, shares, snapshot)
    shares = kept[f"{QUOTAS[-1]} quotas"]
    ways["filtered"] = lambda query: filtered.search(query, 1)
    ready["together"] = await made_ready(shares, filtered)
    had = snapshot.rows_of([f"a{row}" for row in np.random.default_rng(SEED).integers(0, count, HAD)])
    ways["together"] = partial(choose, shares, filtered, exclude=had)
    found = timed(ways)
    bases = {"together": "filtered"}
    return [
        row(name, 1, count, each, found[bases.get(name, "plain")])
        | {"ready_us": ready[name]}
        | facts.get(name, {})
        for name, each in found.items()
    ]


def plain_filter(number: int) -> dict[str, Any]:
    return {"campaign": number}


def any_filter(number: int) -> dict[str, Any]:
    """One of several shapes, none of them an equality of one field."""
    shapes: list[dict[str, Any]] = [
        {"campaign": number, "half": {"$exists": True}},
        {"campaign": number, "half": {"$lt": 1}},
        {"campaign": {"$in": [number, number + 1]}},
        {"campaign": {"$gte": number, "$lt": number + 3}},
        {"$or": [{"campaign": number}, {"campaign": number + 2}]},
        {"$and": [{"campaign": {"$lte": number}}, {"$not": {"campaign": {"$lt": number}}}]},
    ]
    return {"half": {"$exists": True}} if number == 1 else shapes[number % len(shapes)]


async def shares_of(number: int, snapshot: Snapshot, shape: Callable[[int], dict[str, Any]]) -> QuotaLedger:
    """Of the quotas with an even pace a half holds back at any time, in others is something left."""
    shares = QuotaLedger(Generous(), None, "b", asyncio.Event(), clock=lambda: 0.0)  # type: ignore[arg-type]
    rules = [
        QuotaRule(MOST, shape(n), per_s=86_400, pace="even" if n % 3 == 0 else "none") for n in range(number)
    ]
    await shares.change([BanditQuota(str(n), f"u{n}", rule) for n, rule in enumerate(rules)], ())
    for live in shares.by_id.values():
        if isinstance(live.state, Window):
            live.state = msgspec.structs.replace(live.state, share=live.spent + 10**6)
            live.note()
    await shares.members.follow(snapshot)
    return shares


def choose(shares: QuotaLedger, snapshot: Snapshot, query: Vector, exclude: Rows = NO_ROWS) -> None:
    now = shares.now()
    eligible = at_once(now.eligible(snapshot))
    hits = eligible.search(query, 1, exclude)
    at_once(shares.take(snapshot, hits.rows.tolist()))


def at_once(step: Coroutine[Any, Any, Any]) -> Any:
    """What it returns; nothing is awaited."""
    try:
        step.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError


async def made_ready(shares: QuotaLedger, snapshot: Snapshot) -> float:
    """Microseconds for the state of one slice, in which the other half of the paced quotas is ahead."""
    times, rows = [], shares._arrays.rows
    shares.now()
    for turn in range(TURNS):
        rows["others"] = np.where(np.arange(len(rows)) % 2 == turn % 2, MOST, 0)
        before, shares._slice_ends = shares.now(), -1.0
        began = time.perf_counter()
        now = shares.now()
        await now.eligible(snapshot)
        times.append(1e6 * (time.perf_counter() - began))
        if now is before:
            raise AssertionError("the slice is as the one before")
    shares._slice_ends = 1e9
    return statistics.median(times)
