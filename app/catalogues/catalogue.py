"""A served catalogue."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import ClassVar

import numpy as np

from app.catalogues.arms import FIT_ARMS
from app.catalogues.catalogue_kinds import ServedIndex, missing_plugin, options_of
from app.filters.fields import Stored
from app.filters.overview import unknown_fields
from app.indexes.live import IndexOptions, LiveIndex
from app.indexes.snapshot import Snapshot
from app.platform.documents import Answer
from app.platform.errors import Conflict, NotPossibleHere
from app.records.features import FeatureEncoding
from app.records.records import CatalogueRecord

MOST_UNLISTED = 5


class UnlistedValues(Answer, frozen=True):
    """Arms with values which the field does not list: the number of ``arms``, and the most frequent of the
    values.
    """

    schema_name: ClassVar[str] = "UnlistedView"

    arms: int
    values: list[str]


def unlisted_values(snapshot: Snapshot, listed: Mapping[str, Sequence[str]]) -> dict[str, UnlistedValues]:
    """Unlisted values of arms in memory, by field; only fields which have some.

    Cost: O(arms + values) for each field.
    """
    result = dict[str, UnlistedValues]()
    rows, attributes = snapshot.eligible(), snapshot.attributes
    for name, values in listed.items():
        is_listed, others, has_other = set(values), Counter[str](), np.zeros(len(rows), dtype=np.bool_)
        for stored, column, places, codes in attributes.codes_of(name, rows, (Stored.STRING,)):
            distinct, inverse, counts = np.unique(
                column.numbers_of(codes), return_inverse=True, return_counts=True
            )
            texts = [str(attributes.names.value(stored, number)) for number in distinct.tolist()]
            other = np.array([text not in is_listed for text in texts], dtype=np.bool_)
            has_other[places[other[inverse]]] = True
            others.update({text: counts.item(i) for i, text in enumerate(texts) if other[i]})
        if others:
            order = sorted(others, key=lambda value: (-others[value], value))
            result[name] = UnlistedValues(int(np.count_nonzero(has_other)), order[:MOST_UNLISTED])
    return result


@dataclass(slots=True)
class Catalogue:
    """A served catalogue: its index changes, and its encoding once, when the catalogue is fitted."""

    name: str
    uid: str
    record: CatalogueRecord
    index: ServedIndex
    dim: int = field(init=False)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    in_memory: LiveIndex = field(init=False)  # where an engine has the arms, those that it has not got yet
    encoding: FeatureEncoding = field(init=False)
    fits_at: int = FIT_ARMS  # while it is not fitted: at how many arms to try
    # the index or engine of the owner's choice, if no loaded plug-in provides it
    missing_plugin: str | None = field(init=False)
    is_filled: bool = field(init=False)  # whether it has had all arms of the catalogue that it follows
    # at which version they were counted last
    unlisted: tuple[int, Mapping[str, UnlistedValues]] = (-1, {})

    def __post_init__(self) -> None:
        self.dim = self.record.dim
        self.in_memory = self.index.overlay if self.index.resident is None else self.index
        self.encoding = FeatureEncoding(self.record.features, self.record.reduction, self.record.dim)
        self.missing_plugin = missing_plugin(self.record)
        self.is_filled = self.record.behaviour is None

    @property
    def version(self) -> int:
        """All changes up to this version are in the index."""
        return self.index.version

    @property
    def index_options(self) -> IndexOptions:
        return options_of(self.record)

    @property
    def resident(self) -> LiveIndex | None:
        """All arms, in memory; None: they are in an engine."""
        return self.index.resident

    def check_writable(self) -> None:
        """Raise Conflict where arms are written to another catalogue, which this one follows."""
        if self.record.behaviour is not None:
            followed = self.record.behaviour.follows
            raise Conflict(f"this catalogue follows {followed}: write to {followed}, and it is done here too")

    def need_arms(self, what: str) -> None:
        """Raise NotPossibleHere unless all arms are in memory, which ``what`` looks at."""
        if self.index.resident is None:
            where = self.index.title
            raise NotPossibleHere(f"{what} needs all arms in memory, and this catalogue is kept in {where}")

    def unknown_fields(self, names: Iterable[str]) -> list[str]:
        """The fields which no arm has had. Cost: O(names).

        Empty where an engine has the arms, whose fields are unknown.
        """
        if self.resident is None:
            return []
        return unknown_fields(self.resident.snapshot().attributes, names)


def difference_of(existing: CatalogueRecord, asked: CatalogueRecord) -> str:
    """The difference between a catalogue and the requested one. Its values are checked numbers and words."""
    if existing.behaviour != asked.behaviour:
        return "one of the two follows another catalogue, by an embedding that cannot be changed"
    if existing.prior != asked.prior:
        return "what a history knows of keys is something else, and it cannot be changed"
    if existing.features != asked.features or _basis_of(existing) != _basis_of(asked):
        return "its features are others, and they cannot be changed"
    targets = existing.target_recall, asked.target_recall
    changes = {"dim": (existing.dim, asked.dim), "index.target_recall": targets} | {
        f"index.{name}": (existing.index.get(name), value) for name, value in asked.index.items()
    }
    return ", ".join(f"{name} is {old}, not {new}" for name, (old, new) in changes.items() if old != new)


def _basis_of(record: CatalogueRecord) -> bytes:
    """The basis given with the catalogue."""
    return b"" if record.reduction is None else record.reduction.basis


def offline_catalogue(name: str, dim: int) -> Catalogue:
    """An empty catalogue that no store has, for arms of a file; its searches are exact."""
    exact = IndexOptions(kind="exact")
    return Catalogue(name, "0" * 16, CatalogueRecord(dim, asdict(exact)), LiveIndex(dim, exact))
