"""Arms that stand in for those of a graph that died: left out of it as too short to win, until then.

When n of the longest arms have died, the n longest that were left out are searched beside the graph, exactly.
They are copied side by side, since gathering them anew would take longer than the search.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.algorithms.mips.exact import candidates, unit_scale
from app.algorithms.types import NO_ROWS, Rows, Vector
from app.indexes.table import ArmView


class Substitutes:
    """``rows`` (n,) by descending norm, -1 for those that are gone; their features in working precision."""

    def __init__(self, rows: Rows, features: NDArray[np.floating[Any]]) -> None:
        self.rows = rows
        self._features = features

    @classmethod
    def none(cls) -> Substitutes:
        return cls(NO_ROWS, np.zeros((0, 0), dtype=np.float32))

    @classmethod
    def copied(cls, view: ArmView, rows: Rows) -> Substitutes:
        """Shapes: rows (n,), live."""
        rows = rows[np.argsort(-view.norms[rows], kind="stable")]
        return cls(rows, np.asfortranarray(view.working[rows]))

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def memory_bytes(self) -> int:
        return int(self.rows.nbytes + self._features.nbytes)

    def moved(self, position: Rows) -> Substitutes:
        """The same after a compaction: row r is now ``position[r]``, -1 if it is gone."""
        return Substitutes(np.append(position, -1)[self.rows], self._features)

    def best(self, view: ArmView, query: Vector, k: int, gone: NDArray[np.bool_]) -> Rows:
        """Those of the first len(gone) rows that could be the best ``k``: the ``gone`` are none of them."""
        scaled, query_norm = unit_scale(query)
        approximate = self._features[: len(gone)] @ scaled.astype(self._features.dtype)
        approximate[gone] = -np.inf
        slope, offset = view.error_line
        return self.rows[candidates(approximate, slope * query_norm + offset, k)]
