"""Arms laid out for reading a few random coordinates of many arms, and many coordinates of a few.

Notation
    n, N        number of arms, of coordinates
    x, c        an arm's coordinates, the mean of the arms (N,)
    z           x - c (N,), the centred arm
    order       the permutation of the coordinates (N,)
    grain       coordinates are read in multiples of this many

The first t coordinates in a uniformly random order are a sample of t coordinates without replacement. So one
permutation, drawn before any query is seen and kept secret from whoever chooses queries and arms, serves all
queries and reads memory in its own order. Draw it again (``build``) when somebody may have learned it: every
answer that depends on it tells a little, and arms or queries made from such answers are no longer independent
of it. Answers to different queries under one permutation are each right with probability 1 - delta, but not
independently so.

z is kept in float32 in blocks of permuted coordinates, each block contiguous, arm after arm, and as wide as
all before it up to a limit: whoever reads twice as far each time reads long runs of memory. A sample of the
coordinates of all arms is read at the speed of a scan; a random gather would be slower than reading all.

Memory: 4 n N bytes, and 4 n N / grain for sums of squares. ``vectors`` is a reference.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from app.algorithms.mips import columns as column_values
from app.algorithms.mips.columns import Columns, Given
from app.algorithms.types import Rows, Vector

Single = NDArray[np.float32]

# Sums of products are in float32 over at most SUMMED coordinates, beyond that in float64.
SUMMED = 1_024
# How much longer a coordinate takes when arms are picked than when all are read in a row.
PICKING = 2.5
_GRAIN = 128
_GRAINS = 64
_FIRST_ENTRIES = 2**16
_WIDEST_ENTRIES = 2**20
_ENTRIES = 2**17


@dataclass(frozen=True, slots=True, eq=False)
class BlockedArms:
    """See the module. All arrays are read-only.

    Shapes: vectors (rows, N), of which the arms are ``rows`` (n,); order (N,); blocks: J arrays (n, w_b),
    together N wide; starts (J + 1,); grain_squares (ceil(N / grain), n), sums of z^2 over grains.
    ``largest_norm`` is that of the z.
    """

    vectors: Given
    rows: Rows
    columns: Columns
    order: Rows
    blocks: tuple[Single, ...]
    starts: Rows
    grain: int
    grain_squares: Single
    largest_norm: float

    @property
    def size(self) -> int:
        """The number n of arms."""
        return len(self.rows)

    @property
    def dim(self) -> int:
        """The number N of coordinates."""
        return len(self.order)

    @property
    def memory_bytes(self) -> int:
        """What the layout adds to the vectors."""
        return sum(block.nbytes for block in self.blocks) + self.grain_squares.nbytes + 5 * self.order.nbytes

    def rounded(self, t: float) -> int:
        """The least number of coordinates that is at least ``t``, a multiple of the grain or N."""
        return rounded(t, self.grain, self.dim)

    def products(self, weights: Single, start: int, stop: int, places: Rows | None = None) -> Vector:
        """Return sum of weights_j z_j over permuted coordinates [start, stop), of all arms or of some.

        Shapes: weights (N,) in permuted order, places (m,) ascending -> (n,) or (m,).
        Cost: stop - start coordinates of each arm; picking arms takes about 2.5 times as long a coordinate.
        """
        total = np.zeros(self.size if places is None else len(places))
        for part, first, last, some in self.pieces(start, stop, places):
            for begin in range(first, last, SUMMED):
                end = min(begin + SUMMED, last)
                total[some] += part[:, begin - first : end - first] @ weights[begin:end]
        return total

    def squares(self, start: int, stop: int) -> Vector:
        """Return sum of z_j^2 over permuted coordinates [start, stop), multiples of the grain. -> (n,)."""
        grains = slice(start // self.grain, -(-stop // self.grain))
        total: Vector = self.grain_squares[grains].sum(axis=0, dtype=np.float64)
        return total

    def pieces(
        self, start: int, stop: int, places: Rows | None, *, small: bool = False
    ) -> Iterator[tuple[Single, int, int, slice]]:
        """Yield z in pieces: (some arms, coordinates first to last), first, last, which of the arms.

        Picked arms come a few at a time, so that the copy stays in the cache; all of them if ``small``.
        """
        count = self.size if places is None else len(places)
        for block, begin in zip(self.blocks, self.starts[:-1].tolist(), strict=True):
            first, last = max(start, begin), min(stop, begin + block.shape[1])
            if first >= last:
                continue
            part = slice(first - begin, last - begin)
            if places is None and not small:
                yield block[:, part], first, last, slice(count)
                continue
            step = max(1, _ENTRIES // (last - first))
            for place in range(0, count, step):
                some = slice(place, place + step)
                if places is None:
                    yield block[some, part], first, last, some
                else:
                    yield self._picked(block, places[some], part), first, last, some

    def _picked(self, block: Single, places: Rows, part: slice) -> Single:
        """Return block[places, part]; by grains, which are copied faster than slices of rows."""
        width, count = block.shape[1], part.stop - part.start
        if count == width:
            return block.take(places, axis=0)
        if width % self.grain or count % self.grain:
            return block[places, part]
        first = places * (width // self.grain) + part.start // self.grain
        grains = first[:, None] + np.arange(count // self.grain)
        picked: Single = block.reshape(-1, self.grain).take(grains, axis=0).reshape(len(places), count)
        return picked


def rounded(t: float, grain: int, dim: int) -> int:
    """The least multiple of the grain that is at least ``t``, and at least one; at most ``dim``."""
    return min(dim, grain * max(1, math.ceil(t / grain)))


def grain_of(dim: int) -> int:
    """About a hundredth of the coordinates, but long enough a run for memory."""
    return max(1, min(_GRAIN, dim // _GRAINS))


def memory_bytes(n: int, dim: int) -> int:
    """About what ``build`` will need beside the vectors."""
    return 4 * n * dim + 4 * n * -(-dim // grain_of(dim)) + 40 * dim


def build(
    vectors: Given, *, rng: np.random.Generator, rows: Rows | None = None, columns: Columns | None = None
) -> BlockedArms:
    """Lay ``vectors``, or some ``rows`` of them, out in blocks; ``rng`` must be secret to the user.

    Shapes: vectors (n, N), float32 or float64; they must not change afterwards. ``columns`` of these arms, if
    they are known; else they are found, and the vectors are checked.
    Cost: reads everything twice and writes it once; do it once for many queries.
    Raises: as ``columns.of``.
    """
    columns = columns or column_values.of(vectors, rows)
    dim = vectors.shape[1]
    if rows is None:
        rows = np.arange(len(vectors))
    order = rng.permutation(dim)
    grain = grain_of(dim)
    starts = _starts(len(rows), dim, grain)
    blocks = tuple(np.empty((len(rows), width), dtype=np.float32) for width in np.diff(starts).tolist())
    grain_squares = np.empty((-(-dim // grain), len(rows)), dtype=np.float32)
    most, grains = column_values.chunk_rows(dim), np.arange(0, dim, grain)
    centered, taken = np.empty((2, min(most, len(rows)), dim), dtype=np.float32)
    # The center is a vector of float32, so z is rounded once.
    center = columns.center.astype(vectors.dtype)
    largest, place = 0.0, 0
    for some in column_values.chunks(vectors, rows):
        part = slice(place, place + len(some))
        np.subtract(some, center, out=centered[: len(some)], casting="same_kind")
        permuted = np.take(centered[: len(some)], order, axis=1, out=taken[: len(some)], mode="clip")
        squares = np.add.reduceat(np.square(permuted, out=centered[: len(some)]), grains, axis=1)
        grain_squares[:, part] = squares.T
        largest = max(largest, float(squares.sum(axis=1, dtype=np.float64).max()))
        for block, first, last in zip(blocks, starts[:-1], starts[1:], strict=True):
            block[part] = permuted[:, first:last]
        place = part.stop
    for array in (order, *blocks, starts, grain_squares):
        array.setflags(write=False)
    return BlockedArms(
        vectors,
        rows,
        columns,
        order,
        blocks,
        starts,
        grain,
        grain_squares,
        math.sqrt(largest) * (1.0 + 2.0**-12),
    )


def _starts(n: int, dim: int, grain: int) -> Rows:
    """Where blocks begin: each as wide as all before it, within limits, in multiples of the grain."""
    first = grain * max(1, _FIRST_ENTRIES // (n * grain))
    widest = grain * max(SUMMED // grain, _WIDEST_ENTRIES // (n * grain))
    starts = [0]
    while starts[-1] < dim:
        starts.append(min(dim, starts[-1] + min(max(first, starts[-1]), widest)))
    return np.array(starts, dtype=np.int64)
