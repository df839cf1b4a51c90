"""Jobs: long work on a log, such as evaluations, without waiting clients.

The state of a job is in the store, where every process of the service finds it. Its process holds a lease on
the job and writes its progress every ``BEAT_S``; an unfinished job without a lease is lost. A deleted job is
cancelled: at once if its own process was asked, else with the next beat.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import secrets
import time
import zlib
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Literal

import msgspec
from msgspec.structs import replace

from app.platform.background import OUTAGES, end
from app.platform.documents import Answer
from app.platform.errors import NotFound, QuotaReached, ShortlistError, Unavailable
from app.platform.metrics import Metrics
from app.platform.pools import MEASURING
from app.storage.jobs import JobStore
from app.storage.types.registry import KeptJob, StoredJob

log = logging.getLogger("shortlist.evaluations")

BEAT_S, LEASE_MS = 2.0, 15_000
KEEP_MS = 3_600_000
MOST_OWN = 8  # jobs of one process that wait or run
LOST = "the process that ran this evaluation has ended: start the evaluation again"
NO_ROOM = "the results of evaluations take as much as they may: delete some, or ask for fewer weights"
UNKNOWN = "there is no evaluation with this id: results are kept for an hour"

State = Literal["waiting", "running", "done", "failed", "lost"]
Progress = Callable[[int, int | None], None]
"""Is told how many decisions were done, of how many; None while that is not known."""
Work = Callable[[Progress], Awaitable[bytes]]
_encode = msgspec.json.Encoder().encode


class JobProgress(Answer, frozen=True):
    """The number of evaluated decisions, ``of`` so many; null while unknown."""

    schema_name = "EvaluationProgress"

    decisions: int = 0
    of: int | None = None


class JobHead(Answer, frozen=True):
    """``state``: ``waiting``, ``running``, ``done``, ``failed``, or ``lost`` where its process has ended.
    ``created``: in ms since 1970. ``error``: why the job failed, or is lost.
    """

    schema_name = "EvaluationJobHead"

    id: str
    created: int
    state: State = "waiting"
    progress: JobProgress = JobProgress()
    error: str | None = None


class Job(JobHead, frozen=True):
    """``result``: of a finished job, for an hour."""

    schema_name = "EvaluationJob"

    result: msgspec.Raw | None = None


def new_head(prefix: str = "") -> JobHead:
    """The head of a new job, whose id begins with ``prefix``."""
    made_ms = time.time_ns() // 1_000_000
    return JobHead(f"{prefix}{made_ms:013x}{secrets.token_hex(8)}", made_ms)


class Jobs:
    """The jobs of all bandits. Each reports every ``beat_s``; without a report its lease ends.

    ``uid``: of the bandit whose jobs they are.
    """

    def __init__(
        self, jobs: JobStore, metrics: Metrics, *, beat_s: float = BEAT_S, lease_ms: int = LEASE_MS
    ) -> None:
        self.beat_s, self.lease_ms = beat_s, lease_ms
        self._jobs = jobs
        self._ended = metrics.evaluation_jobs.labels
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._sleeping = 0

    async def start(self, uid: str, work: Work, head: JobHead | None = None) -> str:
        """Begin a job, and return its id. ``work``: is told where to say how far it is; its result is JSON.

        Raises QuotaReached (as many are kept as may be), Unavailable (too many at once, the store).
        """
        if len(self._tasks) - self._sleeping >= MOST_OWN:
            raise Unavailable("too many evaluations at once; try again soon")
        head = head or new_head()
        if not await self._jobs.add(uid, head.id, _encode(head), lease_ms=self.lease_ms, keep_ms=KEEP_MS):
            raise QuotaReached("as many evaluations are kept as may be: delete some, or wait an hour")
        self._begin(uid, head, work)
        return head.id

    async def resume(self, uid: str, head: JobHead, work: Work) -> None:
        """Begin a lost job again. Raises Unavailable."""
        head = JobHead(head.id, head.created)
        if await self._keep(uid, head) == "kept":
            self._begin(uid, head, work)

    def _begin(self, uid: str, head: JobHead, work: Work) -> None:
        # In a context of its own: work for a client ends when the client has its answer.
        task = asyncio.create_task(self._run(uid, head, work), context=contextvars.Context())
        self._tasks[head.id] = task
        task.add_done_callback(lambda _: self._tasks.pop(head.id, None))

    async def sleep(self, seconds: float) -> None:
        """Pause a job for so long: meanwhile another one may run in its place."""
        self._sleeping += 1
        try:
            await asyncio.sleep(seconds)
        finally:
            self._sleeping -= 1

    async def publish(self, uid: str, head: JobHead, result: bytes) -> None:
        """Show a preliminary result of a job. Raises Unavailable."""
        await self._keep(uid, replace(head, state="running"), zlib.compress(result))

    async def find(self, uid: str, job_id: str) -> Job:
        """The state of a job. Raises NotFound, Unavailable."""
        stored = await self._jobs.read(uid, job_id)
        if stored is None:
            raise NotFound(UNKNOWN)
        head, result = _head(stored), None
        if stored.result:
            result = msgspec.Raw(await MEASURING.run(partial(zlib.decompress, stored.result)))
        return Job(head.id, head.created, head.state, head.progress, head.error, result)

    async def all(self, uid: str) -> Sequence[JobHead]:
        """All jobs of a bandit, the oldest first. Raises Unavailable."""
        return [_head(stored) for stored in await self._jobs.jobs(uid)]

    async def delete(self, uid: str, job_id: str) -> None:
        """Drop a job; a running one is cancelled. Raises NotFound, Unavailable."""
        if not await self._jobs.delete(uid, job_id):
            raise NotFound(UNKNOWN)  # it may be one of another bandit
        if task := self._tasks.get(job_id):
            task.cancel()

    async def stop(self) -> None:
        """Cancel all jobs of this process. They are lost as soon as their leases end."""
        await end(list(self._tasks.values()))

    async def _run(self, uid: str, head: JobHead, work: Work) -> None:
        def progress(decisions: int, of: int | None) -> None:
            nonlocal head
            head = replace(head, state="running", progress=JobProgress(decisions, of))

        task, result = asyncio.current_task(), b""
        beating = asyncio.create_task(self._beat(uid, lambda: head, task))
        try:
            result = await MEASURING.run(partial(zlib.compress, await work(progress)))
            head = replace(head, state="done")
        except asyncio.CancelledError:
            self._ended("cancelled").inc()
            raise
        except ShortlistError as error:
            head = _failed(head, error.errors[0][1] if error.errors else error.detail)
        except Exception:
            log.exception("an evaluation failed")
            head = _failed(head, "an error of the service: its log says more")
        finally:
            await end([beating])
        self._ended(head.state).inc()
        await self._finish(uid, head, result)

    async def _beat(self, uid: str, head_now: Callable[[], JobHead], task: asyncio.Task[None] | None) -> None:
        while True:
            await asyncio.sleep(self.beat_s)
            try:
                outcome = await self._keep(uid, head_now())
            except Unavailable as error:
                OUTAGES.warn("an evaluation cannot say how it stands", error)
                continue
            # Deleted by way of another process: this one hears so with a beat.
            if outcome == "missing" and task is not None:
                task.cancel()
                return

    async def _finish(self, uid: str, head: JobHead, result: bytes) -> None:
        """Report the end of the job, until the store answers: for the time of its lease."""
        for _ in range(self.lease_ms // 1_000):
            try:
                outcome = await self._keep(uid, head, result)
            except Unavailable:
                await asyncio.sleep(self.beat_s)
                continue
            if outcome != "full":
                return
            head, result = _failed(head, NO_ROOM), b""

    async def _keep(self, uid: str, head: JobHead, result: bytes = b"") -> KeptJob:
        """Say how a job stands, and begin its lease again."""
        times = {"lease_ms": self.lease_ms, "keep_ms": KEEP_MS}
        return await self._jobs.keep(uid, head.id, _encode(head), result=result, **times)


def _failed(head: JobHead, error: str) -> JobHead:
    return replace(head, state="failed", error=error)


def _head(stored: StoredJob) -> JobHead:
    head = msgspec.json.decode(stored.head, type=JobHead)
    if head.state in {"waiting", "running"} and not stored.is_alive:
        return replace(head, state="lost", error=LOST)
    return head
