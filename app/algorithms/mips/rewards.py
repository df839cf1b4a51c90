"""The rewards of one query over blocked arms: what pulling an arm returns, and what is known beforehand.

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

from app.algorithms.mips import columns
from app.algorithms.mips.answer import Objective
from app.algorithms.mips.blocked import PICKING, SUMMED, BlockedArms, Single
from app.algorithms.mips.columns import Bounds
from app.algorithms.types import Rows, Vector

_UNIT = 2.0**-24
# What underflows in float32, in units of the largest weight; coordinates are below 2^30.
_TINY = 2.0**-118
_SCORED_ENTRIES = 2**20


class Rewards(Protocol):
    """What the searches ask of a query and its arms; n arms, N coordinates.

    ``bounds`` R and w; ``noise`` bounds the rounding error of a mean of rewards over any t coordinates,
    ``sum_noise`` that of the sum over all N. Picking arms takes ``picking`` times as long a coordinate as
    reading all of them in a row. ``violated``: some term read so far lies outside the range that was given.
    """

    @property
    def size(self) -> int: ...
    @property
    def dim(self) -> int: ...
    @property
    def objective(self) -> Objective: ...
    @property
    def bounds(self) -> Bounds: ...
    @property
    def noise(self) -> float: ...
    @property
    def sum_noise(self) -> float: ...
    @property
    def picking(self) -> float: ...
    @property
    def violated(self) -> bool: ...

    def rounded(self, t: float) -> int:
        """The least number of coordinates at which reading can stop that is at least ``t``."""
        ...

    def pull(self, start: int, stop: int, places: Rows | None) -> Vector:
        """Sums of y over coordinates [start, stop) of all arms (n,), or of the arms at places (m,)."""
        ...

    def pull_squares(self, start: int, stop: int, places: Rows | None) -> tuple[Vector, Vector]:
        """The same, and upper bounds on the sums of y^2."""
        ...

    def scores(self, places: Rows) -> tuple[Rows, Vector]:
        """Rows of the arms at places, and their sums of f over all coordinates in float64. Shapes: (m,)."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class BlockedRewards:
    """``Rewards`` over blocked arms. Shapes: query (N,); weights, slopes (N,) permuted, see ``_pieces``."""

    arms: BlockedArms
    query: Vector
    objective: Objective
    bounds: Bounds
    weights: Single
    exponent: int
    slopes: Single
    root_peak: float
    noise: float
    sum_noise: float
    picking: float = field(default=PICKING, init=False)

    @property
    def size(self) -> int:
        return self.arms.size

    @property
    def dim(self) -> int:
        return self.arms.dim

    @property
    def violated(self) -> bool:
        return self.bounds.violated

    def rounded(self, t: float) -> int:
        return self.arms.rounded(t)

    def pull(self, start: int, stop: int, places: Rows | None) -> Vector:
        sums = np.ldexp(self.arms.products(self.weights, start, stop, places), self.exponent)
        if self.objective == "nearest":
            squares = self.arms.squares(start, stop)
            sums -= squares if places is None else squares[places]
        return sums

    def pull_squares(self, start: int, stop: int, places: Rows | None) -> tuple[Vector, Vector]:
        count = self.size if places is None else len(places)
        sums, squares = np.zeros(count), np.zeros(count)
        ones = np.ones(SUMMED, dtype=np.float32)
        for terms, some in self._terms(start, stop, places):
            sums[some] += terms @ ones[: terms.shape[1]]
            squares[some] += np.einsum("ij,ij->i", terms, terms)
        peak = self.root_peak**2
        return sums * peak, squares * (peak**2 * (1.0 + 4.0 * SUMMED * _UNIT))

    def scores(self, places: Rows) -> tuple[Rows, Vector]:
        rows = self.arms.rows[places]
        return rows, scores(self.arms.vectors, rows, self.query, self.objective)

    def _terms(self, start: int, stop: int, places: Rows | None) -> Iterator[tuple[Single, slice]]:
        """Yield y / peak in float32, at most SUMMED coordinates of some arms at a time.

        For the nearest arm y = z (2 (q - c) - z), with z and the slope both divided by the root of peak.
        """
        for piece, begin, end, some in self.arms.pieces(start, stop, places, small=True):
            for first in range(begin, end, SUMMED):
                last = min(first + SUMMED, end)
                z = piece[:, first - begin : last - begin]
                if self.objective == "inner_product":
                    yield z * self.slopes[first:last], some
                else:
                    z = z * np.float32(1.0 / self.root_peak)
                    yield z * (self.slopes[first:last] - z), some


def blocked_rewards(
    arms: BlockedArms,
    query: columns.Given,
    *,
    objective: Objective = "inner_product",
    value_range: tuple[float, float] | None = None,
) -> BlockedRewards:
    """Prepare a query. Shapes: query (N,). Cost: O(N).

    ``value_range`` bounds every product q_j x_j, or (q_j - x_j)^2; what is known of the arms is used as well.

    Raises: InvalidShape, NonFinite, InvalidParameter (a magnitude above 1e9, the range, the objective).
    """
    query = columns.check_query(query, arms.dim, objective)
    columns.check_range(value_range)
    known = arms.columns
    reach = np.maximum(known.high - known.center, known.center - known.low)
    slope, extra = query, 0.0
    if objective == "nearest":
        slope, extra = 2.0 * (query - known.center), 1.0
    steep = np.abs(slope)
    peak = float((steep * reach + extra * reach**2).max()) or 1.0
    exponent = math.frexp(float(steep.max()))[1]
    # The errors of SUMMED products and sums, of rounding z and the weights, and of the sums in float64.
    gamma = (SUMMED + 16) * _UNIT
    tiny = math.ldexp(_TINY, exponent) + math.sqrt(peak) * _TINY
    root_peak = max(math.sqrt(peak), 2.0**-60)
    scale = root_peak if objective == "nearest" else root_peak**2
    return BlockedRewards(
        arms,
        query,
        objective,
        columns.bounds(known, query, objective, value_range),
        np.ldexp(slope, -exponent)[arms.order].astype(np.float32),
        exponent,
        (slope / scale)[arms.order].astype(np.float32),
        root_peak,
        gamma * peak + tiny,
        gamma * (float(np.linalg.norm(slope)) + arms.largest_norm) * arms.largest_norm + tiny * arms.dim,
    )


def scores(vectors: columns.Given, rows: Rows, query: Vector, objective: Objective) -> Vector:
    """Sums of f over all coordinates, in float64, each as if it were the only one. -> (m,)."""
    found = np.empty(len(rows))
    step = max(1, _SCORED_ENTRIES // len(query))
    for start in range(0, len(rows), step):
        some = vectors[rows[start : start + step]]
        found[start : start + step] = np.add.reduce(columns.term(some, query, objective), axis=1)
    return found
