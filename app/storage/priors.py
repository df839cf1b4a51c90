"""The versions of learned priors on Redis: a hash for each bandit."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from app.storage import redis_keys as keys
from app.storage.part import RedisPart
from app.storage.redis_client import Argument
from app.storage.types import FoldedCounts

MOST_VERSIONS = 500  # of a bandit
MOST_VERSION_BYTES = 16 << 20  # of all versions of a bandit
REPLACED = ":replaced"


class PriorStore(RedisPart):
    """Versions are numbered from 1, without a gap. The newest is kept for as long as the bandit.

    ``most_versions``, ``most_version_bytes``: of all versions of a bandit.
    """

    most_versions = MOST_VERSIONS
    most_version_bytes = MOST_VERSION_BYTES

    async def changes(self) -> int:
        """Return the number of versions written so far, of any bandit. The number only grows."""
        return int(await self._redis.command("GET", keys.PRIOR_CHANGES) or 0)

    async def numbers(self) -> Mapping[str, int]:
        """The number of the newest version of each bandit with a prior, by the bandit's uid."""
        newest = await self._redis.command("HGETALL", keys.PRIORS)
        return {uid.decode(): int(number) for uid, number in newest.items()}

    async def read(self, bandit_uid: str, number: int) -> bytes | None:
        """The record of a version; None: the version is no longer kept."""
        record: bytes | None = await self._redis.command("HGET", keys.priors(bandit_uid)[0], number)
        return record

    async def kept_versions(self, bandit_uid: str) -> Sequence[int]:
        """The numbers of the kept versions, in order."""
        return sorted(map(int, await self._redis.command("HKEYS", keys.priors(bandit_uid)[0])))

    async def write(
        self,
        name: str,
        bandit_uid: str,
        record: bytes,
        *,
        expected: int,
        since_ms: int,
        named_after_ms: int = 0,
    ) -> int | None:
        """Store the version after ``expected``, made at ``since_ms``, and return its number.

        0: the newest version is another one, and nothing was written. After a lost reply the newest version
        may be the caller's own. None: there is no bandit with this name and uid. ``named_after_ms``: versions
        replaced before then are in no row of the decision log, and go.
        """
        names = [keys.BANDITS, keys.PRIORS, keys.PRIOR_CHANGES, *keys.priors(bandit_uid)]
        arguments: list[Argument] = [name, bandit_uid, expected, record]
        arguments += (self.most_versions, self.most_version_bytes, since_ms, named_after_ms)
        number: int | None = await self._redis.script("write_version", names, arguments)
        return number

    async def folded(self, bandit_uids: Sequence[str]) -> Sequence[FoldedCounts]:
        """Counts of folded entries for these bandits, over all partitions. A call for each partition."""
        fields = [field for uid in bandit_uids for field in (uid, uid + REPLACED)]
        if not fields:
            return []
        parts = await asyncio.gather(
            *(
                self._redis.command("HMGET", keys.folded(partition), *fields)
                for partition in range(self.partitions)
            )
        )
        # Each partition counts for itself: a common counter would be on one node, and the fold on another
        # could not write its counter in one step.
        sums = [sum(int(value or 0) for value in values) for values in zip(*parts, strict=True)]
        return [FoldedCounts(*pair) for pair in zip(sums[::2], sums[1::2], strict=True)]
