"""Which slate is shown at which pull: fixed in advance, before any result, by a seed.

Notation
    n, k        number of arms, size of a slate
    lambda      share of each slate of the support (p,)
    A(lambda)   sum of lambda_i chi_i chi_i'; the G-criterion is max over i of chi_i' A(lambda)^-1 chi_i, at
                least n, and n for the best lambda (Kiefer and Wolfowitz)

uniform     The first n pulls show slates whose vectors are a basis. Then the arms are shuffled and cut into
            floor(n / k) slates, again and again: every slate is equally likely, no support is fixed, and arms
            are shown equally often. Uniform over all C(n, k) slates is exactly G-optimal, by symmetry.
g           The continuous relaxation over a support of p slates, rounded to periods of 10 p pulls.

A shuffle is the order of 64-bit hashes of (seed, number of the shuffle, arm), so that any pull's slate is
known without those before it, in every version of every library.

Source: Kuroki et al., section 4 and Appendix D; Pukelsheim, "Optimal Design of Experiments", chapter 12; the
hash is the finaliser of Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from app.algorithms import checks
from app.algorithms.slates.certified_bounds import upper_bound
from app.algorithms.types import Matrix, Rows, Vector
from app.errors import InvalidParameter

MOST_G_ARMS = 200
# The support of g has this many slates an arm, and its period this many pulls a slate.
_SUPPORT = 12
_PERIOD = 10
# The relaxation ends this close to the optimum, relatively, or after this many steps.
_TOLERANCE = 0.02
_MOST_STEPS = 100
# 2^64 over the golden ratio: numbers that follow each other are hashed from far apart.
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, slots=True, eq=False)
class Design:
    """A support (p, k) and how often each slate of it is shown in a period (p,); none for ``uniform``.

    ``criterion`` bounds the G-criterion of a period over all slates, not only the support's; n is ideal.
    """

    support: NDArray[np.int64]
    counts: NDArray[np.int64]
    criterion: float


UNIFORM = Design(np.empty((0, 0), dtype=np.int64), np.empty(0, dtype=np.int64), 0.0)


def slates(design: Design, n: int, k: int, seed: int, pulls: Rows) -> Rows:
    """Return the slate of each pull. Cost: O(m n log n).

    ``design``: see ``g_design``, or ``UNIFORM``. ``pulls``: their numbers.
    Shapes: (m,) -> (m, k), each row ascending.
    """
    if not len(pulls):
        return np.empty((0, k), dtype=np.int64)
    if len(design.counts):
        return _periodic(design, seed, pulls)
    # DEVIATION (section 5, uniform allocation): no fixed support; see "Allocations".
    return np.sort(_uniform(n, k, seed, pulls), axis=1)


@lru_cache(maxsize=8)
def g_design(n: int, k: int, seed: int) -> Design:
    """Return the rounded G-allocation over the first 12 n slates of ``uniform``.

    Cost: O(n^3) a step, at most 100. Raises: InvalidParameter (more than 200 arms).
    """
    if n > MOST_G_ARMS:
        text = f"allocation g is for at most {MOST_G_ARMS} arms; uniform is near its optimum for any number"
        raise InvalidParameter(text, loc=("allocation",))
    support = np.unique(slates(UNIFORM, n, k, seed, np.arange(_SUPPORT * n)), axis=0)
    weights, _ = g_optimal(support, n)
    # DEVIATION (App. D): rounded for one period, whose order is shuffled anew each time, not for every t.
    counts = rounded(weights, _PERIOD * len(support))
    vectors = _vectors(support, n)
    A = (vectors * (counts / counts.sum())[:, np.newaxis]).T @ vectors
    return Design(support, counts, upper_bound(np.linalg.inv(A), k))


def g_optimal(support: Rows, n: int) -> tuple[Vector, float]:
    """Return lambda, and its G-criterion over the support, at most 2 % above the optimum or after 100 steps.

    Shapes: support (p, k) -> (p,). Raises: InvalidParameter (A cannot be inverted whatever lambda is).
    """
    checks.shape("support", support, (None, None))
    vectors = _vectors(support, n)
    if np.linalg.matrix_rank(vectors) < n:
        text = "support must hold n linearly independent slates: otherwise no design tells the arms apart"
        raise InvalidParameter(text, loc=("support",))
    weights = np.full(len(support), 1.0 / len(support))
    for _ in range(_MOST_STEPS):
        spread = _variances(vectors, weights)
        if spread.max() <= n * (1.0 + _TOLERANCE):
            break
        weights = weights * spread / n
    return weights, float(_variances(vectors, weights).max())


def _vectors(support: Rows, n: int) -> Matrix:
    vectors = np.zeros((len(support), n))
    np.put_along_axis(vectors, support, 1.0, axis=1)
    return vectors


def _variances(vectors: Matrix, weights: Vector) -> Vector:
    """Return chi_i' A(lambda)^-1 chi_i for every slate of the support; their mean under lambda is n."""
    A = (vectors * weights[:, np.newaxis]).T @ vectors
    spread: Vector = ((vectors @ np.linalg.inv(A)) * vectors).sum(axis=1)
    return spread


def rounded(weights: Vector, total: int) -> NDArray[np.int64]:
    """Return how often each slate is shown in ``total`` pulls, by efficient apportionment.

    N_i = ceil((total - p/2) lambda_i), then one more or less of the cheapest until they add up.

    With total >= p every slate of positive weight is shown. Shapes: (p,) -> (p,).
    """
    counts = np.ceil((total - len(weights) / 2.0) * weights).astype(np.int64)
    while counts.sum() < total:
        counts[np.argmin(counts / weights)] += 1
    while counts.sum() > total:
        counts[np.argmax((counts - 1) / weights)] -= 1
    return counts


def basis(n: int, k: int) -> Rows:
    """Return n slates whose vectors are a basis of R^n, for 1 <= k < n. Shape (n, k).

    {0..k-1}; it with j >= k for 0, which gives e_j - e_0; it with n-1 for 0 < i < k: e_(n-1) - e_i. These
    differences span 1-perp, and the first slate is not in it.
    """
    made = np.tile(np.arange(k), (n, 1))
    made[1 : n - k + 1, 0] = np.arange(k, n)
    made[np.arange(n - k + 1, n), np.arange(1, k)] = n - 1
    return made


def _uniform(n: int, k: int, seed: int, pulls: Rows) -> Rows:
    blocks = n // k
    places, block = np.divmod(np.maximum(pulls - n, 0), blocks)
    rounds, which = np.unique(places + 1, return_inverse=True)
    order = shuffles(seed, rounds, n)
    found = np.take_along_axis(order[which], block[:, np.newaxis] * k + np.arange(k), axis=1)
    first = pulls < n
    found[first] = shuffles(seed, np.zeros(1, dtype=np.int64), n)[0][basis(n, k)[pulls[first]]]
    return found


def _periodic(design: Design, seed: int, pulls: Rows) -> Rows:
    sequence = np.repeat(np.arange(len(design.counts)), design.counts)
    periods, place = np.divmod(pulls, len(sequence))
    rounds, which = np.unique(periods, return_inverse=True)
    order = shuffles(seed, rounds, len(sequence))
    return design.support[sequence[order[which, place]]]


def shuffles(seed: int, rounds: Rows, n: int) -> Rows:
    """Return one random order of 0..n-1 for each round. Shapes: (m,) -> (m, n)."""
    with np.errstate(over="ignore"):
        base = _hash(np.array([seed & (2**64 - 1), seed >> 64], dtype=np.uint64))
        key = _hash(base[0] ^ (base[1] << np.uint64(1)) ^ _hash(rounds.astype(np.uint64)))
        words = _hash(key[:, np.newaxis] + np.arange(1, n + 1, dtype=np.uint64) * _GOLDEN)
    return np.argsort(words, axis=1, kind="stable")


def _hash(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """A bijection of 64-bit words in which every bit of the argument moves about half of the bits."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))
