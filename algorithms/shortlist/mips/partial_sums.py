"""The arms of one query that are left, and the sums of what was read of them: for all eliminations.

Notation
    n, N, k     number of arms, of coordinates, of arms to find
    m           number of arms that are left
    t           coordinates read of each of them
"""

from __future__ import annotations

import numpy as np

from shortlist.guarantee import Guarantee, exactly
from shortlist.mips.answer import VIOLATED, Answer
from shortlist.mips.exact import candidates, kth_largest_or_less
from shortlist.mips.rewards import CoordinateRewards
from shortlist.types import Rows, Vector

# An elimination ends once the rest is read at the cost of one decision, and of no more than this share of a
# scan.
_SHARE_OF_A_SCAN = 1.0 / 64.0
# Up to this many times k arms are scored in float64 without comparing their sums first.
_FEW = 2
_NOTHING: Vector = np.zeros(0)


class PartialSums:
    """Lives for one query. Shapes: places (m,) of the arms that are left, ascending; sums, squares (m,).

    ``sums`` are those of the rewards of the first ``t`` coordinates, ``squares`` those of the squared rewards
    of the first ``squared``. ``reads`` counts the coordinates read of all arms together.
    """

    def __init__(self, rewards: CoordinateRewards) -> None:
        self.rewards = rewards
        self.places: Rows = np.arange(rewards.size)
        self.sums = self.squares = _NOTHING
        self.t = self.squared = self.reads = 0

    def read_to(self, t: int, *, squares: bool = False) -> None:
        """Read the arms that are left up to ``t`` coordinates; all arms where that costs no more.

        ``squares``: sum the squares too. They must be of the first coordinates: never again after a call
        without them.
        """
        if t <= self.t:
            return
        picked, mine = self.to_read()
        if squares:
            sums, squared = self.rewards.pull_squares(self.t, t, picked)
            self.squares = squared[mine] + self.squares if self.t else squared
            self.squared = t
        else:
            sums = self.rewards.pull(self.t, t, picked)
        self.sums = sums[mine] + self.sums if self.t else sums
        self.reads += len(sums) * (t - self.t)
        self.t = t

    def to_read(self) -> tuple[Rows | None, Rows | slice]:
        """Return the places to read, and which of them are left.

        The places are None where reading all arms costs no more than picking those that are left.
        """
        left, n = len(self.places), self.rewards.size
        if self.rewards.costs.reading(left, n) < n:
            return self.places, slice(None)
        return None, self.places if left < n else slice(None)

    def few_are_left(self) -> bool:
        """True if reading the rest of the remaining arms costs no more than another decision."""
        scan = self.rewards.size * self.rewards.dim
        most = min(self.rewards.costs.decision, _SHARE_OF_A_SCAN * scan)
        return self.finishing(len(self.places)) <= most

    def finishing(self, left: int) -> float:
        """Return the cost of reading ``left`` arms to the end: see ``ReadCosts``."""
        rewards = self.rewards
        return rewards.costs.finishing(left, self.t, rewards.size, rewards.dim)

    def keep(self, which: Rows) -> None:
        """Keep the arms at these positions of ``places``, ascending."""
        self.places, self.sums = self.places[which], self.sums[which]
        if self.squared:
            self.squares = self.squares[which]

    def read_rest(self) -> float:
        """Read the arms that are left to the end, in the cheaper of two ways: on from t, or in full.

        Returns a bound on the error of the sums, apart from an error that is the same for all arms.
        """
        rewards, left = self.rewards, len(self.places)
        on = rewards.costs.reading(left, rewards.size) * (rewards.dim - self.t)
        if on <= self.finishing(left):
            self.read_to(rewards.dim)
            return rewards.sum_noise
        self.sums = rewards.whole(self.places)
        self.reads += left * rewards.dim
        self.t = rewards.dim
        return rewards.whole_noise

    def answer(self, k: int, guarantee: Guarantee, *, decided: bool = False) -> Answer:
        """Return the best ``k`` of the remaining arms: by their sums if ``decided``, else exactly.

        The guarantee is replaced by none if a read term lies outside of the given range.
        """
        rewards = self.rewards
        if decided:
            close = largest(self.sums, k)
        elif len(self.places) <= _FEW * k:
            close = np.arange(len(self.places))
        else:
            noise = self.read_rest()
            close = candidates(self.sums.copy(), noise, k)
        rows, scores = rewards.scores(self.places[close])
        order = np.lexsort((rows, -scores))[:k]
        exhaustive = rewards.size * rewards.dim
        reads = min(self.reads + len(close) * rewards.dim, exhaustive)
        values = scores[order] if rewards.objective == "inner_product" else np.abs(scores[order])
        return Answer(rows[order], values, reads, exhaustive, VIOLATED if rewards.violated else guarantee)


def kth_largest(values: Vector, k: int) -> float:
    """Return the k-th largest value, 1 <= k <= n. Cost: two passes where k is small."""
    near = values[values >= kth_largest_or_less(values, k)]
    return float(np.partition(near, len(near) - k)[len(near) - k])


def largest(values: Vector, k: int) -> Rows:
    """Return the positions of the ``k`` largest values, ascending; of equal values the first; at most all."""
    if len(values) <= k:
        return np.arange(len(values))
    near = np.flatnonzero(values >= kth_largest_or_less(values, k))
    if len(near) == k:
        return near
    order = np.lexsort((near, -values[near]))[:k]
    return np.sort(near[order])


def read_all(rewards: CoordinateRewards, k: int, reason: str) -> Answer:
    """Read everything and return the best ``k`` arms; ``reason`` says why. Cost: n N reads, in a row."""
    return PartialSums(rewards).answer(k, exactly(reason))
