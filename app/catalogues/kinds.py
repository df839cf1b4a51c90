"""Which classes serve a catalogue, by the kind of its index: its index, and the repository of its arms."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from app.catalogues.kept_arms import ArmRepository
from app.catalogues.milvus_arms import MilvusArms
from app.catalogues.resident_arms import ResidentArms
from app.indexes.limits import IndexLimits
from app.indexes.live import IndexOptions, LiveIndex
from app.indexes.planner import CHOICES
from app.indexes.shared_arms import SharingGroup
from app.milvus.engine import Engine, WrongEngine
from app.milvus.index import MilvusIndex
from app.platform.errors import Invalid
from app.records.records import CatalogueRecord
from app.storage.store import Store

MILVUS = "milvus"
INDEX_CHOICES = (*CHOICES, MILVUS)
"""What an owner may ask for."""
LEAST_DIM = 2  # that Milvus takes
NO_ENGINE = "SHORTLIST_MILVUS_URI is not set: this service has no Milvus to keep arms in"

ServedIndex = LiveIndex | MilvusIndex
Opened = tuple[ServedIndex, ArmRepository]


def options_of(record: CatalogueRecord) -> IndexOptions:
    """What was checked when it was made; what only a newer version knows is passed over."""
    options = record.index | {"target_recall": record.target_recall}
    if record.index["kind"] == MILVUS:
        del options["kind"]  # its engine searches: no structure of this process is asked for
    return msgspec.convert(options, IndexOptions)


class Kinds:
    """Makes what serves a catalogue. ``engine`` None: there is no Milvus."""

    def __init__(
        self,
        store: Store,
        *,
        index_dir: Path,
        group: SharingGroup | None,
        engine: Engine | None,
        index_limits: IndexLimits,
    ) -> None:
        self._index_limits = index_limits
        self._store = store
        self._index_dir = index_dir
        self._group = group
        self._engine = engine
        self._made: dict[str, Callable[[str, CatalogueRecord], Opened]] = {MILVUS: self._in_milvus}

    async def check(self, record: CatalogueRecord) -> None:
        """Raise Invalid, or Unavailable, if no such catalogue can be made now."""
        if record.index["kind"] == MILVUS:
            if self._engine is None:
                raise Invalid(NO_ENGINE, path=("index", "kind"))
            if record.dim < LEAST_DIM:
                raise Invalid(f"dim must be at least {LEAST_DIM} with the kind milvus", path=("dim",))
            try:
                self._engine.check()
            except WrongEngine as error:
                raise Invalid(error.detail, path=("index", "kind")) from None

    def new_index(self, uid: str, record: CatalogueRecord) -> Opened:
        """The index of a catalogue, and its arms; to be opened."""
        return self._made.get(str(record.index["kind"]), self._in_memory)(uid, record)

    def index_file(self, uid: str) -> Path:
        return self._index_dir / f"{uid}.index"

    def _in_memory(self, uid: str, record: CatalogueRecord) -> Opened:
        file, group = self.index_file(uid), self._group
        index = LiveIndex(
            record.dim,
            options_of(record),
            cache=file,
            seed=int(uid[:8], 16),
            shared=group.arms_of(uid) if group is not None else None,
            limits=self._index_limits,
        )
        store = self._store.arms
        return index, ResidentArms(uid, index, store, dim=record.dim, file=file, group=group)

    def _in_milvus(self, uid: str, record: CatalogueRecord) -> Opened:
        options, store = options_of(record), self._store.followed_arms
        index = MilvusIndex(uid, record.dim, options, self._engine, store)
        return index, MilvusArms(index)
