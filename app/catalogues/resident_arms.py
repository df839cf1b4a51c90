"""The arms of a catalogue in the memory of this process. Changes of others are read from the store."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from app.catalogues.kept_arms import FoundArms
from app.filters.attributes import Document
from app.indexes.live import LiveIndex
from app.indexes.shared_arms import SharingGroup
from app.indexes.snapshot import Snapshot
from app.platform.cursors import number_in
from app.platform.deadlines import yield_to_others
from app.records.records import attributes_of
from app.storage.arms import ArmStore
from app.storage.types import Deleted, StoredArm, Upserted
from shortlist.index.table import TableSnapshot
from shortlist.types import Rows, Vector

log = logging.getLogger("shortlist.catalogues")

SYNC_NUMBERS = 1_000_000
INDEXED_TOGETHER = 250  # arms, at most: a few milliseconds, also where sixteen rows are copied for each
INDEXED_NUMBERS = 65_536  # in their features, at most
INDEXED_BYTES = 65_536  # of their tags and metadata, at most: thousands of values that filters may ask for
LOADED_TOGETHER = 2_000
NO_DOCUMENT: Document = ((), {})


class ResidentArms:
    """Implements ``ArmRepository``. ``file`` keeps the graph between runs; ``group``: who shares the arms."""

    keeps_changes = False

    def __init__(
        self, uid: str, index: LiveIndex, store: ArmStore, *, dim: int, file: Path, group: SharingGroup | None
    ) -> None:
        self._uid = uid
        self._index = index
        self._store = store
        self._dim = dim
        self._file = file
        self._group = group

    async def open(self) -> None:
        await _share(self._index)
        if not len(self._index):
            await self._load_arms()
        await self.sync()  # what was written while the arms were read
        if self._group is not None and self._group.is_maker():
            await _share(self._index)  # the others wait for the arms

    async def has_room(self) -> None:
        """There is always room."""

    async def wrote(
        self,
        ids: Sequence[str],
        features: NDArray[np.float64],
        documents: Sequence[Document],
        sizes: Sequence[int],
        done: Upserted,
    ) -> None:
        # In portions: an index is changed by the event loop, and 10,000 arms at once would hold up all
        # requests.
        for part in _portions(self._dim, sizes):
            await yield_to_others()
            self._index.upsert(ids[part], features[part], done.revisions[part], done.came_ms[part])
            self._index.describe(ids[part], documents[part])

    async def removed(self, ids: Sequence[str], done: Deleted) -> None:  # noqa: ARG002
        self._index.remove(ids)

    async def sync(self) -> None:
        changes = await self._store.changed(self._uid, self._index.version)
        # More changed than the store's list holds: nobody knows what, so all arms are read again.
        if changes.ids is None:
            await self._load_arms()
            return
        arms: list[StoredArm] = []
        batch_arms = max(1, SYNC_NUMBERS // self._dim)
        for start in range(0, len(changes.ids), batch_arms):
            arms += filter(None, await self._store.read(self._uid, changes.ids[start : start + batch_arms]))
        # What changed and is not there any more was deleted.
        self._index.remove(sorted(set(changes.ids) - {arm.id for arm in arms}))
        # In the order in which they were written: rows of every process stand in the same order, and ties are
        # broken alike.
        arms.sort(key=lambda arm: arm.revision)
        described = bool(arms) and await self._store.has_documents(self._uid)
        for first in range(0, len(arms), INDEXED_TOGETHER):
            together = arms[first : first + INDEXED_TOGETHER]
            numbers = np.frombuffer(b"".join(arm.features for arm in together), dtype="<f8")
            features = numbers.reshape(len(together), self._dim).astype(np.float64, copy=False)
            ids, revisions = [arm.id for arm in together], [arm.revision for arm in together]
            came = [arm.came_ms for arm in together]
            await self._take(ids, features, revisions, came, described=described)
        # Last: if something fails before, the same changes are read again, and taking an arm twice changes
        # nothing.
        self._index.version = changes.version

    async def page(self, after: str | None, limit: int) -> FoundArms:
        """Oldest features first."""
        snapshot = self._index.snapshot()
        return _found_arms(snapshot, snapshot.page(-1 if after is None else number_in(after), limit))

    async def sample(self, seed: int, limit: int) -> FoundArms:
        snapshot = self._index.snapshot()
        return _found_arms(snapshot, snapshot.sample(seed, limit))

    async def find(self, ids: Collection[str]) -> FoundArms:
        snapshot = self._index.snapshot()
        return _found_arms(snapshot, snapshot.rows_of(ids))

    async def sampled(self) -> Snapshot:
        return self._index.snapshot()

    async def at(self, arm_id: str, revision: int) -> Vector | None:
        arms = self._index.snapshot().table
        row = arms.row_of(arm_id)
        if row < 0 or arms.revisions.item(row) != revision:
            return None
        features: Vector = arms.features[row]  # rows never change
        return features

    async def dropped(self) -> None:
        for path in self._file.parent.glob(f"{self._file.stem}*{self._file.suffix}"):  # of each kind of index
            path.unlink(missing_ok=True)
        if self._group is not None:
            self._group.arms_of(self._uid).remove()

    async def _load_arms(self) -> None:
        """Oldest first: ties are broken as before. In slices: little is held twice."""
        version = await self._store.version(self._uid)  # first: what follows is at least as new
        ids: list[str] = []
        # One buffer of all arms, seen as an array below: an object for each arm would take several times the
        # memory.
        numbers = bytearray()
        async for batch in self._store.scan(self._uid):
            ids += batch.ids
            numbers += b"".join(batch.values)
        fields = [("revision", "<i8"), ("came_ms", "<i8"), ("features", "<f8", (self._dim,))]
        stored = np.frombuffer(numbers, dtype=fields)
        revisions, features = stored["revision"], stored["features"]
        self._index.remove(_strangers(self._index.snapshot().table, ids, revisions))
        order = np.argsort(revisions)
        self._index.reserve(len(ids))
        described = await self._store.has_documents(self._uid)
        for start in range(0, len(ids), LOADED_TOGETHER):
            batch_rows = order[start : start + LOADED_TOGETHER]
            together = features[batch_rows].astype(np.float64, copy=False)
            ids_of_some, of_some = [ids[i] for i in batch_rows.tolist()], revisions[batch_rows].tolist()
            came = stored["came_ms"][batch_rows].tolist()
            await self._take(ids_of_some, together, of_some, came, described=described)
        self._index.version = version

    async def _take(
        self,
        ids: Sequence[str],
        features: NDArray[np.float64],
        revisions: Sequence[int],
        came: Sequence[int],
        *,
        described: bool = True,
    ) -> None:
        """Take arms of the store into the index, with their documents: no arm is there without its own.

        ``described``: whether any arm has a document.
        """
        stored: Sequence[bytes] = []
        if described:
            stored = await self._store.documents(self._uid, ids)
        for part in _portions(self._dim, list(map(len, stored)) or [0] * len(ids)):
            await yield_to_others()
            self._index.upsert(ids[part], features[part], revisions[part], came[part])
            documents: list[Document] = [*map(attributes_of, stored[part])]
            self._index.describe(ids[part], documents or [NO_DOCUMENT] * len(ids[part]))


async def _share(index: LiveIndex) -> None:
    """Adopt or make a publication, for an index before its first search; without one the index has its own
    arms.
    """
    job = index.begin_sharing()
    if job is not None:
        failure = None
        try:
            await asyncio.to_thread(job.run)
        except (OSError, RuntimeError) as error:
            failure = error
            log.warning("shared arms can be neither read nor made now: %s", error)
        finally:
            index.finish(job, failure)


def _portions(dim: int, sizes: Sequence[int]) -> Iterator[slice]:
    """Arms that are put into an index in one go, one after the other; of documents of so many bytes."""
    most = max(1, min(INDEXED_TOGETHER, INDEXED_NUMBERS // dim))
    start, bytes_together = 0, 0
    for position, size in enumerate(sizes):
        if position > start and (position - start == most or bytes_together + size > INDEXED_BYTES):
            yield slice(start, position)
            start, bytes_together = position, 0
        bytes_together += size
    if start < len(sizes):
        yield slice(start, len(sizes))


def _found_arms(snapshot: Snapshot, rows: Rows) -> FoundArms:
    revisions = [snapshot.revision_of(row) for row in rows.tolist()]
    ids = [snapshot.id_of(row) for row in rows.tolist()]
    return FoundArms(ids, snapshot.features_of(rows), revisions, list(map(str, revisions)))


def _strangers(arms: TableSnapshot, ids: Sequence[str], revisions: NDArray[np.int64]) -> list[str]:
    """Arms missing or older in the store: the store may have come back from an older copy."""
    if not arms.live:
        return []
    stored, rows = dict(zip(ids, revisions.tolist(), strict=True)), arms.live_rows.tolist()
    return [arms.ids[row] for row in rows if stored.get(arms.ids[row], -1) < arms.revisions[row]]
