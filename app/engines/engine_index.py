"""The index, in one process, of a catalogue whose arms are in an engine.

The process holds no arm but those of the overlay: recently changed arms, which the engine may not have yet,
or may not show yet. The overlay is bounded. While full, no arm can be written, and a process further behind
than its bound does not choose until the follower has caught up.

Notation
    position    of the follower: the engine has all changes up to there (``FollowedArms``)
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.engines.engine_contract import ArmEngine, CollectionGone, EngineName
from app.filters.attributes import Document
from app.filters.filter import Filter
from app.indexes.live import IndexOptions, LiveIndex
from app.indexes.snapshot import Snapshot
from app.platform.errors import NotPossibleHere, Unavailable
from app.storage.followed_arms import FollowedArms
from app.storage.types import Followed, Position
from shortlist.types import Vector

OVERLAY_BYTES = 16 << 20
MOST_WRITTEN = 20_000  # arms of the overlay beyond its room: of writes that had begun
NUMBER_BYTES, ARM_BYTES = 20, 600  # of an arm in the overlay, about
LAST_ARM = "\x7f"  # stands after every arm of its version
LOOK_S = 0.05
DEFAULT_EF = 64
RECENT = 256
COLLECTION = "collection"  # among the failures


class CopyQuality(msgspec.Struct, frozen=True, array_like=True):
    """The follower's measurement of a collection, at ``ef``. ``arms``: their number then."""

    ef: int = DEFAULT_EF
    recall_at_1: float = 1.0
    ratio_mean: float = 1.0
    ratio_min: float = 1.0
    arms: int = 0


@dataclass(frozen=True, slots=True)
class EngineStatus:
    """As ``IndexStatus``, but without the recall of lists, which is not measured, since it takes the scores
    of all arms. ``pending``: changes still missing in the engine; ``overlay``: arms in memory.

    ``measured_arms``: number of arms when recall was measured; 0: not measured yet.
    """

    kind: str
    exact: Literal[False]
    state: Literal["ready", "building"]
    size: int
    target_recall: float
    recall_at_1: float
    ratio_mean: float
    ratio_min: float
    ef_search: int
    expected_us: float
    memory_bytes: int
    reason: str
    failure: str | None
    collection: str
    pending: int
    overlay: int
    measured_arms: int


class EngineIndex:
    """Stands where a ``LiveIndex`` stands. ``engine`` None: there is none here, so nothing is chosen."""

    resident: None = None

    def __init__(
        self,
        uid: str,
        dim: int,
        options: IndexOptions,
        *,
        engine: ArmEngine | None,
        store: FollowedArms,
        engine_name: EngineName,
    ) -> None:
        self.engine_name = engine_name
        self.uid, self.dim, self.options = uid, dim, options
        self.version = 0
        self.followed = Followed(0, 0, 0, Position(), "", b"", is_ours=False)
        self.quality = CopyQuality(options.ef_search or DEFAULT_EF)
        self.is_behind = False
        self.missed = False  # a search did not find the collection
        self.changed = asyncio.Event()  # there is something to follow
        self.recent: deque[Vector] = deque(maxlen=RECENT)
        self.search_us = 20_000.0  # typical, of this process
        self.room_s = 30.0  # how long a write waits for room in the overlay
        self.engine = engine
        self.store = store
        self.overlay = LiveIndex(dim, IndexOptions(kind="exact"))
        self.failures = self.overlay.failures
        self._nothing = LiveIndex(dim, IndexOptions(kind="exact")).snapshot()
        self._places: dict[str, Position] = {}
        self._settling: deque[tuple[float, Position]] = deque()
        self._room = max(100, OVERLAY_BYTES // (NUMBER_BYTES * dim + ARM_BYTES))
        self.most_overlaid = self._room + MOST_WRITTEN

    def __len__(self) -> int:
        return self.followed.arms

    def __contains__(self, arm_id: str) -> bool:
        raise NotPossibleHere("which arms there are is known to the store alone")

    @property
    def failure(self) -> str | None:
        """The fault of the engine, of the collection, or of work on the overlay."""
        fault = self.engine_name.why_absent if self.engine is None else self.engine.fault
        return fault or next(iter(self.failures.values()), None)

    @property
    def title(self) -> str:
        return self.engine_name.title

    def snapshot(self) -> Snapshot:
        """The arms at hand before the engine is asked: none."""
        return self._nothing

    async def proposed(self, query: Vector, limit: int, arm_filter: Filter | None = None) -> list[str]:
        """Ids of arms found by the engine, best first. Raises Unavailable. Shapes: query (d,)."""
        if self.engine is None:
            raise Unavailable(self.engine_name.why_absent)
        if COLLECTION in self.failures:
            raise Unavailable(self.failures[COLLECTION])
        if self.is_behind:
            raise Unavailable(f"{self.title} is still loading the arms: it lacks too many changes")
        collection, near, ef = self.followed.collection, query.astype(np.float32), self.quality.ef
        if not collection:
            return []
        try:
            return await self.engine.search(collection, near, limit, arm_filter=arm_filter, ef=ef)
        except CollectionGone:
            self.missed = True
            self.changed.set()
            raise

    def put(
        self,
        arms: Sequence[Position],
        features: NDArray[np.float64],
        documents: Sequence[Document],
        revisions: Sequence[int],
        came: Sequence[int],
    ) -> None:
        """Have arms in the overlay, as they are since these changes. Shapes: features (n, d), others (n,)."""
        ids = [arm.arm for arm in arms]
        self.overlay.upsert(ids, features, revisions, came)
        self.overlay.describe(ids, documents)
        self._places.update(zip(ids, arms, strict=True))
        self.changed.set()

    def remove(self, ids: Sequence[str]) -> None:
        self.overlay.remove(ids)
        for arm_id in ids:
            self._places.pop(arm_id, None)
        self.changed.set()

    def count(self, more: int) -> None:
        """So many arms came, before the next look at the store."""
        self.followed = replace(self.followed, arms=self.followed.arms + more)

    def clear(self) -> None:
        self.remove(list(self._places))

    def saw(self, followed: Followed) -> None:
        """Note how far the follower is, by the store: arms known to the engine by now leave the overlay."""
        clock_s = time.monotonic()
        if followed.position > self.followed.position:
            settled_s = 0.0 if self.engine is None else self.engine.settled_s
            self._settling.append((clock_s + settled_s, followed.position))
        if followed.quality and followed.quality != self.followed.quality:
            self.quality = msgspec.msgpack.decode(followed.quality, type=CopyQuality)
        self.followed = followed
        shown: Position | None = None
        while self._settling and self._settling[0][0] <= clock_s:
            _, shown = self._settling.popleft()
        if shown is not None:
            gone = [arm_id for arm_id, position in self._places.items() if position <= shown]
            self.overlay.remove(gone)
            for arm_id in gone:
                del self._places[arm_id]

    async def has_room(self) -> None:
        """Return when the overlay has room. Raises Unavailable without room in time."""
        ends = time.monotonic() + self.room_s
        while self.is_behind or len(self._places) > self._room:
            if time.monotonic() > ends:
                raise Unavailable(f"{self.title} is too far behind the writes")
            await asyncio.sleep(LOOK_S)
            self.saw(await self.store.look(self.uid))

    def status(self) -> EngineStatus:
        quality, is_filled = self.quality, bool(self.followed.collection) and not self.is_behind
        return EngineStatus(
            kind=self.engine_name.kind,
            exact=False,
            state="ready" if is_filled else "building",
            size=len(self),
            target_recall=self.options.target_recall,
            recall_at_1=quality.recall_at_1,
            ratio_mean=quality.ratio_mean,
            ratio_min=quality.ratio_min,
            ef_search=quality.ef,
            expected_us=self.search_us,
            memory_bytes=self.overlay.status().memory_bytes,
            reason=f"the arms are in {self.title}, which proposes those that are compared",
            failure=self.failure,
            collection=self.followed.collection,
            pending=self.followed.pending,
            overlay=len(self._places),
            measured_arms=quality.arms,
        )
