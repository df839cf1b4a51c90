"""The index of a catalogue whose arms are in Milvus, as one process has it, and how good its proposals are.

The process holds no arm but those of the overlay: arms that changed a moment ago, which the engine may not
have yet, or may not show yet. The overlay is bounded. While it is full no arm can be written, and a process
that is further behind than it reaches does not choose until the follower has caught up. ``Probing`` compares
the engine's proposals for some queries with a scan of all arms of the store, read a page at a time.

Notation
    position    of the follower: the engine has all changes up to it (``storage.types.FollowedArms``)
    P, B        number of probes, arms of a page
    recall@1    share of the probes whose best arm is among the proposals
    ratio       score of the best proposal over that of the best arm
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.filters.attributes import Document
from app.indexes.live import IndexOptions, LiveIndex
from app.milvus.engine import CollectionGone, Engine
from app.milvus.snapshot import LEAST_ASKED, MilvusSnapshot, asked_for
from app.platform.deadlines import yield_to_others
from app.platform.errors import NotPossibleHere, Unavailable
from app.records.records import bytes_to_vector
from app.storage.followed_arms import FollowedArms
from app.storage.store import Store
from app.storage.types import Followed, Position
from shortlist.types import Matrix, Vector

OVERLAY_BYTES = 16 << 20
MOST_WRITTEN = 20_000  # arms of the overlay beyond its room: of writes that had begun
NUMBER_BYTES, ARM_BYTES = 20, 600  # of an arm in the overlay, about
LAST_ARM = "\x7f"  # stands after every arm of its version
ROOM_S, LOOK_S = 30.0, 0.05
DEFAULT_EF = 64
RECENT = 256
COLLECTION = "collection"  # among the failures
NOT_SET = "the arms of this catalogue are in Milvus, and SHORTLIST_MILVUS_URI is not set"
PROBES = 64
PAGE = 1_000
EFS = (64, 128, 256, 512)
SEED = 0x6D696C76


class MilvusQuality(msgspec.Struct, frozen=True, array_like=True):
    """What the follower has measured of a collection: ``ef`` reaches it. ``arms``: how many there were."""

    ef: int = DEFAULT_EF
    recall_at_1: float = 1.0
    ratio_mean: float = 1.0
    ratio_min: float = 1.0
    arms: int = 0


@dataclass(frozen=True, slots=True)
class MilvusStatus:
    """As ``IndexStatus``, but without the recall of lists, which is not measured: it would take the scores
    of all arms. ``pending``: changes that the engine has not got; ``overlay``: arms in memory.

    ``measured_arms``: how many there were when recall was measured; 0: it was not yet.
    """

    kind: Literal["milvus"]
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


class MilvusIndex:
    """Stands where a ``LiveIndex`` stands. ``engine`` None: there is none here, so nothing is chosen."""

    holds_arms: Literal[False] = False

    def __init__(
        self, uid: str, dim: int, options: IndexOptions, engine: Engine | None, store: FollowedArms
    ) -> None:
        self.uid, self.dim, self.options = uid, dim, options
        self.version = 0
        self.followed = Followed(0, 0, 0, Position(), "", b"", is_ours=False)
        self.quality = MilvusQuality(options.ef_search or DEFAULT_EF)
        self.is_behind = False
        self.missed = False  # a search did not find the collection
        self.changed = asyncio.Event()  # there is something to follow
        self.recent: deque[Vector] = deque(maxlen=RECENT)
        self.search_us = 20_000.0  # typical, of this process
        self.engine = engine
        self.store = store
        self.overlay = LiveIndex(dim, IndexOptions(kind="exact"))
        self.failures = self.overlay.failures
        self._places: dict[str, Position] = {}
        self._settling: deque[tuple[float, Position]] = deque()
        self._room = max(100, OVERLAY_BYTES // (NUMBER_BYTES * dim + ARM_BYTES))

    def __len__(self) -> int:
        return self.followed.arms

    def __contains__(self, arm_id: str) -> bool:
        raise NotPossibleHere("which arms there are is known to the store alone")

    @property
    def failure(self) -> str | None:
        """Why the engine, the collection, or work on the overlay is not as it should be."""
        fault = NOT_SET if self.engine is None else self.engine.fault
        return fault or next(iter(self.failures.values()), None)

    @property
    def collection(self) -> str:
        return self.followed.collection

    @property
    def ef(self) -> int:
        return self.quality.ef

    @property
    def most_overlaid(self) -> int:
        return self._room + MOST_WRITTEN

    def snapshot(self) -> MilvusSnapshot:
        """The catalogue as it is now, for one request."""
        return MilvusSnapshot(self, self.overlay.snapshot(), None)

    async def proposed(self, query: Vector, limit: int, expression: str = "") -> list[str]:
        """Ids of arms that the engine finds, best first. Raises Unavailable. Shapes: query (d,)."""
        if self.engine is None:
            raise Unavailable(NOT_SET)
        if COLLECTION in self.failures:
            raise Unavailable(self.failures[COLLECTION])
        if self.is_behind:
            raise Unavailable("Milvus is still loading the arms: it lacks too many changes")
        if not self.collection:
            return []
        near = query.astype(np.float32)
        try:
            return await self.engine.search(self.collection, near, limit, expression=expression, ef=self.ef)
        except CollectionGone:
            self.missed = True
            self.changed.set()
            raise

    async def reach_engine(self) -> None:
        """Return if the engine proposes arms. Raises Unavailable."""
        await self.proposed(np.ones(self.dim), LEAST_ASKED)

    def put(
        self,
        arms: Sequence[Position],
        features: NDArray[np.float64],
        documents: Sequence[Document],
        revisions: Sequence[int],
    ) -> None:
        """Have arms in the overlay, as they are since these changes. Shapes: features (n, d), others (n,)."""
        ids = [arm.arm for arm in arms]
        self.overlay.upsert(ids, features, revisions)
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
        """Note how far the follower is, by the store: arms that the engine returns now leave the overlay."""
        now = time.monotonic()
        if followed.position > self.followed.position:
            settled_s = 0.0 if self.engine is None else self.engine.settled_s
            self._settling.append((now + settled_s, followed.position))
        if followed.quality and followed.quality != self.followed.quality:
            self.quality = msgspec.msgpack.decode(followed.quality, type=MilvusQuality)
        self.followed = followed
        shown: Position | None = None
        while self._settling and self._settling[0][0] <= now:
            _, shown = self._settling.popleft()
        if shown is not None:
            gone = [arm_id for arm_id, position in self._places.items() if position <= shown]
            self.overlay.remove(gone)
            for arm_id in gone:
                del self._places[arm_id]

    async def has_room(self) -> None:
        """Return when the overlay has room. Raises Unavailable when it has none in time."""
        ends = time.monotonic() + ROOM_S
        while self.is_behind or len(self._places) > self._room:
            if time.monotonic() > ends:
                raise Unavailable("Milvus is too far behind the writes")
            await asyncio.sleep(LOOK_S)
            self.saw(await self.store.look(self.uid))

    def status(self) -> MilvusStatus:
        quality, is_filled = self.quality, bool(self.followed.collection) and not self.is_behind
        return MilvusStatus(
            kind="milvus",
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
            reason="the arms are in Milvus, which proposes those that are compared",
            failure=self.failure,
            collection=self.followed.collection,
            pending=self.followed.pending,
            overlay=len(self._places),
            measured_arms=quality.arms,
        )


@dataclass(frozen=True, slots=True)
class _Best:
    """The best arm of each probe. Shapes: ids (P,), scores (P,)."""

    ids: Sequence[str]
    scores: Vector


@dataclass(frozen=True, slots=True)
class Probing:
    """One measurement. ``alive`` is called between pages of arms."""

    index: MilvusIndex
    engine: Engine
    store: Store
    seen: Followed
    alive: Callable[[], Awaitable[object]]

    async def measured(self) -> MilvusQuality:
        """The least ``ef`` of ``EFS`` that reaches the recall of the catalogue, or the last; what it reaches.

        Cost: every arm is read once, K P d multiplications; P searches for each ``ef``. Raises Unavailable.
        """
        probes = self._probes()
        best = await self._compared(probes)
        options, quality = self.index.options, MilvusQuality(arms=self.seen.arms)
        for ef in EFS if options.ef_search is None else (options.ef_search,):
            quality = await self._tried(probes, best, ef)
            if quality.recall_at_1 >= options.target_recall:
                break
        return quality

    def _probes(self) -> Matrix:
        """Half of them queries that were served, if so many were. Shape: -> (P, d)."""
        dim, recent = self.index.dim, list(self.index.recent)[-PROBES // 2 :]
        rng = np.random.default_rng((SEED, int(self.index.uid[:8], 16)))
        drawn = rng.normal(size=(PROBES - len(recent), dim))
        return np.concatenate((drawn, np.array(recent).reshape(-1, dim)))

    async def _compared(self, probes: Matrix) -> _Best:
        """Compare all arms with all probes, a page at a time."""
        ids, scores = [""] * len(probes), np.full(len(probes), -np.inf)
        uid, newest, after = self.index.uid, self.seen.version, Position()
        while page := await self.store.followed_arms.changes(uid, after, PAGE, newest=newest):
            after = page[-1]
            arms = [arm for arm in await self.store.arms.read(uid, [change.arm for change in page]) if arm]
            if arms:
                products = np.array([bytes_to_vector(arm.features) for arm in arms]) @ probes.T
                rows, largest = products.argmax(axis=0), products.max(axis=0)
                for probe in np.flatnonzero(largest > scores).tolist():
                    ids[probe], scores[probe] = arms[rows[probe]].id, largest[probe]
            await yield_to_others()
            await self.alive()
        return _Best(ids, scores)

    async def _tried(self, probes: Matrix, best: _Best, ef: int) -> MilvusQuality:
        hits, ratios = 0, list[float]()
        limit = asked_for(self.index.options.shortlist)
        for probe, arm, score in zip(probes, best.ids, best.scores.tolist(), strict=True):
            near = probe.astype(np.float32)
            proposed = await self.engine.search(self.seen.collection, near, limit, expression="", ef=ef)
            hits += arm in proposed
            ratios.append(1.0 if arm in proposed else await self._ratio(proposed, probe, score))
        return MilvusQuality(ef, hits / len(probes), float(np.mean(ratios)), min(ratios), self.seen.arms)

    async def _ratio(self, proposed: Sequence[str], probe: Vector, score: float) -> float:
        """Of the best proposal: 1 less what it lacks of the best score, relative to that."""
        arms = [arm for arm in await self.store.arms.read(self.index.uid, proposed) if arm is not None]
        best = max((float(bytes_to_vector(arm.features) @ probe) for arm in arms), default=-abs(score))
        return 1.0 - max(score - best, 0.0) / (abs(score) or 1.0)
