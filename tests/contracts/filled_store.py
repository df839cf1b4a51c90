"""A store that is as full as a test says."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from app.storage.store import Store
from store_server import patient_store

PARTITIONS = 4
NEAR = 1  # percent: what a server takes changes a little by itself


@asynccontextmanager
async def filled(url: str, percent: int) -> AsyncIterator[Store]:
    """One process of several on the same store, which takes so much of what it may."""
    held = 0
    while True:
        store = patient_store(url, partitions=PARTITIONS, most_bytes=100 * held // percent or None)
        await store.open()
        if held and abs(100 * store.memory.use.share - percent) < NEAR:
            break
        held = store.memory.use.used
        await store.close()
    try:
        yield store
    finally:
        await store.close()
