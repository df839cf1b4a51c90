"""Blocked copies of catalogues (``mips.blocked``): one for each version, kept within a bound on memory.

The order of the coordinates is drawn from the operating system's entropy and never leaves the process. Every
answer reveals a little of the order. A client with knowledge of the order could construct a query with a
wrong answer. So the order is drawn again for every version of a catalogue, and after ``REDRAW`` answers of
one version.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from app.catalogues.catalogue import Catalogue
from app.platform.cache import BoundedCache
from shortlist.index.table import TableSnapshot
from shortlist.mips import blocked, columns
from shortlist.mips.blocked import BlockedArms
from shortlist.mips.columns import Columns
from shortlist.mips.read_costs import ReadCosts

REDRAW = 10_000
NO_MEMORY = "a blocked copy of the catalogue has no room in SHORTLIST_SEARCH_CACHE_MB"


@dataclass(slots=True)
class BlockedCopy:
    """One version of the catalogue ``uid``. ``columns`` and ``arms`` are made when they are first asked for.

    ``answers`` counts the answers since ``arms`` was made. ``making`` is held while either is made.
    """

    uid: str
    version: int
    table: TableSnapshot
    columns: Columns | None = None
    arms: BlockedArms | None = None
    answers: int = 0
    making: threading.Lock = field(default_factory=threading.Lock)

    @property
    def bytes(self) -> int:
        return (3 * 8 * self.table.dim) + (self.arms.memory_bytes if self.arms is not None else 0)

    def serves(self, version: int, table: TableSnapshot) -> bool:
        """True if the copy is of this version, in the same arrays: a compaction copies the arms into
        others.
        """
        return self.version == version and self.table.ids is table.ids


class BlockedCopies:
    """The most recently used copies, one for a catalogue. For any thread; a copy is made once.

    ``costs`` returns what reads cost on this machine. By default every read costs 1, and nothing else does.
    ``redraw``: after so many answers of one version the order is drawn again.
    """

    def __init__(
        self, capacity_bytes: int, *, costs: Callable[[], ReadCosts] = ReadCosts, redraw: int = REDRAW
    ) -> None:
        self._redraw = redraw
        self._capacity = capacity_bytes
        self.costs = costs
        self._copies: BoundedCache[str, BlockedCopy] = BoundedCache(capacity_bytes)
        self._changing = threading.Lock()

    @property
    def bytes(self) -> int:
        return self._copies.bytes

    def prepare(self, catalogue: Catalogue) -> BlockedCopy:
        """The entry of the catalogue's present version. To be called on the event loop.

        There nothing changes the catalogue meanwhile, so version and snapshot belong together.
        """
        version, table = catalogue.version, catalogue.index.snapshot().table
        with self._changing:
            prepared = self._copies.get(catalogue.uid)
            if prepared is None or not prepared.serves(version, table):
                prepared = BlockedCopy(catalogue.uid, version, table)
                self._copies.put(prepared.uid, prepared, prepared.bytes)
        return prepared

    def columns(self, prepared: BlockedCopy) -> Columns:
        """The bounds of every coordinate. Cost: reads the catalogue, once for a version."""
        with prepared.making:
            if prepared.columns is None:
                prepared.columns = columns.of(prepared.table.features, prepared.table.live_rows)
            return prepared.columns

    def fits(self, prepared: BlockedCopy) -> bool:
        """True if a blocked copy is there, or smaller than the bound on all copies."""
        table = prepared.table
        return prepared.arms is not None or blocked.memory_bytes(table.live, table.dim) <= self._capacity

    def arms(self, prepared: BlockedCopy) -> BlockedArms:
        """The blocked copy. Cost: two reads of the catalogue and a write, once for a version and order."""
        bounds = self.columns(prepared)
        with prepared.making:
            prepared.answers += 1
            if prepared.arms is not None and prepared.answers <= self._redraw:
                return prepared.arms
            table = prepared.table
            prepared.arms, prepared.answers = None, 1
            rng = np.random.default_rng()  # seeded from the operating system's entropy
            arms = prepared.arms = blocked.build(
                table.features,
                rng=rng,
                rows=table.live_rows,
                columns=bounds,
                working=table.working,
                costs=self.costs(),
            )
        self._has_grown(prepared)
        return arms

    def _has_grown(self, prepared: BlockedCopy) -> None:
        """Count the bytes of the copy, unless another version has taken its place in the cache."""
        with self._changing:
            if self._copies.peek(prepared.uid) is prepared:
                self._copies.put(prepared.uid, prepared, prepared.bytes)
