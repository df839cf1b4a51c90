"""The arms that are left of one query, and what was read of them: what all eliminations share."""

from __future__ import annotations

import numpy as np

from app.algorithms.guarantee import Guarantee, exactly
from app.algorithms.mips.answer import VIOLATED, Answer
from app.algorithms.mips.exact import candidates, kth_largest_or_less
from app.algorithms.mips.rewards import Rewards
from app.algorithms.types import Rows, Vector

# What a round costs beside its reads, in coordinates of a scan.
_DECISION = 250_000
# Times k arms are scored as soon as they are read and compared.
_FEW = 2
_NOTHING: Vector = np.zeros(0)


class Tally:
    """Shapes: places (m,) of the arms that are left, ascending; sums, squares (m,) of their rewards so far.

    ``t`` coordinates were read of each, ``reads`` of all arms together. ``squares`` are sums over the first
    ``squared`` coordinates.
    """

    def __init__(self, rewards: Rewards) -> None:
        self.rewards = rewards
        self.places: Rows = np.arange(rewards.size)
        self.sums = self.squares = _NOTHING
        self.t = self.squared = self.reads = 0

    def read_to(self, t: int, *, squares: bool = False) -> None:
        """Read the arms that are left up to ``t`` coordinates; all arms where that takes no longer.

        ``squares`` only as long as there was no reading without them.
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
        """The places to read at, None for all arms where that takes no longer; and which of them are left."""
        left, n = len(self.places), self.rewards.size
        if self.rewards.prices.reading(left, n) < n:
            return self.places, slice(None)
        return None, self.places if left < n else slice(None)

    def few_are_left(self) -> bool:
        """Whether reading all of the arms that are left takes no longer than deciding what to read next."""
        total = self.rewards.size * self.rewards.dim
        return self.finishing(len(self.places)) <= min(_DECISION, total / 64.0)

    def finishing(self, left: int) -> float:
        """The time that reading ``left`` arms to the end would take, in coordinates of a scan."""
        rewards = self.rewards
        return rewards.prices.finishing(left, self.t, rewards.size, rewards.dim)

    def keep(self, which: Rows) -> None:
        """Keep the arms at these positions of ``places``, ascending."""
        self.places, self.sums = self.places[which], self.sums[which]
        if self.squared:
            self.squares = self.squares[which]

    def read_rest(self) -> float:
        """Read the arms that are left to the end, in the quickest way.

        The sums are then off by at most what is returned, and by something that is the same for all.
        """
        rewards, left = self.rewards, len(self.places)
        on = rewards.prices.reading(left, rewards.size) * (rewards.dim - self.t)
        if on <= self.finishing(left):
            self.read_to(rewards.dim)
            return rewards.sum_noise
        self.sums = rewards.whole(self.places)
        self.reads += left * rewards.dim
        self.t = rewards.dim
        return rewards.whole_noise

    def answer(self, k: int, guarantee: Guarantee, *, decided: bool = False) -> Answer:
        """Return the best ``k`` of the arms that are left: by their sums if ``decided``, else exactly."""
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
    """The k-th largest value, 1 <= k <= n. Cost: two passes where k is small."""
    near = values[values >= kth_largest_or_less(values, k)]
    return float(np.partition(near, len(near) - k)[len(near) - k])


def largest(values: Vector, k: int) -> Rows:
    """Positions of the ``k`` largest values, ascending; of equal ones the first. All if there are fewer."""
    if len(values) <= k:
        return np.arange(len(values))
    near = np.flatnonzero(values >= kth_largest_or_less(values, k))
    if len(near) == k:
        return near
    order = np.lexsort((near, -values[near]))[:k]
    return np.sort(near[order])


def read_all(rewards: Rewards, k: int, reason: str) -> Answer:
    """Read everything and return the best ``k`` arms. Cost: n N reads, in a row."""
    return Tally(rewards).answer(k, exactly(reason))
