"""Arms that are scanned beside a graph, exactly: those it must not miss, and those that are not in it.

The *head* are the longest arms of a graph. Each is the best for a wide range of queries, and a graph may miss
one for a narrow range, again and again, where Thompson sampling goes on asking
(docs/papers/sublinear-bandits.md).
*Substitutes* were left out of a graph as too short to win: when n of the longest arms have died, the n
longest of them stand in. Both are copied side by side: gathering them anew would take longer than the search.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.algorithms.mips.exact import candidates
from app.algorithms.types import NO_ROWS, Rows
from app.indexes.table import ArmView


class ArmsBeside:
    """``rows`` (n,) by descending norm, -1 for those that are gone; their features in working precision."""

    def __init__(self, rows: Rows, features: NDArray[np.floating[Any]]) -> None:
        self.rows = rows
        self._features = features

    @classmethod
    def none(cls) -> ArmsBeside:
        return cls(NO_ROWS, np.zeros((0, 0), dtype=np.float32))

    @classmethod
    def copied(cls, view: ArmView, rows: Rows) -> ArmsBeside:
        """Shapes: rows (n,), live."""
        rows = rows[np.argsort(-view.norms[rows], kind="stable")]
        return cls(rows, np.asfortranarray(view.working[rows]))

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def memory_bytes(self) -> int:
        return int(self.rows.nbytes + self._features.nbytes)

    def moved(self, position: Rows) -> ArmsBeside:
        """The same after a compaction: row r is now ``position[r]``, -1 if it is gone."""
        return ArmsBeside(np.append(position, -1)[self.rows], self._features)

    def best(
        self,
        scaled: NDArray[np.floating[Any]],
        error: float,
        k: int,
        gone: NDArray[np.bool_],
        *,
        any_gone: bool,
    ) -> Rows:
        """Those of the first len(gone) rows that could be the best ``k``: the ``gone`` are none of them.

        ``error`` bounds that of a product in working precision.
        """
        features = self._features[: len(gone)]
        approximate = features @ scaled.astype(features.dtype, copy=False)
        if any_gone:
            approximate[gone] = -np.inf
        return self.rows[candidates(approximate, error, k)]
