"""Jobs on Redis: two hashes and two sorted sets under one hash tag, since they are few in all."""

from __future__ import annotations

from collections.abc import Sequence

from app.storage import redis_keys as keys
from app.storage.part import RedisPart, check_positive
from app.storage.redis_client import Argument
from app.storage.types.campaigns import KeptJob, StoredJob

MOST_JOBS, MOST_OF_BANDIT = 100, 20
MOST_RESULT_BYTES = 64 << 20


class RedisJobs(RedisPart):
    """Implements ``protocol.JobStore``."""

    async def add(self, bandit_uid: str, job_id: str, head: bytes, *, lease_ms: int, keep_ms: int) -> bool:
        arguments: list[Argument] = [_name(bandit_uid, job_id), head, b"", lease_ms, keep_ms]
        return await self._keep(arguments, "new") == "kept"

    async def keep(
        self, bandit_uid: str, job_id: str, head: bytes, *, lease_ms: int, keep_ms: int, result: bytes = b""
    ) -> KeptJob:
        arguments: list[Argument] = [_name(bandit_uid, job_id), head, result, lease_ms, keep_ms]
        return await self._keep(arguments, "known")

    async def read(self, bandit_uid: str, job_id: str) -> StoredJob | None:
        return next(iter(await self._read(_name(bandit_uid, job_id))), None)

    async def jobs(self, bandit_uid: str) -> Sequence[StoredJob]:
        return sorted(await self._read(_name(bandit_uid, "")), key=lambda job: job.id)

    async def delete(self, bandit_uid: str, job_id: str) -> bool:
        name = _name(bandit_uid, job_id)
        heads, results, *times = keys.JOBS
        dropped = [("HDEL", heads, name), ("HDEL", results, name), *(("ZREM", key, name) for key in times)]
        return bool((await self._redis.transaction(dropped))[0])

    async def _keep(self, arguments: list[Argument], kind: str) -> KeptJob:
        check_positive("lease_ms", int(arguments[3]))
        check_positive("keep_ms", int(arguments[4]))
        arguments += [MOST_JOBS, MOST_OF_BANDIT, MOST_RESULT_BYTES, kind]
        outcome: KeptJob = (await self._redis.script("keep_job", keys.JOBS, arguments, bulk=True)).decode()
        return outcome

    async def _read(self, asked: str) -> list[StoredJob]:
        found = await self._redis.script("read_jobs", keys.JOBS, [asked], bulk=True)
        pieces = zip(*(found[place::4] for place in range(4)), strict=True)
        return [
            StoredJob(name.decode().partition("/")[2], head, bool(alive), result or b"")
            for name, head, alive, result in pieces
        ]


def _name(bandit_uid: str, job_id: str) -> str:
    return f"{bandit_uid}/{job_id}"
