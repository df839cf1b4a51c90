"""The reward log of a partition, page by page, without dead letters.

Dead letters are left out, also those put back later: the log has them a second time.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from app.storage.store import Store
from app.storage.types import LogEntry, entry_order

PAGE = 2_000


async def counted_pages(store: Store, partition: int, until: str) -> AsyncIterator[Sequence[LogEntry]]:
    """Pages of the log up to the entry ``until``, without dead letters. The log is read twice."""
    left_out = {letter.entry.entry_id for letter in await store.rewards.dead_letters(partition)}
    async for page in pages(store, partition, until):
        left_out |= {entry.origin for entry in page if entry.origin}
    async for page in pages(store, partition, until):
        yield [entry for entry in page if entry.entry_id not in left_out]


async def pages(store: Store, partition: int, until: str) -> AsyncIterator[Sequence[LogEntry]]:
    """Pages of the log up to the entry ``until``, none of them empty."""
    last, after = entry_order(until), "0-0"
    while True:
        page = await store.rewards.read(partition, after, PAGE)
        within = [entry for entry in page if entry_order(entry.entry_id) <= last]
        if within:
            yield within
        if len(within) < PAGE:
            return
        after = page[-1].entry_id
