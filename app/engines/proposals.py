"""The arms proposed by an engine for one request: read from the store, and few enough for memory.

A proposal is an arm of the engine or of the overlay. It may have changed, or be gone: the store says. So the
ranked arms are a resident snapshot of some hundred, as they are now and as the filter matches them.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, partial
from itertools import chain
from typing import ClassVar, Self

import numpy as np

from app.engines.engine_contract import MOST_FOUND
from app.engines.engine_index import EngineIndex
from app.filters.attribute_snapshot import AttributeSnapshot
from app.filters.attributes import AttributeTable
from app.filters.filter import Filter
from app.indexes.eligible_rows import eligible_rows
from app.indexes.filtered_search import search_exactly
from app.indexes.snapshot import Snapshot
from app.platform.deadlines import caller, check
from app.platform.pools import SEARCHES
from app.records.records import attributes_of, bytes_to_vector
from app.storage.types import StoredArm
from shortlist.index.table import TableSnapshot, small_table
from shortlist.types import NO_ROWS, Rows, TopK, Vector

OVERSAMPLING = 4
LEAST_ASKED = 32
RECENT_SHARE = 0.1  # of the last search in the typical time
FEW_US = 100.0  # of a search of some hundred arms, about


class ProposedSnapshot(Snapshot):
    """Some arms, in memory for one request. Of equal scores the oldest features come first.

    ``eligible_count`` None: nobody counts what else the engine would find.
    """

    __slots__ = ("__dict__", "_describe")
    is_whole: ClassVar[bool] = False  # whether there is nothing else to be found
    _describe: Callable[[], AttributeSnapshot]

    def __init__(self, table: TableSnapshot, describe: Callable[[], AttributeSnapshot]) -> None:
        fields: dict[str, object] = {
            "table": table,
            "structure": None,
            "expected_us": FEW_US,
            "recent": deque(maxlen=1),
            "_describe": describe,
        }
        for name, value in fields.items():  # the class is frozen
            object.__setattr__(self, name, value)

    @classmethod
    def of_stored(cls, dim: int, arms: Sequence[StoredArm]) -> Self:
        arms = sorted(arms, key=lambda arm: arm.revision)
        features = bytes_to_vector(b"".join([arm.features for arm in arms])).reshape(-1, dim)
        revisions = np.array([arm.revision for arm in arms], dtype=np.int64)
        came = np.array([arm.came_ms for arm in arms], dtype=np.int64)
        table = small_table([arm.id for arm in arms], features, revisions, came)
        return cls(table, partial(_described, [arm.document for arm in arms]))

    @cached_property
    def attributes(self) -> AttributeSnapshot:
        """Made when something asks: to describe the arms takes longer than to rank them."""
        return self._describe()

    @property
    def is_of_one_request(self) -> bool:
        return True

    @property
    def eligible_count(self) -> int | None:
        return None

    def search(self, query: Vector, k: int, exclude: Rows = NO_ROWS) -> TopK:
        """In float64 at once: of so few arms a scan in float32 takes longer."""
        self._check(query, k)
        scores = self.table.features @ query
        scores[exclude] = -np.inf
        rows = np.argsort(-scores, kind="stable")[: min(k, self.size - len(exclude))]
        return TopK(rows, scores[rows], exact=self.is_whole)

    def search_exact(self, query: Vector, k: int, exclude: Rows = NO_ROWS) -> TopK:
        return self.search(query, k, exclude)


def _described(documents: Sequence[bytes]) -> AttributeSnapshot:
    """The attributes of these documents, whose rows are 0, 1, …"""
    table = AttributeTable()
    table.append(np.arange(len(documents)), [*map(attributes_of, documents)])
    return table.snapshot()


class Proposals:
    """The proposals for one request, ever more of them.

    ``queries``     for the engine; none: the engine is not asked
    ``count``       number of wanted arms of each query, at first
    ``arm_filter``  arms without a match are left out
    ``also``        ids of further arms, beside the engine's
    ``pinned``      likewise, whatever the filter says
    ``is_all``      nothing more can be proposed
    """

    def __init__(
        self,
        index: EngineIndex,
        queries: Sequence[Vector],
        count: int,
        *,
        arm_filter: Filter | None = None,
        also: Iterable[str] = (),
        pinned: Iterable[str] = (),
    ) -> None:
        self.is_all = False
        self._index, self._queries, self._filter = index, queries, arm_filter
        self._limit = asked_for(max(count, index.options.shortlist))
        self._also, self._pinned = also, frozenset(pinned)
        self._arms: dict[str, StoredArm | None] = {}
        # Before the engine is asked: the engine has the arms which leave the overlay meanwhile.
        self._overlay = index.overlay.snapshot()
        index.recent.extend(queries)

    async def more(self) -> ProposedSnapshot:
        """All arms so far and, but the first time, more of them. Raises Unavailable.

        Cost: a round trip to the engine for each query, and one to the store.
        """
        index, limit = self._index, self._limit
        async with SEARCHES.one():
            check(caller())
            started = time.perf_counter()
            proposed = [await index.proposed(query, limit, self._filter) for query in self._queries]
            overlaid = chain.from_iterable(self._overlaid(query, limit) for query in self._queries)
            ids = dict.fromkeys(chain(self._pinned, self._also, overlaid, *proposed))
            new = [arm_id for arm_id in ids if arm_id not in self._arms]
            for arm_id, arm in zip(new, await index.store.read(index.uid, new), strict=True):
                self._arms[arm_id] = arm if arm is not None and self._lets_in(arm) else None
            if proposed:
                us = (time.perf_counter() - started) * 1e6
                index.search_us += RECENT_SHARE * (us - index.search_us)
        self.is_all = limit == MOST_FOUND or all(len(ids) < limit for ids in proposed)
        self._limit = min(OVERSAMPLING * limit, MOST_FOUND)
        return ProposedSnapshot.of_stored(index.dim, [arm for arm in self._arms.values() if arm is not None])

    def _lets_in(self, arm: StoredArm) -> bool:
        wanted = self._filter
        return wanted is None or arm.id in self._pinned or wanted.matches(*attributes_of(arm.document))

    def _overlaid(self, query: Vector, limit: int) -> list[str]:
        """The best arms of the overlay."""
        arms = self._overlay
        if not arms.size:
            return []
        if self._filter is None:
            rows = arms.search_exact(query, limit).rows
        else:
            let_in = eligible_rows(self._filter, arms.table, arms.attributes, None)
            rows = search_exactly(arms.table, let_in, query, limit, NO_ROWS).rows
        return [arms.id_of(row) for row in rows.tolist()]


def asked_for(limit: int) -> int:
    """The next power of two: searches for different numbers of arms can be asked together."""
    return min(max(LEAST_ASKED, 1 << (limit - 1).bit_length()), MOST_FOUND)
