"""Index structures: the base class of all. ``planner.OURS`` lists the structures to try.

A structure finds the rows of a table with the largest inner product. Its rows were alive at the build, below
``covered``; ``Snapshot`` searches later rows beside it. To write one: make a subclass of ``Index`` in a file
of this folder, and add a row to ``planner.OURS``. Further capabilities are other base classes of this file:
``ProposingIndex``, ``RemeasuredIndex``, ``GrowingIndex``. The row's ``Saving`` writes the structure for the
other processes of a service; without one they scan their arms where it serves.

The callers:

- Searches call ``search``, and ``search_among`` of proposing ones, from any thread, over snapshots of
  any moment.
- The event loop calls ``tombstone`` (arms died), ``moved`` (a compaction renumbered the rows), ``refresh``
  and the measurements; searches in other threads may go on meanwhile.
- The planner builds a structure, measures it on probes, and tells it the quality by ``answered``. A structure
serves if faster than the best exact search, with the recall of the catalogue. ``degradation`` counts the
losses by deaths afterwards; after too many the rows are scanned instead, and the structure is replaced.
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
    """Tell the progress to nobody."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """The way to build a structure, which may ignore it. One that needs nothing of it may ignore it.

    ``seed``    fixes what is drawn. ``threads``: to build with
    ``check``   to be called now and then: other work waits for the call, which may raise to stop
    ``advance``  told the built share now and then; optional
    ``load_from``, ``save_to``  the file which keeps the structure between runs; None: not read, or not
                                written
    ``growing``  the structure of a growing catalogue, to be extended if possible; None: at rest
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
    """The place where a structure is written for the other processes of a service.

    ``table``: of its rows; ``positions``: of these rows among those of the others, -1 if gone.
    ``folder``: for files of its own. ``last``: folder of the last publication; ``cache``: the file with a
    structure kept between runs. Both may have the same bytes already.
    """

    folder: Path
    table: TableSnapshot
    positions: Rows
    last: Path | None
    cache: Path | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicationReader:
    """The place where a structure written by another process is read. ``table``: its rows are numbered as
    there.

    ``saved``: for ``read``, of JSON types. ``data``: the bytes of its arrays.
    ``covered``: see ``Index``.
    """

    saved: Any
    data: Array
    folder: Path
    table: TableSnapshot
    covered: int

    def read(self, kind: type[Saved]) -> Saved:
        """Decode the result of ``Saving.save``; its arrays have one dimension. Raises
        msgspec.ValidationError.
        """
        return unpacked(self.saved, kind, self.data)


@dataclass(frozen=True, slots=True)
class Saving:
    """The way to share a structure between processes.

    ``save``: write its own files, and return a value for msgspec, with arrays. Raises OSError. ``load``:
    the structure as it served. Raises OSError, RuntimeError: there is no room; ValueError, TypeError: a
    changed file.
    """

    save: Callable[[Any, PublicationWriter], Any]
    load: Callable[[PublicationReader], Index]


class Index(ABC):
    """A structure over some rows of a table.

    ``kind``       as answers name it
    ``covered``    rows of the snapshot of the build: later rows are searched beside
    ``number``     every built structure has its own; unchanged when rows are renumbered
    ``degradation``  the measured quality of its answers, and the losses by deaths since

    ``is_exact``   every answer has the best arms. Then only the speed is measured
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
        """Return whether searches for so many rows are left to a scan, which takes less time."""
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
        """Note dead rows; unknown ones, and rows dead before, are ignored."""

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
        """The quality of its answers at the least."""
        return self.degradation.quality

    def refresh(self, table: TableSnapshot) -> None:  # noqa: B027 - of those that have something to do
        """A snapshot is about to be taken. Cost: some microseconds."""


class ProposingIndex(Index):
    """Its searches propose arms, which are scored again: a larger request finds more. Used by filters."""

    @abstractmethod
    def search_among(self, query: Vector, count: int, let_in: NDArray[np.bool_]) -> Rows | None:
        """The matching ones of about the best ``count`` rows; None where fewer than ``count`` were reached.

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
        """A mask of the rows below ``covered`` (n,) which are dead arms of the structure."""

    @abstractmethod
    def scan_lists(self) -> None:
        """Too little of lists of ten was found: let them be scanned."""


class GrowingIndex(Index):
    """New arms can be added to a copy of the structure, by the builder of its kind (``Build.growing``).

    ``is_interim``: made in a hurry while the catalogue was growing, and to be replaced.
    """

    is_interim: bool = False

    @property
    @abstractmethod
    def can_grow(self) -> bool:
        """True if arms can still be added."""
