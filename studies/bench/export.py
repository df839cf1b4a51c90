"""`shortlist bench export`: the decision log as a file, in rows a second and in memory.

Notation
    rows            decisions of three arms with their rewards, in pages as the log is read
    rows_per_s      rows / time on the clock; rows_per_cpu_s: by processor time of all threads
    bytes_a_row     of the file
    most_mb         largest memory of the process meanwhile, less the largest before; process_mb: all of it

The pages are made beforehand and come again and again, so that the export alone is measured, without the
store and without the network.
"""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import AsyncIterator, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from app.bandits.bandit import Bandit
from app.decision_log.rows import LoggedArm, LoggedReward, Row
from app.measuring.export import FORMATS, Exports, FormatName
from studies.measurement import peak_mb, report

SEED = 1_611
ROWS, QUICK_ROWS = 1_000_000, 100_000
PAGE = 500
ARMS, CONTEXT, TOKEN_BYTES = 3, 8, 200
REWARDED = 0.3


class _Pages:
    """A log of ``count`` rows, of pages that come again."""

    def __init__(self, pages: Sequence[Sequence[Row]], count: int) -> None:
        self._pages = pages
        self._count = count

    async def pages(
        self,
        bandit: Bandit,  # noqa: ARG002 - as of every log
        *,
        from_ms: int | None,  # noqa: ARG002
        to_ms: int | None,  # noqa: ARG002
    ) -> AsyncIterator[Sequence[Row]]:
        for number in range(self._count // PAGE):
            yield self._pages[number % len(self._pages)]


def run(quick: bool, rows: int | None = None, page_count: int = 20) -> dict[str, Any]:
    """Export 100,000 (quick) or 1,000,000 rows in each format; print and return a row for each.

    ``page_count``: pages that come again and again.
    """
    rng = np.random.default_rng(SEED)
    pages = [[_row(rng) for _ in range(PAGE)] for _ in range(page_count)]
    count = rows or (QUICK_ROWS if quick else ROWS)
    return report("export", [asyncio.run(_measured(kind, pages, count)) for kind in FORMATS], seed=SEED)


async def _measured(kind: FormatName, pages: Sequence[Sequence[Row]], count: int) -> dict[str, Any]:
    log: Any = _Pages(pages, count)  # what an export reads
    exports = Exports(log)
    reward = SimpleNamespace(aggregate="first")
    unused = dict.fromkeys(("signals", "holdout"))
    record = SimpleNamespace(reward=reward, prior="plain", arm_effects="off", learns_places=False, **unused)
    bandit: Any = SimpleNamespace(record=record)  # what an encoder asks
    before, size = peak_mb(), 0
    began, processor = time.perf_counter(), time.process_time()
    async for piece in exports.stream(bandit, kind, from_ms=None, to_ms=None):
        size += len(piece)
    exports.close()
    seconds, cpu = time.perf_counter() - began, time.process_time() - processor
    return {
        "format": kind,
        "rows": count,
        "rows_per_s": count / seconds,
        "rows_per_cpu_s": count / cpu,
        "bytes_a_row": size / count,
        "most_mb": peak_mb() - before,
        "process_mb": peak_mb(),
    }


def _row(rng: np.random.Generator) -> Row:
    ids = [f"arm-{number}" for number in rng.integers(0, 10_000, ARMS).tolist()]
    arms = [
        LoggedArm(arm, place, float(rng.random()), float(rng.random()), False)
        for place, arm in enumerate(ids, start=1)
    ]
    now_ms = 1_767_225_600_000 + int(rng.integers(0, 86_400_000))
    rewards = [LoggedReward(ids[0], 1.0, now_ms + 5_000, False)] if rng.random() < REWARDED else []
    return Row(
        base64.urlsafe_b64encode(rng.bytes(TOKEN_BYTES)).decode(),
        now_ms,
        f"user-{rng.integers(0, 100_000)}",
        1,
        int(rng.integers(0, 1_000)),
        17,
        "softmax",
        "policy" if rng.random() < 0.9 else "holdout",
        rng.random(CONTEXT).tolist(),
        {"price": {"$lte": 20}},
        9_000,
        arms,
        rewards,
    )
