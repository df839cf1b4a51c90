"""Which classes serve a catalogue, by the kind of its index: its index, and the repository of its arms."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from app.arm_sources.contract import ArmEngine, ArmSource, EngineName, WrongEngine
from app.arm_sources.engine_index import EngineIndex
from app.catalogues.engine_arms import EngineArms
from app.catalogues.kept_arms import ArmRepository
from app.catalogues.resident_arms import ResidentArms
from app.indexes.limits import IndexLimits
from app.indexes.live import IndexOptions, LiveIndex
from app.indexes.planner import CHOICES, MISSING
from app.indexes.shared_arms import SharingGroup
from app.milvus.source import MilvusSource
from app.platform.errors import Invalid
from app.records.records import CatalogueRecord
from app.storage.store import Store

ARM_SOURCES: Mapping[str, ArmSource] = {"milvus": MilvusSource()}
INDEX_CHOICES = (*CHOICES, *ARM_SOURCES)
"""What an owner may ask for."""

ServedIndex = LiveIndex | EngineIndex
Opened = tuple[ServedIndex, ArmRepository]


def check_installed(kind: object) -> object:
    """The kind as it is. Raises ValueError: it needs a package that is not installed."""
    if (package := MISSING.get(str(kind))) is not None:
        raise ValueError(f"the index {kind} needs the package {package}, which is not installed here")
    return kind


def options_of(record: CatalogueRecord) -> IndexOptions:
    """What was checked when it was made; what only a newer version knows is passed over."""
    options = record.index | {"target_recall": record.target_recall}
    if options["kind"] in ARM_SOURCES:
        del options["kind"]  # its engine searches: no structure of this process is asked for
    return msgspec.convert(options, IndexOptions)


def _kind_of(record: CatalogueRecord) -> str:
    """What its owner asked for."""
    return str(record.index["kind"])


class Kinds:
    """Makes what serves a catalogue. ``engines``: those that the settings name, by the kind of catalogue."""

    def __init__(
        self,
        store: Store,
        *,
        index_dir: Path,
        group: SharingGroup | None,
        engines: Mapping[str, ArmEngine],
        index_limits: IndexLimits,
    ) -> None:
        self._index_limits = index_limits
        self._store = store
        self._index_dir = index_dir
        self._group = group
        self._engines = engines

    async def check(self, record: CatalogueRecord) -> None:
        """Raise Invalid, or Unavailable, if no such catalogue can be made now."""
        kind = _kind_of(record)
        source, engine = ARM_SOURCES.get(kind), self._engines.get(kind)
        if source is None:
            return
        if engine is None:
            why = f"{source.setting} is not set: this service has no {source.title} to keep arms in"
            raise Invalid(why, path=("index", "kind"))
        if record.dim < source.least_dim:
            raise Invalid(f"dim must be at least {source.least_dim} with the kind {kind}", path=("dim",))
        try:
            engine.check()
        except WrongEngine as error:
            raise Invalid(error.detail, path=("index", "kind")) from None

    def new_index(self, uid: str, record: CatalogueRecord) -> Opened:
        """The index of a catalogue, and its arms; to be opened."""
        source = ARM_SOURCES.get(_kind_of(record))
        return self._in_memory(uid, record) if source is None else self._in_engine(uid, record, source)

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

    def _in_engine(self, uid: str, record: CatalogueRecord, source: ArmSource) -> Opened:
        kind = _kind_of(record)
        why_absent = f"the arms of this catalogue are in {source.title}, and {source.setting} is not set"
        index = EngineIndex(
            uid,
            record.dim,
            options_of(record),
            engine=self._engines.get(kind),
            store=self._store.followed_arms,
            engine_name=EngineName(kind, source.title, why_absent),
        )
        return index, EngineArms(index)
