"""How far deaths of arms have spoilt a graph: the dead cost time, and after many deaths other arms win.

Notation
    label       an arm of the graph, the longest first; the labels of the substitutes follow
    ef          length of the candidate list that the graph was tuned to
    load        expected number of dead arms among the ef nearest of a query
    reserve     number of longest arms that can die before arms outside of the graph begin to win
    missing     how many more than that have died: as many substitutes are scanned
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Labels = NDArray[np.int64]

# A search may come across this many arms, dead ones included, in multiples of ef. Beyond that ef is lowered.
_MOST_PASSED = 1.5


class Degradation:
    """Counts over the labels of one graph of ``arms`` arms. One thread changes them, others may read.

    Deaths leave an exact index right and no slower: of it ``dead`` alone is counted.
    """

    def __init__(self, arms: int) -> None:
        self.arms = arms
        self.ef = 1
        self.reserve = 0
        self.substitutes = 0
        self.dead = 0
        self.missing = 0
        self.load = 0.0
        self.gone: NDArray[np.bool_] = np.zeros(arms, dtype=np.bool_)
        self.appearances: NDArray[np.float32] = np.zeros(arms, dtype=np.float32)

    def with_reserve(self, reserve: int, substitutes: int) -> None:
        """Count the labels of this many substitutes as well."""
        self.reserve, self.substitutes = reserve, substitutes
        self.gone = np.append(self.gone, np.zeros(substitutes, dtype=np.bool_))

    def weigh(self, result: list[Labels]) -> None:
        """Learn how often each arm is found, from what every probe found: its part in the load if it dies."""
        if result:
            counts = np.bincount(np.concatenate(result), minlength=self.arms)
            self.appearances = (counts / len(result)).astype(np.float32)

    def tombstone(self, labels: Labels) -> Labels:
        """Count the deaths of ``labels``; returns those of them that are in the graph."""
        self.gone[labels] = True
        labels = labels[labels < self.arms]
        self.dead += len(labels)
        self.load += float(self.appearances[labels].sum())
        longest = self.gone[: 2 * (self.reserve + self.substitutes)]
        self.missing = max(0, int(np.count_nonzero(longest)) - self.reserve)
        return labels

    @property
    def load_share(self) -> float:
        """The load as a share of ef, at most 1."""
        return min(self.load / self.ef, 1.0)

    @property
    def slowdown(self) -> float:
        """How many times as long a search of the graph takes, with its dead, as when it was measured."""
        return 1.0 / max(1.0 - self.load_share, 1.0 / _MOST_PASSED)

    @property
    def lowered_ef(self) -> int:
        """The ef to search with: hnswlib goes on to that many living arms, whatever dead ones it passes."""
        return max(1, min(self.ef, int(_MOST_PASSED * self.ef * (1.0 - self.load_share))))

    @property
    def reserve_used(self) -> float:
        """Share of the reserve that died; more than 1: all of it, and others.

        The reserve is not a list of arms: see ``longest_dead``.
        """
        return self.longest_dead / max(self.reserve, 1)

    @property
    def longest_dead(self) -> int:
        """The dead among twice as many of the longest arms as there are in the reserve."""
        return int(np.count_nonzero(self.gone[: 2 * self.reserve]))

    @property
    def is_degraded(self) -> bool:
        """Whether more are missing than can be substituted: the measured recall does not hold any longer."""
        return self.missing > self.substitutes
