"""`shortlist bench shown`: what limits on what is shown cost a choice, in process.

Notation
    K, d          arms, standard normal; 32 dimensions. The index is the planner's choice
    quotas        of a bandit: each of the arms of a campaign, every third with an even pace, a tenth used up
    added_us      median time of a search with them - that without, in microseconds; the state of the quotas
                  is made ready first, as it is for each slice of 100 ms
    ready_us      making that state: the draw of who takes part, and which arms are out
    ratio         median time / that of the plain list of the same length

All take turns, so that all see the machine in one state. BLAS has one thread, as in the service. The store is
one that grants what is asked for: nothing waits for it but a refill, which is not of a choice.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from app.indexes.live import IndexOptions, LiveIndex
from app.indexes.snapshot import Snapshot
from app.services.choosing.diverse import Diverse, DiverseSolver
from app.services.quotas.pace import SLICE_S
from app.services.quotas.quota_rules import BanditQuota, QuotaRule
from app.services.quotas.shares import Shares
from app.storage.protocol import Share, ShareAsked
from shortlist.types import NO_ROWS, Vector
from shortlist_client.files.progress import progress
from studies.measurement import report

SIZES, QUICK_SIZES = (100_000, 1_000_000), (100_000,)
QUOTAS = (1_000, 10_000)
DIM, SEED, BATCH = 32, 38, 10_000
TURNS, TURN = 40, 25
LIST = 10
DAY_MS = 86_400_000


class Generous:
    """A store in the middle of a day. A tenth of the quotas is used up, by others."""

    async def share(
        self, _bandit: str, _process: str, _number: int, asked: Sequence[ShareAsked]
    ) -> tuple[int, Sequence[Share]]:
        most = 10**9
        shares = [
            Share(
                True, True, 0, DAY_MS, ask.spent + ask.wanted,
                most if int(ask.id) % 10 == 0 else ask.spent, 0, 0, most, most,
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
            rows += asyncio.run(quotas(index.snapshot(), count))
    return report("shown", rows, seed=SEED)


def filled(count: int) -> LiveIndex:
    rng = np.random.default_rng(SEED)
    folder = Path(tempfile.mkdtemp())
    index = LiveIndex(DIM, IndexOptions(), cache=folder / "index", seed=SEED)
    for start in range(0, count, BATCH):
        ids = [f"a{number}" for number in range(start, start + BATCH)]
        index.upsert(ids, rng.standard_normal((BATCH, DIM)), range(start, start + BATCH))
        index.describe(ids, [((), {"campaign": int(n)}) for n in rng.integers(0, max(QUOTAS), BATCH)])
    while (job := index.begin_maintenance()) is not None:
        job.run()
        index.finish_maintenance(job)
    return index


def medians(ways: dict[str, Callable[[Vector], object]]) -> dict[str, float]:
    """Of a choice, in microseconds."""
    rng, times = np.random.default_rng(SEED), {name: list[float]() for name in ways}
    for _ in range(TURNS):
        queries = rng.standard_normal((TURN, DIM))
        for name, way in ways.items():
            for query in queries:
                began = time.perf_counter()
                way(query)
                times[name].append(1e6 * (time.perf_counter() - began))
    return {name: statistics.median(each) for name, each in times.items()}


def lists(snapshot: Snapshot, count: int) -> list[dict[str, Any]]:
    ways: dict[str, Callable[[Vector], object]] = {"plain": lambda query: snapshot.search(query, LIST)}
    for over in ("features", "campaign"):
        solver = DiverseSolver(snapshot, snapshot, Diverse(0.3, over), NO_ROWS)
        ways[f"diverse over {over}"] = partial(solver.search, k=LIST)
    found = medians(ways)
    return [
        {
            "limit": name, "K": count, "k": LIST, "us": us, "ratio": us / found["plain"],
            "added_us": us - found["plain"], "ready_us": 0.0,
        }
        for name, us in found.items()
    ]  # fmt: skip


async def quotas(snapshot: Snapshot, count: int) -> list[dict[str, Any]]:
    ways: dict[str, Callable[[Vector], object]] = {"plain": lambda query: snapshot.search(query, 1)}
    ready: dict[str, float] = {}
    for number in QUOTAS:
        shares = Shares(
            Generous(), None, "b", asyncio.Event(), clock=lambda: 0.0, rng=np.random.default_rng(SEED)
        )  # type: ignore[arg-type]
        rules = [
            QuotaRule(10**9, {"campaign": n}, per_s=86_400, pace="even" if n % 3 == 0 else "none")
            for n in range(number)
        ]
        await shares.become([BanditQuota(str(n), f"u{n}", rule) for n, rule in enumerate(rules)])
        for live in shares.lives:
            live.share = live.spent + 10**6  # of those that have some
        shares.members.follow(snapshot)

        def choose(query: Vector, shares: Shares = shares) -> None:
            hits = shares.now().eligible(snapshot).search(query, 1)
            taken = shares.take(snapshot, hits.rows.tolist())
            try:
                taken.send(None)  # nothing is awaited
            except StopIteration:
                return
            raise AssertionError

        began = time.perf_counter()
        for turn in range(TURNS):
            shares._slice_ends = -turn * SLICE_S
            shares.now().eligible(snapshot)
        ready[str(number)] = 1e6 * (time.perf_counter() - began) / TURNS
        shares._slice_ends = 1e9
        ways[str(number)] = choose
    found = medians(ways)
    return [
        {
            "limit": f"{name} quotas", "K": count, "k": 1, "us": us, "ratio": us / found["plain"],
            "added_us": us - found["plain"], "ready_us": ready[name],
        }
        for name, us in found.items()
        if name in ready
    ]  # fmt: skip
