"""The race of Algorithm 1: arms are read at the same random factors, and leave when they are clearly behind.

Notation
    D, N        number of arms, of factors
    T           factors read so far of every remaining arm; arms are checked at T = m, 2m, 4m, ..., N
    mu^_i       mean of arm i's rewards so far
    sigma^_i    their standard deviation, divided by T; sigma^_i,j of the differences of two arms
    x           the arm of largest mu^ among those left
    C_i         range of arm i's rewards
    G           width: a bound on how far a mean is off, see ``Width``

Marginal: arm i leaves when mu^_x - mu^_i > G(sigma^_x) + G(sigma^_i). Pairwise: when it is > G(sigma^_x,i),
with the range C_x + C_i. Only pairs with the leader are ever needed, so both cost O(D T). The print's
O(D^2 T) is for a table of all pairs.

Source: Chen and Ghahramani, "Scalable Discrete Sampling as a Multi-Armed Bandit Problem", Algorithm 1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from shortlist import checks
from shortlist.errors import InvalidParameter
from shortlist.sampling.factors import Draws, Factors, RandomOrder
from shortlist.sampling.gumbel_max import from_weights
from shortlist.types import Matrix, Rows, Vector

Variance = Literal["pairwise", "marginal"]
Width = Callable[[int, Vector, Vector], Vector]
"""width(T, deviations (m,), ranges (m,)) -> (m,): how far means of T < N rewards can be off."""


class RaceSample(Protocol):
    """The sums read of the remaining arms. Shapes: all results (m,), in the order of the arms."""

    reads: int

    def read_to(self, t: int) -> None:
        """Read on, up to ``t`` factors of every arm that is left."""

    def keep(self, places: Rows) -> None:
        """Forget the other arms."""

    def means(self) -> Vector:
        """Mean of what was read, of each arm that is left. Shape: (m,)."""
        ...

    def deviations(self) -> Vector:
        """Standard deviation of what was read, of each arm that is left. Shape: (m,)."""
        ...

    def deviations_from(self, place: int) -> Vector:
        """Standard deviation of the difference from the arm at ``place``. Shape: (m,), for those left."""
        ...


class FactorSample:
    """A ``RaceSample`` of ``Factors``: keeps what it has read, at most D N numbers."""

    def __init__(self, factors: Factors, order: RandomOrder) -> None:
        self._factors, self._order = factors, order
        self._arms = np.arange(factors.arms)
        self._rewards: Matrix = np.empty((factors.arms, 0))
        self.reads = 0

    def read_to(self, t: int) -> None:
        """As ``RaceSample.read_to``. Cost: a factor of each arm that is left, for each step."""
        indices = self._order.take(self._rewards.shape[1], t)
        self._rewards = np.concatenate((self._rewards, self._factors.read(self._arms, indices)), axis=1)
        self.reads += len(self._arms) * len(indices)

    def keep(self, places: Rows) -> None:
        """As ``RaceSample.keep``."""
        self._arms, self._rewards = self._arms[places], self._rewards[places]

    def means(self) -> Vector:
        """Mean of what was read, of each arm that is left. Shape: (m,)."""
        means: Vector = self._rewards.mean(axis=1)
        return means

    def deviations(self) -> Vector:
        """Standard deviation of what was read, of each arm that is left. Shape: (m,)."""
        deviations: Vector = self._rewards.std(axis=1)
        return deviations

    def deviations_from(self, place: int) -> Vector:
        """Standard deviation of the difference from the arm at ``place``. Shape: (m,), for those left."""
        deviations: Vector = (self._rewards - self._rewards[place]).std(axis=1)
        return deviations


@dataclass(frozen=True, slots=True)
class RaceRules:
    """The rules of a race.

    ``schedule``: the T at which arms are checked, ascending; the last is N. ``ranges`` (D,): the C_i, zeros
    if ``width`` needs none.
    """

    schedule: tuple[int, ...]
    width: Width
    ranges: Vector
    variance: Variance = "pairwise"


def doubling(first: int, size: int) -> tuple[int, ...]:
    """Return the doubling schedule: first, 2 first, 4 first, ... and N = ``size``."""
    schedule = [min(first, size)]
    while schedule[-1] < size:
        schedule.append(min(2 * schedule[-1], size))
    return tuple(schedule)


def rivals(arms: int, variance: Variance) -> int:
    """Return how many events share delta: D marginal, D - 1 pairwise ones. Raises InvalidParameter."""
    if variance not in ("pairwise", "marginal"):
        raise InvalidParameter("variance must be pairwise or marginal", argument="variance")
    return max(1, arms - 1 if variance == "pairwise" else arms)


def race(sample: RaceSample, offsets: Vector, rules: RaceRules) -> int:
    """Return the row of the winner. Shapes: offsets (D,), added to the sums of the rewards."""
    size = rules.schedule[-1]
    left: Rows = np.arange(len(offsets))
    for t in rules.schedule:
        if len(left) == 1:
            break
        sample.read_to(t)
        means = sample.means() + offsets[left] / size
        leader = int(means.argmax())
        if t == size:
            return int(left[leader])
        stay = np.flatnonzero(means[leader] - means <= widths_of(sample, leader, t, rules, left))
        left = left[stay]
        sample.keep(stay)
    return int(left[0])


def widths_of(sample: RaceSample, leader: int, t: int, rules: RaceRules, left: Rows) -> Vector:
    ranges = rules.ranges[left]
    if rules.variance == "pairwise":
        return rules.width(t, sample.deviations_from(leader), ranges[leader] + ranges)
    single = rules.width(t, sample.deviations(), ranges)
    widths: Vector = single[leader] + single
    return widths


def draw(
    factors: Factors,
    log_prior: Vector,
    draws: int,
    rng: np.random.Generator,
    decide: Callable[[Factors, Vector, np.random.Generator], tuple[int, int]],
    *,
    least: int,
) -> Draws:
    """Draw by ``decide(factors, offsets, rng) -> (row, reads)``, and exactly once that is cheaper.

    Every draw has its own Gumbel variables and its own random order, so the draws are independent. Once all
    sums are known every draw is free, so they are computed when the draws to come would read more than D N.
    ``least``: a race reads at least this many factors of every arm.
    """
    most, reads, rows = factors.exhaustive_reads, 0, list[int]()
    while len(rows) < draws:
        to_come = draws - len(rows)
        expected = reads / len(rows) if rows else factors.arms * least
        if draws > 1 and expected * to_come >= most:
            further = from_weights(log_prior + factors.sums(), draws=to_come, rng=rng)
            return Draws(
                np.concatenate((np.array(rows, dtype=np.int64), further)), most, most, raced=len(rows)
            )
        row, read = decide(factors, log_prior + rng.gumbel(size=factors.arms), rng)
        rows.append(row)
        reads += read
    raced = draws if least < factors.size else 0  # a first check at T = N decides nothing early
    return Draws(np.array(rows, dtype=np.int64), min(reads, most), most, raced)


def draw_by_race(
    factors: Factors, log_prior: Vector, draws: int, rng: np.random.Generator, rules: RaceRules
) -> Draws:
    """Return what ``draw`` does, each draw decided by a race over the factors in a random order."""

    def decide(some: Factors, offsets: Vector, generator: np.random.Generator) -> tuple[int, int]:
        sample = FactorSample(some, RandomOrder(some.size, generator))
        return race(sample, offsets, rules), sample.reads

    return draw(factors, log_prior, draws, rng, decide, least=rules.schedule[0])


def check_race(delta: float, first: int) -> None:
    """Raise InvalidParameter unless ``delta`` is a probability and ``first`` at least 1."""
    checks.delta(delta)
    checks.in_range("first", first, least=1)
