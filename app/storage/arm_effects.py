"""The sums of arms on Redis, by partition and bandit, and the versions of effects made of the sums."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence

from app.storage import redis_keys as keys
from app.storage.memory import Level
from app.storage.part import RedisPart
from app.storage.redis_client import Argument
from app.storage.types import ArmId

SumsOf = tuple[str, int]
"""An arm and a revision."""

MERGED = -2  # in place of a revision: what no token names any more
PLACES = -3  # the same: what stands there, under no arm, are sums of the places of lists
AGES = -4  # and sums of the ages of arms
MOST_EFFECT_VERSIONS = 1_024  # of a bandit
MOST_EFFECT_BYTES = 256 << 20  # of all versions of a bandit


class ArmEffectStore(RedisPart):
    """Sums are written with the states of learners, by ``LearnerStates.apply``.

    Versions are numbered from 1, without a gap; the newest is kept for as long as the bandit.
    """

    def has_space(self) -> bool:
        """Return whether further arms may have sums. Decided by the memory that this process read last,
        without a call.
        """
        return not self._memory.is_reached(Level.OPTIONAL)

    async def has_sums(self, partition: int, bandit_uid: str) -> bool:
        """Return whether the partition has sums of any arm of the bandit."""
        return bool(await self._redis.command("EXISTS", keys.arm_sums(partition, bandit_uid)))

    async def sums(self, partition: int, arms: Sequence[ArmId]) -> Sequence[bytes | None]:
        """The sums of these arms. A round trip for each bandit."""
        sums = dict[ArmId, bytes | None]()
        for uid in dict.fromkeys(arm.bandit_uid for arm in arms):
            owns = [arm for arm in arms if arm.bandit_uid == uid]
            fields = map(keys.sums_field, owns)
            values = await self._redis.command("HMGET", keys.arm_sums(partition, uid), *fields)
            sums.update(zip(owns, values, strict=True))
        return [sums[arm] for arm in arms]

    async def all_sums(self, partition: int, bandit_uid: str) -> AsyncIterator[Mapping[SumsOf, bytes]]:
        """All sums, by the arm and its revision, some at a time, each at least once. They may change
        meanwhile.

        What was merged (``merge``) is of the revision ``MERGED``.
        """
        cursor = b"0"
        while True:
            cursor, flat = await self._redis.command(
                "HSCAN", keys.arm_sums(partition, bandit_uid), cursor, "COUNT", 1_000
            )
            pairs = flat.items() if isinstance(flat, dict) else zip(flat[::2], flat[1::2], strict=True)
            yield {_sums_of(field): sums for field, sums in pairs}
            if int(cursor) == 0:
                return

    async def drop_sums(self, partition: int, bandit_uid: str, sums: Mapping[SumsOf, bytes]) -> int:
        """Remove the sums that nobody changed since they were read; return the number of removed sums."""
        names = [keys.arm_sums(partition, bandit_uid)]
        arguments: list[Argument] = []
        for (arm, revision), data in sums.items():
            arguments += (keys.sums_field(ArmId(bandit_uid, arm, revision)), data)
        return int(await self._redis.script("drop_arm_sums", names, arguments))

    async def merge(
        self, partition: int, bandit_uid: str, arm: str, merged: bytes, sums: Mapping[int, bytes]
    ) -> bool:
        """Put ``merged`` in the place of sums of an arm, by revision, if these are as they were read.

        ``MERGED`` is among them, with b"" where nothing was merged. False: they are not, nothing was done.
        """
        names = [keys.arm_sums(partition, bandit_uid)]
        arguments: list[Argument] = [keys.sums_field(ArmId(bandit_uid, arm, MERGED)), merged]
        for revision, data in sums.items():
            arguments += (keys.sums_field(ArmId(bandit_uid, arm, revision)), data)
        return bool(await self._redis.script("merge_arm_sums", names, arguments))

    async def changes(self) -> int:
        """Return the number of versions written so far, of any bandit. The number only grows."""
        return int(await self._redis.command("GET", keys.EFFECT_CHANGES) or 0)

    async def numbers(self) -> Mapping[str, int]:
        """The number of the newest version of each bandit with effects, by the bandit's uid."""
        newest = await self._redis.command("HGETALL", keys.EFFECTS)
        return {uid.decode(): int(number) for uid, number in newest.items()}

    async def folded_at_fit(self) -> dict[str, str]:
        """The text stored by ``note_seen``, by the uid of the bandit."""
        folded = await self._redis.command("HGETALL", keys.EFFECTS_SEEN)
        return {uid.decode(): counts.decode() for uid, counts in folded.items()}

    async def note_seen(self, counts: Mapping[str, tuple[str, str]]) -> None:
        """Store what was folded for bandits before their effects were fitted.

        ``counts``: by the bandit's uid, its name and a text. A bandit that was deleted leaves nothing.
        """
        if counts:
            arguments = [part for uid, (name, text) in counts.items() for part in (name, uid, text)]
            await self._redis.script("note_seen", [keys.BANDITS, keys.EFFECTS_SEEN], arguments)

    async def read(self, bandit_uid: str, number: int) -> bytes | None:
        """The record of a version; None: the version is no longer kept."""
        record: bytes | None = await self._redis.command("HGET", keys.effect_versions(bandit_uid), number)
        return record

    async def write(
        self,
        name: str,
        bandit_uid: str,
        *,
        expected: int,
        record: bytes,
        most_bytes: int = MOST_EFFECT_BYTES,
    ) -> int | None:
        """Store the version after ``expected``, and return its number, if ``expected`` is the newest version.

        ``most_bytes``: bound of all kept versions of the bandit together. Returns 0 where another version is
        the newest: nothing was written. After a lost reply the newest version may be the caller's own.
        Returns None where there is no bandit with this name and uid.
        """
        names = [keys.BANDITS, keys.EFFECTS, keys.EFFECT_CHANGES, keys.effect_versions(bandit_uid)]
        arguments: list[Argument] = [
            name,
            bandit_uid,
            expected,
            record,
            MOST_EFFECT_VERSIONS,
            min(most_bytes, MOST_EFFECT_BYTES),
        ]
        stands = await self._redis.script("write_version", names, arguments)
        return None if stands is None else int(stands)


def _sums_of(field: bytes) -> SumsOf:
    arm, _, revision = field.decode().partition(keys.OF_REVISION)
    return arm, int(revision)
