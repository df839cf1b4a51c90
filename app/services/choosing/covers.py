"""Covers: k arms that cover the arms of a snapshot, by greedy k-center, the longest arm first.

A cover is a function of the version of the catalogue, of k and of the filter, so every process makes the same
one. It is made when it is first asked for, and again in the background after the catalogue has changed; until
then the old one serves. Of many arms it is that of an even sample.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from app.filters.filter import Filter
from app.indexes.snapshot import Snapshot
from app.services.bounded.cache import BoundedCache
from app.services.bounded.caller import task_for_all
from app.services.bounded.long_work import REQUESTS
from app.services.catalogues.catalogues import Catalogue
from app.services.catalogues.learner_snapshot import LearnerSnapshot
from shortlist.kcenter.naive_greedy import naive_greedy
from shortlist.types import Matrix

MOST_READS = 100_000_000
MOST_FILTERED_READS = 4_000_000  # a few milliseconds: any choice may come with a filter that is new
LEAST_COUNTED = 10  # the copy of the arms costs about as much as this many centres
REFRESH_S = 1.0
REST = 20.0  # times what making took
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
    """The covers of all catalogues and filters, within ``COVERS_BYTES``. For the event loop."""

    def __init__(self) -> None:
        self._known: BoundedCache[_Identity, _Cover] = BoundedCache(COVERS_BYTES)
        self._making: dict[_Identity, asyncio.Task[_Cover]] = {}

    async def of(
        self, catalogue: Catalogue, arm_filter: Filter | None, arms: LearnerSnapshot, count: int
    ) -> Sequence[str]:
        """Ids of ``count`` arms that cover those of ``arms``, the arms of the catalogue that ``arm_filter``
        lets in.

        Awaits nothing but for the first of a catalogue and a filter. Some may be gone by now.
        """
        identity = catalogue.uid, count, "" if arm_filter is None else arm_filter.key
        known = self._known.get(identity)
        if known is None or not known.ids:
            return (await asyncio.shield(self._make(identity, catalogue.version, arms.plain))).ids
        if known.version != catalogue.version and time.monotonic() >= known.rest_until:
            self._make(identity, catalogue.version, arms.plain)
        return known.ids

    def _make(self, identity: _Identity, version: int, arms: Snapshot) -> asyncio.Task[_Cover]:
        making = self._making.get(identity)
        if making is None:
            making = task_for_all(self._made(identity, version, arms))
            self._making[identity] = making
        return making

    async def _made(self, identity: _Identity, version: int, arms: Snapshot) -> _Cover:
        try:
            started = time.monotonic()
            ids = await REQUESTS.run(partial(center_ids, arms, identity[1]))
            took = time.monotonic() - started
            made = _Cover(version, ids, time.monotonic() + max(REFRESH_S, REST * took))
            self._known.put(identity, made, ID_BYTES * (1 + len(ids)) + len(identity[2]))
            return made
        finally:
            del self._making[identity]


def center_ids(arms: Snapshot, k: int) -> list[str]:
    """Ids of ``k`` centres, the longest arm first: among the first choices it is what rewards tell most of.

    Cost: n d k reads; of an even sample of the n arms when that is more than ``MOST_READS``, or with a filter
    more than ``MOST_FILTERED_READS``.
    """
    rows = arms.eligible()
    most = MOST_FILTERED_READS if arms.is_filtered else MOST_READS
    step = -(-len(rows) * arms.table.dim * max(k, LEAST_COUNTED) // most)
    rows = rows[:: max(step, 1)]
    if not len(rows):
        return []
    points: Matrix = arms.features_of(rows)
    first = int(np.argmax(np.linalg.norm(points, axis=1)))
    result = naive_greedy(points, k=min(k, len(rows)), first=first, rng=np.random.default_rng(0))
    return [arms.id_of(row) for row in rows[result.centers].tolist()]
