"""What keys were shown, for frequency caps, on Redis."""

from __future__ import annotations

from collections.abc import Sequence

from app.storage import redis_keys as keys
from app.storage.part import RedisPart
from app.storage.redis_client import Argument
from app.storage.types import Exposures
from app.storage.types.decisions import LearnerId
from app.storage.types.registry import SIXTEENTHS, SIXTEENTHS_FOR_NEW


class FrequencyCapStore(RedisPart):
    """What a key was shown goes with the learner that has its name."""

    async def take(
        self, key: LearnerId, shown: Sequence[tuple[str, str]], *, within_ms: int, most: int, kept: int
    ) -> Exposures:
        """Write what a key is shown, (name, arm) each once, unless it was shown an arm ``most`` times.

        ``most`` 0: any number. The last ``kept`` are kept, for ``within_ms``. Without room what is new takes
        the place of the oldest that the key was shown; of a key that was shown nothing, nothing is kept.
        """
        partition = self._partition(key)
        names = [keys.exposures(partition, key), keys.ledger(partition)]
        arguments: list[Argument] = [within_ms, most, kept]
        arguments += [
            self._quota.of("repeats", partition, parts) for parts in (SIXTEENTHS, SIXTEENTHS_FOR_NEW)
        ]
        arguments += [part for pair in shown for part in pair]
        answer = await self._redis.script("take_exposures", names, arguments)
        is_allowed, is_whole, held, now_ms, *members = answer
        if held:
            self._quota.taken("repeats", partition, held)
        written = [member.decode().partition(":") for member in members[::2]]
        # Scores of sorted sets are floats, which the server may write as 1.76e+12.
        times = map(int, map(float, members[1::2]))
        exposures = [(arm, at_ms) for (_, _, arm), at_ms in zip(written, times, strict=True)]
        names = [name for name, _, _ in written]
        return Exposures(bool(is_allowed), bool(is_whole), now_ms, exposures, names)

    async def drop(self, key: LearnerId, shown: Sequence[tuple[str, str]]) -> None:
        """As if these had not been written."""
        members = [f"{decision}:{arm}" for decision, arm in shown]
        await self._redis.command("ZREM", keys.exposures(self._partition(key), key), *members)
