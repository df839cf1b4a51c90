"""Factors of a discrete distribution, from which the samplers draw, and a random order to read them in.

Notation
    D, N        number of states (arms), of factors
    p(i)        proportional to f_0(i) f_1(i) ... f_N(i)
    g_i         a standard Gumbel variable
    l_i,n       log f_n(i) + offset_i / N with offset_i = log f_0(i) + g_i: the reward n of arm i
    mu_i        mean of l_i,n over n; the arm of largest mu_i is a draw from p

The factors are a function of arms and indices: a race evaluates only the ones it reads. A factor of zero has
no logarithm: leave its arm out beforehand.

Source: Chen and Ghahramani, "Scalable Discrete Sampling as a Multi-Armed Bandit Problem", Equations 1 to 3.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shortlist import checks
from shortlist.errors import InvalidParameter
from shortlist.types import Matrix, Rows, Vector

_ENTRIES = 2**18

LogFactors = Callable[[Rows, Rows], Matrix]


@dataclass(frozen=True, slots=True)
class Factors:
    """``log_factors(arms (m,), indices (w,)) -> (m, w)``; ``reads`` of a caller count its entries."""

    arms: int
    size: int
    log_factors: LogFactors

    @classmethod
    def of(cls, matrix: Matrix) -> Factors:
        """The factors of a matrix of their logarithms (D, N). Raises: InvalidShape, NonFinite."""
        checks.shape("log_factors", matrix, (None, None))
        checks.finite("log_factors", matrix)
        arms, size = matrix.shape
        return cls(arms, size, lambda arms, indices: matrix[arms[:, None], indices])

    @property
    def exhaustive_reads(self) -> int:
        """The number of factors in a draw which reads them all: D N."""
        return self.arms * self.size

    def read(self, arms: Rows, indices: Rows) -> Matrix:
        """Evaluate. Shapes: arms (m,), indices (w,) -> (m, w). Raises: InvalidShape, NonFinite."""
        log_factors = np.asarray(self.log_factors(arms, indices), dtype=np.float64)
        checks.shape("log_factors", log_factors, (len(arms), len(indices)))
        checks.finite("log_factors", log_factors)
        return log_factors

    def sums(self, together: int = _ENTRIES) -> Vector:
        """Return sum_n log f_n(i). Shapes: -> (D,). Cost: D N reads, about so many ``together``."""
        arms, total = np.arange(self.arms), np.zeros(self.arms)
        step = max(1, together // max(self.arms, 1))
        for start in range(0, self.size, step):
            total += self.read(arms, np.arange(start, min(start + step, self.size))).sum(axis=1)
        return total


@dataclass(frozen=True, slots=True)
class Draws:
    """States drawn, and what they cost. Shapes: rows (draws,).

    ``reads`` counts factors of arms that were evaluated, each at most once: at most ``exhaustive_reads``, D
    N. ``raced`` of the draws were decided by a race, and may be wrong; the others are exact.
    """

    rows: Rows
    reads: int
    exhaustive_reads: int
    raced: int


class RandomOrder:
    """A uniformly random order of 0..N-1, made as far as it is asked for; lives for one race.

    Cost: O(t) for the first t <= N/2 indices, O(N) beyond.
    """

    def __init__(self, size: int, rng: np.random.Generator) -> None:
        self._size, self._rng = size, rng
        self._order = np.empty(0, dtype=np.int64)
        self._seen: NDArray[np.bool_] = np.zeros(size, dtype=np.bool_)
        self._first = np.empty(size, dtype=np.int64)  # written where it is read: O(t) of it is touched

    def take(self, start: int, stop: int) -> Rows:
        """Return places [start, stop) of the order."""
        if stop > len(self._order):
            self._extend(stop)
        return self._order[start:stop]

    def _extend(self, stop: int) -> None:
        """The order of first appearance among independent indices is uniform; so is a shuffled rest."""
        if 2 * stop > self._size:
            unseen = np.flatnonzero(~self._seen)
            self._rng.shuffle(unseen)
            self._order = np.concatenate((self._order, unseen))
            return
        while len(self._order) < stop:
            drawn = self._rng.integers(self._size, size=2 * (stop - len(self._order)))
            drawn = drawn[~self._seen[drawn]]
            places = np.arange(len(drawn))
            self._first[drawn[::-1]] = places[::-1]  # of the places of one index, the last one written stays
            new = drawn[self._first[drawn] == places][: stop - len(self._order)]
            self._seen[new] = True
            self._order = np.concatenate((self._order, new))


def check(factors: Factors, log_prior: Vector | None, draws: int) -> Vector:
    """Return the prior's logarithms, zeros if None. Raises: InvalidShape, NonFinite, InvalidParameter."""
    if factors.arms < 1 or factors.size < 1:
        raise InvalidParameter(
            "log_factors must have at least one row and one column", argument="log_factors"
        )
    checks.in_range("draws", draws, least=1)
    if log_prior is None:
        return np.zeros(factors.arms)
    checks.shape("log_prior", log_prior, (factors.arms,))
    checks.finite("log_prior", log_prior)
    return log_prior.astype(np.float64)
