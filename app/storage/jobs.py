"""Jobs on Redis: two hashes and two sorted sets under one hash tag, since they are few in all."""

from __future__ import annotations

from collections.abc import Sequence

from app.storage import redis_keys as keys
from app.storage.memory import Level
from app.storage.part import RedisPart, check_positive
from app.storage.redis_client import Argument
from app.storage.types.registry import KeptJob, StoredJob

MOST_JOBS, MOST_OF_BANDIT = 100, 20
MOST_RESULT_BYTES = 64 << 20


class JobStore(RedisPart):
    """Jobs by bandit and id. All times are by the clock of the store; what is over is not there any more.

    All jobs, those of one bandit, and the bytes of all results are bounded: see ``jobs``.
    """

    most_jobs = MOST_JOBS
    most_of_bandit = MOST_OF_BANDIT
    most_result_bytes = MOST_RESULT_BYTES

    async def add(self, bandit_uid: str, job_id: str, head: bytes, *, lease_ms: int, keep_ms: int) -> bool:
        """Begin a job, whose process has a lease; False, and nothing is changed, where there are too many."""
        self._memory.check(Level.OPTIONAL, "jobs")
        arguments: list[Argument] = [_name(bandit_uid, job_id), head, b"", lease_ms, keep_ms]
        return await self._keep(arguments, "new") == "kept"

    async def keep(
        self, bandit_uid: str, job_id: str, head: bytes, *, lease_ms: int, keep_ms: int, result: bytes = b""
    ) -> KeptJob:
        """Say how a job stands, and begin its lease and its time again.

        ``missing``: the job was deleted, or its time is over. ``full``: there is no room for the result.
        Nothing is changed in both cases.
        """
        arguments: list[Argument] = [_name(bandit_uid, job_id), head, result, lease_ms, keep_ms]
        return await self._keep(arguments, "known")

    async def read(self, bandit_uid: str, job_id: str) -> StoredJob | None:
        """A job, with its result."""
        return next(iter(await self._read(_name(bandit_uid, job_id))), None)

    async def jobs(self, bandit_uid: str) -> Sequence[StoredJob]:
        """All jobs of a bandit, without results, in ascending order of their ids."""
        return sorted(await self._read(_name(bandit_uid, "")), key=lambda job: job.id)

    async def delete(self, bandit_uid: str, job_id: str) -> bool:
        """Drop a job; False for a missing job."""
        name = _name(bandit_uid, job_id)
        heads, results, *times = keys.JOBS
        dropped = [("HDEL", heads, name), ("HDEL", results, name), *(("ZREM", key, name) for key in times)]
        # The first answer is the head's: whether the job was there.
        return bool((await self._redis.transaction(dropped))[0])

    async def _keep(self, arguments: list[Argument], kind: str) -> KeptJob:
        check_positive("lease_ms", int(arguments[3]))
        check_positive("keep_ms", int(arguments[4]))
        arguments += [self.most_jobs, self.most_of_bandit, self.most_result_bytes, kind]
        outcome: KeptJob = (await self._redis.script("keep_job", keys.JOBS, arguments, bulk=True)).decode()
        return outcome

    async def _read(self, asked: str) -> list[StoredJob]:
        answer = await self._redis.script("read_jobs", keys.JOBS, [asked], bulk=True)
        pieces = zip(*(answer[column::4] for column in range(4)), strict=True)
        return [
            StoredJob(name.decode().partition("/")[2], head, bool(alive), result or b"")
            for name, head, alive, result in pieces
        ]


def _name(bandit_uid: str, job_id: str) -> str:
    return f"{bandit_uid}/{job_id}"
