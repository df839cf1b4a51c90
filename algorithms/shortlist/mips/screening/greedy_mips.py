"""GREEDY-MIPS: the arms of which a single product is largest are the candidates.

Notation
    n, d        number of arms, of coordinates
    z_ij        product q_j x_ij of one coordinate
    B           budget: how many candidates a query gets

The coordinates of all arms are sorted once. The paper walks through the d sorted lists with a heap, from the
largest z_ij on, and takes an arm at the first meeting. So its candidates are the B arms of
largest max_j z_ij, in that order. They are found here without a heap: a bound is lowered until at least B
arms have a product above it. Each list is cut at the bound by a binary search, and only its part above is
read.

Source: Yu, Hsieh, Lei, Dhillon, "A Greedy Approach for Budgeted Maximum Inner Product Search", NIPS 2017,
Algorithms 4 and 5.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shortlist import checks
from shortlist.mips.columns import Given
from shortlist.mips.screening.screened import Screened, check_arms, check_query
from shortlist.types import NO_ROWS, Rows, Vector

# The bound is lowered to the largest product of the 8th list, the 16th and so on, lists by largest product.
_FIRST_LISTS = 8
# Beyond this share of all products they are computed for all arms in rows: lists are read in random order.
_MOST_SHARE = 0.125
_ENTRIES = 2**16


@dataclass(frozen=True, slots=True, eq=False)
class GreedyMips:
    """The sorted lists. Shapes: vectors (n, d), order and sorted (d, n): row and value, values ascending.

    Memory: 8 n d bytes for arms in float32, besides the arms.
    """

    vectors: Given
    order: NDArray[np.int32]
    sorted: Given

    @classmethod
    def build(cls, vectors: Given) -> GreedyMips:
        """Sort every coordinate. Cost: O(d n log n). Raises: InvalidShape, NonFinite."""
        check_arms(vectors)
        order = np.empty(vectors.shape[::-1], dtype=np.int32)
        values = np.empty(vectors.shape[::-1], dtype=vectors.dtype)
        for coordinate, column in enumerate(vectors.T):
            order[coordinate] = np.argsort(column, kind="stable")
            values[coordinate] = column[order[coordinate]]
        return cls(vectors, order, values)

    def candidates(self, query: Given, budget: int) -> Screened:
        """Return ``budget`` arms of largest single product, in that order, ties in row order.

        If there are no more arms they are all returned, in row order, and nothing is computed.
        Shapes: query (d,) -> rows (min(budget, n),). Cost: d products, and those above the bound.
        Raises: InvalidShape, NonFinite, InvalidParameter (budget < 1).
        """
        check_query(query, self.vectors.shape[1])
        checks.in_range("budget", budget, least=1)
        n, dim = self.vectors.shape
        if budget >= n or not dim:
            return Screened(np.arange(min(budget, n)), 0)
        weights = query.astype(np.float64)
        heads = np.where(weights > 0, weights * self.sorted[:, -1], weights * self.sorted[:, 0])
        lists, multiplied = np.argsort(-heads, kind="stable"), dim
        count = _FIRST_LISTS
        while count < dim:
            bound = float(heads[lists[count]])
            rows, products = self._above(weights, lists[:count], bound, least=budget)
            multiplied += len(rows)
            best = np.full(n, -np.inf)
            np.maximum.at(best, rows, products)
            if np.count_nonzero(best > bound) >= budget:
                return Screened(_largest(best, budget), multiplied)
            if len(rows) > _MOST_SHARE * n * dim:
                break
            count *= 2
        return Screened(_largest(self._largest_products(weights), budget), multiplied + n * dim)

    def _above(self, weights: Vector, lists: Rows, bound: float, *, least: int) -> tuple[Rows, Vector]:
        """The rows and products of these lists that are above the bound; none if fewer than ``least``."""
        starts, counts = self._parts(weights[lists], lists, bound)
        total = int(counts.sum())
        if total < least:
            return NO_ROWS, np.empty(0)
        shifts = lists * self.sorted.shape[1] + starts - (np.cumsum(counts) - counts)
        places = np.repeat(shifts, counts) + np.arange(total)
        products = self.sorted.ravel()[places].astype(np.float64) * np.repeat(weights[lists], counts)
        return self.order.ravel()[places].astype(np.int64), products

    def _parts(self, weights: Vector, lists: Rows, bound: float) -> tuple[Rows, Rows]:
        """The begin and the length of each list's part above the bound.

        Products ascend along a list where its weight is positive, and descend where it is negative.
        """
        n, descends = self.sorted.shape[1], weights < 0.0
        low, high = np.zeros(len(lists), dtype=np.int64), np.full(len(lists), n)
        for _ in range(n.bit_length()):
            middle = np.minimum((low + high) // 2, n - 1)
            beyond = ((self.sorted[lists, middle] * weights) > bound) != descends
            high = np.where(beyond, middle, high)
            low = np.where(beyond | (low == high), low, middle + 1)
        return np.where(descends, 0, low), np.where(descends, low, n - low)

    def _largest_products(self, weights: Vector) -> Vector:
        """max_j z_ij of every arm. Cost: n d products."""
        step = max(1, _ENTRIES // self.vectors.shape[1])
        starts = range(0, len(self.vectors), step)
        return np.concatenate([(self.vectors[at : at + step] * weights).max(axis=1) for at in starts])


def _largest(best: Vector, count: int) -> Rows:
    rows = np.argpartition(-best, count - 1)[:count] if count < len(best) else np.arange(len(best))
    least = best[rows].min()
    rows = np.flatnonzero(best >= least)
    order: Rows = rows[np.lexsort((rows, -best[rows]))]
    return order[:count]
