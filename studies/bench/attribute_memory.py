"""What the attributes of arms cost in memory: a part of `shortlist bench filters`.

Notation
    bytes_an_arm        memory that the table of attributes has allocated / arms, as Python's allocator and
                        numpy report it
    reported_an_arm     the same by the table's own account, which the limits of memory are kept by
    …_replaced          after every second arm was given other attributes; the others: before that

Each arm has five fields: whether it is in stock, its price, a language, a maker, a year.
"""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Sequence
from typing import Any

import numpy as np

from app.filters.attributes import AttributeTable, Document
from shortlist_client.progress import progress

SEED = 1_517
BATCH = 10_000
LANGUAGES, MAKERS = 20, 10_000
HIGHEST_PRICE_CENTS = 20_000
FIELDS = 5


def row(count: int) -> dict[str, Any]:
    """Memory of the attributes of this many arms."""
    rng = np.random.default_rng(SEED)
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        attributes = AttributeTable()
        for start in progress(range(0, count, BATCH), "batches of attributes"):
            rows = np.arange(start, min(start + BATCH, count))
            attributes.append(rows, documents(len(rows), rng))
        unchanged = _held_since(before)
        reported = attributes.memory_bytes
        for start in range(0, count, BATCH):
            rows = np.arange(start, min(start + BATCH, count))[::2]
            attributes.append(rows, documents(len(rows), rng))
        replaced = _held_since(before)
    finally:
        tracemalloc.stop()
    return {
        "part": "memory",
        "K": count,
        "fields": FIELDS,
        "bytes_an_arm": unchanged / count,
        "reported_an_arm": reported / count,
        "bytes_an_arm_replaced": replaced / count,
        "reported_an_arm_replaced": attributes.memory_bytes / count,
    }


def documents(count: int, rng: np.random.Generator) -> Sequence[Document]:
    """Tags and metadata of this many arms."""
    columns = {
        "stock": rng.random(count) < 0.9,
        "cents": rng.integers(100, HIGHEST_PRICE_CENTS, count),
        "language": rng.integers(0, LANGUAGES, count),
        "maker": rng.integers(0, MAKERS, count),
        "year": rng.integers(1980, 2026, count),
    }
    return [
        (
            (),
            {
                "in_stock": stock,
                "price": cents / 100,
                "language": f"language-{language}",
                "maker": f"maker-{maker}",
                "year": year,
            },
        )
        for stock, cents, language, maker, year in zip(
            *(column.tolist() for column in columns.values()), strict=True
        )
    ]


def _held_since(before: int) -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0] - before
