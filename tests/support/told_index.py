"""An index that proposes the arms that it is told, for tests of who asks it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from shortlist.index.index import Index, ProposingIndex
from shortlist.index.quality import Degradation


class ToldIndex(ProposingIndex):
    """Proposes its first rows, as many as it is asked for; or what ``finds`` says, None: it reached too few.

    ``asked``: for how many, each time.
    """

    kind = "hnsw"

    def __init__(
        self,
        rows: Sequence[int],
        covered: int | None = None,
        *,
        finds: Callable[[int], Sequence[int] | None] | None = None,
    ) -> None:
        super().__init__(len(rows) if covered is None else covered, Degradation(len(rows)))
        self._rows = np.array(rows)
        self._finds = finds or (lambda count: self._rows[:count])
        self.asked: list[int] = []

    @property
    def rows(self):
        return self._rows

    @property
    def memory_bytes(self) -> int:
        return 100

    def search_among(self, query, count, let_in):
        self.asked.append(count)
        rows = self._finds(count)
        return None if rows is None else np.array(rows)[let_in[np.array(rows)]]

    def search(self, table, query, k, exclude=None):
        raise NotImplementedError

    def tombstone(self, rows) -> None:
        raise NotImplementedError

    def moved(self, position, covered: int) -> Index:
        raise NotImplementedError

    def answered(self, quality, probes, lists) -> None:
        raise NotImplementedError
