"""An exact overlay: a few arms that every search of a graph scans exactly, in addition to the graph.

A graph has two overlays.

The *head* holds the longest living arms of the graph. Each of them is the best arm for a wide range of
queries. A graph can miss such an arm for one narrow range of queries, and Thompson sampling asks just such a
range again and again (docs/papers/sublinear-bandits.md). When some of the head die, the next longest take
their place.

The *substitutes* are the longest arms that are not in the graph, because they are too short to win. When n of
the longest arms have died, the n longest substitutes are scanned in their place.

The features are copied side by side, because gathering them anew would take longer than the search.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.indexes.table import TableSnapshot, longest_first
from shortlist.mips.exact import candidates
from shortlist.types import NO_ROWS, Rows


class ExactOverlay:
    """Copies of some arms, the longest first.

    Shapes: rows (n,), -1 for arms that are gone; labels (n,) of these in the graph, ascending; features
    (n, d) in working precision.
    """

    def __init__(self, rows: Rows, labels: Rows, features: NDArray[np.floating[Any]]) -> None:
        self.rows = rows
        self.labels = labels
        self._features = features

    @classmethod
    def empty(cls) -> ExactOverlay:
        return cls(NO_ROWS, NO_ROWS, np.zeros((0, 0), dtype=np.float32))

    @classmethod
    def copied(cls, table: TableSnapshot, rows: Rows, first_label: int = 0) -> ExactOverlay:
        """Copy live ``rows`` (n,) of the table, whose labels begin with this one."""
        rows = longest_first(table, rows)
        return cls.labelled(table, rows, np.arange(first_label, first_label + len(rows)))

    @classmethod
    def labelled(cls, table: TableSnapshot, rows: Rows, labels: Rows) -> ExactOverlay:
        """Copy live ``rows`` (n,) of the table, the longest first, which have these labels."""
        return cls(rows, labels, np.asfortranarray(table.working[rows]))

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def memory_bytes(self) -> int:
        return int(self.rows.nbytes + self.labels.nbytes + self._features.nbytes)

    def moved(self, position: Rows) -> ExactOverlay:
        """The same overlay after a compaction: row r is now ``position[r]``, -1 if it is gone."""
        return ExactOverlay(np.append(position, -1)[self.rows], self.labels, self._features)

    def best(
        self,
        scaled: NDArray[np.floating[Any]],
        error: float,
        k: int,
        gone: NDArray[np.bool_],
        *,
        any_gone: bool,
        least: float = -np.inf,
    ) -> Rows:
        """Rows that could be the best ``k`` among the first len(gone) arms.

        None, if all score below ``least``. ``scaled`` (d,) is the query. ``error`` bounds the rounding error
        of a product in working precision. ``gone`` (m,) marks the arms that died; ``any_gone`` False promises
        that it marks none.
        """
        features = self._features[: len(gone)]
        approximate = features @ scaled.astype(features.dtype, copy=False)
        if any_gone:
            approximate[gone] = -np.inf
        if least > -np.inf and approximate.item(approximate.argmax()) + error < least:
            return NO_ROWS
        return self.rows[candidates(approximate, error, k)]
