"""Catalogues: arms in the store, and beside them the index of this process.

A write goes to the store first and is durable before it touches the index; writes to one catalogue are
serialised by its lock, so the index sees them in the order of the store. What other processes write is read
from the catalogue's log of changes (``sync``), under the same lock. A catalogue or an arm that is not here
may have been made by another process a moment ago: a call that asks for it causes a ``refresh`` first.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.errors import Conflict, DimensionMismatch, NotFound, Unavailable
from app.filters.attributes import Document
from app.indexes.live import IndexOptions, LiveIndex
from app.indexes.table import TableSnapshot
from app.services.bounded.yielding import yield_to_others
from app.services.catalogues.sharing_group import SharingGroup
from app.services.formats.pages import decode_number, encode_cursor, page_by_name
from app.services.formats.records import (
    ArmDocument,
    CatalogueRecord,
    bytes_to_vector,
    pack,
    split_uid,
    unpack,
    vector_to_bytes,
    with_uid,
)
from app.storage.protocol import ArmWrite, Deleted, Store, StoredArm, Upserted
from shortlist.types import Vector

log = logging.getLogger("shortlist.catalogues")

T = TypeVar("T")

KEEP_MARGIN_MS = 60_000
SYNC_NUMBERS = 1_000_000
INDEXED_TOGETHER = 250  # arms with tags or metadata, at most: a few milliseconds
INDEXED_NUMBERS = 65_536  # in their features, at most
INDEXED_BYTES = 65_536  # of their tags and metadata, at most: thousands of values that filters may ask for
LOADED_TOGETHER = 2_000
PAGE_NUMBERS = 100_000  # in the features of a page, about
PAGE_BYTES = 8 << 20  # of the documents of a page


@dataclass(frozen=True, slots=True)
class Arm:
    """One arm as a user gives and gets it."""

    id: str
    features: Sequence[float]
    tags: Sequence[str] = ()
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PreparedArms:
    """Arms, ready to be written. Shape: features (n, d)."""

    arms: Sequence[Arm]
    features: NDArray[np.float64]
    writes: Sequence[ArmWrite]


@dataclass(slots=True)
class Catalogue:
    """A catalogue that is being served: its index changes, the rest does not."""

    name: str
    uid: str
    record: CatalogueRecord
    index: LiveIndex
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def dim(self) -> int:
        return self.record.dim

    @property
    def version(self) -> int:
        """All changes up to this version are in the index."""
        return self.index.version

    @version.setter
    def version(self, version: int) -> None:
        self.index.version = version

    @property
    def index_options(self) -> IndexOptions:
        return options_of(self.record)

    @property
    def shortlist(self) -> int:
        """How many arms a graph proposes, unless a bandit asks for more."""
        return int(self.record.index["shortlist"] or 1)


def _difference(existing: CatalogueRecord, asked: CatalogueRecord) -> str:
    """What is not as it was asked for. The values are numbers and words that were checked."""
    targets = existing.target_recall, asked.target_recall
    changes = {"dim": (existing.dim, asked.dim), "index.target_recall": targets} | {
        f"index.{name}": (existing.index.get(name), value) for name, value in asked.index.items()
    }
    return ", ".join(f"{name} is {old}, not {new}" for name, (old, new) in changes.items() if old != new)


def options_of(record: CatalogueRecord) -> IndexOptions:
    """What was checked when it was made; what only a newer version knows is passed over."""
    return msgspec.convert(record.index | {"target_recall": record.target_recall}, IndexOptions)


class Catalogues:
    """All catalogues of the service.

    ``keep_ms``: how long features stay readable after they were replaced. ``refresh`` learns what other
    processes have done, of catalogues as of all else; False when the store does not answer in time.
    ``group``: the processes that share arms with this one, None where it is alone.
    """

    def __init__(
        self,
        store: Store,
        *,
        index_dir: Path,
        keep_ms: int,
        refresh: Callable[[], Awaitable[bool]],
        group: SharingGroup | None = None,
    ) -> None:
        self._group = group
        self._store = store
        self._refresh = refresh
        self._index_dir = index_dir
        self._keep_ms = keep_ms + KEEP_MARGIN_MS
        self._served: dict[str, Catalogue] = {}
        self.changing = asyncio.Lock()  # one is made or deleted at a time: what is served is what is stored

    def __iter__(self) -> Iterator[Catalogue]:
        return iter(tuple(self._served.values()))

    async def load(self) -> None:
        """Read every catalogue from the store; afterwards all answers are exact until graphs are there.

        In a group one process does; the others wait until they can take the arms from it.
        """
        if self._group is not None:
            await self._group.turn()
        async with self.changing:
            await self.replace((await self._store.registry.read()).catalogues)
        self._sweep_files()
        if self._group is not None:
            self._group.loaded()

    async def replace(self, records: Mapping[str, bytes]) -> None:
        """Serve exactly these catalogues. The caller holds ``changing``."""
        for name, data in records.items():
            uid, record = split_uid(data, CatalogueRecord)
            served = self._served.get(name)
            if served is None or served.uid != uid:
                self._served[name] = await self._open(name, uid, record)
        for name in self._served.keys() - records.keys():
            self._remove_files(self._served.pop(name).uid)

    async def sync(self, catalogue: Catalogue) -> None:
        """Do to the index what other processes have done to the catalogue."""
        async with catalogue.lock:
            await self._sync(catalogue)

    async def create(self, name: str, record: CatalogueRecord) -> tuple[Catalogue, bool]:
        """Make the catalogue; (it, False) when the same one exists. Raises Conflict when another one does."""
        data = with_uid(secrets.token_hex(8), record)
        async with self.changing:
            standing = await self._store.registry.create_catalogue(name, data)
            uid, existing = split_uid(standing, CatalogueRecord)
            if existing != record:
                raise Conflict(f"a catalogue of this name exists: {_difference(existing, record)}")
            catalogue = self._served.get(name)
            if catalogue is None or catalogue.uid != uid:
                catalogue = self._served[name] = await self._open(name, uid, existing)
        return catalogue, standing == data

    def served(self, name: str) -> Catalogue:
        """The catalogue, if this process knows it. Raises NotFound."""
        try:
            return self._served[name]
        except KeyError:
            raise NotFound("no catalogue of this name") from None

    async def get(self, name: str) -> Catalogue:
        """The catalogue, also when another process has just made it. Raises NotFound, Unavailable."""
        if name not in self._served and not await self._refresh() and name not in self._served:
            raise Unavailable("the store does not answer")
        return self.served(name)

    async def get_stocked(self, name: str) -> Catalogue:
        """As ``get``; the arms of a catalogue that seems empty may have just been written as well."""
        catalogue = await self.get(name)
        if not len(catalogue.index) and await self._refresh():
            return self.served(name)
        return catalogue

    async def use(self, name: str, step: Callable[[Catalogue], Awaitable[T]]) -> T:
        """Return what ``step`` does with the catalogue. Raises NotFound, and what it raises.

        A step that raises NotFound has done nothing. It is tried once more after a ``refresh``, for another
        process may have just made the arm that it needs, or a new catalogue in place of this one.
        """
        catalogue = await self.get(name)
        try:
            return await step(catalogue)
        except NotFound:
            if not await self._refresh():
                raise
        return await step(self.served(name))

    def page(self, cursor: str | None, limit: int) -> tuple[Sequence[Catalogue], str | None]:
        return page_by_name(list(self._served.values()), lambda c: c.name, cursor, limit)

    async def delete(self, name: str) -> None:
        """Delete the catalogue with its arms. Raises NotFound, Conflict (a bandit uses it)."""
        catalogue = await self.get(name)
        async with self.changing, catalogue.lock:
            outcome = await self._store.registry.delete_catalogue(name, catalogue.uid)
            if outcome == "in_use":
                raise Conflict("a bandit uses this catalogue; delete the bandit first")
            if self._served.get(name) is catalogue:
                del self._served[name]
            self._remove_files(catalogue.uid)

    async def upsert(self, catalogue: Catalogue, arms: Sequence[Arm]) -> Upserted:
        """Insert or replace all arms or none; no id may come twice. Raises DimensionMismatch, NotFound."""
        return await self.write(catalogue, await self.prepared(catalogue, arms))

    async def prepared(self, catalogue: Catalogue, arms: Sequence[Arm]) -> PreparedArms:
        """What ``write`` writes, checked. Raises DimensionMismatch."""
        features, writes = np.empty((len(arms), catalogue.dim)), list[ArmWrite]()
        for position, arm in enumerate(arms):
            await yield_to_others()
            if len(arm.features) != catalogue.dim:
                message = f"features must have {catalogue.dim} numbers, not {len(arm.features)}"
                raise DimensionMismatch(message, path=("arms", position, "features"))
            features[position] = arm.features
            writes.append(ArmWrite(arm.id, vector_to_bytes(features[position]), _document(arm)))
        return PreparedArms(arms, features, writes)

    async def write(self, catalogue: Catalogue, prepared: PreparedArms) -> Upserted:
        """Insert or replace all arms or none. Raises NotFound (the catalogue was deleted meanwhile)."""
        arms, features = prepared.arms, prepared.features
        async with catalogue.lock:
            self._still_served(catalogue)
            done = await self._store.arms.upsert(catalogue.uid, prepared.writes, keep_ms=self._keep_ms)
            for part in _portions(catalogue.dim, [len(write.document) for write in prepared.writes]):
                await yield_to_others()
                ids = [arm.id for arm in arms[part]]
                catalogue.index.upsert(ids, features[part], done.revisions[part])
                catalogue.index.describe(ids, [(arm.tags, arm.metadata) for arm in arms[part]])
            await self._wrote(catalogue, done.version, changed=done.changed)
        return done

    async def remove(self, catalogue: Catalogue, ids: Sequence[str]) -> Deleted:
        """Delete the arms that are there; name those that are not."""
        async with catalogue.lock:
            self._still_served(catalogue)
            done = await self._store.arms.delete(catalogue.uid, ids, keep_ms=self._keep_ms)
            catalogue.index.remove(ids)  # those that are missing too: an earlier reply may have been lost
            await self._wrote(catalogue, done.version, changed=bool(done.deleted))
        return done

    async def arms(
        self, catalogue: Catalogue, cursor: str | None, limit: int
    ) -> tuple[Sequence[Arm], str | None]:
        """A page of arms, oldest features first: an arm that stays as it is appears exactly once.

        At most ``limit``, fewer where they are long.
        """
        limit = min(limit, max(1, PAGE_NUMBERS // catalogue.dim))
        after = decode_number(cursor) if cursor is not None else -1
        async with catalogue.lock:  # else the documents could be of a later write than the features
            self._still_served(catalogue)
            snapshot = catalogue.index.snapshot()
            rows = snapshot.page(after, limit + 1)
            page = rows[:limit]
            ids = [snapshot.id_of(int(row)) for row in page]
            arms = await self._with_documents(catalogue, ids, snapshot.features_of(page))
        more = len(rows) > len(arms)
        return arms, encode_cursor(str(snapshot.revision_of(int(rows[len(arms) - 1])))) if more else None

    async def sample(self, catalogue: Catalogue, seed: int, limit: int) -> Sequence[Arm]:
        """At most ``limit`` arms drawn uniformly without replacement, fewer where they are long."""
        async with catalogue.lock:  # as above
            self._still_served(catalogue)
            snapshot = catalogue.index.snapshot()
            rows = snapshot.sample(seed, min(limit, max(1, PAGE_NUMBERS // catalogue.dim)))
            ids = [snapshot.id_of(int(row)) for row in rows]
            return await self._with_documents(catalogue, ids, snapshot.features_of(rows))

    async def arm(self, catalogue: Catalogue, arm_id: str) -> Arm:
        async with catalogue.lock:  # as above
            self._still_served(catalogue)
            arms = catalogue.index.snapshot()
            rows = arms.rows_of([arm_id])
            if not len(rows):
                raise NotFound("no arm of this id in the catalogue")
            return (await self._with_documents(catalogue, [arm_id], arms.features_of(rows)))[0]

    async def features(self, catalogue: Catalogue, ids: Collection[str]) -> dict[str, tuple[Vector, int]]:
        """The features of those arms that are there, also of ones that another process has just written.
        With their revisions.

        ``ids`` are distinct.
        """
        features = _features(catalogue, ids)
        if len(features) < len(ids) and await self._refresh():
            features = _features(catalogue, ids)
        return features

    async def features_at(self, catalogue: Catalogue, arm_id: str, revision: int) -> Vector | None:
        """The features that an arm had at a revision, also when it was changed or deleted since."""
        arms = catalogue.index.snapshot().table
        row = arms.row_of(arm_id)
        if row >= 0 and arms.revisions.item(row) == revision:
            features: Vector = arms.features[row]  # rows never change
            return features
        (standing,) = await self._store.arms.read(catalogue.uid, [arm_id])  # another process may be ahead
        if standing is not None and standing.revision == revision:
            return bytes_to_vector(standing.features)
        kept = await self._store.arms.retired_features(catalogue.uid, revision)
        return None if kept is None else bytes_to_vector(kept)

    async def _with_documents(
        self, catalogue: Catalogue, ids: Sequence[str], features: NDArray[np.float64]
    ) -> list[Arm]:
        """The first of these arms at least, and as many as ``PAGE_BYTES`` allow."""
        documents = await self._store.arms.documents(catalogue.uid, ids)
        arms, size = list[Arm](), 0
        for arm_id, row, data in zip(ids, features, documents, strict=True):
            await yield_to_others()
            size += len(data or b"")
            if arms and size > PAGE_BYTES:
                break
            tags, metadata = attributes_of(data)
            arms.append(Arm(arm_id, row.tolist(), tags, dict(metadata)))
        return arms

    async def _open(self, name: str, uid: str, record: CatalogueRecord) -> Catalogue:
        index = LiveIndex(
            record.dim,
            options_of(record),
            cache=self._index_file(uid),
            seed=int(uid[:8], 16),
            shared=self._group.arms_of(uid) if self._group is not None else None,
        )
        catalogue = Catalogue(name, uid, record, index)
        await _share(index)
        if not len(index):
            await self._load_arms(catalogue)
        await self._sync(catalogue)  # what was written while the arms were read
        if self._group is not None and self._group.is_maker():
            await _share(index)  # the others wait for the arms
        return catalogue

    async def _wrote(self, catalogue: Catalogue, version: int, *, changed: bool) -> None:
        """Note the version that a write has made; those in between, of other processes, are read."""
        if version == catalogue.version + changed:
            catalogue.version = version
        else:
            await self._sync(catalogue)

    async def _sync(self, catalogue: Catalogue) -> None:
        changes = await self._store.arms.changed(catalogue.uid, catalogue.version)
        if changes.ids is None:
            await self._load_arms(catalogue)
            return
        arms: list[StoredArm] = []
        some = max(1, SYNC_NUMBERS // catalogue.dim)
        for start in range(0, len(changes.ids), some):
            arms += filter(
                None, await self._store.arms.read(catalogue.uid, changes.ids[start : start + some])
            )
        catalogue.index.remove(sorted(set(changes.ids) - {arm.id for arm in arms}))
        arms.sort(key=lambda arm: arm.revision)
        described = bool(arms) and await self._store.arms.has_documents(catalogue.uid)
        for first in range(0, len(arms), INDEXED_TOGETHER):
            together = arms[first : first + INDEXED_TOGETHER]
            numbers = np.frombuffer(b"".join(arm.features for arm in together), dtype="<f8")
            features = numbers.reshape(len(together), catalogue.dim).astype(np.float64, copy=False)
            ids, revisions = [arm.id for arm in together], [arm.revision for arm in together]
            await self._index(catalogue, ids, features, revisions, described=described)
        catalogue.version = changes.version

    async def _load_arms(self, catalogue: Catalogue) -> None:
        """Oldest first, so that ties are broken as before; in slices, so that little is held twice."""
        version = await self._store.arms.version(catalogue.uid)  # first: what follows is at least as new
        ids: list[str] = []
        numbers = bytearray()
        async for batch in self._store.arms.scan(catalogue.uid):
            ids += batch.ids
            numbers += b"".join(batch.values)
        stored = np.frombuffer(numbers, dtype=[("revision", "<i8"), ("features", "<f8", (catalogue.dim,))])
        revisions, features = stored["revision"], stored["features"]
        catalogue.index.remove(_strangers(catalogue.index.snapshot().table, ids, revisions))
        order = np.argsort(revisions)
        catalogue.index.reserve(len(ids))
        described = await self._store.arms.has_documents(catalogue.uid)
        for start in range(0, len(ids), LOADED_TOGETHER):
            some = order[start : start + LOADED_TOGETHER]
            together = features[some].astype(np.float64, copy=False)
            ids_of_some, of_some = [ids[i] for i in some.tolist()], revisions[some].tolist()
            await self._index(catalogue, ids_of_some, together, of_some, described=described)
        catalogue.version = version

    async def _index(
        self,
        catalogue: Catalogue,
        ids: Sequence[str],
        features: NDArray[np.float64],
        revisions: Sequence[int],
        *,
        described: bool = True,
    ) -> None:
        """Take arms of the store into the index, with their documents: no arm is there without its own.

        ``described``: whether any arm has a document.
        """
        documents: Sequence[bytes] = [b""] * len(ids)
        if described:
            documents = await self._store.arms.documents(catalogue.uid, ids)
        for part in _portions(catalogue.dim, [len(data) for data in documents]):
            await yield_to_others()
            catalogue.index.upsert(ids[part], features[part], revisions[part])
            catalogue.index.describe(ids[part], [attributes_of(data) for data in documents[part]])

    def _still_served(self, catalogue: Catalogue) -> None:
        if self._served.get(catalogue.name) is not catalogue:
            raise NotFound("the catalogue was deleted meanwhile")

    def _index_file(self, uid: str) -> Path:
        return self._index_dir / f"{uid}.index"

    def _remove_files(self, uid: str) -> None:
        self._index_file(uid).unlink(missing_ok=True)
        if self._group is not None:
            self._group.arms_of(uid).remove()

    def _sweep_files(self) -> None:
        """Remove index files of catalogues that are gone."""
        for path in {*self._index_dir.glob("*.index")} - {self._index_file(c.uid) for c in self}:
            path.unlink(missing_ok=True)


async def _share(index: LiveIndex) -> None:
    """Adopt or make a publication, for an index that serves nobody yet; without one it has its own arms."""
    job = index.begin_sharing()
    if job is not None:
        try:
            await asyncio.to_thread(job.run)
        except (OSError, RuntimeError) as error:
            index.failures[type(job).__name__] = f"{type(error).__name__}: {error}"
            log.warning("shared arms can be neither read nor made now: %s", error)
        finally:
            index.finish_sharing(job)


def _portions(dim: int, sizes: Sequence[int]) -> Iterator[slice]:
    """Arms that are put into an index in one go, one after the other; of documents of so many bytes."""
    most = max(1, INDEXED_NUMBERS // dim)
    if any(sizes):
        most = min(most, INDEXED_TOGETHER)
    start, held = 0, 0
    for position, size in enumerate(sizes):
        if position > start and (position - start == most or held + size > INDEXED_BYTES):
            yield slice(start, position)
            start, held = position, 0
        held += size
    if start < len(sizes):
        yield slice(start, len(sizes))


def _features(catalogue: Catalogue, ids: Collection[str]) -> dict[str, tuple[Vector, int]]:
    snapshot = catalogue.index.snapshot()
    rows = snapshot.rows_of(ids)
    found = zip(snapshot.features_of(rows), snapshot.table.revisions[rows].tolist(), strict=True)
    return dict(zip(map(snapshot.id_of, rows.tolist()), found, strict=True))


def _strangers(arms: TableSnapshot, ids: Sequence[str], revisions: NDArray[np.int64]) -> list[str]:
    """Arms that the store does not have, or not so new: it may have come back from an older copy."""
    if not arms.live:
        return []
    stored, rows = dict(zip(ids, revisions.tolist(), strict=True)), arms.live_rows.tolist()
    return [arms.ids[row] for row in rows if stored.get(arms.ids[row], -1) < arms.revisions[row]]


def attributes_of(data: bytes) -> Document:
    """The tags and the metadata of a document in the store."""
    if not data:
        return [], {}
    document = unpack(data, ArmDocument)
    return document.tags, document.metadata


def _document(arm: Arm) -> bytes:
    return pack(ArmDocument(list(arm.tags), arm.metadata)) if arm.tags or arm.metadata else b""
