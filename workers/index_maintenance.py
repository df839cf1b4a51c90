"""Keeps the indexes of this process in shape: builds, folds and re-plans them in a thread, one at a time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from app.services.catalogues import Catalogue

log = logging.getLogger("shortlist.indexes")

LOOK_EVERY_S = 0.2


async def maintain(catalogue: Catalogue) -> bool:
    """Do what is due for one catalogue; whether anything was."""
    job = catalogue.index.begin_maintenance()
    if job is None:
        return False
    try:
        await asyncio.to_thread(job.run)
    except Exception:  # the index goes on serving exactly; the log says what to report
        log.exception("maintenance of the index of %s failed", catalogue.name)
        catalogue.index.abandon_maintenance(job)
        return True
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


async def run(catalogues: Iterable[Catalogue], stopping: asyncio.Event) -> None:
    """Look at every catalogue in turn until ``stopping``."""
    while not stopping.is_set():
        for catalogue in catalogues:
            if not stopping.is_set():
                await maintain(catalogue)
        try:
            await asyncio.wait_for(stopping.wait(), LOOK_EVERY_S)
        except TimeoutError:
            continue
