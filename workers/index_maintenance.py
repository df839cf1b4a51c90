"""Maintenance of the indexes of this process, in threads.

Indexes are built and planned again one at a time. In between the parts of a build graphs are measured again
after deaths, and what several processes share is made and adopted.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Literal, Protocol, TypeVar

from app.catalogues.catalogue import Catalogue
from app.platform.background import repeat
from app.platform.long_work import LongWork
from app.platform.metrics import Metrics
from app.platform.pauses import Pauses

log = logging.getLogger("shortlist.indexes")

Outcome = Literal["nothing", "done", "failed"]
# A thread for each kind of work. Nobody waits for them when the service stops (``background.leave``).
BUILDING = LongWork(threads=3, waiting=64, name="index-maintenance")

J = TypeVar("J", bound="Job")


class Job(Protocol):
    """Long work for any thread, which stops early when told so."""

    def run(self) -> None: ...

    def cancel(self) -> None: ...


async def maintain(catalogue: Catalogue) -> Outcome:
    """Do the due maintenance of one catalogue."""
    index = catalogue.in_memory
    return _note_outcome(catalogue, await _done(catalogue, index.begin_maintenance(), index.finish))


async def measure(catalogue: Catalogue) -> Outcome:
    """Measure again how good the graph of one catalogue is, if many of its arms died."""
    index = catalogue.in_memory
    return await _done(catalogue, index.begin_measurement(), index.finish)


async def share(catalogue: Catalogue) -> Outcome:
    """Adopt or make the due publication of one catalogue, if its arms are shared."""
    index = catalogue.in_memory
    return _note_outcome(catalogue, await _done(catalogue, index.begin_sharing(), index.finish))


async def _done(
    catalogue: Catalogue, job: J | None, finish: Callable[[J, Exception | None], None]
) -> Outcome:
    if job is None:
        return "nothing"
    failure: Exception | None = None
    try:
        await BUILDING.run(job.run)
    except Exception as error:  # the index that served until now goes on serving
        failure = error
        log.exception("maintenance of the index of %s failed", catalogue.name)
    finally:
        # Also when this task is cancelled: the thread stops at its next check, and the index can begin other
        # work.
        job.cancel()
        finish(job, failure)
    return "done" if failure is None else "failed"


def _note_outcome(catalogue: Catalogue, outcome: Outcome) -> Outcome:
    """The outcome; what serves now is logged."""
    if outcome == "done":
        status = catalogue.index.status()
        shown = catalogue.name, status.kind, len(catalogue.index), status.recall_at_1
        log.info("index of %s: %s over %d arms, recall@1 %s", *shown)
    return outcome


async def run(catalogues: Iterable[Catalogue], metrics: Metrics, pauses: Pauses = Pauses()) -> None:
    """Maintain every catalogue in turn, until cancelled. A catalogue is left alone for a while after a
    failure, and until its next change once it has settled without due work.
    """
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(_repeat(maintain, catalogues, metrics, pauses))
        tasks.create_task(_repeat(measure, catalogues, metrics, pauses))
        tasks.create_task(_repeat(share, catalogues, metrics, pauses))


async def _repeat(
    work: Callable[[Catalogue], Awaitable[Outcome]],
    catalogues: Iterable[Catalogue],
    metrics: Metrics,
    pauses: Pauses,
) -> None:
    resting: dict[str, float] = {}
    idle_at: dict[str, float] = {}  # when nothing was due at a catalogue, after its last change

    async def once_each() -> bool:
        did_something = False
        for catalogue in catalogues:
            # first: of a thousand catalogues most are at rest
            if idle_at.get(catalogue.uid, 0.0) > catalogue.in_memory.settles_at:
                continue
            clock_s = time.monotonic()
            if clock_s < resting.get(catalogue.uid, 0.0):
                continue
            outcome = await work(catalogue)
            if outcome == "nothing":
                idle_at[catalogue.uid] = clock_s
            if outcome == "failed":
                # what failed would probably fail again, and take as long
                resting[catalogue.uid] = time.monotonic() + pauses.index_rest_s
            if outcome != "nothing":
                did_something = True
                metrics.index_builds.labels(outcome).inc()
        return did_something

    await repeat(once_each, every_s=pauses.index_poll_s, idle_s=pauses.index_idle_s)
