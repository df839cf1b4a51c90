"""Catalogues: arms in the store, and beside them the index of this process.

A write goes to the store first and is durable before it touches the index; writes to one catalogue are
serialised by its lock, so the index sees them in the order of the store. Writes of other processes are read
from the catalogue's log of changes (``sync``), under the same lock. Another process may have made a missing
catalogue or arm a moment ago: a call for either polls the store first (``Hooks.poll_for_news``).
"""

from __future__ import annotations

import asyncio
import logging
import math
import secrets
import time
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

import msgspec

from app.catalogues.arm_pages import ArmPages
from app.catalogues.arms import (
    MAX_UNFITTED_ARMS,
    Arm,
    PreparedArms,
    fit_reduction,
    full_message,
    prepare_arms,
    raw_arms,
    waiting_message,
)
from app.catalogues.catalogue import Catalogue, difference_of
from app.catalogues.catalogue_kinds import Kinds
from app.catalogues.kept_arms import ArmRepository, FoundArms
from app.catalogues.replaced_features import ReplacedFeatures, has_replaced, keep_finding
from app.engines.engine_contract import ArmEngine
from app.indexes.index_limits import IndexLimits
from app.indexes.live import IndexOptions, LiveIndex
from app.indexes.shared_arms import SharingGroup
from app.indexes.snapshot import Snapshot
from app.platform.cursors import page_by_name
from app.platform.errors import Conflict, Invalid, NotFitted, NotFound, Unavailable
from app.platform.hooks import Hooks
from app.platform.pools import REQUESTS
from app.records.features import FeatureEncoding, Reduction
from app.records.records import CatalogueRecord, bytes_to_vector, pack, split_uid, unpack, with_uid
from app.storage.arms import ReductionUnknown
from app.storage.store import Store
from app.storage.types import ArmWrite, Deleted, Upserted
from shortlist.types import Vector

T = TypeVar("T")
log = logging.getLogger("shortlist.catalogues")

MERGED_WITHIN_MS = 86_400_000  # that fits of arm effects have for what no token names any more
KEEP_MARGIN_MS = 60_000 + MERGED_WITHIN_MS
READ_TOGETHER = 1_000
COMPARE_S = 5.0  # so soon it is noticed that a store came back without its last writes
TRIES = 5


class Catalogues:
    """All catalogues of the service.

    ``keep_ms``: how long replaced features stay readable. ``group``: the processes with which this one shares
    arms, None for one process. ``engines``: of catalogues with arms outside of memory, by the kind of the
    catalogue. ``most_unfitted``: arms of one before its embeddings are reduced.
    """

    def __init__(
        self,
        store: Store,
        *,
        index_dir: Path,
        keep_ms: int,
        hooks: Hooks,
        group: SharingGroup | None = None,
        engines: Mapping[str, ArmEngine] = MappingProxyType({}),
        index_limits: IndexLimits = IndexLimits(),
    ) -> None:
        self.most_unfitted = MAX_UNFITTED_ARMS
        self._group = group
        self._hooks = hooks
        self._store = store
        self._index_dir = index_dir
        self._kinds = Kinds(
            store, index_dir=index_dir, group=group, engines=engines, index_limits=index_limits
        )
        self._arms: dict[str, ArmRepository] = {}  # by uid, of those that are served
        self._replaced: dict[str, ReplacedFeatures] = {}  # by uid
        self.keep_ms = keep_ms + KEEP_MARGIN_MS
        self._served: dict[str, Catalogue] = {}
        self._in_memory: dict[str, LiveIndex] = {}  # by uid, of those that are in no engine
        self._written: set[str] = set()  # uids of those that may have been, since their version was compared
        self._writes = -1  # to all catalogues that ``_written`` takes into account
        self.compare_s, self._compared_s = COMPARE_S, -math.inf  # when versions of all were compared
        self._followers: dict[str, Catalogue] = {}  # by uid, of those that follow another one
        self.arm_pages = ArmPages(store.arms, self._repository)
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
        uids = {catalogue.uid for catalogue in self}
        for path in self._index_dir.glob("*.index"):
            if path.name.split(".")[0] not in uids:  # of a catalogue that is gone
                path.unlink(missing_ok=True)
        if self._group is not None:
            self._group.loaded()

    async def replace(self, records: Mapping[str, bytes]) -> None:
        """Serve exactly these catalogues. The caller holds ``changing``."""
        for name, data in records.items():
            uid, record = split_uid(data, CatalogueRecord)
            served = self._served.get(name)
            if served is None or served.uid != uid:
                self._served[name] = await self._open(name, uid, record)
            else:
                served.record = record
        for name in self._served.keys() - records.keys():
            await self._drop(self._served.pop(name).uid)

    async def behind(self) -> Sequence[Catalogue]:
        """The catalogues with possible changes by other processes; those of an engine always are among
        them.
        """
        # Of a thousand at rest none is looked at: this is asked four times a second.
        changes = await self._store.arms.changed_catalogues(self._writes)
        if changes.ids is None or time.monotonic() >= self._compared_s + self.compare_s:
            self._compared_s = time.monotonic()
            self._written.update(self._in_memory)
        self._written.update(changes.ids or ())
        self._writes = changes.version
        versions = {uid: self._in_memory[uid].version for uid in self._written if uid in self._in_memory}
        asked = set(self._written)
        changed = set(await self._store.arms.behind(versions))
        self._written -= asked - changed
        if not changed and len(self._in_memory) == len(self._served):
            return ()
        return [catalogue for catalogue in self if catalogue.resident is None or catalogue.uid in changed]

    async def sync(self, catalogue: Catalogue) -> None:
        """Do to the index what other processes have done to the catalogue."""
        async with catalogue.lock:
            await self._sync(catalogue)

    async def create(
        self, name: str, record: CatalogueRecord, uid: str | None = None
    ) -> tuple[Catalogue, bool]:
        """Make the catalogue; (the catalogue, False) when the same one exists. Raises Conflict when another
        one does.

        ``uid``: of records already stored for the catalogue.
        """
        record = self._kinds.checked(record)
        data = with_uid(uid or secrets.token_hex(8), record)
        async with self.changing:
            stored = await self._store.registry.create_catalogue(name, data)
            uid, existing = split_uid(stored, CatalogueRecord)
            if msgspec.structs.replace(existing, display=record.display) != record:
                raise Conflict(f"a catalogue with this name exists: {difference_of(existing, record)}")
            catalogue = self._served.get(name)
            if catalogue is None or catalogue.uid != uid:
                catalogue = self._served[name] = await self._open(name, uid, existing)
        return catalogue, stored == data

    async def change(
        self, name: str, display_of: Callable[[dict[str, str] | None], dict[str, str] | None]
    ) -> Catalogue:
        """Give the catalogue another ``display``. Raises NotFound, Unavailable (others keep changing it)."""
        catalogue = await self.get(name)
        expected = with_uid(catalogue.uid, catalogue.record)
        for _ in range(TRIES):
            uid, record = split_uid(expected, CatalogueRecord)
            record = msgspec.structs.replace(record, display=display_of(record.display))
            data = with_uid(uid, record)
            async with self.changing:
                stored = await self._store.registry.change_catalogue(name, expected=expected, record=data)
                if stored == data:
                    catalogue.record = record
                    return catalogue
            if stored is None or split_uid(stored, CatalogueRecord)[0] != uid:
                raise NotFound("the catalogue was deleted during the request")
            expected = stored  # another process has changed it, or an older version wrote it
        raise Unavailable("concurrent updates, retry")

    def served(self, name: str) -> Catalogue:
        """The catalogue, if this process knows it. Raises NotFound."""
        try:
            return self._served[name]
        except KeyError:
            raise NotFound("there is no catalogue with this name") from None

    @property
    def followers(self) -> Mapping[str, Catalogue]:
        """The catalogues which follow another one, by uid."""
        return dict(self._followers)

    def followed_by(self, name: str) -> str | None:
        """The name of the catalogue followed by this one, if this process knows this one."""
        catalogue = self._served.get(name)
        behaviour = None if catalogue is None else catalogue.record.behaviour
        return None if behaviour is None else behaviour.follows

    async def get(self, name: str) -> Catalogue:
        """The catalogue, also when another process has just made it. Raises NotFound, Unavailable."""
        if name not in self._served and not await self._hooks.poll_for_news() and name not in self._served:
            raise Unavailable("the store does not answer")
        return self.served(name)

    async def get_stocked(self, name: str) -> Catalogue:
        """As ``get``; the arms of a seemingly empty catalogue may have just been written as well."""
        catalogue = await self.get(name)
        if not len(catalogue.index) and await self._hooks.poll_for_news():
            return self.served(name)
        return catalogue

    async def use(self, name: str, step: Callable[[Catalogue], Awaitable[T]]) -> T:
        """Return the result of ``step`` on the catalogue. Raises NotFound, and the errors of ``step``.

        A step must raise NotFound before any effect. It is tried once more after a poll, for another process
        may have just made a missing arm, or a new catalogue in place of this one.
        """
        catalogue = await self.get(name)
        try:
            return await step(catalogue)
        except NotFound:
            if not await self._hooks.poll_for_news():
                raise
        return await step(self.served(name))

    def page(
        self, cursor: str | None, limit: int, is_shown: Callable[[str], bool] = lambda _: True
    ) -> tuple[Sequence[Catalogue], str | None]:
        """``is_shown``: whether there is one of this name for the caller."""
        return page_by_name(
            [catalogue for catalogue in self if is_shown(catalogue.name)], lambda c: c.name, cursor, limit
        )

    async def delete(self, name: str) -> None:
        """Delete the catalogue with its arms. Raises NotFound, Conflict (a bandit uses it)."""
        catalogue = await self.get(name)
        async with self.changing, catalogue.lock:
            for other in self:
                if other.record.behaviour is not None and other.record.behaviour.follows_uid == catalogue.uid:
                    raise Conflict(f"{other.name} follows this catalogue; delete {other.name} first")
            outcome = await self._store.registry.delete_catalogue(name, catalogue.uid)
            if outcome == "in_use":
                raise Conflict("a bandit uses this catalogue; move or delete the bandit first")
            if self._served.get(name) is catalogue:
                del self._served[name]
            await self._drop(catalogue.uid)

    async def upsert(self, catalogue: Catalogue, arms: Sequence[Arm]) -> Upserted:
        """Insert or replace all arms or none; no id may come twice.

        Raises Invalid, DimensionMismatch, NotFound, NotFitted.
        """
        raw = await raw_arms(catalogue.encoding, enumerate(arms))
        return await self.write(catalogue, await prepare_arms(catalogue.encoding, raw))

    async def write(self, catalogue: Catalogue, prepared: PreparedArms) -> Upserted:
        """Insert or replace all arms or none.

        Raises NotFound (the catalogue was deleted meanwhile), NotFitted (it takes no more arms before it is
        fitted), Conflict (a catalogue that follows another one).
        """
        catalogue.check_writable()
        for _ in range(TRIES):
            try:
                done = await self._write(catalogue, prepared)
            except ReductionUnknown:
                await self._hooks.poll_now()  # another process has fitted the features
                continue
            await self._fit_if_due(catalogue)
            return done
        raise Unavailable("the features of this catalogue are being fitted: try again")

    async def _write(self, catalogue: Catalogue, prepared: PreparedArms) -> Upserted:
        await self._repository(catalogue).has_room()
        async with catalogue.lock:
            repository = self._repository(catalogue)  # it may have been deleted meanwhile
            if prepared.encoding.is_fitted != catalogue.encoding.is_fitted:
                prepared = await prepare_arms(catalogue.encoding, prepared.arms)
            arms, writes, fitted = prepared.arms, prepared.writes, catalogue.encoding.is_fitted
            if not fitted and len(catalogue.index) + len(arms) > self.most_unfitted:
                raise NotFitted(full_message(len(catalogue.index), self.most_unfitted))
            is_compared = fitted and catalogue.resident is not None
            before = await repository.find([arm.id for arm in arms]) if is_compared else None
            done = await self._store.arms.upsert(
                catalogue.uid,
                writes,
                keep_ms=self.keep_ms,
                keeps_changes=repository.keeps_changes,
                knows_reduction=fitted,
            )
            documents = [(arm.tags, arm.metadata) for arm in arms]
            sizes = [len(write.document) for write in writes]
            await repository.wrote([arm.id for arm in arms], prepared.features, documents, sizes, done)
            await self._wrote(catalogue, done.version, changed=done.changed)
            if before is not None and before.ids:
                replaced = self._replaced.setdefault(catalogue.uid, ReplacedFeatures())
                is_other = replaced.written(before, [arm.id for arm in arms], prepared.features)
                if is_other and await self._hooks.has_taught(catalogue.name):
                    await keep_finding(self._store, catalogue.uid)
        return done

    async def fit(self, catalogue: Catalogue) -> None:
        """Fit a basis to the embeddings of the arms, unless there is one. It is kept for good.

        Raises Invalid (they are too few, or have too small a rank), NotFound, Unavailable.
        """
        if catalogue.encoding.reduced_to is None:
            raise Invalid("the features of this catalogue are not reduced: there is nothing to fit", path=())
        for _ in range(TRIES):
            async with catalogue.lock:
                self._repository(catalogue)
                await self._sync(catalogue)
                if catalogue.encoding.is_fitted or await self._fitted(catalogue):
                    return
        raise Unavailable("the arms of this catalogue are being written: try again")

    async def _fitted(self, catalogue: Catalogue) -> bool:
        """Fit to the arms of this version; False when another process was quicker. The lock is held."""
        repository, store, version = self._repository(catalogue), self._store.arms, catalogue.version
        unfitted = await repository.page(None, MAX_UNFITTED_ARMS * 2)
        documents = list[bytes]()
        for start in range(0, len(unfitted.ids), READ_TOGETHER):
            documents += await store.documents(catalogue.uid, unfitted.ids[start : start + READ_TOGETHER])
        if len(documents) < len(unfitted.ids) or not all(documents):
            return False
        fit = partial(fit_reduction, catalogue.encoding, unfitted, documents)
        reduction, writes = await REQUESTS.run(fit)
        data = pack(reduction)
        done = await store.fit(catalogue.uid, version, data, writes, keeps_changes=repository.keeps_changes)
        await self._sync(catalogue)
        return done

    async def _fit_if_due(self, catalogue: Catalogue) -> None:
        """Fit once there are enough arms; where they do not do, again when there are some more."""
        if catalogue.encoding.is_fitted or len(catalogue.index) < catalogue.fits_at:
            return
        try:
            await self.fit(catalogue)
        except (Invalid, Unavailable) as error:
            catalogue.fits_at = len(catalogue.index) * 5 // 4
            log.warning("the features of %s cannot be fitted: %s", catalogue.name, error.detail)

    async def note_filled(self, catalogue: Catalogue) -> None:
        """Ask the store whether the catalogue has had all arms of the followed one, unless already known."""
        if not catalogue.is_filled:
            followed = await self._store.followed_arms.look(catalogue.uid)
            catalogue.is_filled = followed.position.version > 0

    async def need_fitted(self, catalogue: Catalogue) -> None:
        """Raise NotFitted while the features are not what can be searched, or arms are missing."""
        await self.note_filled(catalogue)
        if not catalogue.is_filled:
            raise NotFitted("its arms are being taken over from the catalogue that it follows: try again")
        if catalogue.encoding.is_fitted:
            return
        await self._hooks.poll_for_news()
        await self._fit_if_due(catalogue)
        if not catalogue.encoding.is_fitted:
            raise NotFitted(waiting_message(len(catalogue.index)))

    async def has_replaced_features(self, catalogue: Catalogue) -> bool:
        """Return whether, lately, the features of many arms were replaced by those of another space."""
        return await has_replaced(self._store, catalogue.uid)

    async def remove(self, catalogue: Catalogue, ids: Sequence[str]) -> Deleted:
        """Delete these arms; the answer names missing ones.

        Raises NotFound, Conflict (a catalogue that follows another one).
        """
        catalogue.check_writable()
        async with catalogue.lock:
            repository = self._repository(catalogue)
            done = await self._store.arms.delete(
                catalogue.uid, ids, keep_ms=self.keep_ms, keeps_changes=repository.keeps_changes
            )
            await repository.removed(
                ids, done
            )  # those that are missing too: an earlier reply may have been lost
            await self._wrote(catalogue, done.version, changed=bool(done.deleted))
        return done

    async def take_over(self, catalogue: Catalogue, writes: Sequence[ArmWrite], gone: Sequence[str]) -> None:
        """Write arms of the followed catalogue. Raises NotFound, Unavailable."""
        async with catalogue.lock:
            self._repository(catalogue)  # it was not deleted meanwhile
            if writes:
                await self._store.arms.upsert(catalogue.uid, writes, keep_ms=self.keep_ms)
            if gone:
                await self._store.arms.delete(catalogue.uid, gone, keep_ms=self.keep_ms)
            await self._sync(catalogue)

    async def features(self, catalogue: Catalogue, ids: Collection[str]) -> dict[str, tuple[Vector, int]]:
        """The features and revisions of existing arms, also of arms just written by another process.

        ``ids`` are distinct.
        """
        arms = await self._repository(catalogue).find(ids)
        if len(arms.ids) < len(ids) and await self._hooks.poll_for_news():
            arms = await self._repository(catalogue).find(ids)
        return dict(zip(arms.ids, zip(arms.features, arms.revisions, strict=True), strict=True))

    async def revisions(self, catalogue: Catalogue, after: str | None, limit: int) -> FoundArms:
        """The first ``limit`` arms after a place: new and changed arms come last."""
        return await self._repository(catalogue).page(after, limit)

    async def get_fitted(self, name: str) -> Catalogue:
        """As ``get_stocked``, to be searched. Raises NotFitted."""
        catalogue = await self.get_stocked(name)
        await self.need_fitted(catalogue)
        return catalogue

    async def sampled(self, catalogue: Catalogue) -> Snapshot:
        """The arms in memory: all, or a sample where no process holds the catalogue. None before they are
        fitted.
        """
        if not catalogue.encoding.is_fitted:
            return LiveIndex(catalogue.dim, IndexOptions(kind="exact")).snapshot()
        return await self._repository(catalogue).sampled()

    async def arms_version(self, catalogue: Catalogue) -> int:
        """The version from which on the catalogue surely has had these arms with these features."""
        version = await self._store.arms.arms_version(catalogue.uid)
        return catalogue.version if version is None else version

    async def features_at(self, uid: str, arm_id: str, revision: int) -> Vector | None:
        """The features of an arm at a revision, also of an arm changed or deleted since.

        ``uid``: of the catalogue, which may be deleted.
        """
        repository = self._arms.get(uid)
        features = None if repository is None else await repository.at(arm_id, revision)
        if features is not None:
            return features
        (stored,) = await self._store.arms.read(uid, [arm_id])  # another process may be ahead
        if stored is not None and stored.revision == revision:
            return bytes_to_vector(stored.features)
        retired = await self._store.arms.retired_features(uid, revision)
        return None if retired is None else bytes_to_vector(retired)

    async def _open(self, name: str, uid: str, record: CatalogueRecord) -> Catalogue:
        """Make the catalogue to be served under the name, in place of the former one."""
        index, arms = self._kinds.new_index(uid, record)
        catalogue = Catalogue(name, uid, record, index)
        encoding = await self._read_encoding(catalogue)
        await arms.open()
        catalogue.encoding = encoding
        if (before := self._served.get(name)) is not None:
            await self._drop(before.uid)
        self._arms[uid] = arms
        if index.resident is not None:
            self._in_memory[uid] = index.resident
            self._written.add(uid)  # what was written meanwhile, a poll has passed over
        if record.behaviour is not None:
            self._followers[uid] = catalogue
        return catalogue

    async def _wrote(self, catalogue: Catalogue, version: int, *, changed: bool) -> None:
        """Note the version made by a write; versions in between, of other processes, are read."""
        if version == catalogue.version + changed:
            catalogue.index.version = version
        else:
            await self._sync(catalogue)

    async def _sync(self, catalogue: Catalogue) -> None:
        repository = self._arms.get(catalogue.uid)
        if repository is not None:  # it was not deleted meanwhile
            encoding = await self._read_encoding(catalogue)  # first: the arms that follow are as new
            await repository.sync()
            catalogue.encoding = encoding

    async def _read_encoding(self, catalogue: Catalogue) -> FeatureEncoding:
        """The encoding of the catalogue, as another process may have just fitted it."""
        if not catalogue.encoding.is_fitted:
            stored = await self._store.arms.reduction(catalogue.uid)
            if stored is not None:
                return catalogue.encoding.fitted(unpack(stored, Reduction))
        return catalogue.encoding

    def _repository(self, catalogue: Catalogue) -> ArmRepository:
        """The arms of a catalogue. Raises NotFound."""
        repository = self._arms.get(catalogue.uid)
        if repository is None:
            raise NotFound("the catalogue was deleted during the request")
        return repository

    async def _drop(self, uid: str) -> None:
        for by_uid in (self._replaced, self._in_memory, self._followers):
            by_uid.pop(uid, None)
        repository = self._arms.pop(uid, None)
        if repository is not None:  # it was not dropped meanwhile, by another call or a poll
            await repository.dropped()
