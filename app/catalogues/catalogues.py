"""Catalogues: arms in the store, and beside them the index of this process.

A write goes to the store first and is durable before it touches the index; writes to one catalogue are
serialised by its lock, so the index sees them in the order of the store. What other processes write is read
from the catalogue's log of changes (``sync``), under the same lock. A catalogue or an arm that is not here
may have been made by another process a moment ago: a call that asks for it causes a ``refresh`` first.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.catalogues.kept_arms import ArmRepository, FoundArms
from app.catalogues.kinds import MILVUS, Kinds, ServedIndex, options_of
from app.indexes.live import IndexOptions
from app.indexes.shared_arms import SharingGroup
from app.indexes.snapshot import Snapshot
from app.milvus.engine import Engine
from app.milvus.index import MilvusIndex
from app.platform.answers import hold
from app.platform.deadlines import yield_to_others
from app.platform.documents import Answer
from app.platform.errors import (
    Conflict,
    DimensionMismatch,
    NotFound,
    NotPossibleHere,
    StartupError,
    Unavailable,
)
from app.platform.pages import decode_cursor, encode_cursor, page_by_name
from app.records.records import (
    ArmDocument,
    CatalogueRecord,
    attributes_of,
    bytes_to_vector,
    pack,
    split_uid,
    vector_to_bytes,
    with_uid,
)
from app.storage.store import Store
from app.storage.types import ArmWrite, Deleted, Upserted
from shortlist.types import Vector

T = TypeVar("T")

KEEP_MARGIN_MS = 60_000
MOST_NAMED = 10
PAGE_NUMBERS = 100_000  # in the features of a page, about
PAGE_BYTES = 8 << 20  # of the documents of a page
DOCUMENT_COPIES = 8  # about what a page takes for each byte of a document: by itself, as objects, as JSON
MAX_DOCUMENT_BYTES = 50_000  # about, of one
NUMBER_BYTES = 60  # and for each number: as an object in a list, and as text


class Arm(Answer, frozen=True):
    """One arm as a user gives and gets it."""

    id: str
    features: Sequence[float]
    tags: Sequence[str] = ()
    metadata: dict[str, Any] = msgspec.field(default_factory=dict)


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
    index: ServedIndex
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
    def holds_arms(self) -> bool:
        """Whether all arms are in memory."""
        return self.record.index["kind"] != MILVUS

    def need_arms(self, what: str) -> None:
        """Raise NotPossibleHere unless all arms are in memory, which ``what`` looks at."""
        if not self.holds_arms:
            raise NotPossibleHere(f"{what} needs all arms in memory, and this catalogue is kept in Milvus")

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


class Catalogues:
    """All catalogues of the service.

    ``keep_ms``: how long features stay readable after they were replaced. ``refresh`` learns what other
    processes have done, of catalogues as of all else; False when the store does not answer in time.
    ``group``: the processes that share arms with this one, None where it is alone. ``engine``: where
    catalogues of the kind "milvus" keep their arms; None: nowhere.
    """

    def __init__(
        self,
        store: Store,
        *,
        index_dir: Path,
        keep_ms: int,
        refresh: Callable[[], Awaitable[bool]],
        group: SharingGroup | None = None,
        engine: Engine | None = None,
    ) -> None:
        self._group = group
        self._store = store
        self._refresh = refresh
        self._index_dir = index_dir
        self._kinds = Kinds(store, index_dir=index_dir, group=group, engine=engine)
        self._engine = engine
        self._arms: dict[str, ArmRepository] = {}  # by uid, of those that are served
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

    def check_engine(self) -> None:
        """Raise StartupError if a catalogue is kept where this service cannot read."""
        away = sorted(catalogue.name for catalogue in self if not catalogue.holds_arms)
        if away and self._engine is None:
            names = ", ".join(away[:MOST_NAMED])
            raise StartupError(f"catalogues are kept in Milvus, but SHORTLIST_MILVUS_URI is not set: {names}")

    async def reach_engine(self) -> None:
        """Have the arms of all catalogues that are kept in the engine in its memory. Raises Unavailable."""
        if self._engine is not None:
            names = [each.index.collection for each in self if isinstance(each.index, MilvusIndex)]
            await asyncio.gather(*(self._engine.load(name) for name in names if name))

    async def replace(self, records: Mapping[str, bytes]) -> None:
        """Serve exactly these catalogues. The caller holds ``changing``."""
        for name, data in records.items():
            uid, record = split_uid(data, CatalogueRecord)
            served = self._served.get(name)
            if served is None or served.uid != uid:
                self._served[name] = await self._open(name, uid, record)
        for name in self._served.keys() - records.keys():
            await self._drop(self._served.pop(name).uid)

    async def sync(self, catalogue: Catalogue) -> None:
        """Do to the index what other processes have done to the catalogue."""
        async with catalogue.lock:
            await self._sync(catalogue)

    async def create(self, name: str, record: CatalogueRecord) -> tuple[Catalogue, bool]:
        """Make the catalogue; (it, False) when the same one exists. Raises Conflict when another one does."""
        await self._kinds.check(record)
        data = with_uid(secrets.token_hex(8), record)
        async with self.changing:
            standing = await self._store.registry.create_catalogue(name, data)
            uid, existing = split_uid(standing, CatalogueRecord)
            if existing != record:
                raise Conflict(f"a catalogue with this name exists: {_difference(existing, record)}")
            catalogue = self._served.get(name)
            if catalogue is None or catalogue.uid != uid:
                catalogue = self._served[name] = await self._open(name, uid, existing)
        return catalogue, standing == data

    def served(self, name: str) -> Catalogue:
        """The catalogue, if this process knows it. Raises NotFound."""
        try:
            return self._served[name]
        except KeyError:
            raise NotFound("there is no catalogue with this name") from None

    async def get(self, name: str) -> Catalogue:
        """The catalogue, also when another process has just made it. Raises NotFound, Unavailable."""
        if name not in self._served and not await self._refresh() and name not in self._served:
            raise Unavailable("the store does not answer")
        return self.served(name)

    async def get_stocked(self, name: str) -> Catalogue:
        """As ``get``; the arms of a catalogue that seems empty may have just been written as well."""
        catalogue = await self.get(name)
        if await self._kept(catalogue).is_empty() and await self._refresh():
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
            await self._drop(catalogue.uid)

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
        arms, writes, kept = prepared.arms, prepared.writes, self._kept(catalogue)
        await kept.has_room()
        async with catalogue.lock:
            self._still_served(catalogue)
            done = await self._store.arms.upsert(
                catalogue.uid, writes, keep_ms=self._keep_ms, keeps_changes=kept.keeps_changes
            )
            documents = [(arm.tags, arm.metadata) for arm in arms]
            sizes = [len(write.document) for write in writes]
            await kept.wrote([arm.id for arm in arms], prepared.features, documents, sizes, done)
            await self._wrote(catalogue, done.version, changed=done.changed)
        return done

    async def remove(self, catalogue: Catalogue, ids: Sequence[str]) -> Deleted:
        """Delete the arms that are there; name those that are not."""
        kept = self._kept(catalogue)
        async with catalogue.lock:
            self._still_served(catalogue)
            done = await self._store.arms.delete(
                catalogue.uid, ids, keep_ms=self._keep_ms, keeps_changes=kept.keeps_changes
            )
            await kept.removed(ids, done)  # those that are missing too: an earlier reply may have been lost
            await self._wrote(catalogue, done.version, changed=bool(done.deleted))
        return done

    async def arms(
        self, catalogue: Catalogue, cursor: str | None, limit: int
    ) -> tuple[Sequence[Arm], str | None]:
        """A page of arms, oldest features first: an arm that stays as it is appears exactly once.

        At most ``limit``, fewer where they are long.
        """
        limit = min(limit, max(1, PAGE_NUMBERS // catalogue.dim))
        after = None if cursor is None else decode_cursor(cursor)
        async with catalogue.lock:  # else the documents could be of a later write than the features
            self._still_served(catalogue)
            found = await self._kept(catalogue).page(after, limit + 1)
            arms = await self._with_documents(catalogue, found, limit)
        more = len(found.ids) > len(arms)
        return arms, encode_cursor(found.places[len(arms) - 1]) if more else None

    async def sample(self, catalogue: Catalogue, seed: int, limit: int) -> Sequence[Arm]:
        """At most ``limit`` arms drawn uniformly without replacement, fewer where they are long."""
        limit = min(limit, max(1, PAGE_NUMBERS // catalogue.dim))
        async with catalogue.lock:  # as above
            self._still_served(catalogue)
            found = await self._kept(catalogue).sample(seed, limit)
            return await self._with_documents(catalogue, found, limit)

    async def arm(self, catalogue: Catalogue, arm_id: str) -> Arm:
        async with catalogue.lock:  # as above
            self._still_served(catalogue)
            found = await self._kept(catalogue).find([arm_id])
            if not found.ids:
                raise NotFound("the catalogue has no arm with this id")
            return (await self._with_documents(catalogue, found, 1))[0]

    async def features(self, catalogue: Catalogue, ids: Collection[str]) -> dict[str, tuple[Vector, int]]:
        """The features of those arms that are there, also of ones that another process has just written.
        With their revisions.

        ``ids`` are distinct.
        """
        found = await self._kept(catalogue).find(ids)
        if len(found.ids) < len(ids) and await self._refresh():
            found = await self._kept(catalogue).find(ids)
        return dict(zip(found.ids, zip(found.features, found.revisions, strict=True), strict=True))

    async def revisions(self, catalogue: Catalogue, after: str | None, limit: int) -> FoundArms:
        """The first ``limit`` arms after a place: those that are new or changed come last."""
        return await self._kept(catalogue).page(after, limit)

    async def sampled(self, catalogue: Catalogue) -> Snapshot:
        """The arms in memory: all, or of a catalogue that no process holds a sample."""
        return await self._kept(catalogue).sampled()

    async def missing(self, catalogue: Catalogue, ids: Sequence[str]) -> Collection[str]:
        """Those of some arms that are not there."""
        found = await self._kept(catalogue).find(ids)
        return set(ids) - set(found.ids)

    async def features_at(self, catalogue: Catalogue, arm_id: str, revision: int) -> Vector | None:
        """The features that an arm had at a revision, also when it was changed or deleted since."""
        features = await self._kept(catalogue).at(arm_id, revision)
        if features is not None:
            return features
        (standing,) = await self._store.arms.read(catalogue.uid, [arm_id])  # another process may be ahead
        if standing is not None and standing.revision == revision:
            return bytes_to_vector(standing.features)
        kept = await self._store.arms.retired_features(catalogue.uid, revision)
        return None if kept is None else bytes_to_vector(kept)

    async def _with_documents(self, catalogue: Catalogue, found: FoundArms, most: int) -> list[Arm]:
        """The first of these arms at least, and as many as ``most`` and ``PAGE_BYTES`` allow."""
        ids = found.ids[:most]
        reading = min(len(ids) * MAX_DOCUMENT_BYTES, PAGE_BYTES)
        hold(len(ids) * catalogue.dim * NUMBER_BYTES + reading)
        documents = await self._store.arms.documents(catalogue.uid, ids, most_bytes=PAGE_BYTES)
        hold(DOCUMENT_COPIES * sum(map(len, documents)) - reading)
        arms = list[Arm]()
        for arm_id, row, data in zip(ids, found.features[:most], documents, strict=False):
            await yield_to_others()
            tags, metadata = attributes_of(data)
            arms.append(Arm(arm_id, row.tolist(), tags, dict(metadata)))
        return arms

    async def _open(self, name: str, uid: str, record: CatalogueRecord) -> Catalogue:
        """What is to be served under the name, in place of what was."""
        index, arms = self._kinds.new_index(uid, record)
        await arms.open()
        if (before := self._served.get(name)) is not None:
            await self._drop(before.uid)
        self._arms[uid] = arms
        return Catalogue(name, uid, record, index)

    async def _wrote(self, catalogue: Catalogue, version: int, *, changed: bool) -> None:
        """Note the version that a write has made; those in between, of other processes, are read."""
        if version == catalogue.version + changed:
            catalogue.version = version
        else:
            await self._sync(catalogue)

    async def _sync(self, catalogue: Catalogue) -> None:
        kept = self._arms.get(catalogue.uid)
        if kept is not None:  # it was not deleted meanwhile
            await kept.sync()

    def _kept(self, catalogue: Catalogue) -> ArmRepository:
        """The arms of a catalogue. Raises NotFound."""
        kept = self._arms.get(catalogue.uid)
        if kept is None:
            raise NotFound("the catalogue was deleted during the request")
        return kept

    def _still_served(self, catalogue: Catalogue) -> None:
        if self._served.get(catalogue.name) is not catalogue:
            raise NotFound("the catalogue was deleted during the request")

    async def _drop(self, uid: str) -> None:
        kept = self._arms.pop(uid, None)
        if kept is not None:  # it was not dropped meanwhile, by another call or a poll
            await kept.dropped()

    def _sweep_files(self) -> None:
        """Remove index files of catalogues that are gone."""
        for path in {*self._index_dir.glob("*.index")} - {self._kinds.index_file(c.uid) for c in self}:
            path.unlink(missing_ok=True)


def _document(arm: Arm) -> bytes:
    return pack(ArmDocument(list(arm.tags), arm.metadata)) if arm.tags or arm.metadata else b""
