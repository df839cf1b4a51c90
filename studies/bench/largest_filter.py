"""How long the largest filter that is allowed holds up other requests: a part of `shortlist bench filters`.

Notation
    of_ms       from the question until the eligible arms are known
    loop_ms     processor time of the event loop's thread meanwhile: at least as long as others had to wait

The filter has as many conditions and members as are allowed, over fields of several types, each of which
every arm has. It is new.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import numpy as np

from app.filters.filter import MAX_CONDITIONS, MAX_MEMBERS, Filter, parse
from app.indexes.live import IndexOptions, LiveIndex
from shortlist_client.progress import progress
from studies.bench.attribute_memory import BATCH, MAKERS, documents
from studies.bench.served_filters import new_views, served_catalogue

SEED = 1_518
DIM = 2


def row(count: int) -> dict[str, Any]:
    """Ask the largest filter of this many arms."""
    rng = np.random.default_rng(SEED)
    index = LiveIndex(DIM, IndexOptions(kind="exact"), seed=SEED)
    for start in progress(range(0, count, BATCH), "batches of arms"):
        ids = [str(arm) for arm in range(start, min(start + BATCH, count))]
        features = rng.standard_normal((len(ids), DIM))
        index.upsert(ids, features, range(start, start + len(ids)))
        index.describe(ids, documents(len(ids), rng))
    wanted = largest()
    of_ms, loop_ms, eligible = asyncio.run(_ask(index, wanted))
    return {
        "part": "largest",
        "K": count,
        "conditions": wanted.conditions,
        "eligible": eligible,
        "of_ms": of_ms,
        "loop_ms": loop_ms,
    }


def largest() -> Filter:
    """As many conditions as are allowed, with as many members."""
    fields: list[dict[str, Any]] = [
        {"price": {"$gt": 1.5}},
        {"language": {"$lt": "language-7"}},
        {"maker": {"$gte": "maker-5"}},
        {"year": {"$ne": 1990}},
        {"in_stock": True},
    ]
    members = [f"maker-{maker}" for maker in range(0, MAKERS, MAKERS // MAX_MEMBERS)][:MAX_MEMBERS]
    conditions = [fields[place % len(fields)] for place in range(MAX_CONDITIONS - 1)]
    return parse({"$or": [{"maker": {"$in": members}}, *conditions]})


async def _ask(index: LiveIndex, wanted: Filter) -> tuple[float, float, int]:
    catalogue, views = served_catalogue(index, IndexOptions()), new_views()
    started, used = time.perf_counter(), time.thread_time()
    snapshot = await views.of(catalogue, wanted)
    ms = (time.perf_counter() - started) * 1e3, (time.thread_time() - used) * 1e3
    views.close()
    return *ms, snapshot.size
