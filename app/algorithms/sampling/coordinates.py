"""Draws from the softmax of inner products, by racing over the coordinates of blocked arms.

Notation
    n, N        number of arms, of coordinates
    q, tau      query (N,), temperature: p(i) is proportional to exp(q.x_i / tau); ``rewards`` are of q / tau
    y_i,j       reward of coordinate j: a term of q.x_i / tau, up to a constant for each coordinate
    g_i         a Gumbel variable for every arm
    t, t_s      coordinates read of every arm that is left; those whose second moments were taken
    x           the arm of largest mean among those left, the leader
    e           bound on the rounding error of a mean of rewards

log p(i) is a sum over coordinates, so it is a sum of N factors. Reads are those of ``mips.blocked``, in the
order of a permutation that was drawn once for the layout. Second moments are taken of the first coordinates
only, whose squares are kept; they are upper bounds, rounding included. 2 e is added to every width, and what
is left at the end is compared by scores in float64.

The order is the layout's: each draw is within delta of p over the choice of that order, but draws under one
layout are not independent. So only single draws are raced; several draws are made from all scores.

Source: Chen and Ghahramani, "Scalable Discrete Sampling as a Multi-Armed Bandit Problem", Algorithm 1.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from app.algorithms import checks
from app.algorithms.mips import racing
from app.algorithms.mips.exact import candidates
from app.algorithms.mips.prices import least_sample
from app.algorithms.mips.rewards import BlockedRewards
from app.algorithms.mips.tally import Tally
from app.algorithms.sampling.b_normal import b_normal
from app.algorithms.sampling.factors import Draws
from app.algorithms.sampling.race import Variance, doubling, rivals
from app.algorithms.sampling.racing_normal import FIRST, normal_width
from app.algorithms.types import Rows, Vector

_FIRST_SHARE = 1.0 / 64.0

Method = Literal["racing_normal", "racing_ebs"]


def race_coordinates(
    rewards: BlockedRewards,
    *,
    method: Method,
    delta: float,
    rng: np.random.Generator,
    variance: Variance = "pairwise",
) -> Draws:
    """Return one draw; its distribution is within ``delta`` of p in total variation, as ``method`` has it.

    ``variance`` is of racing_normal; the widths of racing_ebs are marginal, those of ``mips.racing``.
    Shapes: rewards of n arms -> rows (1,): a place among the arms. Cost: at most n N reads.
    Raises: InvalidParameter (delta not in (0, 1), variance).
    """
    checks.in_range("delta", delta, above=0.0, below=1.0)
    tally, offsets = Tally(rewards), rng.gumbel(size=rewards.size)
    widths = (
        _Normal(tally, rewards, delta, variance)
        if method == "racing_normal"
        else _Bernstein(tally, rewards, delta)
    )
    for t in widths.looks:
        if len(tally.places) == 1:
            break
        widths.read_to(t)
        means = tally.sums / t + offsets[tally.places] / rewards.dim
        leader = int(means.argmax())
        stay = np.flatnonzero(means[leader] - means <= widths.of(leader) + 2.0 * rewards.noise)
        tally.keep(stay)
        widths.keep(stay)
    winner = _best(tally, offsets)
    most = rewards.size * rewards.dim
    return Draws(np.array([winner]), min(tally.reads, most), most, raced=1)


def _best(tally: Tally, offsets: Vector) -> int:
    """Return the place of the best of the arms that are left, all of them read to the end."""
    if len(tally.places) == 1:
        return int(tally.places[0])
    rewards = tally.rewards
    noise = tally.read_rest()
    noisy = tally.sums + offsets[tally.places]
    close = tally.places[candidates(noisy, noise, 1)]
    _, scores = rewards.scores(close)
    return int(close[(scores + offsets[close]).argmax()])


class _Normal:
    """The widths of Equation 9."""

    def __init__(self, tally: Tally, rewards: BlockedRewards, delta: float, variance: Variance) -> None:
        self._tally, self._rewards, self._variance = tally, rewards, variance
        size, batch = rewards.dim, max(FIRST, _FIRST_SHARE * rewards.dim)
        first = rewards.rounded(max(batch, least_sample(rewards.size, size)))
        self._batch = min(first, max(rewards.rounded(batch), rewards.arms.squared_to))
        self.looks = doubling(first, size)[:-1]
        bound = b_normal(delta / rivals(rewards.size, variance), first / size)
        self._width = normal_width(size, bound)
        self._sums: Vector = tally.sums
        self._leader, self._deviations = -1, tally.sums

    def read_to(self, t: int) -> None:
        # DEVIATION (section 3.3.2): sigma^ is that of the first batch; see "Racing over coordinates".
        tally = self._tally
        if tally.t == 0:
            tally.read_to(self._batch, squares=True)
            self._sums = tally.sums.copy()
        tally.read_to(t)

    def of(self, leader: int) -> Vector:
        tally, t = self._tally, self._tally.t
        if self._variance == "marginal":
            means = self._sums / tally.squared
            single = self._width(t, _root(tally.squares / tally.squared - means**2), means)
            widths: Vector = single + single[leader]
            return widths
        if int(tally.places[leader]) != self._leader:
            self._leader, self._deviations = int(tally.places[leader]), self._deviations_from(leader)
        return self._width(t, self._deviations, self._deviations)

    def keep(self, stay: Rows) -> None:
        self._sums = self._sums[stay]
        if self._variance == "pairwise":
            self._deviations = self._deviations[stay]

    def _deviations_from(self, leader: int) -> Vector:
        """From sum (y_i - y_x)^2 = sum y_i^2 - 2 sum y_i y_x + sum y_x^2, the middle one a product again."""
        tally, rewards, arms = self._tally, self._rewards, self._rewards.arms
        row = arms.rows[tally.places[leader]]
        weights = rewards.query**2 * (arms.vectors[row] - arms.columns.center)
        largest = float(np.abs(weights).max()) or 1.0
        scaled = (weights / largest).astype(np.float32)
        picked, mine = tally.to_read()
        crossed = largest * arms.products(scaled, 0, tally.squared, picked, buffer=rewards.buffer)[mine]
        squares = tally.squares - 2.0 * crossed + tally.squares[leader]
        return _root(squares / tally.squared - ((self._sums - self._sums[leader]) / tally.squared) ** 2)


class _Bernstein:
    """The widths of ``mips.racing``: proven, for the range and the second moments of the rewards."""

    def __init__(self, tally: Tally, rewards: BlockedRewards, delta: float) -> None:
        self._tally = tally
        self.looks = tuple(racing.looks(rewards))
        # DEVIATION (section 3.3.1): the bound of ``mips.racing``, which is narrower and needs no squares.
        self._level = math.log(2.0 * rewards.size * max(1, len(self.looks)) / delta)
        self._roots = rewards.roots()

    def read_to(self, t: int) -> None:
        self._tally.read_to(t)

    def of(self, leader: int) -> Vector:
        radius, self._roots = racing.radii(self._tally, self._roots, self._level, "second_moment")
        widths: Vector = radius + radius[leader]
        return widths

    def keep(self, stay: Rows) -> None:
        self._roots = self._roots[stay]


def _root(variances: Vector) -> Vector:
    root: Vector = np.sqrt(np.maximum(variances, 0.0))
    return root
