"""Covers of a catalogue: k arms such that every arm is near one of them.

A cover is found by greedy k-center, the longest arm first. Catalogue version, k and filter determine the
cover, so every process makes the same one. The first choice makes the cover, and a background task a new one
after changes of the catalogue; until then the old one serves. Large catalogues are covered by an even sample.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from app.catalogues.catalogue import Catalogue
from app.catalogues.learner_snapshot import LearnerSnapshot
from app.filters.filter import Filter
from app.indexes.snapshot import Snapshot
from app.platform.cache import BoundedCache
from app.platform.deadlines import shared_task
from app.platform.pools import REQUESTS
from shortlist.kcenter.naive_greedy import naive_greedy
from shortlist.types import Matrix

MOST_READS = 100_000_000
MOST_FILTERED_READS = 4_000_000  # a few milliseconds: any choice may come with a filter that is new
LEAST_COUNTED = 10  # the copy of the arms costs about as much as this many centres
REFRESH_S = 1.0
COOLDOWN_FACTOR = 20.0  # times what making took
COVERS_BYTES = 4 << 20
ID_BYTES = 200

_Identity = tuple[str, int, str]  # catalogue, number of centres, filter


@dataclass(slots=True)
class _Cover:
    """Ids of the centres of one version of a catalogue, and when they are worth making again."""

    version: int
    ids: list[str]
    rest_until: float


class Covers:
    """The covers of all catalogues and filters, within ``COVERS_BYTES``. For the event loop.

    A cover is made again after ``refresh_s`` and ``cooldown`` times its last computing time. ``most_reads``:
    see ``center_ids``.
    """

    def __init__(
        self, *, refresh_s: float = REFRESH_S, cooldown: float = COOLDOWN_FACTOR, most_reads: int = MOST_READS
    ) -> None:
        self.refresh_s, self.cooldown, self.most_reads = refresh_s, cooldown, most_reads
        self._covers: BoundedCache[_Identity, _Cover] = BoundedCache(COVERS_BYTES)
        self._making: dict[_Identity, asyncio.Task[_Cover]] = {}

    async def of(
        self, catalogue: Catalogue, arm_filter: Filter | None, arms: LearnerSnapshot, count: int
    ) -> Sequence[str]:
        """Ids of ``count`` arms that cover ``arms``, the arms of the catalogue under ``arm_filter``.

        Awaits only the first cover of a catalogue and a filter, and covers of one request's arms. Some arms
        may be gone by now.
        """
        if arms.plain.whole.is_of_one_request:
            return await REQUESTS.run(partial(center_ids, arms.plain, count, self.most_reads))
        identity = catalogue.uid, count, "" if arm_filter is None else arm_filter.key
        cover = self._covers.get(identity)
        # an empty cover is of a time without arms: there may be some now
        if cover is None or not cover.ids:
            return (await asyncio.shield(self._make(identity, catalogue.version, arms.plain))).ids
        if cover.version != catalogue.version and time.monotonic() >= cover.rest_until:
            self._make(identity, catalogue.version, arms.plain)
        return cover.ids

    def _make(self, identity: _Identity, version: int, arms: Snapshot) -> asyncio.Task[_Cover]:
        return shared_task(self._making, identity, partial(self._computed, identity, version, arms))

    async def _computed(self, identity: _Identity, version: int, arms: Snapshot) -> _Cover:
        started = time.monotonic()
        ids = await REQUESTS.run(partial(center_ids, arms, identity[1], self.most_reads))
        took = time.monotonic() - started
        cover = _Cover(version, ids, time.monotonic() + max(self.refresh_s, self.cooldown * took))
        self._covers.put(identity, cover, ID_BYTES * (1 + len(ids)) + len(identity[2]))
        return cover


def center_ids(arms: Snapshot, k: int, most_reads: int = MOST_READS) -> list[str]:
    """Ids of ``k`` centres, the longest arm first: rewards of long arms teach most in the first choices.

    Cost: n d k reads; an even sample of the n arms is used beyond ``most_reads``, or with a filter
    more than ``MOST_FILTERED_READS``.
    """
    rows = arms.eligible()
    most = MOST_FILTERED_READS if arms.is_filtered else most_reads
    step = -(-len(rows) * arms.table.dim * max(k, LEAST_COUNTED) // most)
    # In even steps over the revisions: the same sample in every process, without a common seed.
    rows = rows[:: max(step, 1)]
    if not len(rows):
        return []
    points: Matrix = arms.features_of(rows)
    first = int(np.argmax(np.linalg.norm(points, axis=1)))
    result = naive_greedy(points, k=min(k, len(rows)), first=first, rng=np.random.default_rng(0))
    return [arms.id_of(row) for row in rows[result.centers].tolist()]
