"""Arms that a policy would choose, and that no decision of a log shows.

Notation
    K           arms that the policy would choose
    S_a         how many of the lists that were looked at would have arm a, by the policy's propensities
    CHANCE      probability that any arm is named that the log could have shown as often as the policy would

An arm that the log shows as often as the policy is in none of these lists with probability exp(-S_a) at most.
So arms with S_a > ln(K / CHANCE) are those that were never, or hardly ever, there to be drawn (Boole).
"""

from __future__ import annotations

import math

import numpy as np

from shortlist.types import Rows, Vector

CHANCE = 0.01
MOST_ARMS = 20_000_000  # of all policies together: 9 bytes each
FIRST_NUMBERS = 60_000_000  # features that may be read for the first lists,
MORE_NUMBERS = 2_000_000  # and for those of each further piece of a log


class UnshownArms:
    """Of one policy. Memory: 9 bytes for each row of the table. ``policies``: how many others there are."""

    def __init__(self, *, policies: int = 1) -> None:
        self._policies = policies
        self._number = -1
        self._wanted: Vector = np.empty(0)
        self._shown = np.empty(0, dtype=np.bool_)
        self._lists = 0.0
        self._numbers = FIRST_NUMBERS

    def show(self, number: int, size: int, rows: Rows) -> bool:
        """Note arms that decisions show, -1 for none, of a table of ``size`` rows. False: there are too many
        arms to look for others. ``number``: another one where rows were numbered anew.
        """
        if size * self._policies > MOST_ARMS:
            return False
        if number != self._number:
            self._number, self._lists = number, 0.0
            self._wanted, self._shown = np.zeros(0), np.zeros(0, dtype=np.bool_)
        more = size - len(self._shown)
        if more > 0:
            self._wanted = np.concatenate((self._wanted, np.zeros(more)))
            self._shown = np.concatenate((self._shown, np.zeros(more, dtype=np.bool_)))
        self._shown[rows[rows >= 0]] = True
        self._numbers += MORE_NUMBERS
        return True

    def affords(self, numbers: int) -> bool:
        """Whether one more list may be looked at, for which so many features are read."""
        self._numbers -= max(numbers, 1)
        return self._numbers >= 0

    def want(self, rows: Rows, counts: Vector, lists: float) -> None:
        """Note what the policy would choose in some lists: how many of them would have each arm."""
        self._wanted[rows] += lists * counts
        self._lists += lists

    def found(self) -> tuple[int, float]:
        """How many arms no decision shows, though chance does not explain it, and what part of the policy's
        lists has one of them.
        """
        wanted = np.count_nonzero(self._wanted)
        if not wanted:
            return 0, 0.0
        unshown = ~self._shown & (self._wanted > math.log(wanted / CHANCE))
        share = float(self._wanted[unshown].sum()) / self._lists
        return int(np.count_nonzero(unshown)), min(share, 1.0)
