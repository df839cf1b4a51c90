"""The registry of catalogues and bandits on Redis, leases of workers, and values written once."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Literal

from app.storage import redis_keys as keys
from app.storage.memory import Level
from app.storage.part import RedisPart, check_positive
from app.storage.redis_client import Argument, RedisClient
from app.storage.types import UID_LENGTH, BanditChange, Registry


class RegistryStore(RedisPart):
    """Records of catalogues and bandits by name. A record begins with a uid of 16 characters."""

    async def read(self) -> Registry:
        # As one: a bandit of a catalogue made between two reads would name a missing catalogue.
        version, catalogues, bandits, quotas = await self._redis.transaction(
            [
                ("GET", keys.REGISTRY_VERSION),
                ("HGETALL", keys.CATALOGUES),
                ("HGETALL", keys.BANDITS),
                ("HGETALL", keys.QUOTAS),
            ]
        )
        changes = {uid.decode(): int(count) for uid, count in quotas.items()}
        return Registry(_named(catalogues), _named(bandits), int(version or 0), changes)

    async def version(self) -> int:
        return int(await self._redis.command("GET", keys.REGISTRY_VERSION) or 0)

    async def create_catalogue(self, name: str, record: bytes) -> bytes:
        """Store ``record`` if the name is free; return the name's record after the call."""
        self._memory.check_kept(Level.NEW, "new catalogues")
        names = [keys.CATALOGUES, keys.REGISTRY_VERSION]
        current: bytes = await self._redis.script("create_catalogue", names, [name, record])
        return current

    async def change_catalogue(self, name: str, *, expected: bytes, record: bytes) -> bytes | None:
        """As ``change_bandit``, of a catalogue: no former version is kept."""
        names = [keys.CATALOGUES, keys.REGISTRY_VERSION]
        current: bytes | None = await self._redis.script("change_bandit", names, [name, expected, record, 0])
        return current

    async def delete_catalogue(self, name: str, uid: str) -> Literal["deleted", "missing", "in_use"]:
        """Remove the catalogue, then its arms: two steps; ``deletions`` names the catalogue in between.

        From then on its arms cannot be written: NotFound.

        Three round trips. The arms go even if the name is gone: an earlier call may have failed there.
        """
        outcome: Literal["deleted", "missing", "in_use"]
        names = [keys.CATALOGUES, keys.users(name), keys.REGISTRY_VERSION, keys.DELETED]
        names.append(keys.WRITTEN_CATALOGUES[1])
        outcome = (await self._redis.script("delete_catalogue", names, [name, uid])).decode()
        if outcome != "in_use":
            await self.erase_catalogue(uid)
        return outcome

    async def create_bandit(
        self, name: str, record: bytes, *, catalogue: str, prior: bytes = b"", since_ms: int = 0
    ) -> bytes | None:
        """As ``create_catalogue``; None when the catalogue does not exist.

        ``prior``: the first version of its learned prior, made at ``since_ms``.
        """
        self._memory.check_kept(Level.NEW, "new bandits")
        uid = record[:UID_LENGTH].decode()
        names = [keys.CATALOGUES, keys.BANDITS, keys.users(catalogue), keys.REGISTRY_VERSION]
        names += [keys.PRIORS, keys.PRIOR_CHANGES, *keys.priors(uid)]
        arguments: list[Argument] = [catalogue, name, record, uid, prior, since_ms]
        current: bytes | None = await self._redis.script("create_bandit", names, arguments)
        return current

    async def change_bandit(
        self, name: str, uid: str, change: BanditChange, *, expected: bytes, record: bytes
    ) -> bytes | None:
        """Store ``record`` in place of ``expected``, if ``expected`` is the name's record.

        Return the name's record after the call: another one if somebody else has changed the bandit, None
        without a bandit, b"" where the new catalogue of a move is gone. Versions kept before stay unchanged.
        ``uid``: of both records.
        """
        names = [keys.BANDITS, keys.REGISTRY_VERSION, keys.versions(uid)]
        versions = [part for pair in change.kept.items() for part in pair]
        arguments: list[Argument] = [name, expected, record, len(change.kept), *versions, *change.dropped]
        script, move = "change_bandit", change.move
        if move is not None:
            self._memory.check_kept(Level.NEW, "moves", len(move.record))
            script = "move_bandit"
            names += [keys.CATALOGUES, keys.users(move.left), keys.users(move.joined), keys.moves(uid)]
            names += [keys.PRIORS, keys.PRIOR_CHANGES, *keys.priors(uid), keys.LEFT]
            arguments = [move.joined, move.joined_uid, move.number, move.record, uid]
            arguments += (move.left_uid, move.needed_until_ms)
            arguments += (move.prior_number, move.prior_since_ms, move.prior, name, expected, record)
            arguments += (len(change.kept), *versions, *change.dropped)
        current: bytes | None = await self._redis.script(script, names, arguments)
        return current

    async def bandit_versions(self, uid: str, versions: Sequence[int]) -> Sequence[bytes | None]:
        """The kept records of these versions, in their order; None for a version without one."""
        if not versions:
            return []
        result: Sequence[bytes | None] = await self._redis.command("HMGET", keys.versions(uid), *versions)
        return result

    async def delete_bandit(self, name: str, uid: str, *, catalogue: str) -> bool:
        """Remove the bandit with its versions, then the states of its learners: a step for each partition.

        From then on no state of the bandit is written (``LearnerStates.apply``). False for a missing bandit.
        ``LearnerSideData.erase_bandit`` removes all other records of its learners; ``deletions`` names the
        bandit until they are gone.

        One round trip, and one per partition. The states go even if the name is gone, as above.
        """
        names = [keys.BANDITS, keys.users(catalogue), keys.REGISTRY_VERSION, keys.DELETED, keys.PRIORS]
        names += [keys.versions(uid), keys.moves(uid), *keys.priors(uid)]
        names += [keys.EFFECTS, keys.effect_versions(uid), keys.EFFECTS_SEEN]
        outcome = await self._redis.script("delete_bandit", names, [name, uid])
        # Also for a missing bandit: an earlier call may have been interrupted after the name was gone.
        if outcome != b"in_use":
            # One after the other: a deletion is in no hurry, and must not fill every connection.
            for partition in range(self.partitions):
                await drop_states(self._redis, partition, uid)
        return bool(outcome == b"deleted")

    async def deletions(self) -> Mapping[str, Literal["bandit", "catalogue"]]:
        """The deleted bandits and catalogues still to be erased, by uid. A catalogue with needed features
        comes later.
        """
        unfinished = await self._redis.command("HGETALL", keys.DELETED)
        if not unfinished:
            return {}
        needed, now_ms = await self._redis.command("HMGET", keys.LEFT, *unfinished), time.time() * 1_000.0
        return {
            uid.decode(): "bandit" if kind == b"bandit" else "catalogue"
            for (uid, kind), until_ms in zip(unfinished.items(), needed, strict=True)
            if int(until_ms or 0) <= now_ms
        }

    async def erase_catalogue(self, uid: str) -> None:
        """Remove the remains of a deleted catalogue.

        In steps; ``deletions`` names the catalogue until the end. Its features stay as long as decisions of a
        bandit moved to another catalogue can be rewarded. Three round trips.
        """
        needed = int(await self._redis.command("HGET", keys.LEFT, uid) or 0) > time.time() * 1_000.0
        names = [*keys.catalogue(uid), keys.behaviour(uid)]
        await self._redis.script("erase_catalogue", names, [keys.DELETED_KEPT_MS, int(needed)])
        if not needed:
            await self._redis.command("HDEL", keys.LEFT, uid)
            await self._redis.command("HDEL", keys.DELETED, uid)


class WriteOnce(RedisPart):
    """Write-once registers by name, in the registry (``partition`` None) or in a partition."""

    async def put(self, partition: int | None, name: str, value: bytes, *, ttl_ms: int | None) -> bytes:
        """Store ``value`` unless the name has a value; return the name's value after the call.

        ``ttl_ms`` None: the value stays forever.
        """
        if ttl_ms is not None:
            check_positive("ttl_ms", ttl_ms)
        args: list[Argument] = [value, "" if ttl_ms is None else ttl_ms]
        current: bytes = await self._redis.script("put_once", [keys.once(partition, name)], args)
        return current

    async def get(self, partition: int | None, name: str) -> bytes | None:
        current: bytes | None = await self._redis.command("GET", keys.once(partition, name))
        return current

    async def drop(self, partition: int | None, name: str) -> None:
        """Forget what nobody asks for any more."""
        await self._redis.command("UNLINK", keys.once(partition, name))


class WorkerLeases(RedisPart):
    """Leases of workers by name, by the clock of the store. A lease is no lock, and only saves work."""

    async def join(self, name: str, lease_ms: int) -> Sequence[str]:
        """Begin or renew a worker's lease; return the names of all workers with a lease."""
        names = await self._redis.script("join_workers", [keys.WORKERS], [name, lease_ms])
        return [name.decode() for name in names]

    async def leave(self, name: str) -> None:
        """End the lease of a worker."""
        await self._redis.command("ZREM", keys.WORKERS, name)


async def drop_states(redis: RedisClient, partition: int, uid: str) -> None:
    """Remove the learners of a deleted bandit from a partition, for good: none is written again."""
    names = [keys.deleted(partition), keys.states(partition, uid), keys.tails(partition, uid)]
    names += [keys.folded(partition), keys.spaces(partition)]
    names.append(keys.arm_sums(partition, uid))
    await redis.script("drop_states", names, [uid, keys.DELETED_KEPT_MS])


def _named(records: Mapping[bytes, bytes]) -> dict[str, bytes]:
    return {name.decode(): record for name, record in records.items()}
