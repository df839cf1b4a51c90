"""How rows of the decision log name quotas that are out: by blocks of quotas, which are stored once a day."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from app.services.formats.left_out import (
    BLOCK,
    MOST_BLOCKS,
    NOT_KEPT,
    Counted,
    block_name,
    packed,
    text_of,
)
from app.services.quotas.quota_share import QuotaShare
from app.storage.protocol import WriteOnce


class LeftOutBlocks:
    """See the module. ``some``: is set when there is something to ``keep``. For the event loop.

    ``slots``: the quotas by their numbers. ``version``: how often they have changed.
    """

    def __init__(
        self, words: WriteOnce, bandit_uid: str, some: asyncio.Event, slots: Sequence[QuotaShare | None]
    ) -> None:
        self._words = words
        self._uid = bandit_uid
        self._some = some
        self._slots = slots
        self.version = 0
        self._blocks: dict[int, tuple[int, str]] = {}
        self._unkept: dict[str, tuple[bytes, int]] = {}

    def changed(self, number: int) -> None:
        """Another quota has this number now, or none."""
        self.version += 1
        self._blocks.pop(number // BLOCK, None)

    def named(self, out: NDArray[np.bool_], *, day: int, ttl_ms: int) -> str:
        """Which quotas are out, as a row of the log names them. Blocks that are new are stored soon."""
        numbers = np.flatnonzero(out)
        if len(np.unique(numbers // BLOCK)) > MOST_BLOCKS:
            return NOT_KEPT
        masks = dict[int, int]()
        for number in numbers.tolist():
            block, place = divmod(number, BLOCK)
            masks[block] = masks.get(block, 0) | 1 << place
        return text_of((self._block(block, day, ttl_ms), mask) for block, mask in masks.items())

    def _block(self, block: int, day: int, ttl_ms: int) -> str:
        """The name of a block of quotas for a day."""
        known = self._blocks.get(block)
        if known is not None and known[0] == day:
            return known[1]
        slots = self._slots[block * BLOCK : (block + 1) * BLOCK]
        rules = [None if live is None else live.quota.rule for live in slots]
        counted = [Counted(None, None) if rule is None else Counted(rule.filter, rule.arm) for rule in rules]
        name, data = packed(counted, day)
        self._blocks[block] = day, name
        self._unkept[name] = data, ttl_ms
        self._some.set()
        return name

    async def keep(self) -> None:
        """Store what rows of the log name. Raises Unavailable: it is tried again."""
        for name, (data, ttl_ms) in tuple(self._unkept.items()):
            await self._words.put(None, block_name(self._uid, name), data, ttl_ms=ttl_ms)
            self._unkept.pop(name, None)
