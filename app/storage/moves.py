"""Moves of bandits on Redis: their records, their entries in the logs, and how far they are.

The move itself is made by ``RegistryStore.change_bandit``, in one step.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from app.storage import redis_keys as keys
from app.storage.part import RedisPart
from app.storage.redis_client import Argument
from app.storage.types import CarriedWrite

IN_LOG, CARRIED = ":log", ":carried"
_HEADER_BYTES = 24  # of a state: what they say changes with every entry that is folded, and with every move


class MoveProgress(NamedTuple):
    """Numbers of moves in one partition: the last one in the log, the last folded one, the last carried
    one.
    """

    in_log: int
    folded: int
    carried: int


class MoveStore(RedisPart):
    """The moves of a bandit are numbered from 1, without a gap."""

    async def record(self, bandit_uid: str, number: int) -> bytes | None:
        """The record of one move of a bandit: tens of megabytes for long features."""
        record: bytes | None = await self._redis.bulk("HGET", keys.moves(bandit_uid), number)
        return record

    async def append(
        self, partition: int, bandit_uid: str, *, learner: str, number: int, payload: bytes
    ) -> bool:
        """Put the entry of a move at the end of a log without this entry. ``learner``: the learner's name
        in the entry.
        """
        names = keys.of_partition(partition, keys.log, keys.watermark, keys.spaces, keys.deleted)
        return bool(await self._redis.script("append_move", names, [bandit_uid, learner, number, payload]))

    async def folded(self, partition: int) -> Mapping[str, int]:
        """The number of the last move with a folded entry, for each moved bandit."""
        fields = await self._redis.command("HGETALL", keys.spaces(partition))
        # The other fields of the hash are named by the uid, a colon and a word.
        return {uid.decode(): int(number) for uid, number in fields.items() if b":" not in uid}

    async def progress(self, bandit_uid: str) -> Sequence[MoveProgress]:
        """The progress of a bandit's moves in each partition. A call for each partition."""
        fields = bandit_uid + IN_LOG, bandit_uid, bandit_uid + CARRIED
        parts = await asyncio.gather(
            *(
                self._redis.command("HMGET", keys.spaces(partition), *fields)
                for partition in range(self.partitions)
            )
        )
        return [MoveProgress(*(int(value or 0) for value in part)) for part in parts]

    async def carry(self, partition: int, bandit_uid: str, writes: Sequence[CarriedWrite]) -> int:
        """Write the states of the learners with unchanged checkpoints; return the number of written
        states.
        """
        arguments: list[Argument] = [bandit_uid, _HEADER_BYTES]
        for write in writes:
            # Compare and set by the header alone: a few bytes of up to a megabyte, with the version, which
            # every folded entry raises.
            header = (write.checkpoint or b"")[:_HEADER_BYTES]
            arguments += (write.name, header, write.tail, "" if write.state is None else "1")
            arguments.append(write.state or b"")
        names = [keys.states(partition, bandit_uid), keys.tails(partition, bandit_uid)]
        names.append(keys.deleted(partition))
        return int(await self._redis.script("carry_states", names, arguments, bulk=True))

    async def all_carried(self, partition: int, bandit_uid: str, number: int) -> None:
        """Note the end of the move in the partition: every learner is carried."""
        await self._redis.command("HSET", keys.spaces(partition), bandit_uid + CARRIED, number)
