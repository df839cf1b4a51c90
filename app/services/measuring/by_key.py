"""What the keys of two groups have earned, and the intervals that follow from it.

A user who came a thousand times is one draw, not a thousand. So what counts is by key: how many decisions it
had, and the sum of their rewards.
"""

from __future__ import annotations

from array import array
from typing import Literal

import numpy as np

from shortlist.evaluation import clustered_t_sequence as sequence
from shortlist.evaluation.clustered_t_sequence import Looks, Summary
from shortlist.types import Rows, Vector

Place = Literal[0, 1]

_LEAST_NEW = 10_000


class KeySums:
    """By key of one group the number of its decisions and the sum of their rewards, in compact arrays.

    Takes 24 bytes a key, and five times that for a moment. A key is known by a hash of 64 bits: that any two
    of a million have the same has probability 3e-8, and they would count as one.
    """

    def __init__(self) -> None:
        self._keys: Rows = np.empty(0, dtype=np.int64)
        self._counts: Vector = np.empty(0)
        self._sums: Vector = np.empty(0)
        self._new_keys, self._new_values = array("q"), array("d")

    def add(self, key: str | None, value: float) -> None:
        """Count a decision of ``key``. Cost: O(log n), amortised, for n keys."""
        self._new_keys.append(hash(key))
        self._new_values.append(value)
        if len(self._new_keys) >= max(_LEAST_NEW, len(self._keys) // 4):
            self._sum_up()

    def summary(self) -> Summary:
        """What follows from all that was added. Cost: O(n log n)."""
        self._sum_up()
        return sequence.summary(self._counts, self._sums)

    def _sum_up(self) -> None:
        """Add what is new to what each key had."""
        keys = np.concatenate([self._keys, np.asarray(self._new_keys)])
        counts = np.concatenate([self._counts, np.ones(len(self._new_keys))])
        sums = np.concatenate([self._sums, np.asarray(self._new_values)])
        self._new_keys, self._new_values = array("q"), array("d")
        self._keys, place = np.unique(keys, return_inverse=True)
        self._counts = np.bincount(place, counts, len(self._keys)).astype(np.float64)
        self._sums = np.bincount(place, sums, len(self._keys)).astype(np.float64)


class KeyIntervals:
    """Intervals of two groups and of their difference, renewed whenever the number of decisions has doubled.

    ``looked_at``   the number of decisions of both groups at the last look
    ``summaries``   of the groups, at the last look
    ``groups``, ``difference``  what came of the looks
    """

    def __init__(self) -> None:
        self._sums = (KeySums(), KeySums())
        self._decisions = self.looked_at = 0
        self.summaries = (Summary(), Summary())
        self.groups = (Looks(), Looks())
        self.difference = Looks()

    def add(self, place: Place, key: str | None, value: float) -> None:
        """Count a decision of the group at ``place``, and look if it is time."""
        self._sums[place].add(key, value)
        self._decisions += 1
        if sequence.is_look(self._decisions):
            self._look()

    def _look(self) -> None:
        self.looked_at = self._decisions
        one, other = self.summaries = (self._sums[0].summary(), self._sums[1].summary())
        self.groups = sequence.look(self.groups[0], one), sequence.look(self.groups[1], other)
        self.difference = sequence.look(self.difference, one, other)
