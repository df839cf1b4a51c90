"""Draws from the softmax of inner products, by racing over the coordinates of blocked arms.

Notation
    n, N        number of arms, of coordinates
    q, tau      query (N,), temperature: p(i) is proportional to exp(q.x_i / tau); ``rewards`` are of q / tau
    y_i,j       reward of coordinate j: a term of q.x_i / tau, up to a constant for each coordinate
    g_i         a Gumbel variable for every arm
    t           coordinates read of every remaining arm
    t_s         number of those with second moments
    x           the arm of largest mean among those left, the leader
    e           bound on the rounding error of a mean of rewards

log p(i) is a sum over coordinates, so it is a sum of N factors. They are read from ``mips.blocked``, in the
order of a permutation drawn once for the layout. Second moments are taken of the first coordinates only,
whose squares are kept. They are upper bounds, rounding included. 2 e is added to every width, and the
remaining arms at the end are compared by scores in float64.

All draws under one layout share its order. Over the choice of that order each draw is within delta of p, but
the draws are not independent. So only single draws are raced; several draws are made from all scores.

Source: Chen and Ghahramani, "Scalable Discrete Sampling as a Multi-Armed Bandit Problem", Algorithm 1.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from shortlist import checks
from shortlist.mips import racing
from shortlist.mips.columns import Columns
from shortlist.mips.exact import candidates
from shortlist.mips.partial_sums import PartialSums
from shortlist.mips.rewards import BlockedRewards
from shortlist.sampling.b_normal import b_normal
from shortlist.sampling.factors import Draws, Factors
from shortlist.sampling.race import Variance, doubling, rivals
from shortlist.sampling.racing_normal import FIRST, normal_width
from shortlist.types import Matrix, Rows, Vector

# The deviations of racing_normal are those of at least this share of the coordinates.
_FIRST_SHARE = 1.0 / 64.0

RaceMethod = Literal["racing_normal", "racing_ebs"]


def as_factors(features: Matrix, rows: Rows, query: Vector, columns: Columns) -> tuple[Factors, float]:
    """The terms of the inner products as log factors, each less the least of all arms, and the range of all.

    Shapes: features (K, N), rows (n,) of arms, query (N,) over the temperature; ``columns`` of the rows.
    """
    least, top, _ = columns.terms(query, "inner_product")

    def log_factors(arms: Rows, indices: Rows) -> Matrix:
        terms: Matrix = features[rows[arms][:, None], indices] * query[indices] - least[indices]
        return terms

    return Factors(len(rows), features.shape[1], log_factors), float((top - least).max())


def race_coordinates(
    rewards: BlockedRewards,
    *,
    method: RaceMethod,
    delta: float,
    rng: np.random.Generator,
    variance: Variance = "pairwise",
) -> Draws:
    """Return one draw; its distribution is within ``delta`` of p in total variation.

    ``method`` racing_normal promises that for Gaussian means, racing_ebs always. ``variance`` is used by
    racing_normal; the widths of racing_ebs are marginal, those of ``mips.racing``.
    Shapes: rewards of n arms -> rows (1,): a place among the arms. Cost: at most n N reads.
    Raises: InvalidParameter (delta not in [1e-100, 1), variance).
    """
    checks.delta(delta)
    partial, offsets = PartialSums(rewards), rng.gumbel(size=rewards.size)
    widths = (
        _Normal(partial, rewards, delta, variance)
        if method == "racing_normal"
        else _Bernstein(partial, rewards, delta)
    )
    for t in widths.schedule:
        if len(partial.places) == 1:
            break
        widths.read_to(t)
        means = estimates(partial.sums, t, offsets[partial.places], rewards.dim)
        leader = int(means.argmax())
        stay = within(means, leader, widths.of(leader), rewards.noise)
        partial.keep(stay)
        widths.keep(stay)
    winner = _best(partial, offsets)
    most = rewards.size * rewards.dim
    return Draws(np.array([winner]), min(partial.reads, most), most, raced=1)


def estimates(sums: Vector, t: int, offsets: Vector, dim: int) -> Vector:
    """Return the estimated means of the rewards and of a share of the Gumbel variable each: g / N, N ``dim``.

    ``sums`` are those of ``t`` rewards, ``offsets`` the g. Shapes: (m,), (m,) -> (m,).
    """
    return sums / t + offsets / dim


def within(means: Vector, leader: int, widths: Vector, noise: float) -> Rows:
    """Return the positions that are behind the leader by no more than their widths and two rounding errors.

    ``noise`` is e: the largest error of the means of both arms. Shapes: means, widths (m,).
    """
    return np.flatnonzero(means[leader] - means <= widths + 2.0 * noise)


def _best(partial: PartialSums, offsets: Vector) -> int:
    """Return the place of the best of the arms that are left, all of them read to the end."""
    if len(partial.places) == 1:
        return int(partial.places[0])
    rewards = partial.rewards
    noise = partial.read_rest()
    noisy = partial.sums + offsets[partial.places]
    close = partial.places[candidates(noisy, noise, 1)]
    _, scores = rewards.scores(close)
    return int(close[(scores + offsets[close]).argmax()])


class _Normal:
    """The widths of Equation 9."""

    def __init__(
        self, partial: PartialSums, rewards: BlockedRewards, delta: float, variance: Variance
    ) -> None:
        self._partial, self._rewards, self._variance = partial, rewards, variance
        size, batch = rewards.dim, max(FIRST, _FIRST_SHARE * rewards.dim)
        first = rewards.rounded(max(batch, rewards.costs.least_sample(rewards.size, size)))
        self._batch = min(first, max(rewards.rounded(batch), rewards.arms.squared_to))
        self.schedule = doubling(first, size)[:-1]
        bound = b_normal(delta / rivals(rewards.size, variance), first / size)
        self._width = normal_width(size, bound)
        self._sums: Vector = partial.sums
        self._leader, self._deviations = -1, partial.sums

    def read_to(self, t: int) -> None:
        # DEVIATION (section 3.3.2): sigma^ is that of the first batch; see "Racing over coordinates".
        partial = self._partial
        if partial.t == 0:
            partial.read_to(self._batch, squares=True)
            self._sums = partial.sums.copy()
        partial.read_to(t)

    def of(self, leader: int) -> Vector:
        partial, t = self._partial, self._partial.t
        if self._variance == "marginal":
            means = self._sums / partial.squared
            single = self._width(t, _root(partial.squares / partial.squared - means**2), means)
            widths: Vector = single + single[leader]
            return widths
        if int(partial.places[leader]) != self._leader:
            self._leader, self._deviations = int(partial.places[leader]), self._deviations_from(leader)
        return self._width(t, self._deviations, self._deviations)

    def keep(self, stay: Rows) -> None:
        self._sums = self._sums[stay]
        if self._variance == "pairwise":
            self._deviations = self._deviations[stay]

    def _deviations_from(self, leader: int) -> Vector:
        """From sum (y_i - y_x)^2 = sum y_i^2 - 2 sum y_i y_x + sum y_x^2, the middle one a product again."""
        partial, rewards, arms = self._partial, self._rewards, self._rewards.arms
        row = arms.rows[partial.places[leader]]
        weights = rewards.query**2 * (arms.vectors[row] - arms.columns.center)
        largest = float(np.abs(weights).max()) or 1.0
        scaled = (weights / largest).astype(np.float32)
        picked, mine = partial.to_read()
        crossed = largest * arms.products(scaled, 0, partial.squared, picked, buffer=rewards.buffer)[mine]
        squares = partial.squares - 2.0 * crossed + partial.squares[leader]
        return _root(squares / partial.squared - ((self._sums - self._sums[leader]) / partial.squared) ** 2)


class _Bernstein:
    """The widths of ``mips.racing``: proven, for the range and the second moments of the rewards."""

    def __init__(self, partial: PartialSums, rewards: BlockedRewards, delta: float) -> None:
        self._partial = partial
        self.schedule = tuple(racing.schedule(rewards))
        # DEVIATION (section 3.3.1): the bound of ``mips.racing``, which is narrower and needs no squares.
        self._level = math.log(2.0 * rewards.size * max(1, len(self.schedule)) / delta)
        self._roots = rewards.root_mean_squares()

    def read_to(self, t: int) -> None:
        self._partial.read_to(t)

    def of(self, leader: int) -> Vector:
        radius, self._roots = racing.radii(self._partial, self._roots, self._level, "second_moment")
        widths: Vector = radius + radius[leader]
        return widths

    def keep(self, stay: Rows) -> None:
        self._roots = self._roots[stay]


def _root(variances: Vector) -> Vector:
    root: Vector = np.sqrt(np.maximum(variances, 0.0))
    return root
