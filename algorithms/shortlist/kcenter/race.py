"""The race: sums read for each pair of a point and a centre, and the bounds of its distance.

Notation
    n, m, k     number of points, of coordinates, of centres
    t           coordinates of a pair (v, s) read so far; at t = m its mean is exact
    U, L        bounds of d(v, s) / scale, in [0, 1]; U = 1 and L = 0 while nothing was read
    U(v, S)     min over s of U(v, s), likewise L(v, S); -1 for centres
    v^L         the point of largest L(v, S): the next centre once no other U(v, S) exceeds L(v^L, S)
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from shortlist.kcenter.center_set import rounding
from shortlist.kcenter.coordinates import Coordinates
from shortlist.kcenter.intervals import Counts, Interval
from shortlist.kcenter.triangle import implied
from shortlist.types import Matrix, Rows

_ENTRIES = 2**15


class Race:
    """The sums read for each pair, and their bounds. A race belongs to one call.

    ``bounds`` computes intervals from (mean, reads, looks). ``low`` and ``high`` are L(v, S) and U(v, S).
    ``reads`` counts the coordinates read of pairs. A pair with ``last_look`` looks is known exactly.
    ``triangle``: the bounds are narrowed by the triangle inequality. ``between`` are then those of
    two centres.
    Shapes: sums, looks, mean, lower, upper (k, n), one row a centre; low, high (n,); between (2, k, k).
    """

    def __init__(
        self,
        coordinates: Coordinates,
        k: int,
        bounds: Interval,
        rng: np.random.Generator,
        *,
        triangle: bool = False,
    ) -> None:
        n, blocks = coordinates.size, len(coordinates.blocks)
        self.coordinates, self.bounds, self.rng = coordinates, bounds, rng
        # DEVIATION (Alg. 1, line 11): coordinates without replacement: t = m is exact at no extra cost.
        self.start = int(rng.integers(blocks))
        self.reads_after = coordinates.reads_after(self.start)
        self.rounding = 2.0 * rounding(coordinates.dim)
        self.last_look, self.reads = blocks, 0
        self.centers: list[int] = []
        self.origins: list[Matrix] = []
        self.sums, self.mean = np.zeros((k, n)), np.zeros((k, n))
        self.looks = np.zeros((k, n), dtype=np.int64)
        self.lower, self.upper = np.zeros((k, n)), np.ones((k, n))
        self.low, self.high = np.zeros(n), np.ones(n)
        self.triangle, self.between = triangle, np.zeros((2, k, k))

    def add(self, center: int) -> None:
        """Make ``center`` the next centre; nothing is read yet, so L(v, S) falls to 0."""
        # DEVIATION (Alg. 1, line 5): no first pull of every pair; U(v, S) already rules most points out.
        center_count = len(self.centers)
        for side, bound in zip(self.between, (self.lower, self.upper), strict=True):
            side[center_count, :center_count] = side[:center_count, center_count] = bound[
                :center_count, center
            ]
        self.centers.append(center)
        self.origins.append(self.coordinates.point(center))
        self.low[:] = 0.0
        if self.triangle:
            self._infer(np.arange(self.low.size))
        self.low[self.centers] = self.high[self.centers] = -1.0

    def pull(self, rows: Rows, columns: Rows, blocks: Counts) -> None:
        """Read ``blocks`` more blocks of each pair (row, column), or all that are left.

        The pairs are distinct, at least one, and none of them is known exactly.
        """
        looks = self.looks[columns, rows]
        blocks = np.minimum(blocks, self.last_look - looks)
        for column, look, count, members in _alike(columns, looks, blocks):
            self._read(rows[members], column, look, count)
        before, looks = self.reads_after[looks], looks + blocks
        self.looks[columns, rows] = looks
        reads = self.reads_after[looks]
        self.reads += int((reads - before).sum())
        # DEVIATION (Eq. 7): no square root: a root of a mean is biased, and the intervals are for the mean.
        mean = np.minimum(self.sums[columns, rows] / (reads * self.coordinates.scale), 1.0)
        lower, upper = self.bounds(mean, reads, looks)
        # DEVIATION (Alg. 1, line 13): exact once t >= m, and no count is raised afterwards.
        exact = looks == self.last_look
        if self.triangle:  # what was inferred before still holds
            lower = np.maximum(lower, self.lower[columns, rows])
            upper = np.minimum(upper, self.upper[columns, rows])
        self.mean[columns, rows] = mean
        self.lower[columns, rows] = np.where(exact, mean, lower)
        self.upper[columns, rows] = np.where(exact, mean, upper)
        if self.triangle:
            self._infer(rows)
        center_count = len(self.centers)
        self.low[rows] = self.lower[:center_count, rows].min(axis=0)
        self.high[rows] = self.upper[:center_count, rows].min(axis=0)

    def _infer(self, rows: Rows) -> None:
        """Narrow the bounds of all pairs of some points; those that are known exactly stay."""
        center_count = len(self.centers)
        block = np.ix_(np.arange(center_count), rows)
        near, far = self.between[:, :center_count, :center_count]
        low, high = implied(self.lower[block], self.upper[block], near, far)
        is_open = self.looks[block] < self.last_look
        # The roots and their squares round as well.
        low, high = low * (1.0 - 2.0 * self.rounding), high * (1.0 + 2.0 * self.rounding)
        self.lower[block] = np.where(is_open, np.maximum(self.lower[block], low), self.lower[block])
        self.upper[block] = np.where(is_open, np.minimum(self.upper[block], high), self.upper[block])
        self.low[rows] = self.lower[block].min(axis=0)
        self.high[rows] = self.upper[block].min(axis=0)

    def _read(self, rows: Rows, column: int, look: int, count: int) -> None:
        """Add the next ``count`` blocks after ``look`` blocks of the pairs of ``rows`` with one centre."""
        step = max(1, _ENTRIES // (self.coordinates.blocks.shape[2] * count))
        first = (self.start + look) % self.last_look
        for part in (slice(first, first + count), slice(0, max(first + count - self.last_look, 0))):
            blocks, origin = self.coordinates.blocks[part], self.origins[column][part]
            for begin in range(0, len(rows) if len(blocks) else 0, step):
                some = rows[begin : begin + step]
                difference = blocks.take(some, axis=1) - origin[:, None]
                self.sums[column, some] += np.einsum("brw,brw->r", difference, difference)


def _alike(columns: Rows, looks: Counts, blocks: Counts) -> Iterator[tuple[int, int, int, Rows]]:
    """Yield (column, look, blocks, members) for the pairs that read the same blocks of the same centre."""
    order = np.lexsort((blocks, looks, columns))
    keys = np.stack((columns, looks, blocks))[:, order]
    cuts = (np.flatnonzero((keys[:, 1:] != keys[:, :-1]).any(axis=0)) + 1).tolist()
    for begin, end in zip([0, *cuts], [*cuts, len(order)], strict=True):
        column, look, count = keys[:, begin].tolist()
        yield column, look, count, order[begin:end]
