"""Keeps the indexes of this process in shape: builds, folds and re-plans them in a thread, one at a time."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Iterable

from app.services.catalogues import Catalogue

log = logging.getLogger("shortlist.indexes")

LOOK_EVERY_S = 0.2


async def maintain(catalogue: Catalogue) -> bool:
    """Do what is due for one catalogue; whether anything was."""
    job = catalogue.index.begin_maintenance()
    if job is None:
        return False
    try:
        await _in_daemon_thread(job.run)
    except Exception:  # what served until now goes on serving
        log.exception("maintenance of the index of %s failed", catalogue.name)
    finally:
        job.cancel()
        catalogue.index.finish_maintenance(job)
    status = catalogue.index.status()
    log.info(
        "index of %s: %s over %d arms, recall@1 %s",
        catalogue.name,
        status.kind,
        len(catalogue.index),
        status.recall_at_1,
    )
    return True


async def run(catalogues: Iterable[Catalogue]) -> None:
    """Look at every catalogue in turn, until cancelled."""
    while True:
        for catalogue in catalogues:
            await maintain(catalogue)
        await asyncio.sleep(LOOK_EVERY_S)


async def _in_daemon_thread(work: Callable[[], None]) -> None:
    """As ``asyncio.to_thread``, but nobody waits for ``work`` when the service stops."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def settle(error: Exception | None) -> None:
        if done.done():
            return
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)

    def run() -> None:
        error: Exception | None = None
        try:
            work()
        except Exception as caught:  # handed to whoever awaits
            error = caught
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(settle, error)

    threading.Thread(target=run, name="index-maintenance", daemon=True).start()
    await done
