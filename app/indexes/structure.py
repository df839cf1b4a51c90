"""What every kind of index offers to the catalogue that it serves."""

from __future__ import annotations

from typing import Literal, Protocol

from app.indexes.table import ArmView
from shortlist.types import NO_ROWS, Rows, TopK, Vector

Kind = Literal["exact", "norm_pruned", "hnsw"]


class Structure(Protocol):
    """An index over the rows of a view below ``covered``. Later rows are fresh, and scanned exactly.

    The properties from ``slowdown`` on say how far arms that died have spoilt it. An exact index is never
    spoilt: deaths leave its answers right and its searches no slower.
    """

    covered: int

    @property
    def kind(self) -> Kind: ...
    @property
    def arms(self) -> int: ...
    @property
    def memory_bytes(self) -> int: ...

    @property
    def dead(self) -> int:
        """Arms of the index that died since it was built."""
        ...

    @property
    def slowdown(self) -> float:
        """Time of a search now / time of a search when the index was measured, fresh arms aside."""
        ...

    @property
    def missing(self) -> int:
        """Number of substitutes that every search scans in addition to the index."""
        ...

    @property
    def load_share(self) -> float:
        """Expected share of dead arms among the arms that a search comes across."""
        ...

    @property
    def reserve_used(self) -> float:
        """Share of the reserve of long arms that died; more than 1: all of it, and others."""
        ...

    @property
    def is_degraded(self) -> bool:
        """Whether so many arms died that the measured quality does not hold any longer."""
        ...

    def search(self, view: ArmView, query: Vector, k: int, exclude: Rows = NO_ROWS) -> TopK | None:
        """About the best ``k`` rows, or None where only a scan can answer."""
        ...

    def tombstone(self, rows: Rows) -> None:
        """Note that ``rows`` died, each of them once."""
        ...

    def moved(self, position: Rows, covered: int) -> Structure:
        """The same index after a compaction: row r is now ``position[r]``, -1 if it is gone."""
        ...
