"""Maintenance of the indexes of this process: they are built and planned again in a thread, one at a time."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Literal

from app.services.catalogues.catalogues import Catalogue

log = logging.getLogger("shortlist.indexes")

POLL_S = 0.2
REST_S = 60.0

Outcome = Literal["nothing", "done", "failed"]


async def maintain(catalogue: Catalogue) -> Outcome:
    """Do the maintenance that is due for one catalogue."""
    job = catalogue.index.begin_maintenance()
    if job is None:
        return "nothing"
    try:
        await _in_daemon_thread(job.run)
    except Exception:  # the index that served until now goes on serving
        log.exception("maintenance of the index of %s failed", catalogue.name)
        return "failed"
    finally:
        job.cancel()
        catalogue.index.finish_maintenance(job)
    status = catalogue.index.status()
    said = catalogue.name, status.kind, len(catalogue.index), status.recall_at_1
    log.info("index of %s: %s over %d arms, recall@1 %s", *said)
    return "done"


async def run(catalogues: Iterable[Catalogue], report: Callable[[Outcome], None]) -> None:
    """Maintain every catalogue in turn, until cancelled. One where it failed is left alone for a while."""
    resting: dict[str, float] = {}
    while True:
        for catalogue in catalogues:
            if time.monotonic() < resting.get(catalogue.uid, 0.0):
                continue
            outcome = await maintain(catalogue)
            if outcome == "failed":
                resting[catalogue.uid] = time.monotonic() + REST_S
            if outcome != "nothing":
                report(outcome)
        await asyncio.sleep(POLL_S)


async def _in_daemon_thread(work: Callable[[], None]) -> None:
    """As ``asyncio.to_thread``, but nobody waits for ``work`` when the service stops."""
    done: Future[None] = Future()
    done.set_running_or_notify_cancel()  # from here on it ends by ``work`` alone

    def run() -> None:
        try:
            work()
        except Exception as error:  # handed to whoever awaits
            done.set_exception(error)
        else:
            done.set_result(None)

    threading.Thread(target=run, name="index-maintenance", daemon=True).start()
    await asyncio.wrap_future(done)
