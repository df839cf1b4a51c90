"""The follower keeps an engine's copy of the arms, for each catalogue in one process of all.

The follower reads the changes of the store in their order, writes the present arms to the engine, and notes
its position. A change written twice has no further effect, so the next follower goes on from the last note. A
missing collection is made again, under another name, and is searched once complete.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import secrets
import time
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from app.catalogues.catalogues import Catalogues
from app.catalogues.engines import in_engines
from app.engines.engine_contract import ArmEngine, CollectionGone, EngineArm, NotLoaded
from app.engines.engine_index import COLLECTION, LAST_ARM, CopyQuality, EngineIndex
from app.engines.proposal_quality import Probing
from app.platform.background import end
from app.platform.errors import Unavailable
from app.records.records import attributes_of, bytes_to_vector
from app.storage.store import Store
from app.storage.types import Followed, Position, StoredArm

log = logging.getLogger("shortlist.following")

LEASE_MS = 10_000
IDLE_S = 1.0
SWEEP_ALL_S, YOUNG_S = 600.0, 3_600.0
LOOK_S = 0.2  # how often catalogues are looked for that are new
PAGE_NUMBERS = 1 << 20
SWEEP_S = 60.0
GROWTH = 1.5  # arms, since recall was measured
SEAL_S = 60.0  # how often at most a graph is built
MOST_MEASURE_S = 3_600.0
PREFIX = "shortlist"


@dataclass(frozen=True, slots=True)
class FollowingLimits:
    """The sizes and pauses of a follower.

    ``page_arms``   number read and written together
    ``check_s``     how often the collection is looked for
    ``forget_s``    how long deleted arms stay in the order of changes: sleeping processes hear of them
    ``drop_s``      after a switch: searches of the earlier collection may be under way
    ``seal_arms``   without a graph have one built
    ``measure_s``   until a too low recall is measured again, at first: graphs take a while
    """

    page_arms: int = 1_000
    check_s: float = 5.0
    forget_s: float = 60.0
    drop_s: float = 10.0
    seal_arms: int = 5_000
    measure_s: float = 60.0


class Following:
    """The follower of one catalogue. ``owner`` names this process, ``installation`` the store."""

    def __init__(
        self,
        index: EngineIndex,
        engine: ArmEngine,
        store: Store,
        *,
        owner: str,
        installation: str,
        limits: FollowingLimits = FollowingLimits(),
    ) -> None:
        self.index, self._engine, self._store = index, engine, store
        self._owner, self._limits = owner, limits
        self._stem = f"{PREFIX}_{installation}_{index.uid}_"
        self._checked = ""  # the collection that was found to be right,
        self._checked_until = 0.0
        self._deleted: deque[tuple[float, list[Position]]] = deque()
        self._swept_from = 0.0
        self._unsealed: int | None = None  # arms without a graph; None: nobody knows, another wrote them
        self._sealed_from = self._measured_from = 0.0
        self._measure_s = limits.measure_s
        self._is_graph_new = False

    async def run(self) -> None:
        """Follow until cancelled; then leave the work to others at once."""
        try:
            while True:
                # before the step: changes meanwhile start another one
                self.index.changed.clear()
                if not await self._stepped():
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(IDLE_S):
                            await self.index.changed.wait()
        finally:
            with contextlib.suppress(Unavailable):
                await self._store.followed_arms.leave(self.index.uid, self._owner)

    async def _stepped(self) -> bool:
        try:
            return await self.step()
        except (CollectionGone, NotLoaded):
            self._checked = ""
        except Unavailable as error:
            log.debug("the follower waits: %s", error.detail)
        except Exception:
            log.exception("following the arms of a catalogue failed, and is tried again")
        return False

    async def step(self) -> bool:
        """Do the next work; False: there was none, or another process does it."""
        followed = await self._look()
        if self.index.missed or not followed.is_ours:
            self.index.missed, self._checked = False, ""
        if not followed.is_ours:
            return False
        if not await self._is_right(followed):
            return False if COLLECTION in self.index.failures else await self.rebuild()
        was_behind = await self._copied_page(followed.collection, followed)
        if await self._sealed(followed, was_behind=was_behind) or was_behind:
            return True
        await self._tidied(followed)
        return await self._measured(followed)

    async def rebuild(self) -> bool:
        """Make a collection of all arms, under a new name, and search the new one from then on.

        The one before, if any, is followed meanwhile.
        """
        # the time in the name tells ``swept`` which collections are young
        name = f"{self._stem}{int(time.time()):x}{secrets.token_hex(2)}"
        options = self.index.options
        await self._engine.create(name, self.index.dim, m=options.m, ef_construction=options.ef_construction)
        position, self._unsealed = Position(), 0
        while True:
            followed = await self._look()
            if not followed.is_ours:
                return False
            page = await self._store.followed_arms.changes(self.index.uid, position, self._page)
            if not page:
                break
            position = await self._copied(name, page)
            # The collection before is searched until the new one is made, and so kept up to date.
            if self._checked:
                await self._copied_page(followed.collection, followed)
        await asyncio.sleep(self._engine.settled_s)
        quality = msgspec.msgpack.encode(CopyQuality(options.ef_search or CopyQuality().ef))
        if not await self._noted(name, Position(), max(position, followed.position), quality):
            return False
        log.info("the arms of a catalogue are in the collection %s", name)
        self._checked, self._swept_from = "", time.monotonic() + self._limits.drop_s
        await self._look()
        return True

    async def _look(self) -> Followed:
        followed = await self._store.followed_arms.follow(self.index.uid, self._owner, LEASE_MS)
        self.index.saw(followed)
        return followed

    @property
    def _page(self) -> int:
        return max(1, min(self._limits.page_arms, PAGE_NUMBERS // self.index.dim))

    async def _is_right(self, followed: Followed) -> bool:
        """Return whether the collection exists, has the catalogue's dimension, and is in memory."""
        if (
            followed.collection
            and followed.collection == self._checked
            and time.monotonic() < self._checked_until
        ):
            return True
        self._checked = ""
        self.index.failures.pop(COLLECTION, None)
        dim = await self._engine.dim(followed.collection) if followed.collection else None
        if dim is not None and dim != self.index.dim:
            name = followed.collection
            fault = f"the collection {name} of the engine has dimension {dim}, not {self.index.dim}"
            self.index.failures[COLLECTION] = f"{fault}: drop it there, and it is made again"
        elif dim is not None:
            self._checked = followed.collection
            self._checked_until = time.monotonic() + self._limits.check_s
        return bool(self._checked)

    async def _copied_page(self, collection: str, followed: Followed) -> bool:
        page = await self._store.followed_arms.changes(self.index.uid, followed.position, self._page)
        if not page:
            return False
        after = await self._copied(collection, page)
        quality = followed.quality or msgspec.msgpack.encode(self.index.quality)
        await self._noted(collection, followed.position, after, quality)
        return True

    async def _copied(self, collection: str, page: Sequence[Position]) -> Position:
        """Write how these arms are now; the position up to which the collection has everything."""
        ids = [change.arm for change in page]
        read = await self._store.followed_arms.read(self.index.uid, ids)
        arms = [_engine_arm(arm) for arm in read if arm is not None]
        gone = [change for change, arm in zip(page, read, strict=True) if arm is None]
        await self._engine.write(collection, arms, [change.arm for change in gone])
        if self._unsealed is not None:
            self._unsealed += len(arms)
        if gone:
            self._deleted.append((time.monotonic() + self._limits.forget_s, gone))
        # What changed in a version is written at once: after a short page the last version is whole.
        return page[-1] if len(page) == self._page else Position(page[-1].version, LAST_ARM)

    async def _noted(self, collection: str, before: Position, after: Position, quality: bytes) -> bool:
        noted = await self._store.followed_arms.advance(
            self.index.uid, self._owner, collection=collection, before=before, after=after, quality=quality
        )
        if not noted:
            self._checked = ""
        return noted

    async def _tidied(self, followed: Followed) -> None:
        """Forget arms deleted a while ago, and drop collections no longer searched."""
        clock_s = time.monotonic()
        while self._deleted and self._deleted[0][0] <= clock_s:
            await self._store.followed_arms.forget(self.index.uid, self._deleted.popleft()[1])
        if clock_s >= self._swept_from:
            self._swept_from = clock_s + SWEEP_S
            for name in await self._engine.collections():
                if name.startswith(self._stem) and name != followed.collection:
                    await self._engine.drop(name)

    async def _sealed(self, followed: Followed, *, was_behind: bool) -> bool:
        """Have a graph built once many arms lack one; return whether this was asked for."""
        if self._unsealed is None and was_behind:
            return False
        unsealed, clock_s = followed.arms if self._unsealed is None else self._unsealed, time.monotonic()
        if unsealed < self._limits.seal_arms or clock_s < self._sealed_from:
            return False
        self._sealed_from = clock_s + SEAL_S
        await self._engine.seal(followed.collection)
        self._unsealed = 0
        if 2 * unsealed > followed.arms:
            self._is_graph_new, self._measured_from = True, time.monotonic() + self._limits.measure_s
        return True

    async def _measured(self, followed: Followed) -> bool:
        """Measure recall the first time, after the catalogue has grown or shrunk, for a new graph, and now
        and then while too low; return whether recall was measured.
        """
        index, quality = self.index, self.index.quality
        has_changed = not quality.arms / GROWTH < followed.arms < quality.arms * GROWTH
        is_doubtful = self._is_graph_new or quality.recall_at_1 < index.options.target_recall
        is_due = is_doubtful and time.monotonic() >= self._measured_from
        if not followed.arms or not (has_changed or is_due):
            return False
        quality = await Probing(index, self._engine, self._store, followed, self._look).measured()
        if is_due:
            self._is_graph_new, self._measure_s = False, min(2 * self._measure_s, MOST_MEASURE_S)
        self._measured_from = time.monotonic() + self._measure_s
        return await self._noted(
            followed.collection, followed.position, followed.position, msgspec.msgpack.encode(quality)
        )


async def run(catalogues: Catalogues, store: Store, engines: Mapping[str, ArmEngine]) -> None:
    """Follow every catalogue of these engines, by its kind, until cancelled."""
    if not engines:
        return
    owner, installation, sweep_from = secrets.token_hex(8), "", 0.0
    tasks: dict[str, asyncio.Task[None]] = {}
    try:
        while True:
            served = in_engines(catalogues).values()
            indexes = {index.uid: index for index in served if index.engine is not None}
            await end([tasks.pop(uid) for uid in tasks.keys() - indexes.keys()])
            with contextlib.suppress(Unavailable):
                if not installation:  # the name of this store among those that share an engine; made once
                    name = secrets.token_hex(4).encode()
                    stored = await store.write_once.put(None, "installation", name, ttl_ms=None)
                    installation = stored.decode()
                for uid in indexes.keys() - tasks.keys():
                    index = indexes[uid]
                    engine = engines[index.engine_name.kind]
                    follower = Following(index, engine, store, owner=owner, installation=installation)
                    tasks[uid] = asyncio.create_task(follower.run())
                if time.monotonic() >= sweep_from:
                    sweep_from = time.monotonic() + SWEEP_ALL_S
                    for engine in engines.values():
                        with contextlib.suppress(Unavailable):
                            await swept(engine, installation, indexes.keys())
            await asyncio.sleep(LOOK_S)
    finally:
        await end(tasks.values())


async def swept(
    engine: ArmEngine, installation: str, uids: Collection[str], *, young_s: float = YOUNG_S
) -> None:
    """Drop collections of deleted catalogues: the engine was away when they were deleted.

    ``uids``: of the catalogues. A young collection may belong to a catalogue still unknown to this process.
    """
    for name in await engine.collections():
        parts = re.fullmatch(rf"{PREFIX}_{installation}_([0-9a-f]+)_([0-9a-f]+)[0-9a-f]{{4}}", name)
        if parts and parts[1] not in uids and time.time() - int(parts[2], 16) >= young_s:
            await engine.drop(name)


def _engine_arm(arm: StoredArm) -> EngineArm:
    features = bytes_to_vector(arm.features).astype(np.float32)
    return EngineArm(arm.id, arm.revision, features, attributes_of(arm.document))
