"""Judging the logs of bandits as jobs, as evaluations are; one whose process has died is begun again.

A repeated job goes on until its bandit is moved: its last finding is the result meanwhile.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeAlias

import msgspec

from shortlist_service.errors import Invalid, NotFound, ShortlistError, Unavailable
from shortlist_service.jobs import JobHead, Jobs, Progress, new_head
from shortlist_service.policies import Bandit
from shortlist_service.storage import WriteOnce
from shortlist_service.work import BackgroundWork, repeat

EVERY_S = 5.0
EVERYONE = "embeddings"  # as the uid: the jobs of all bandits are together, with the bandit in their ids
KEEP_MS, KEEP_REPEATED_MS = 86_400_000, 366 * 86_400_000  # what was asked for
UNKNOWN = "there is no embedding with this id: results are kept for an hour"
Work: TypeAlias = "Callable[[str, AskedEmbedding, Progress], Awaitable[Found]]"


class AskedEmbedding(msgspec.Struct, frozen=True):
    """The request of a job, kept for another process. Kept, so another process can do the job.

    ``signal``: the judged one; None: the reward, or the weighted sum of all signals. ``every_s``: pause after
    a judgement without a gain; None: no further one.
    """

    bandit_uid: str
    catalogue: str
    dim: int
    every_s: float | None = None
    signal: str | None = None


class Found(Protocol):
    """The finding of a job, a document. ``taken``: whether the bandit was moved."""

    @property
    def taken(self) -> bool: ...


class EmbeddingJobs(BackgroundWork):
    """The jobs of all bandits. ``work``: does what the job of an id was asked for. ``exists``: whether this
    process knows a bandit, by its uid.
    """

    def __init__(self, jobs: Jobs, words: WriteOnce, work: Work, exists: Callable[[str], bool]) -> None:
        self._jobs = jobs
        self._words = words
        self._work = work
        self._exists = exists
        self._orphans: set[str] = set()  # jobs whose bandits were not known at the last look

    async def start(self, bandit: Bandit, asked: AskedEmbedding) -> str:
        """Begin a job, and return its id. Raises QuotaReached, Unavailable."""
        head = new_head(bandit.uid)
        keep_ms = KEEP_MS if asked.every_s is None else KEEP_REPEATED_MS
        # First: whoever finds the job without its process must know what it was asked for.
        await self._words.put(None, _name(head.id), msgspec.json.encode(asked), ttl_ms=keep_ms)
        try:
            return await self._jobs.start(EVERYONE, self._job(asked, head), head)
        except ShortlistError:
            with contextlib.suppress(Unavailable):
                await self._words.drop(None, _name(head.id))
            raise

    def _job(self, asked: AskedEmbedding, head: JobHead) -> Callable[[Progress], Awaitable[bytes]]:
        async def job(progress: Progress) -> bytes:
            while True:
                try:
                    finding = await self._work(head.id, asked, progress)
                except (Invalid, Unavailable):  # a log that says too little says more later
                    if asked.every_s is None:
                        raise
                else:
                    result = msgspec.json.encode(finding)
                    if finding.taken or asked.every_s is None:
                        return result
                    await self._jobs.publish(EVERYONE, head, result)
                await self._jobs.sleep(asked.every_s)

        return job

    async def find(self, bandit: Bandit, job_id: str) -> dict[str, object]:
        """The state of a job, as the API says it. Raises NotFound, Unavailable."""
        self._check(bandit, job_id)
        try:
            stored = await self._jobs.find(EVERYONE, job_id)
        except NotFound:
            raise NotFound(UNKNOWN) from None
        return {**_shown(stored), "result": stored.result}

    async def all(self, bandit: Bandit) -> Sequence[dict[str, object]]:
        """The states of a bandit's jobs, the oldest first, without results. Raises Unavailable."""
        return [_shown(head) for head in await self._jobs.all(EVERYONE) if head.id.startswith(bandit.uid)]

    async def delete(self, bandit: Bandit, job_id: str) -> None:
        """Drop a job; one that runs is cancelled. Raises NotFound, Unavailable."""
        self._check(bandit, job_id)
        await self._drop(job_id)

    async def _drop(self, job_id: str) -> None:
        await self._words.drop(None, _name(job_id))
        try:
            await self._jobs.delete(EVERYONE, job_id)
        except NotFound:
            raise NotFound(UNKNOWN) from None

    async def run(self) -> None:
        """Begin again what a process left unfinished, until it is cancelled."""
        await repeat(self.resume, every_s=EVERY_S, waits="lost jobs are not begun again")

    async def resume(self) -> None:
        """Begin every lost job again, and drop those of deleted bandits. Done by two processes at once it
        comes to the same.
        """
        heads = await self._jobs.all(EVERYONE)
        orphans = {head.id for head in heads if not self._exists(_bandit_uid(head.id))}
        # At the second look: a bandit that another process has just made is known here with the next poll.
        for job_id in orphans & self._orphans:
            with contextlib.suppress(NotFound):  # another process did it
                await self._drop(job_id)
        self._orphans = orphans
        for head in heads:
            if head.id in orphans:
                continue
            stored = await self._words.get(None, _name(head.id)) if head.state == "lost" else None
            if stored is not None:
                asked = msgspec.json.decode(stored, type=AskedEmbedding)
                await self._jobs.resume(EVERYONE, head, self._job(asked, head))

    @staticmethod
    def _check(bandit: Bandit, job_id: str) -> None:
        if not job_id.startswith(bandit.uid):
            raise NotFound(UNKNOWN)


def _shown(head: JobHead) -> dict[str, object]:
    is_lost = head.state == "lost"  # it is begun again
    return {
        "id": head.id,
        "created": head.created,
        "state": "waiting" if is_lost else head.state,
        "error": None if is_lost else head.error,
    }


def _bandit_uid(job_id: str) -> str:
    return job_id[: -len(new_head().id)]


def _name(job_id: str) -> str:
    return f"embedding:{job_id}"
