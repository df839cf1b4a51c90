"""The rule by which a graph gets its ef, and by which it is dropped: a function of measured values alone.

Notation
    ef          length of the candidate list of a search: quality against time
    recall      share of the probes whose best arm was found
    target      the recall that the catalogue's owner wants
    ratio       score found / best score, mean over the probes
    speedup     time of the best exact search / time of a search of the graph, timed alternately
    FLOOR       recall .80 and ratio .99: what is below it never serves

The rule
    1. Among all ef that reach the target and have a speedup of at least 1.25: the one of largest speedup.
       To reach it is to have that recall by at least one standard error, and a ratio of .998. On queries that
       were served, counted for themselves, a standard error less than the target is enough.
    2. If there is none: no graph.
    Where the owner asked for a graph, no speedup is demanded. If no ef reaches the target then, the largest
    one above the FLOOR serves.

Recall beyond the target is not paid for. At a recall of .95 the score found is .999 of the best one, and
exploration moves a score by far more.

Times enter as ratios only, so the rule decides alike on a slow machine and on a fast one.
"""

from __future__ import annotations

from collections.abc import Mapping

from app.indexes.probes import Quality, Trial

LADDER = (*range(32, 128, 4), *range(128, 256, 16), *range(256, 513, 64))

TARGET_RECALL = 0.95
LEAST_TARGET, LARGEST_TARGET = 0.80, 0.999
LEAST_RATIO = 0.998
FLOOR = (0.80, 0.99)
LEAST_SPEEDUP = 1.25


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
    """Whether no larger ef than that of the ``trial`` would be chosen, so that none need be measured.

    A larger ef takes longer and finds more.
    """
    return _is_good(trial, target) or (trial.speedup < LEAST_SPEEDUP and not forced)


def _is_good(trial: Trial, target: float) -> bool:
    worst = trial.worst
    return reaches(trial.quality, target) and (worst is None or not falls_short(worst, target))


def reaches(quality: Quality, target: float) -> bool:
    """Whether the target is reached, though the recall on other probes were one standard error less."""
    return quality.recall_at_1 - quality.recall_error >= target and quality.ratio_mean >= LEAST_RATIO


def falls_short(quality: Quality, target: float) -> bool:
    """Whether a graph that reached the target once does so no longer.

    It falls short if it would though the recall were one standard error more: what serves is not dropped for
    the chance of one measurement.
    """
    return quality.recall_at_1 + quality.recall_error < target or not is_above_floor(quality)


def is_above_floor(quality: Quality) -> bool:
    """Whether a graph that the owner asked for may serve below the target."""
    return quality.recall_at_1 >= FLOOR[0] and quality.ratio_mean >= FLOOR[1]
