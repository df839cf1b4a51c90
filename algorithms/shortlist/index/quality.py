"""Quality of a graph: the rule for its ef, and the degradation by deaths of arms.

``choose_ef`` decides by measured values alone about the ef of a graph, or against the graph. ``Degradation``
counts the costs of deaths afterwards: dead arms slow a search down, and after many deaths other arms win than
those of the measurement.

Notation
    label       an arm of the graph, the longest first; the labels of the substitutes follow
    ef          length of the candidate list of a search: quality against time
    recall      share of the probes whose best arm was found
    target      the recall wanted by the catalogue's owner
    ratio       score found / best score, mean over the probes
    speedup     time of the best exact search / time of a search of the graph, timed alternately
    FLOOR       recall .80 and ratio .99: a graph below it never serves
    load        expected number of dead arms among the ef nearest of a query
    reserve     number of longest arms which can die before arms outside of the graph begin to win
    missing     how many more have died: as many substitutes are scanned
    lost        share of the probes, in the worst group of probes, whose best arm died since they were
                answered: its successor was not measured. Likewise of the arms of their lists

The rule
    1. Among all ef with the target and a speedup of at least 1.25: the one of largest speedup. To reach the
    target is to have its recall by at least one standard error, and a ratio of .998. On served queries,
    counted for themselves, a standard error less than the target is enough.
    2. If there is none: no graph.
    Where the owner asked for a graph, no speedup is demanded. If no ef reaches the target then, the largest
    one above the FLOOR serves.

Recall beyond the target is not paid for: at a recall of .95 the score found is .999 of the best one, and
exploration moves a score by far more. Times enter as ratios only, so the rule decides alike on a slow machine
and on a fast one.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from shortlist.index.probes import LIST, Groups, Quality, Trial

LADDER = (*range(32, 128, 4), *range(128, 256, 16), *range(256, 513, 64))

TARGET_RECALL = 0.95
LEAST_TARGET, LARGEST_TARGET = 0.80, 0.999
LEAST_RATIO = 0.998
FLOOR = (0.80, 0.99)
LEAST_SPEEDUP = 1.25
Labels = NDArray[np.int64]
# A search may come across this many arms, dead ones included, in multiples of ef. Beyond that ef is lowered.
_MOST_PASSED = 1.5
_MOST_LOST = 0.4  # where more is lost, nobody knows what a search finds
# A recall is measured again when this is lost, or this share of the arms died, and more than a few.
_LOST, _DEAD, _LEAST_DEAD = 0.01, 0.001, 16
EXACT = Quality(recall_at_1=1.0, ratio_mean=1.0, ratio_min=1.0, recall_error=0.0)


def choose_ef(trials: Mapping[int, Trial], target: float, *, forced: bool = False) -> int | None:
    """Apply the rule of the module to ``trials``: ef -> what was measured, in ascending order of ef.

    ``forced``: the owner asked for a graph. None: no ef may serve.
    """
    least = 0.0 if forced else LEAST_SPEEDUP
    good = [ef for ef, trial in trials.items() if _is_good(trial, target) and trial.speedup >= least]
    if good:
        return max(good, key=lambda ef: trials[ef].speedup)
    passable = [ef for ef, trial in trials.items() if forced and is_above_floor(trial.least)]
    return passable[-1] if passable else None


def is_settled(trial: Trial, target: float, *, forced: bool = False) -> bool:
    """Return whether no larger ef than the ``trial``'s would be chosen, and none need be measured.

    A larger ef takes longer and finds more.
    """
    return _is_good(trial, target) or (trial.speedup < LEAST_SPEEDUP and not forced)


def _is_good(trial: Trial, target: float) -> bool:
    worst = trial.worst
    return reaches(trial.quality, target) and (worst is None or not falls_short(worst, target))


def reaches(quality: Quality, target: float) -> bool:
    """Return whether the target is reached, even with the recall on other probes one standard error less."""
    return quality.recall_at_1 - quality.recall_error >= target and quality.ratio_mean >= LEAST_RATIO


def falls_short(quality: Quality, target: float) -> bool:
    """Return whether a graph no longer reaches the target.

    A graph falls short if it would even with the recall one standard error more: it is not dropped for the
    chance of one measurement.
    """
    return quality.recall_at_1 + quality.recall_error < target or not is_above_floor(quality)


def is_above_floor(quality: Quality) -> bool:
    """Return whether a graph asked for by the owner may serve below the target."""
    return quality.recall_at_1 >= FLOOR[0] and quality.ratio_mean >= FLOOR[1]


class Degradation:
    """Counts over the labels of one graph of ``arms`` arms, or over the rows of an inverted file. One thread
    changes them, others may read.

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
        self.measured = EXACT  # until it is
        self.winners: Labels = np.empty(0, dtype=np.int64)
        self.groups: Groups = np.empty(0, dtype=np.int8)
        self._sought: list[list[tuple[Labels, int]]] = []
        self._losses: list[float] = []
        self.unmeasured = 0
        self.lost = 0.0

    def answered(
        self, quality: Quality, winners: Labels, groups: Groups, lists: Sequence[tuple[Labels, Groups]] = ()
    ) -> None:
        """Take note of what a search of some probes found.

        ``winners`` (P,): labels of the best arms, -1 where it has them not. ``groups`` (P,): of the probes.
        ``lists``: the same of the arms of their lists of ten, and of a hundred; nothing if nobody knows.
        """
        self.measured, self.winners, self.groups, self.unmeasured = quality, winners, groups, 0
        self._sought = []
        for labels, of in ((winners, groups), *lists):
            by_group = [labels[of == group] for group in np.unique(of)]
            self._sought.append(
                [(group_labels[group_labels >= 0], len(group_labels)) for group_labels in by_group]
            )
        self._count_lost()

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
        # Searches in other threads read the flags meanwhile: at worst one misses an arm that has just died.
        self.gone[labels] = True
        labels = labels[labels < self.arms]
        self.unmeasured += len(labels)
        self._count_lost()
        self.dead += len(labels)
        self.load += float(self.appearances[labels].sum())
        # Twice as many: deaths among the arms just behind the reserve let shorter ones win too.
        longest = self.gone[: 2 * (self.reserve + self.substitutes)]
        self.missing = max(0, int(np.count_nonzero(longest)) - self.reserve)
        return labels

    def copied(self) -> Degradation:
        """The same, to be changed apart."""
        other = copy.copy(self)
        other.gone = self.gone.copy()
        return other

    @property
    def load_share(self) -> float:
        """The load as a share of ef, at most 1."""
        return min(self.load / self.ef, 1.0)

    @property
    def slowdown(self) -> float:
        """The time of a search with the dead arms, relative to the measured one."""
        return 1.0 / max(1.0 - self.load_share, 1.0 / _MOST_PASSED)

    @property
    def lowered_ef(self) -> int:
        """The ef to search with: hnswlib goes on to that many living arms, whatever dead ones it passes."""
        # Without it a search would pass ever more dead arms, until it found as many living ones as before.
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
    def quality(self) -> Quality:
        """The quality at the least: as if nothing was found in the place of lost arms."""
        return self.measured.less(*self._losses) if self._losses else self.measured

    def has_lost(self, k: int) -> bool:
        """Return whether too much of lists of ``k`` died since the measurement."""
        return len(self._losses) > 1 and self._losses[1 if k <= LIST else 2] > _MOST_LOST

    @property
    def is_unknown(self) -> bool:
        """True if enough arms died since the recall was measured for another measurement."""
        return max(self._losses, default=0.0) > _LOST or self.unmeasured > max(_DEAD * self.arms, _LEAST_DEAD)

    @property
    def is_degraded(self) -> bool:
        """True if all arms are to be read.

        More are missing than can be substituted, or most queries may lean on dead arms, or a measurement
        found too little.
        """
        return self.missing > self.substitutes or self.lost > _MOST_LOST or not is_above_floor(self.measured)

    def _count_lost(self) -> None:
        self._losses = [
            max((int(np.count_nonzero(self.gone[labels])) / size for labels, size in groups), default=0.0)
            for groups in self._sought
        ]
        self.lost = self._losses[0] if self._losses else 0.0
