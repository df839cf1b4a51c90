"""What an index structure is: the class that each extends. ``planner.OURS`` lists those that are tried.

A structure finds the rows of a table with the largest inner product. It has the rows that were alive when it
was built, below ``covered``; ``Snapshot`` searches later rows beside it. To write one: make a subclass of
``Index`` in a file of this folder, and add a row to ``planner.OURS``. What else it can do it says by
extending other classes of this file as well: ``ProposingIndex``, ``RemeasuredIndex``, ``GrowingIndex``. The
row says how it is written for the other processes of a service (``Saving``); without that they scan their
arms where it serves.

Who calls it:

- Searches call ``search``, and ``search_among`` of those that propose, from any thread, over snapshots of
  any moment.
- The event loop calls ``tombstone`` (arms died), ``moved`` (a compaction renumbered the rows), ``refresh``
  and what says how the structure is doing; searches in other threads may go on meanwhile.
- The planner builds it, measures it on probes, and tells it by ``answered`` how good it was. It serves if it
  is faster than the best exact search, and reaches the recall that the catalogue asks for. ``degradation``
  counts what deaths do to it after that; a structure that has lost too much is scanned instead, and replaced.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import count as counting
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from shortlist.index.probes import ExactLists, Probes, Quality
from shortlist.index.quality import Degradation
from shortlist.index.shared_format import Array, unpacked
from shortlist.index.table import TableSnapshot
from shortlist.types import NO_ROWS, Rows, TopK, Vector

IndexKind = str
"""How a catalogue is searched, as answers say it: one of ``OWN_KINDS``, or the kind of a plug-in."""
OWN_KINDS = ("exact", "norm_pruned", "inverted_file", "hnsw")  # "exact": by no structure

_NUMBERS = counting()
Saved = TypeVar("Saved")


def tell_nobody(share: float) -> None:
    """Where nobody waits for a structure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """How a structure is built. One that needs nothing of it may ignore it.

    ``seed``    fixes what is drawn. ``threads``: to build with
    ``check``   is to be called now and then: other work waits for that. It may raise to stop
    ``advance``  is told now and then which share is built; none needs to tell it
    ``load_from``, ``save_to``  the file that keeps it between runs; None: it is not read, or not written
    ``growing``  what serves a catalogue that grows, to be added to where that can be; None: it is at rest
    """

    seed: int
    threads: int
    check: Callable[[], None]
    advance: Callable[[float], None] = tell_nobody
    load_from: Path | None = None
    save_to: Path | None = None
    growing: GrowingIndex | None = None

    def of_kind(self, kind: IndexKind) -> Build:
        """With the files of this kind: structures that are tried one after the other must not share one."""
        return replace(self, load_from=file_of(self.load_from, kind), save_to=file_of(self.save_to, kind))


def file_of(path: Path | None, kind: IndexKind) -> Path | None:
    """The file that keeps a structure of this kind beside others of its catalogue. Ours is the first."""
    return path if path is None or kind in OWN_KINDS else path.with_name(f"{path.stem}.{kind}{path.suffix}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicationWriter:
    """Where a structure is written for the other processes of a service.

    ``table``: whose rows it has; ``positions``: of these rows among those that the others have, -1 if gone.
    ``folder``: for files of its own. ``last``: folder of the last publication; ``cache``: the file that keeps
    a structure between runs. Both may have the same bytes already.
    """

    folder: Path
    table: TableSnapshot
    positions: Rows
    last: Path | None
    cache: Path | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicationReader:
    """Where a structure is read that another process wrote. ``table``: its rows are numbered as there.

    ``saved``: for ``read``, of JSON types. ``data``: the bytes of its arrays.
    ``covered``: see ``Index``.
    """

    saved: Any
    data: Array
    folder: Path
    table: TableSnapshot
    covered: int

    def read(self, kind: type[Saved]) -> Saved:
        """What ``Saving.save`` returned; its arrays have one dimension. Raises msgspec.ValidationError."""
        return unpacked(self.saved, kind, self.data)


@dataclass(frozen=True, slots=True)
class Saving:
    """How a structure is shared between processes.

    ``save``: write its own files, and return what msgspec encodes, with arrays. Raises OSError. ``load``:
    the structure as it served. Raises OSError, RuntimeError: there is no room; ValueError, TypeError: it was
    changed.
    """

    save: Callable[[Any, PublicationWriter], Any]
    load: Callable[[PublicationReader], Index]


class Index(ABC):
    """A structure over some rows of a table.

    ``kind``       as answers name it
    ``covered``    rows of the snapshot it was built over: later rows are searched beside it
    ``number``     every structure that is built has its own; it stays the same when rows are renumbered
    ``degradation``  how good its answers were measured to be, and what deaths did to it since

    ``is_exact``   every answer has the best arms. Then it is measured only for its speed
    """

    kind: ClassVar[IndexKind]
    is_exact: ClassVar[bool] = False

    covered: int
    degradation: Degradation

    def __init__(self, covered: int, degradation: Degradation) -> None:
        self.number = next(_NUMBERS)
        self.covered = covered
        self.degradation = degradation

    # Searches, in any thread.

    @abstractmethod
    def search(self, table: TableSnapshot, query: Vector, k: int, exclude: Rows = NO_ROWS) -> TopK | None:
        """The ``k`` best rows below ``covered`` that are alive in ``table`` and not in ``exclude``.

        Scores are exact. Fewer only if there are no more; None where a scan is to answer. Shapes: query (d,),
        exclude (e,) -> (m,).
        """

    def leaves_to_scan(self, k: int) -> bool:  # noqa: ARG002 - of those that do
        """Whether it never answers a search for so many rows, since a scan takes less time."""
        return False

    # What it has.

    @property
    @abstractmethod
    def rows(self) -> Rows:
        """Its rows (n,), -1 for arms that are gone."""

    @property
    @abstractmethod
    def memory_bytes(self) -> int: ...

    @property
    def arms(self) -> int:
        return len(self.rows)

    # Changes, in the event loop.

    @abstractmethod
    def tombstone(self, rows: Rows) -> None:
        """Rows have died; those that it does not have, or that died before, are ignored."""

    @abstractmethod
    def moved(self, position: Rows, covered: int) -> Index:
        """The same structure after a compaction: row r is now ``position[r]``, -1 if it is gone."""

    @abstractmethod
    def answered(self, quality: Quality, probes: Probes, lists: ExactLists) -> None:
        """Take note of how good the answers to ``probes`` are, and to those of ``lists``. Their rows are
        below ``covered``.
        """

    @property
    def quality(self) -> Quality:
        """How good its answers are at the least."""
        return self.degradation.quality

    def refresh(self, table: TableSnapshot) -> None:  # noqa: B027 - of those that have something to do
        """A snapshot is about to be taken. Cost: some microseconds."""


class ProposingIndex(Index):
    """Its searches propose arms that are scored again, so that asking for more finds more. Filters use it."""

    @abstractmethod
    def search_among(self, query: Vector, count: int, let_in: NDArray[np.bool_]) -> Rows | None:
        """Of about the best ``count`` rows those that are let in; None where it reached fewer than ``count``.

        Shapes: let_in (rows of the table,) -> (m,).
        """

    def propose(self, table: TableSnapshot, query: Vector, count: int, exclude: Rows) -> Rows | None:  # noqa: ARG002
        """About the ``count`` best rows as ``search`` has them, and others that it has looked at, ascending.

        None where ``search`` is to be asked. Shapes: query (d,), exclude (e,) -> (m,).
        """
        return None


class RemeasuredIndex(Index):
    """It is measured again by other probes after arms died."""

    @abstractmethod
    def is_gone(self, rows: Rows) -> NDArray[np.bool_]:
        """Which of some rows below ``covered`` (n,) are arms of it that died."""

    @abstractmethod
    def scan_lists(self) -> None:
        """Too little of lists of ten was found: let them be scanned."""


class GrowingIndex(Index):
    """Arms that come can be added to a copy of it, by whoever builds its kind (``Build.growing``).

    ``is_interim``: it was made in a hurry while the catalogue was growing, and is to be replaced.
    """

    is_interim: bool = False

    @property
    @abstractmethod
    def can_grow(self) -> bool:
        """Whether they still can."""
