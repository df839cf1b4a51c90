"""A catalogue in an engine, for one request: what was asked for so far, and the search for more.

Notation
    row         number of an arm in this snapshot, in the order in which it was met; an arm that is only
                excluded has one as well
    proposal    an arm of the engine or of the overlay. It may have changed, or be gone: the store says
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Protocol

import numpy as np

from app.engines.contract import MOST_FOUND, EngineName
from app.filters.attribute_snapshot import AttributeSnapshot
from app.filters.attributes import AttributeTable, Document
from app.filters.filter import Filter
from app.indexes.eligible_rows import eligible_rows
from app.indexes.filtered_search import search_exactly
from app.indexes.snapshot import Snapshot
from app.platform.errors import NotPossibleHere
from app.platform.long_work import WaitingWork, wait_for
from app.platform.pools import SEARCHES
from app.records.records import attributes_of, bytes_to_vector
from app.storage.followed_arms import FollowedArms
from shortlist import checks
from shortlist.index.index import IndexKind
from shortlist.index.planner import IndexOptions
from shortlist.types import NO_ROWS, Matrix, Rows, TopK, Vector

OVERSAMPLING = 4
LEAST_ASKED = 32
RECENT_SHARE = 0.1  # of the last search in the typical time
ALL_ARMS = "it needs all arms in memory, and this catalogue is kept in {}"


class Searched(Protocol):
    """What a search must know of a catalogue's index. ``search_us``: its typical time, kept up to date."""

    uid: str
    dim: int
    options: IndexOptions
    store: FollowedArms
    engine_name: EngineName
    search_us: float
    recent: deque[Vector]

    def __len__(self) -> int: ...

    async def proposed(self, query: Vector, limit: int, arm_filter: Filter | None = None) -> list[str]:
        """Ids of arms that the engine finds, best first. Raises Unavailable."""


class EngineSnapshot(Snapshot):
    """See the module. ``whole_overlay``: the arms of the overlay, at the same moment.

    ``search`` is for ``SEARCHES``: it waits for the engine and for the store.
    """

    waiting: ClassVar[WaitingWork | None] = SEARCHES
    structure = None

    def __init__(self, index: Searched, whole_overlay: Snapshot, arm_filter: Filter | None) -> None:
        self._index = index
        self._overlay = whole_overlay
        self._filter = arm_filter
        self._ids: list[str] = []
        self._rows: dict[str, int] = {}
        self._absent: set[str] = set()
        self._revisions: dict[int, int] = {}
        self._features: dict[int, Vector] = {}
        self._documents: dict[int, bytes] = {}
        self._decoded: dict[int, Document] = {}
        self._attributes = AttributeTable()
        self._described: set[int] = set()

    def _refuse(self, *_: object) -> Any:
        raise NotPossibleHere(ALL_ARMS.format(self._index.engine_name.title))

    table = largest_norm = listed = property(_refuse)
    lets_in = eligible = page = sample = searched_by = _refuse  # type: ignore[assignment]

    def filtered(self, arm_filter: Filter) -> EngineSnapshot:
        """The arms that a filter matches."""
        return EngineSnapshot(self._index, self._overlay, arm_filter)

    @property
    def expected_us(self) -> float:  # type: ignore[override]
        return self._index.search_us

    @property
    def recent(self) -> deque[Vector]:  # type: ignore[override]
        return self._index.recent

    @property
    def eligible_count(self) -> int | None:
        return None

    @property
    def attributes(self) -> AttributeSnapshot:  # type: ignore[override]
        """The attributes of the arms that were met so far."""
        new = sorted(self._documents.keys() - self._described)
        if new:
            self._attributes.append(np.array(new), [self._document(row) for row in new])
            self._described.update(new)
        return self._attributes.snapshot()

    @property
    def size(self) -> int:
        """Of the whole catalogue: how many of its arms a filter matches is not known."""
        return len(self._index)

    @property
    def kind(self) -> IndexKind:
        return self._index.engine_name.kind

    @property
    def proposes(self) -> bool:
        """The engine's arms are scored again, with the features that the store has."""
        return True

    @property
    def is_exact(self) -> bool:
        return False

    def rows_of(self, ids: Iterable[str]) -> Rows:
        """Rows of these arms, but of those that were found not to be there. Features: after ``load``."""
        return np.array([self._row(arm) for arm in ids if arm not in self._absent], dtype=np.int64)

    def id_of(self, row: int) -> str:
        return self._ids[row]

    def revision_of(self, row: int) -> int:
        return self._revisions[row]

    def features_of(self, rows: Rows) -> Matrix:
        """Of arms that were not met yet: for ``SEARCHES``, as ``search``."""
        if not len(rows):
            return np.empty((0, self._index.dim))
        new = [self._ids[row] for row in rows.tolist() if row not in self._features]
        if new:
            wait_for(self.load(new))
        return np.array([self._features[row] for row in rows.tolist()])

    async def load(self, ids: Sequence[str]) -> None:
        """Know these arms as the store has them now, or that they are not there. Raises Unavailable."""
        new = [arm_id for arm_id in dict.fromkeys(ids) if self._rows.get(arm_id) not in self._revisions]
        read = await self._index.store.read(self._index.uid, new)
        self._absent.update(arm_id for arm_id, arm in zip(new, read, strict=True) if arm is None)
        stored = [arm for arm in read if arm is not None]
        features = bytes_to_vector(b"".join([arm.features for arm in stored])).reshape(-1, self._index.dim)
        for arm, vector in zip(stored, features, strict=True):
            row = self._row(arm.id)
            self._revisions[row] = arm.revision
            self._features[row] = vector
            self._documents[row] = arm.document

    def admitted(self, ids: Sequence[str], exclude: Rows = NO_ROWS) -> Rows:
        wait_for(self.load(ids))
        return self._let_in(dict.fromkeys(ids), set(exclude.tolist()))

    def matching(self, arms: Snapshot) -> Rows:
        if self._filter is None:
            return arms.listed
        return eligible_rows(self._filter, arms.table, arms.attributes, None).rows

    def search(self, query: Vector, k: int, exclude: Rows = NO_ROWS) -> TopK:
        """As ``Snapshot.search``; never exact, and it may find fewer than there are. Raises Unavailable."""
        checks.shape("query", query, (self._index.dim,))
        checks.in_range("k", k, least=1)
        started = time.perf_counter()
        hits = wait_for(self._found(query, k, exclude))
        index, us = self._index, (time.perf_counter() - started) * 1e6
        index.search_us += RECENT_SHARE * (us - index.search_us)
        index.recent.append(query)
        return hits

    def search_exact(self, query: Vector, k: int, exclude: Rows = NO_ROWS) -> TopK:
        """As ``search``: nobody compares all arms here."""
        return self.search(query, k, exclude)

    async def _found(self, query: Vector, k: int, exclude: Rows) -> TopK:
        """Ask for more while too many proposals are gone, changed, or do not match after all."""
        index, barred = self._index, set(exclude.tolist())
        limit = asked_for(max(k, index.options.shortlist) + len(barred))
        overlaid = self._overlaid(query, limit)
        while True:
            ids = await index.proposed(query, limit, self._filter)
            await self.load([*overlaid, *ids])
            rows = self._let_in(dict.fromkeys((*overlaid, *ids)), barred)
            if len(rows) >= k or len(ids) < limit or limit == MOST_FOUND:
                return self._ranked(rows, query, k)
            limit = min(OVERSAMPLING * limit, MOST_FOUND)

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

    def _let_in(self, ids: Iterable[str], barred: set[int]) -> Rows:
        rows = [self._rows[arm_id] for arm_id in ids if arm_id not in self._absent]
        wanted = self._filter
        if wanted is not None:
            rows = [row for row in rows if wanted.matches(*self._document(row))]
        return np.array([row for row in rows if row not in barred], dtype=np.int64)

    def _ranked(self, rows: Rows, query: Vector, k: int) -> TopK:
        """Among equal scores the oldest features come first, as in memory."""
        scores = self.features_of(rows) @ query
        revisions = np.array([self._revisions[row] for row in rows.tolist()])
        best = np.lexsort((revisions, -scores))[:k] if len(rows) else NO_ROWS
        return TopK(rows[best], scores[best], exact=False)

    def _document(self, row: int) -> Document:
        """Decoded once: a filtered search looks at an arm again each time it asks for more."""
        if row not in self._decoded:
            self._decoded[row] = attributes_of(self._documents[row])
        return self._decoded[row]

    def _row(self, arm_id: str) -> int:
        row = self._rows.get(arm_id)
        if row is None:
            row = self._rows[arm_id] = len(self._ids)
            self._ids.append(arm_id)
        return row


def asked_for(limit: int) -> int:
    """The next power of two, so that searches for different numbers of arms can be asked together."""
    return min(max(LEAST_ASKED, 1 << (limit - 1).bit_length()), MOST_FOUND)
