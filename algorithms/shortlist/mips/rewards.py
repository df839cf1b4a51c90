"""The rewards of one query: what pulling an arm returns, what is known beforehand; over blocked arms.

Notation, beyond that of ``columns`` and ``blocked``
    y_j         q_j z_j, or 2 (q_j - c_j) z_j - z_j^2 for the nearest arm: both are f_j(x) - f_j(c)
    t           number of coordinates read of every arm that is left
    peak        bound on the magnitude of what is summed to y_j, at least w
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from shortlist.mips import columns
from shortlist.mips.answer import Objective
from shortlist.mips.blocked import SUMMED, BlockedArms, picked_buffer
from shortlist.mips.columns import TINY, Bounds, Single
from shortlist.mips.read_costs import READS_ALONE, ReadCosts
from shortlist.types import Rows, Vector

_UNIT = 2.0**-24
_SCORED_ENTRIES = 2**14
# Times this, a sum of SUMMED squares in float32, of rounded numbers, is at least that of the numbers.
_SUMMED_ABOVE = 1.0 + 4.0 * SUMMED * _UNIT


class CoordinateRewards(Protocol):
    """A query and its arms, as the searches see them; ``size`` is n, ``dim`` is N.

    ``bounds`` are R and w. ``noise`` bounds the rounding error of a mean of rewards over any t coordinates,
    ``sum_noise`` of the sum over all N, ``whole_noise`` of ``whole``. ``costs``: of reading. ``violated``:
    some term read so far lies outside of the given range.
    """

    @property
    def size(self) -> int:
        """n: how many arms."""
        ...

    @property
    def dim(self) -> int:
        """N: how many coordinates."""
        ...

    @property
    def objective(self) -> Objective:
        """The objective of the search."""
        ...

    @property
    def bounds(self) -> Bounds:
        """R and w."""
        ...

    @property
    def noise(self) -> float:
        """The largest rounding error of a mean over any t coordinates."""
        ...

    @property
    def sum_noise(self) -> float:
        """The largest rounding error of the sum over all N."""
        ...

    @property
    def whole_noise(self) -> float:
        """The largest rounding error of ``whole``."""
        ...

    @property
    def costs(self) -> ReadCosts:
        """The costs of reading."""
        ...

    @property
    def violated(self) -> bool:
        """True if a read term lies outside of the given range."""
        ...

    def root_mean_squares(self) -> Vector | None:
        """Return upper bounds on those of the arms' y (n,); None if nothing is known before reading."""
        ...

    def rounded(self, t: float) -> int:
        """Return the least number of coordinates, at least ``t``, at which reading can stop."""
        ...

    def pull(self, start: int, stop: int, places: Rows | None) -> Vector:
        """Return the sums of y over coordinates [start, stop) of all arms (n,), or at places (m,)."""
        ...

    def pull_squares(self, start: int, stop: int, places: Rows | None) -> tuple[Vector, Vector]:
        """Return the same, and upper bounds on the sums of y^2."""
        ...

    def whole(self, places: Rows) -> Vector:
        """Return the sums of y over all coordinates of the arms at places (m,), all off by one constant."""
        ...

    def scores(self, places: Rows) -> tuple[Rows, Vector]:
        """Return the rows of the arms at places (m,), and their sums of f over all N in float64 (m,)."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class BlockedRewards:
    """``CoordinateRewards`` over blocked arms.

    ``slope`` (N,) is that of y in z: q, or 2 (q - c) for the nearest arm. ``weights`` (N,) are the slope over
    2^``exponent``, at most 1, in float32. ``root_peak`` is the root of the peak. ``buffer``: see
    ``picked_buffer``.
    """

    arms: BlockedArms
    query: Vector
    slope: Vector
    objective: Objective
    bounds: Bounds
    weights: Single
    exponent: int
    root_peak: float
    noise: float
    sum_noise: float
    whole_noise: float
    costs: ReadCosts
    buffer: Single = field(default_factory=picked_buffer, init=False, repr=False)

    @property
    def size(self) -> int:
        """n: how many arms."""
        return self.arms.size

    @property
    def dim(self) -> int:
        """N: how many coordinates."""
        return self.arms.dim

    @property
    def violated(self) -> bool:
        """True if a read term lies outside of the given range."""
        return self.bounds.violated

    def root_mean_squares(self) -> Vector:
        """A bound of root mean squares by Cauchy and Schwarz, and Minkowski: see
        docs/papers/bounded-me.md.
        """
        root_fourth, root_dim = self.arms.root_fourth, math.sqrt(self.dim)
        squares = np.square(self.weights, dtype=np.float64)
        slope = math.ldexp(float(squares @ squares) ** 0.25, self.exponent)
        roots: Vector = root_fourth * (slope / root_dim)
        if self.objective == "nearest":
            roots += np.square(root_fourth) / root_dim
        roots *= 1.0 + 2.0**-12
        roots += self.noise
        return roots

    def rounded(self, t: float) -> int:
        """As ``CoordinateRewards.rounded``."""
        return self.arms.rounded(t)

    def pull(self, start: int, stop: int, places: Rows | None) -> Vector:
        """As ``CoordinateRewards.pull``. Cost: a product of the block with the query."""
        sums = self.arms.products(self.weights, start, stop, places, buffer=self.buffer)
        sums *= math.ldexp(1.0, self.exponent)
        if self.objective == "nearest":
            sums -= self.arms.squares(start, stop, places)
        return sums

    def pull_squares(self, start: int, stop: int, places: Rows | None) -> tuple[Vector, Vector]:
        """As ``CoordinateRewards.pull_squares``."""
        if self.objective == "inner_product" and stop <= self.arms.squared_to:
            return self.pull(start, stop, places), self._kept_squares(start, stop, places)
        count = self.size if places is None else len(places)
        sums, squares = np.zeros(count), np.zeros(count)
        ones = np.ones(SUMMED, dtype=np.float32)
        for terms, part_places in self._terms(start, stop, places):
            sums[part_places] += terms @ ones[: terms.shape[1]]
            squares[part_places] += np.einsum("ij,ij->i", terms, terms)
        peak = self.root_peak**2
        return sums * peak, squares * (peak**2 * _SUMMED_ABOVE)

    def whole(self, places: Rows) -> Vector:
        """As ``CoordinateRewards.whole``."""
        sums = self.arms.whole_products(self.weights, places) * math.ldexp(1.0, self.exponent)
        if self.objective == "nearest":
            sums -= self.arms.squares(0, self.dim, places)
        return sums

    def scores(self, places: Rows) -> tuple[Rows, Vector]:
        """As ``CoordinateRewards.scores``, in float64."""
        rows = self.arms.rows[places]
        return rows, scores(self.arms.vectors, rows, self.query, self.objective)

    def _kept_squares(self, start: int, stop: int, places: Rows | None) -> Vector:
        """Return upper bounds on the sums of q_j^2 z_j^2, from the squares that the arms keep."""
        squares = self.arms.products(self.weights, start, stop, places, buffer=self.buffer, squared=True)
        squares += (stop - start) * TINY * (1.0 + self.arms.largest_norm**2)
        squares *= math.ldexp(_SUMMED_ABOVE, 2 * self.exponent)
        return squares

    def _terms(self, start: int, stop: int, places: Rows | None) -> Iterator[tuple[Single, slice]]:
        """Yield y / peak in float32, at most SUMMED coordinates of some arms at a time.

        For the nearest arm y = z (2 (q - c) - z), with z and the slope both divided by the root of peak.
        """
        nearest, inverse = self.objective == "nearest", 1.0 / self.root_peak
        for piece, begin, end, part_places in self.arms.pieces(
            start, stop, places, buffer=self.buffer, small=True
        ):
            for first in range(begin, end, SUMMED):
                last = min(first + SUMMED, end)
                z = piece[:, first - begin : last - begin]
                slope = self.slope[self.arms.order[first:last]] * inverse
                if nearest:
                    z = z * np.float32(inverse)
                    yield z * (slope.astype(np.float32) - z), part_places
                else:
                    yield z * (slope * inverse).astype(np.float32), part_places


def blocked_rewards(
    arms: BlockedArms,
    query: columns.Given,
    *,
    objective: Objective = "inner_product",
    value_range: tuple[float, float] | None = None,
    costs: ReadCosts = READS_ALONE,
) -> BlockedRewards:
    """Prepare a query. Shapes: query (N,). Cost: O(N).

    ``value_range`` bounds every product q_j x_j, or (q_j - x_j)^2; what is known of the arms is used as well.
    ``costs`` are those from which a search chooses its plan.

    Raises: InvalidShape, NonFinite, InvalidParameter (a magnitude above 1e9, the range, the objective).
    """
    query, largest = columns.check_query(query, arms.dim, objective)
    columns.check_range(value_range)
    known = arms.columns
    slope = query
    if objective == "nearest":
        slope = 2.0 * (query - known.center)
        largest = columns.magnitude(slope)
    weights, exponent = columns.scaled(slope, largest)
    bounds = columns.product_bounds(known, weights, exponent)
    peak = bounds.largest
    if objective == "nearest":
        peak += float(known.reach.max()) ** 2
    if objective == "nearest" or value_range is not None:
        bounds = columns.bounds(known, query, objective, value_range)
    # The errors of SUMMED products and sums, of rounding z and the weights, and of the sums in float64.
    gamma = (SUMMED + 16) * _UNIT
    tiny = math.ldexp(TINY, exponent) + math.sqrt(peak) * TINY
    steepness, norm = math.sqrt(slope @ slope), arms.largest_norm
    squares = norm**2 if objective == "nearest" else 0.0
    return BlockedRewards(
        arms,
        query,
        slope,
        objective,
        bounds,
        weights,
        exponent,
        max(math.sqrt(peak), 2.0**-60),
        gamma * peak + tiny,
        gamma * (steepness * norm + squares) + tiny * arms.dim,
        gamma * (steepness * (arms.center_norm + norm) + squares) + tiny * arms.dim,
        costs,
    )


def scores(vectors: columns.Given, rows: Rows, query: Vector, objective: Objective) -> Vector:
    """Return the sums of f over all coordinates of some rows, in float64, each independent of the others.

    Shapes: vectors (v, N), rows (m,), query (N,) -> (m,).
    """
    all_scores = np.empty(len(rows))
    step = max(1, _SCORED_ENTRIES // len(query))
    buffer = np.empty((min(step, len(rows)), len(query)))
    for start in range(0, len(rows), step):
        part = rows[start : start + step]
        values = buffer[: len(part)]
        values[...] = vectors[part] if step > 1 else vectors[part.item()]
        if objective == "nearest":
            values -= query
        all_scores[start : start + step] = np.vecdot(
            values, query if objective == "inner_product" else values
        )
    return all_scores if objective == "inner_product" else -all_scores
