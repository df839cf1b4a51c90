"""Thompson sampling in the tables: by a scan of all arms, and by a graph with a shortlist.

Notation
    K, d        arms that are there, dimension
    p           length of the shortlist, and the graph's ef from 32 on: the paper's trade of accuracy for time
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from app.indexes.live import IndexOptions, LiveIndex
from shortlist.index.quality import LADDER
from shortlist.index.table import aligned_empty
from shortlist.linear import sub_ts
from shortlist.linear.ridge import Posterior
from shortlist.types import NO_ROWS, Rows, TopK, Vector
from studies.experiments.synthetic import Environment


class FlatArms:
    """The arms that are there, without gaps: a ``MipsSolver`` by the float32 scan that one would write.

    ``working`` is float32, row by row; ``fastest`` the same in the layout that BLAS reads fastest here, and
    ``printed`` float64, for comparison.
    """

    def __init__(self, environment: Environment) -> None:
        self._features = environment.arms
        size, dim = environment.arms.shape
        self.working = np.empty((size, dim), dtype=np.float32)
        self.fastest = aligned_empty(size, dim)
        self.printed = np.empty((size, dim))
        self.arms = np.empty(size, dtype=np.int64)
        self._place = np.full(size, -1, dtype=np.int64)
        self.count = 0

    def add(self, came: Rows) -> None:
        places = slice(self.count, self.count + len(came))
        for array in (self.working, self.fastest, self.printed):
            array[places] = self._features[came]
        self.arms[places] = came
        self._place[came] = np.arange(self.count, self.count + len(came))
        self.count += len(came)

    def remove(self, left: Rows) -> None:
        for arm in left.tolist():
            self.count -= 1
            place, last = int(self._place[arm]), self.count
            for array in (self.working, self.fastest, self.printed, self.arms):
                array[place] = array[last]
            self._place[self.arms[place]] = place

    def search(self, query: Vector, k: int, exclude: Rows = NO_ROWS) -> TopK:
        """The best arm: one float32 product and its maximum."""
        if k != 1 or len(exclude):
            raise NotImplementedError("a baseline of the tables returns the best arm")
        scores = self.working[: self.count] @ query.astype(np.float32)
        best = int(scores.argmax())
        return TopK(self.arms[best : best + 1], scores[best : best + 1].astype(np.float64), exact=True)


class LinearTs:
    """Exact Thompson sampling by a float32 BLAS scan."""

    def __init__(self, environment: Environment, *, exploration: float) -> None:
        self._flat = FlatArms(environment)
        self._exploration = exploration

    def start(self, rows: Rows, _posterior: Posterior) -> None:
        self._flat.add(rows)

    def change(self, came: Rows, left: Rows, _posterior: Posterior) -> None:
        self._flat.add(came)
        self._flat.remove(left)

    def upkeep(self) -> None:
        """Nothing is kept up in the background."""

    def choose(self, posterior: Posterior, rng: np.random.Generator) -> int:
        return _first(sub_ts.choose(posterior, self._flat, k=1, exploration=self._exploration, rng=rng))

    def learned(self, _arm: int, _before: Posterior) -> None:
        """Scores are computed again every time."""

    def scans(self, posterior: Posterior) -> dict[str, Callable[[], object]]:
        """The scan that is used, the best one, and the paper's: x.theta~ of every arm in float64."""
        flat, query = self._flat, posterior.theta
        working = query.astype(np.float32)
        return {
            "used": lambda: flat.search(query, 1),
            "best": partial(_scan, flat.fastest[: flat.count], working),
            "printed": partial(_scan, flat.printed[: flat.count], query),
        }


class SubTs:
    """Sub-TS as the service runs it on one core; a shortlist of p arms, found with ef = max(p, 32)."""

    def __init__(self, environment: Environment, *, exploration: float, shortlist: int, seed: int) -> None:
        # The paper does not say what its ef is; the service never searches with less than this one.
        options = IndexOptions(kind="hnsw", ef_search=max(shortlist, LADDER[0]), shortlist=shortlist)
        self._features = environment.arms
        self._index = LiveIndex(environment.arms.shape[1], options, seed=seed)
        self._exploration = exploration

    def start(self, rows: Rows, _posterior: Posterior) -> None:
        self._add(rows)
        self.upkeep()

    def change(self, came: Rows, left: Rows, _posterior: Posterior) -> None:
        self._add(came)
        self._index.remove(list(map(str, left.tolist())))

    def upkeep(self) -> None:
        """What the service does in a thread of its own: compaction, and building the graph again."""
        while (job := self._index.begin_maintenance()) is not None:
            job.run()
            self._index.finish(job)

    def choose(self, posterior: Posterior, rng: np.random.Generator) -> int:
        snapshot = self._index.snapshot()
        found = sub_ts.choose(posterior, snapshot, k=1, exploration=self._exploration, rng=rng)
        return int(snapshot.id_of(int(found.rows[0])))

    def learned(self, _arm: int, _before: Posterior) -> None:
        """The graph holds the arms, not what is known of them."""

    def scans(self, _posterior: Posterior) -> dict[str, Callable[[], object]]:
        """Only baselines scan."""
        return {}

    def _add(self, rows: Rows) -> None:
        self._index.upsert(list(map(str, rows.tolist())), self._features[rows], rows.tolist())


def _scan(arms: Any, query: Any) -> int:
    return int((arms @ query).argmax())


def _first(found: TopK) -> int:
    return int(found.rows[0])
