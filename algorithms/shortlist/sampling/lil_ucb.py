"""Adapted lil'UCB: read the arm of highest upper confidence bound, as the law of the iterated logarithm has
it.

Notation
    D, N        number of arms, of factors
    T_i         factors read so far of arm i
    mu^_i       mean of their rewards
    C_i         range of log f_n(i) over n; sigma_i = C_i / 2
    U_i         sigma_i (1 + beta) (1 + sqrt(eps)) sqrt(2 (1 + eps) log(log((1 + eps) T_i) / w) / T_i), 0 at
                T_i = N
    w           a share of delta

``safe``: beta = 0 and the w for which all bounds hold at all times with probability 1 - delta (the proof is
in docs/papers/racing-samplers.md); the race stops when one arm's lower bound is above all other upper bounds.
``heuristic``: eps = 0, beta = 1/2, w = delta / 5, and the race stops when one arm was read more than 1 +
lambda times all others together, lambda = 1 + 10/D; recommended in the source, faster, and without any
guarantee. Both stop as well when the arm of highest bound is read to its end.

Source: Chen and Ghahramani, "Scalable Discrete Sampling as a Multi-Armed Bandit Problem", section 3.2;
Jamieson, Malloy, Nowak, Bubeck, "lil' UCB: an optimal exploration algorithm for multi-armed bandits", COLT
2014, Figure 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.special import zeta

from shortlist.errors import InvalidParameter
from shortlist.sampling.factors import Draws, Factors, check
from shortlist.sampling.race import check_race, draw
from shortlist.sampling.racing_ebs import check_ranges
from shortlist.types import Rows, Vector

Setting = Literal["safe", "heuristic"]

SAFE_EPSILON = 0.1
_GROWTH = 16


@dataclass(frozen=True, slots=True)
class Constants:
    """``share`` is w. ``ratio`` is lambda; None stops by lower bounds."""

    epsilon: float
    beta: float
    share: float
    ratio: float | None

    def width(self, t: int) -> float:
        """Return U_i / sigma_i at T_i = ``t``; infinite where the iterated logarithm has no value."""
        iterated = math.log((1.0 + self.epsilon) * t)
        if iterated <= self.share:
            return math.inf
        scale = (1.0 + self.beta) * (1.0 + math.sqrt(self.epsilon))
        return scale * math.sqrt(2.0 * (1.0 + self.epsilon) * math.log(iterated / self.share) / t)


def lil_ucb(
    factors: Factors,
    *,
    ranges: Vector,
    delta: float,
    rng: np.random.Generator,
    log_prior: Vector | None = None,
    draws: int = 1,
    setting: Setting = "safe",
) -> Draws:
    """Return draws; with ``safe`` their distribution is within ``delta`` of p in total variation.

    Shapes: ranges (D,), the C_i; log_prior (D,), the log f_0 -> rows (draws,). Cost: at most D N reads, about
    17 log2(N) steps of O(D) for every arm. Raises: InvalidShape, NonFinite, InvalidParameter (delta not in
    (0, 1), draws < 1, no states, a negative range, an unknown setting).
    """
    log_prior = check(factors, log_prior, draws)
    check_ranges(ranges, factors.arms)
    check_race(delta, 1)
    constants = constants_of(setting, delta, factors.arms)

    def decide(some: Factors, offsets: Vector, generator: np.random.Generator) -> tuple[int, int]:
        return _SearchState(some, offsets, ranges / 2.0, constants, generator).best()

    return draw(factors, log_prior, draws, rng, decide, least=1)


def constants_of(setting: Setting, delta: float, arms: int) -> Constants:
    """The constants of lil'UCB: those of the theorem (``safe``) or of the experiments (``heuristic``).

    ``delta``   the probability that the best arm is missed
    ``arms``    how many there are

    Raises InvalidParameter: another setting.
    """
    if setting == "heuristic":
        return Constants(0.0, 0.5, delta / 5.0, 1.0 + 10.0 / arms)
    if setting != "safe":
        raise InvalidParameter("setting must be safe or heuristic", argument="setting")
    power = (1.0 + math.sqrt(SAFE_EPSILON)) ** 2
    share = math.log1p(SAFE_EPSILON) * (delta / (arms * float(zeta(power)))) ** (1.0 / power)
    return Constants(SAFE_EPSILON, 0.0, share, None)


class _SearchState:
    """The state of one search. Arms share one random order, each begins at a place of its own."""

    def __init__(
        self,
        factors: Factors,
        offsets: Vector,
        scales: Vector,
        constants: Constants,
        rng: np.random.Generator,
    ) -> None:
        self._factors, self._offsets, self._scales = factors, offsets / factors.size, scales
        self._constants = constants
        self._order: Rows = rng.permutation(factors.size)
        self._starts = rng.integers(factors.size, size=factors.arms)
        self.pull_counts = np.zeros(factors.arms, dtype=np.int64)
        self._sums = np.zeros(factors.arms)
        self.upper_bounds, self.lower_bounds = np.zeros(factors.arms), np.zeros(factors.arms)

    def best(self) -> tuple[int, int]:
        """Return the arm it ends with, and the number of reads."""
        size, arms = self._factors.size, self._factors.arms
        for arm in range(arms if arms > 1 else 0):
            self.pull(arm)
        while True:
            arm = int(self.upper_bounds.argmax())
            if arms == 1 or self.pull_counts[arm] == size or self.finished(arm):
                return arm, int(self.pull_counts.sum())
            self.pull(arm)

    def finished(self, arm: int) -> bool:
        """Return whether the rule of the setting says stop with ``arm``, which has the highest upper
        bound.
        """
        ratio = self._constants.ratio
        if ratio is not None:
            count = int(self.pull_counts[arm])
            return count >= 1.0 + ratio * (int(self.pull_counts.sum()) - count)
        others = self.upper_bounds.copy()
        others[arm] = -np.inf
        return bool(self.lower_bounds[arm] > others.max())

    def pull(self, arm: int) -> None:
        # DEVIATION (section 3.2): a sixteenth of T_i more at once: the bounds hold at every T_i.
        count, size = int(self.pull_counts[arm]), self._factors.size
        more = min(size - count, max(1, count // _GROWTH))
        places = (self._starts[arm] + np.arange(count, count + more)) % size
        self._sums[arm] += self._factors.read(np.array([arm]), self._order[places]).sum()
        count += more
        self.pull_counts[arm] = count
        mean = self._sums[arm] / count + self._offsets[arm]
        # A constant arm has width 0, also where the iterated logarithm has no value yet.
        scale = float(self._scales[arm])
        width = scale * self._constants.width(count) if count < size and scale > 0.0 else 0.0
        self.upper_bounds[arm], self.lower_bounds[arm] = mean + width, mean - width
