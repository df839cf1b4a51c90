"""Arms laid out for reading a few random coordinates of many arms, and many coordinates of a few.

Notation
    n, N        number of arms, of coordinates
    x, c        an arm's coordinates, the mean of the arms (N,)
    z           x - c (N,), the centred arm
    order       the permutation of the coordinates (N,)
    grain       coordinates are read in multiples of this many

The first t coordinates in a uniformly random order are a sample of t coordinates without replacement. So one
permutation serves all queries, if drawn before any query is seen and kept secret from those who choose
queries and arms. Draw another one (``build``) when somebody may have learned it: every answer tells a little
of the permutation, and arms or queries made from answers are no longer independent of it. Under one
permutation every answer is right with probability 1 - delta, but not independently of the other answers.

z is kept in float32, in blocks of permuted coordinates. Each block is contiguous, arm after arm, and as wide
as all blocks before it, up to a limit. A search with twice the coordinates each time reads long runs of
memory: a sample of the coordinates of all arms is read at the speed of a scan, where picking random
coordinates out of whole arms would be slower than reading everything. The squares of the first coordinates
are kept too: second moments are products like any other.

Memory: 4 n N bytes, 4 n N / grain for sums of squares, and n N / 8 for squares. ``vectors`` and ``working``
are references.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from shortlist.mips import columns as column_values
from shortlist.mips.columns import Columns, Given, Single
from shortlist.mips.read_costs import READS_ALONE, ReadCosts
from shortlist.types import Rows, Vector

# Products are summed in float32 over at most SUMMED coordinates; these sums are added in float64.
SUMMED = 2_048
# The share of the coordinates whose squares are kept.
SQUARED = 1.0 / 32.0
# A grain has at most _GRAIN coordinates, and there are at least _GRAINS of them.
_GRAIN = 128
_GRAINS = 64
# The first block holds at least this many numbers. Picked arms are copied in runs of this many: 256 KB.
_FIRST_ENTRIES = _ENTRIES = 2**16
# Picked arms are copied in runs of at least as many coordinates.
_SHORTEST_RUN = 32
# At least z^4 where the square underflows in float32.
_TINY_FOURTH = 2.0**-250


@dataclass(frozen=True, slots=True, eq=False)
class BlockedArms:
    """See the module. All arrays are read-only. Whole arms are read from ``working``, scored by ``vectors``.

    Shapes
        vectors, working    (v, N), of which the arms are ``rows`` (n,)
        order               (N,)
        blocks              J arrays (n, w_b), together N wide: z in permuted coordinates
        squared             the squares of the first blocks, the last one cut
        starts              (J + 1,), the first coordinate of each block, and N
        grain_squares       (ceil(N / grain), n), sums of z^2 over grains
        root_fourth         (n,), at least the fourth roots of the sums of z^4
    ``largest_norm`` is the largest |z|, ``center_norm`` is |c|.
    """

    vectors: Given
    working: Given
    rows: Rows
    columns: Columns
    order: Rows
    blocks: tuple[Single, ...]
    squared: tuple[Single, ...]
    starts: Rows
    grain: int
    grain_squares: Single
    root_fourth: Vector
    largest_norm: float
    center_norm: float

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
        """The memory of the layout besides the vectors."""
        blocks = sum(block.nbytes for block in (*self.blocks, *self.squared))
        return blocks + self.grain_squares.nbytes + self.root_fourth.nbytes + 5 * self.order.nbytes

    @property
    def squared_to(self) -> int:
        """The number of coordinates whose squares are kept."""
        return sum(block.shape[1] for block in self.squared)

    def rounded(self, t: float) -> int:
        """Return the least multiple of the grain that is at least ``t``, or N."""
        return rounded(t, self.grain, self.dim)

    def products(
        self,
        weights: Single,
        start: int,
        stop: int,
        places: Rows | None = None,
        *,
        buffer: Single | None = None,
        squared: bool = False,
    ) -> Vector:
        """Return the sums of weights_j z_j over permuted coordinates [start, stop), of all arms or of some.

        ``squared``: of weights_j^2 z_j^2, for stop <= squared_to. ``buffer``: see ``picked_buffer``.
        Shapes: weights (N,), not permuted; places (m,) of some arms, ascending -> (n,) or (m,).
        Cost: stop - start coordinates of each arm; see ``ReadCosts.picked`` for some of the arms.
        """
        total = np.zeros(self.size if places is None else len(places))
        permuted = weights.take(self.order[start:stop])
        if squared:
            np.square(permuted, out=permuted)
        for part, first, last, part_places in self.pieces(
            start, stop, places, buffer=buffer, squared=squared
        ):
            for begin in range(first, last, SUMMED):
                end = min(begin + SUMMED, last)
                total[part_places] += (
                    part[:, begin - first : end - first] @ permuted[begin - start : end - start]
                )
        return total

    def whole_products(self, weights: Single, places: Rows) -> Vector:
        """Return the sums of weights_j x_j over all coordinates of some arms, read from ``working``.

        Shapes: weights (N,), places (m,) -> (m,). Cost: N coordinates of each arm; see ``ReadCosts.whole``.
        """
        total, rows = np.empty(len(places)), self.rows[places]
        weights = weights.astype(self.working.dtype, copy=False)
        complete, step = self.dim // SUMMED * SUMMED, max(1, _ENTRIES // self.dim)
        pieces = weights[:complete].reshape(-1, SUMMED)
        for start in range(0, len(rows), step):
            part = rows[start : start + step]
            values = self.working[part] if step > 1 else self.working[None, part.item()]
            summed = np.vecdot(values[:, :complete].reshape(len(part), -1, SUMMED), pieces)
            total[start : start + step] = summed.sum(axis=1, dtype=np.float64)
            total[start : start + step] += values[:, complete:] @ weights[complete:]
        return total

    def squares(self, start: int, stop: int, places: Rows | None) -> Vector:
        """Return the sums of z_j^2 over permuted coordinates [start, stop), whole grains; as ``products``."""
        grains = self.grain_squares[start // self.grain : -(-stop // self.grain)]
        if places is not None:
            grains = grains[:, places]
        total: Vector = grains.sum(axis=0, dtype=np.float64)
        return total

    def pieces(
        self,
        start: int,
        stop: int,
        places: Rows | None,
        *,
        buffer: Single | None = None,
        small: bool = False,
        squared: bool = False,
    ) -> Iterator[tuple[Single, int, int, slice]]:
        """Yield z in pieces: values (arms, last - first), first, last, and the slice of the arms they are of.

        Picked arms come a few at a time, copied into the buffer, so that the copy stays in the cache; with
        ``small`` all arms come a few at a time. A piece is valid until the next one. ``squared``: z^2.
        """
        if buffer is None:
            buffer = picked_buffer()
        count = self.size if places is None else len(places)
        for block, begin in zip(self.squared if squared else self.blocks, self.starts.tolist(), strict=False):
            first, last = max(start, begin), min(stop, begin + block.shape[1])
            if first >= last:
                continue
            part = slice(first - begin, last - begin)
            if places is None and not small:
                yield block[:, part], first, last, slice(count)
                continue
            step = max(1, _ENTRIES // (last - first))
            for place in range(0, count, step):
                part_places = slice(place, place + step)
                if places is None:
                    yield block[part_places, part], first, last, part_places
                else:
                    yield _picked(block, places[part_places], part, buffer), first, last, part_places


def picked_buffer() -> Single:
    """Return room for one piece of picked arms. Keep it for a query: the first write to memory is slow."""
    return np.empty(_ENTRIES, dtype=np.float32)


def _picked(block: Single, places: Rows, part: slice, buffer: Single) -> Single:
    """Return block[places, part], copied in runs of equal length, which is faster than indexing."""
    width, count = block.shape[1], part.stop - part.start
    run = math.gcd(width, part.start, count)
    if run < _SHORTEST_RUN or len(places) * count > len(buffer):
        return block[places, part]
    rows = places
    if run < width:
        rows = (places[:, None] * (width // run) + np.arange(part.start // run, part.stop // run)).ravel()
    out = buffer[: len(rows) * run].reshape(len(rows), run)
    return block.reshape(-1, run).take(rows, axis=0, out=out, mode="clip").reshape(len(places), count)


def rounded(t: float, grain: int, dim: int) -> int:
    """Return the least positive multiple of the grain that is at least ``t``; at most ``dim``."""
    return min(dim, grain * max(1, math.ceil(t / grain)))


def grain_of(dim: int) -> int:
    """Return the number of coordinates in a grain: a 64th of all of them, but 1 to 128."""
    return max(1, min(_GRAIN, dim // _GRAINS))


def memory_bytes(n: int, dim: int) -> int:
    """Return about how much memory ``build`` will need for ``n`` arms, the vectors not counted."""
    grain = grain_of(dim)
    return 4 * n * (2 + dim + -(-dim // grain) + rounded(SQUARED * dim, grain, dim)) + 40 * dim


def build(
    vectors: Given,
    *,
    rng: np.random.Generator,
    rows: Rows | None = None,
    columns: Columns | None = None,
    working: Given | None = None,
    costs: ReadCosts = READS_ALONE,
) -> BlockedArms:
    """Lay ``vectors``, or some ``rows`` of them, out in blocks; ``rng`` must be secret to the user.

    ``columns`` of these arms, if they are known; else they are found, and the vectors are checked.
    ``working``: the vectors in float32, if they are kept anyway. ``costs`` of the searches to come, which
    choose the width of the first block; they change no answer.
    Shapes: vectors (v, N), float32 or float64; they must not change afterwards. rows (n,).
    Cost: reads everything twice and writes it once; do it once for many queries.
    Raises: as ``columns.of``.
    """
    columns = columns or column_values.of(vectors, rows)
    dim = vectors.shape[1]
    if rows is None:
        rows = np.arange(len(vectors))
    order = rng.permutation(dim)
    grain = grain_of(dim)
    starts = block_starts(len(rows), dim, grain, costs)
    blocks = tuple(np.empty((len(rows), width), dtype=np.float32) for width in np.diff(starts).tolist())
    grain_squares = np.empty((-(-dim // grain), len(rows)), dtype=np.float32)
    fourth = np.empty(len(rows))
    most, grains = column_values.chunk_rows(dim), np.arange(0, dim, grain)
    centered, sample = np.empty((2, min(most, len(rows)), dim), dtype=np.float32)
    # The center is a vector of float32, so z is rounded once.
    center = columns.center.astype(vectors.dtype)
    largest, offset = 0.0, 0
    for chunk in column_values.chunks(vectors, rows):
        part = slice(offset, offset + len(chunk))
        np.subtract(chunk, center, out=centered[: len(chunk)], casting="same_kind")
        permuted = np.take(centered[: len(chunk)], order, axis=1, out=sample[: len(chunk)], mode="clip")
        squared_z = np.square(permuted, out=centered[: len(chunk)])
        squares = np.add.reduceat(squared_z, grains, axis=1)
        grain_squares[:, part] = squares.T
        fourth[part] = np.einsum("ij,ij->i", squared_z, squared_z, dtype=np.float64)
        largest = max(largest, float(squares.sum(axis=1, dtype=np.float64).max()))
        for block, first, last in zip(blocks, starts[:-1], starts[1:], strict=True):
            block[part] = permuted[:, first:last]
        offset = part.stop
    end = rounded(SQUARED * dim, grain, dim)
    pairs = zip(blocks, starts.tolist(), strict=False)
    squared = tuple(np.square(block[:, : end - start]) for block, start in pairs if start < end)
    root_fourth = (fourth * (1.0 + 2.0**-12) + dim * _TINY_FOURTH) ** 0.25
    for array in (order, *blocks, *squared, starts, grain_squares, root_fourth):
        array.setflags(write=False)
    return BlockedArms(
        vectors,
        vectors if working is None else working,
        rows,
        columns,
        order,
        blocks,
        squared,
        starts,
        grain,
        grain_squares,
        root_fourth,
        math.sqrt(largest) * (1.0 + 2.0**-12),
        float(np.linalg.norm(columns.center)),
    )


def block_starts(n: int, dim: int, grain: int, costs: ReadCosts) -> Rows:
    """The beginnings of blocks: each as wide as all before it, within limits, in multiples of the grain.

    Where queries have an overhead the first block is no wider than the least worthwhile sample.
    """
    sample = costs.least_sample(n, dim) if costs.overhead(n, dim) > 0.0 else dim / 8.0
    first = rounded(max(SQUARED * dim, min(SUMMED, sample), _FIRST_ENTRIES / n), grain, dim)
    widest = max(first, SUMMED // grain * grain)
    starts = [0]
    while starts[-1] < dim:
        starts.append(min(dim, starts[-1] + min(max(first, starts[-1]), widest)))
    return np.array(starts, dtype=np.int64)
