"""The classes which serve a catalogue, by the kind of its index: its index, and the repository of its
arms.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from app.catalogues.engine_arms import EngineArms
from app.catalogues.kept_arms import ArmRepository
from app.catalogues.resident_arms import ResidentArms
from app.engines.engine_contract import ArmEngine, EngineKind, EngineName, WrongEngine
from app.engines.engine_index import EngineIndex
from app.indexes.index_kinds import CHOICES, MISSING
from app.indexes.index_limits import IndexLimits
from app.indexes.live import IndexOptions, LiveIndex
from app.indexes.shared_arms import SharingGroup
from app.platform import plugins
from app.platform.errors import Invalid, StartupError
from app.platform.settings import Settings
from app.records.records import CatalogueRecord
from app.storage.store import Store
from shortlist.index.index import OWN_KINDS

OUR_ENGINES = {"milvus": "milvus_uri"}
"""Our plug-ins: the kind, which is also the extra that installs it, and the setting that asks for it."""
ENGINE_KINDS: Mapping[str, EngineKind] = plugins.load(
    "engines",
    EngineKind,  # type: ignore[type-abstract]
    {*CHOICES, *OWN_KINDS},
)
INDEX_CHOICES = (*CHOICES, *ENGINE_KINDS)
"""What an owner may ask for."""
EMBEDDINGS = "shortlist-embeddings"  # fills catalogues that follow another one
IN_ENGINE = "in_engine"  # of an index: the kind is an engine that is none of ours

ServedIndex = LiveIndex | EngineIndex
Opened = tuple[ServedIndex, ArmRepository]


def check_installed(kind: object) -> object:
    """The kind itself. Raises ValueError: the kind needs a package which is not installed."""
    if (package := MISSING.get(str(kind))) is not None:
        raise ValueError(f"the index {kind} needs the package {package}, which is not installed here")
    if str(kind) in OUR_ENGINES and str(kind) not in ENGINE_KINDS:
        raise ValueError(f"{kind} needs the package shortlist-{kind}, which is not installed here")
    return kind


def options_of(record: CatalogueRecord) -> IndexOptions:
    """The options checked when the catalogue was made; options of a newer version are passed over."""
    options = record.index | {"target_recall": record.target_recall}
    if is_in_engine(record):
        del options["kind"]  # its engine searches: no structure of this process is asked for
    return msgspec.convert(options, IndexOptions)


def engines_of(settings: Settings) -> dict[str, ArmEngine]:
    """The engines named by the settings, by the kind of catalogue; to be opened.

    Raises StartupError: one of them needs a package which is not installed.
    """
    for kind, setting in OUR_ENGINES.items():
        if kind not in ENGINE_KINDS and getattr(settings, setting) is not None:
            needed = f"the package shortlist-{kind} is not installed, or left out by {plugins.VARIABLE}"
            install = f"pip install -e '.[{kind}]' in a checkout"
            raise StartupError(f"SHORTLIST_{setting.upper()} is set, but {needed}: {install}")
    engines = {kind: source.engine(settings) for kind, source in ENGINE_KINDS.items()}
    return {kind: engine for kind, engine in engines.items() if engine is not None}


def missing_plugin(record: CatalogueRecord) -> str | None:
    """The catalogue's need which no loaded plug-in provides: "the index flat8"; None: all is there."""
    kind = _kind_of(record)
    if record.behaviour is not None and not plugins.is_loaded(EMBEDDINGS):
        return f"embeddings of behaviour ({EMBEDDINGS})"
    if kind in CHOICES or kind in ENGINE_KINDS:
        return None
    return f"the engine {kind}" if is_in_engine(record) else f"the index {kind}"


def is_in_engine(record: CatalogueRecord) -> bool:
    """True if the arms are in an engine, also in one which no loaded plug-in knows."""
    kind = _kind_of(record)
    return kind in ENGINE_KINDS or kind in OUR_ENGINES or IN_ENGINE in record.index


def _kind_of(record: CatalogueRecord) -> str:
    """The kind of index of the owner's choice."""
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

    def checked(self, record: CatalogueRecord) -> CatalogueRecord:
        """The record in its stored form. Raises Invalid, or Unavailable: no such catalogue can be made
        now.
        """
        kind = _kind_of(record)
        source, engine = ENGINE_KINDS.get(kind), self._engines.get(kind)
        if source is None:
            return record
        if engine is None:
            why = f"{source.setting} is not set: this service has no {source.title} to keep arms in"
            raise Invalid(why, path=("index", "kind"))
        if record.dim < source.least_dim:
            raise Invalid(f"dim must be at least {source.least_dim} with the kind {kind}", path=("dim",))
        try:
            engine.check()
        except WrongEngine as error:
            raise Invalid(error.detail, path=("index", "kind")) from None
        if kind in OUR_ENGINES:
            return record
        # Without its plug-in nobody could tell that its arms are not for this memory.
        return msgspec.structs.replace(record, index={**record.index, IN_ENGINE: 1})

    def new_index(self, uid: str, record: CatalogueRecord) -> Opened:
        """The index of a catalogue, and its arms; to be opened."""
        options, dim, kind = options_of(record), record.dim, _kind_of(record)
        if is_in_engine(record):
            source, engine = ENGINE_KINDS.get(kind), self._engines.get(kind)
            if source is None:
                name = EngineName(kind, kind, f"no loaded plug-in provides the engine {kind}")
            else:
                why = f"the arms of this catalogue are in {source.title}, and {source.setting} is not set"
                name = EngineName(kind, source.title, why)
            followed = self._store.followed_arms
            in_engine = EngineIndex(uid, dim, options, engine=engine, store=followed, engine_name=name)
            return in_engine, EngineArms(in_engine)
        file, group = self.index_file(uid), self._group
        index = LiveIndex(
            dim,
            options,
            cache=file,
            seed=int(uid[:8], 16),
            shared=group.arms_of(uid) if group is not None else None,
            limits=self._index_limits,
        )
        return index, ResidentArms(uid, index, self._store.arms, dim=dim, file=file, group=group)

    def index_file(self, uid: str) -> Path:
        return self._index_dir / f"{uid}.index"
