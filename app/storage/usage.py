"""How much is held of what requests leave in the store, on Redis: a ledger for each partition."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from app.storage import redis_keys as keys
from app.storage.part import RedisPart
from app.storage.types import Kind

_EXPIRING: Sequence[Kind] = ("events", "activations", "dedupe", "log", "repeats", "effects")


class Usage(RedisPart):
    """All figures are bytes of the store's memory, as far as they can be known: rather too many than too few.

    A call that would make a kind larger than its bound raises ``StoreFull``, or ``QuotaReached`` where
    nothing expires, and changes nothing; of "log" the oldest rows go instead, soon, and of "repeats" less is
    remembered, and no arm gets "effects". What is held stays until its time. Counting
    and writing are one step, so no crash parts them.
    """

    @property
    def bounds(self) -> Mapping[Kind, int]:
        """In bytes, of each kind."""
        return self._quota.bounds

    async def read(self) -> Mapping[Kind, int]:
        """What all partitions hold now. Further writes of this process are held against it.

        One round trip for each partition, one for event logs and one for the maps of moves, side by side.
        """
        campaigns, moves, *result = await asyncio.gather(
            self._redis.command("HGET", keys.EVENT_LOG_BYTES, "all"),
            self._redis.command("HGET", keys.MOVE_BYTES, "all"),
            *(
                self._redis.script("usage", [keys.ledger(partition)], list(_EXPIRING))
                for partition in range(self.partitions)
            ),
        )
        columns = zip(*result, strict=True)
        held = dict(zip(("waiting", *_EXPIRING), map(list, columns), strict=True))
        self._quota.seen(held)
        return {**self._quota.total, "campaigns": int(campaigns or 0), "moves": int(moves or 0)}

    async def left_for_maps(self) -> int:
        """The bytes that maps of moves may still take."""
        taken = await self._redis.command("HGET", keys.MOVE_BYTES, "all")
        return self._quota.bounds["moves"] - int(taken or 0)
