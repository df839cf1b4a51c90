"""Allocation of slates to pulls: fixed in advance, before any result, by a seed.

Notation
    n, k        number of arms, size of a slate
    lambda      share of each slate of the support (p,)
    A(lambda)   sum of lambda_i chi_i chi_i', a sum over the support
    d           dimension spanned by the slates: n, or less under a matroid (``matroids``)
    ||v||^2     v' A(lambda)^-1 v. The G-criterion is the largest ||chi_i||^2, at least d, and d for the best
                lambda (Kiefer and Wolfowitz); the XY-criterion is the largest ||chi_i - chi_j||^2

uniform     The first d pulls show slates whose vectors are a basis. Then the arms are shuffled and cut into
            floor(n / k) slates, again and again: every slate is equally likely, no support is fixed, and arms
            are shown equally often. Uniform over all C(n, k) slates is G- and XY-optimal, by symmetry.
            Under a matroid each shuffle gives one slate, the greedy one: every slate has some probability.
g, xy       The continuous relaxation over a support of p slates, rounded to periods of 10 p pulls.

A shuffle is the order of 64-bit hashes of (seed, number of the shuffle, arm), by which any pull's slate is
known without those before, in every version of every library.

Source: Kuroki et al., section 4 and Appendix D; Pukelsheim, "Optimal Design of Experiments", chapter 12; the
hash is the finaliser of Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from shortlist import checks
from shortlist.errors import InvalidParameter
from shortlist.slates.certified_bounds import upper_bound
from shortlist.slates.matroids import Matroid, PartitionMatroid, UniformMatroid, spanning, unseen
from shortlist.types import Matrix, Rows, Vector

Allocation = Literal["uniform", "g", "xy"]

MOST_G_ARMS = 200
MOST_XY_ARMS = 50
# The support of g and xy has this many slates an arm, and its period this many pulls a slate.
_SUPPORT = 12
_PERIOD = 10
# The relaxation ends this close to the optimum, relatively, or after this many steps.
_TOLERANCE = 0.02
_MOST_STEPS = 100
_XY_STEPS = 100
# Orders that are drawn at a time.
_CHUNK = 1_000
# 2^64 over the golden ratio: numbers that follow each other are hashed from far apart.
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, slots=True, eq=False)
class Design:
    """A support (p, k) and how often each slate of it is shown in a period (p,); none for ``uniform``.

    ``criterion`` of ``g`` bounds the G-criterion of a period over all slates, not only the support's; d is
    ideal. It is 0 for the others.
    """

    support: NDArray[np.int64]
    counts: NDArray[np.int64]
    criterion: float


UNIFORM = Design(np.empty((0, 0), dtype=np.int64), np.empty(0, dtype=np.int64), 0.0)


def slates(design: Design, matroid: Matroid, seed: int, pulls: Rows) -> Rows:
    """Return the slate of each pull. Cost: O(m n log n), and an oracle call for each under a matroid.

    ``design``: see ``design_of``, or ``UNIFORM``. ``pulls``: their numbers.
    Shapes: (m,) -> (m, k), each row ascending.
    """
    if not len(pulls):
        return np.empty((0, matroid.k), dtype=np.int64)
    if len(design.counts):
        return _periodic(design, seed, pulls)
    # DEVIATION (section 5, uniform allocation): no fixed support; see "Allocations".
    if isinstance(matroid, UniformMatroid):
        return np.sort(_uniform(matroid.n, matroid.k, seed, pulls), axis=1)
    return _greedy(matroid, seed, pulls)


@lru_cache(maxsize=8)
def design_of(allocation: Allocation, matroid: Matroid, seed: int, slates_per_arm: int = _SUPPORT) -> Design:
    """Return the rounded allocation over the first 12 n slates of ``uniform``; none for ``uniform`` itself.

    Cost: O(n^3) a step of g, O(p^3) of xy with p <= 12 n; at most 100 steps.
    Raises: InvalidParameter (more than 200 arms for g, 50 for xy).
    """
    if allocation == "uniform":
        return UNIFORM
    row, n = _OPTIMAL[allocation], matroid.n
    if n > row.most_arms:
        text = f"allocation {allocation} is for at most {row.most_arms} arms; uniform takes any number"
        raise InvalidParameter(text, argument="allocation")
    support = np.unique(slates(UNIFORM, matroid, seed, np.arange(slates_per_arm * n)), axis=0)
    hidden = unseen(matroid)
    weights, _ = row.weights(support, n, hidden)
    # DEVIATION (App. D): rounded for one period, whose order is shuffled again each time, not for every t.
    counts = rounded(weights, _PERIOD * len(support))
    if allocation != "g":
        return Design(support, counts, 0.0)
    W = _inverse(_vectors(support, n), counts / counts.sum(), hidden)
    return Design(support, counts, upper_bound(W - hidden @ hidden.T, matroid.k))


def g_optimal(support: Rows, n: int, hidden: Matrix) -> tuple[Vector, float]:
    """Return lambda, and its G-criterion over the support, at most 2 % above the optimum or after 100 steps.

    ``hidden``: an orthonormal basis of what no slate of the matroid sees, see ``matroids.unseen``.
    Shapes: support (p, k), hidden (n, n - d) -> (p,).
    Raises: InvalidParameter (A cannot be inverted whatever lambda is).
    """
    vectors = _spanning_vectors(support, n, hidden)
    dimension = n - hidden.shape[1]
    weights = np.full(len(support), 1.0 / len(support))
    for _ in range(_MOST_STEPS):
        spread = _variances(vectors, weights, hidden)
        if spread.max() <= dimension * (1.0 + _TOLERANCE):
            break
        weights = weights * spread / dimension
    return weights, float(_variances(vectors, weights, hidden).max())


def xy_optimal(support: Rows, n: int, hidden: Matrix) -> tuple[Vector, float]:
    """Return lambda, and its XY-criterion over the pairs of the support: the least of 100 steps.

    min over lambda of max over pairs is a game. Pairs have weights mu, which grow by (||chi_i - chi_j||^2)^2,
    and slates by the square root of what they take from the mean of ||chi_i - chi_j||^2 under mu.
    Shapes and errors: as ``g_optimal``.
    """
    vectors = _spanning_vectors(support, n, hidden)
    weights: Vector = np.full(len(support), 1.0 / len(support))
    mu = 1.0 - np.eye(len(support))
    best, least = weights, math.inf
    for _ in range(_XY_STEPS):
        gram = vectors @ _inverse(vectors, weights, hidden) @ vectors.T
        squares = np.diag(gram)[:, np.newaxis] + np.diag(gram) - 2.0 * gram
        if squares.max() < least:
            best, least = weights, float(squares.max())
        mu = mu * (squares / squares.max()) ** 2
        mu /= mu.sum()
        # The sum over pairs of mu_ij (gram_li - gram_lj)^2 is what the slate l takes, halved.
        reductions = (gram**2) @ mu.sum(axis=0) - ((gram @ mu) * gram).sum(axis=1)
        weights = weights * np.sqrt(np.maximum(reductions, 0.0))
        weights /= weights.sum()
    return best, least


def _spanning_vectors(support: Rows, n: int, hidden: Matrix) -> Matrix:
    checks.shape("support", support, (None, None))
    vectors = _vectors(support, n)
    if np.linalg.matrix_rank(vectors) < n - hidden.shape[1]:
        text = "support must hold n linearly independent slates: otherwise no design tells the arms apart"
        raise InvalidParameter(text, argument="support")
    return vectors


def _vectors(support: Rows, n: int) -> Matrix:
    vectors = np.zeros((len(support), n))
    np.put_along_axis(vectors, support, 1.0, axis=1)
    return vectors


def _inverse(vectors: Matrix, weights: Vector, hidden: Matrix) -> Matrix:
    """Return the inverse of A(lambda) + hidden hidden': that of A on what slates see, 1 on the rest."""
    A = (vectors * weights[:, np.newaxis]).T @ vectors
    inverse: Matrix = np.linalg.inv(A + hidden @ hidden.T).astype(np.float64, copy=False)
    return inverse


def _variances(vectors: Matrix, weights: Vector, hidden: Matrix) -> Vector:
    """Return ||chi_i||^2 for every slate of the support; their mean under lambda is d."""
    spread: Vector = ((vectors @ _inverse(vectors, weights, hidden)) * vectors).sum(axis=1)
    return spread


@dataclass(frozen=True, slots=True)
class _Optimal:
    """A row of ``_OPTIMAL``: how lambda is found, and for how many arms at most."""

    weights: Callable[[Rows, int, Matrix], tuple[Vector, float]]
    most_arms: int


_OPTIMAL: Mapping[Allocation, _Optimal] = {
    "g": _Optimal(g_optimal, MOST_G_ARMS),
    "xy": _Optimal(xy_optimal, MOST_XY_ARMS),
}


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

    {0..k-1}; this with j >= k for 0, which gives e_j - e_0; this with n-1 for 0 < i < k: e_(n-1) - e_i. These
    differences span 1-perp, without the first slate.
    """
    bases = np.tile(np.arange(k), (n, 1))
    bases[1 : n - k + 1, 0] = np.arange(k, n)
    bases[np.arange(n - k + 1, n), np.arange(1, k)] = n - 1
    return bases


def _uniform(n: int, k: int, seed: int, pulls: Rows) -> Rows:
    blocks = n // k
    places, block = np.divmod(np.maximum(pulls - n, 0), blocks)
    rounds, which = np.unique(places + 1, return_inverse=True)
    order = shuffles(seed, rounds, n)
    slates = np.take_along_axis(order[which], block[:, np.newaxis] * k + np.arange(k), axis=1)
    first = pulls < n
    slates[first] = shuffles(seed, np.zeros(1, dtype=np.int64), n)[0][basis(n, k)[pulls[first]]]
    return slates


def _greedy(matroid: Matroid, seed: int, pulls: Rows) -> Rows:
    """Return the slates of pulls: d that span all, then the best one for random weights each."""
    start = _bases(matroid, shuffles(seed, np.zeros(1, dtype=np.int64), matroid.n))[0]
    first = spanning(matroid, tuple(start.tolist())).slates
    slates = np.empty((len(pulls), matroid.k), dtype=np.int64)
    early = pulls < len(first)
    slates[early] = first[pulls[early]]
    late = np.flatnonzero(~early)
    for places in np.split(late, np.arange(_CHUNK, len(late), _CHUNK)):
        slates[places] = _bases(matroid, shuffles(seed, pulls[places] - len(first) + 1, matroid.n))
    return slates


def _bases(matroid: Matroid, orders: Rows) -> Rows:
    """Return the best slate for each order of the arms, best first. Shapes: (m, n) -> (m, k)."""
    if isinstance(matroid, PartitionMatroid):  # a call of the oracle each would take four times as long
        return matroid.greedy(orders)
    weights = -np.argsort(orders, axis=1).astype(np.float64)
    return np.array([matroid.best(row) for row in weights], dtype=np.int64).reshape(-1, matroid.k)


def _periodic(design: Design, seed: int, pulls: Rows) -> Rows:
    sequence = np.repeat(np.arange(len(design.counts)), design.counts)
    periods, offset = np.divmod(pulls, len(sequence))
    rounds, which = np.unique(periods, return_inverse=True)
    order = shuffles(seed, rounds, len(sequence))
    return design.support[sequence[order[which, offset]]]


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
