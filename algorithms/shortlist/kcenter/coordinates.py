"""Points laid out for reading a few random coordinates of many pairs.

Notation
    n, m        number of points, of coordinates
    w, q        coordinates in a block, number of blocks: q = ceil(m / w)
    pair        a point v and a centre s
    scale       largest (max_v x_v,j - min_v x_v,j)^2 over the coordinates j

The coordinates are permuted once, at random and independently of the points, and cut into blocks. One block
of all points is contiguous in memory: [q][n][w]. Reading a pair block after block, from any block on, samples
its coordinates without replacement; after q blocks the mean is exact. Every |x_v,j - x_s,j|^2 lies in [0,
scale], so the intervals are scaled, not the points. Why this is not ``mips.blocked``:
docs/papers/bounded-me.md.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shortlist import checks
from shortlist.kcenter.center_set import Points, check_points
from shortlist.types import Matrix

WIDTH = 64
_ROWS = 512


@dataclass(frozen=True, slots=True, eq=False)
class Coordinates:
    """Points in blocks of permuted coordinates; ``dim`` is m, ``scale`` as in the module.

    Shapes: blocks (q, n, w), read-only, zero beyond m.
    """

    blocks: Points
    dim: int
    scale: float

    @property
    def size(self) -> int:
        """The number n of points."""
        return int(self.blocks.shape[1])

    def reads_after(self, start: int) -> NDArray[np.int64]:
        """Return how many coordinates the first j blocks from ``start`` on hold. Shapes: -> (q + 1,)."""
        count, _, width = self.blocks.shape
        lengths = np.full(count, width, dtype=np.int64)
        lengths[-1] = self.dim - width * (count - 1)
        return np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(np.roll(lengths, -start))))

    def point(self, row: int) -> Matrix:
        """Return one point in blocks, in float64. Shapes: -> (q, w)."""
        return self.blocks[:, row].astype(np.float64)

    def points(self) -> Points:
        """Return the points with their coordinates in permuted order. Shapes: -> (n, m)."""
        return self.blocks.transpose(1, 0, 2).reshape(self.size, -1)[:, : self.dim]


def blocked(
    points: Points, *, rng: np.random.Generator, scale: float | None = None, width: int = WIDTH
) -> Coordinates:
    """Lay ``points`` out in blocks of ``width`` permuted coordinates.

    ``scale`` bounds every |x_v,j - x_u,j|^2; None: computed from the ranges of the coordinates. Shapes:
    points (n, m), float32 or float64. Cost: reads and writes everything once, n m; do it once for many calls.
    Raises: InvalidShape, NonFinite, InvalidParameter (no points, scale < 0, width < 1).
    """
    check_points(points)
    checks.in_range("width", width, least=1)
    if scale is None:
        # In float64: the difference of two float32 need not be one.
        ranges = points.max(axis=0).astype(np.float64) - points.min(axis=0)
        with np.errstate(over="ignore"):
            scale = float(np.square(ranges.max()))
    checks.in_range("scale", scale, least=0.0)
    n, dim = points.shape
    kind = np.float32 if points.dtype == np.float32 else np.float64
    blocks = np.zeros((-(-dim // width), n, width), dtype=kind)
    order = rng.permutation(dim)
    padded = np.zeros((_ROWS, len(blocks) * width), dtype=kind)
    for start in range(0, n, _ROWS):
        rows = points[start : start + _ROWS]
        padded[: len(rows), :dim] = rows.take(order, axis=1)
        part = padded[: len(rows)].reshape(len(rows), -1, width)
        blocks[:, start : start + _ROWS] = part.transpose(1, 0, 2)
    blocks.setflags(write=False)
    return Coordinates(blocks, dim, scale)
