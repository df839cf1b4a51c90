"""The rule by which a graph gets its ef, and by which it is dropped: a function of measured values alone.

Notation
    ef          length of the candidate list of a search: quality against time
    recall      share of the probes whose best arm was found
    ratio       score found / best score, mean over the probes
    speedup     time of the best exact search / time of a search of the graph, timed alternately

    GOOD        recall .99 and ratio .999
    FAIR        recall .95 by at least one standard error, and ratio .998
    FLOOR       recall .80 and ratio .99: what is below it never serves

The rule
    1. Among all ef that are FAIR and have a speedup of at least 1.25: the smallest GOOD one if its speedup is
       at least 4, else the one of largest speedup.
    2. If there is none: the largest ef that reaches the FLOOR and has a speedup of at least 8.
    3. If there is none either: no graph.
    Where the owner asked for a graph, no speedup is demanded of an ef to serve (but still 4 of a GOOD one).

GOOD finds three more of a hundred best arms than FAIR, and the arms found instead score about .001 less. At
100,000 arms that costs a fifth of a choice, so FAIR serves; in larger catalogues both are far below a scan.

Times enter as ratios only, so the rule decides alike on a slow machine and on a fast one.
"""

from __future__ import annotations

from collections.abc import Mapping

from app.indexes.probes import Quality, Trial

LADDER = (32, 48, 64, 96, 128, 192, 256, 384, 512)

GOOD = (0.99, 0.999)
FAIR = (0.95, 0.998)
FLOOR = (0.80, 0.99)

LEAST_SPEEDUP = 1.25
GOOD_SPEEDUP = 4.0
FAR_SPEEDUP = 8.0


def choose_ef(trials: Mapping[int, Trial], *, forced: bool = False) -> int | None:
    """Apply the rule of the module to ``trials``: ef -> what was measured, in ascending order of ef.

    ``forced``: the owner asked for a graph. None: no ef may serve.
    """
    least, far = (0.0, 0.0) if forced else (LEAST_SPEEDUP, FAR_SPEEDUP)
    fair = {ef: t for ef, t in trials.items() if is_fair(t.quality) and t.speedup >= least}
    good = [ef for ef, trial in fair.items() if reaches(trial.quality, GOOD)]
    if good and fair[good[0]].speedup >= GOOD_SPEEDUP:
        return good[0]
    if fair:
        return max(fair, key=lambda ef: fair[ef].speedup)
    passable = [ef for ef, t in trials.items() if reaches(t.quality, FLOOR) and t.speedup >= far]
    return passable[-1] if passable else None


def is_settled(trials: Mapping[int, Trial], *, forced: bool = False) -> bool:
    """Whether no larger ef could be chosen, so that none need be measured.

    A larger ef takes longer and finds more.
    """
    last = list(trials.values())[-1]
    if reaches(last.quality, GOOD) or (is_fair(last.quality) and last.speedup < GOOD_SPEEDUP):
        return True
    return last.speedup < LEAST_SPEEDUP and not forced


def is_fair(quality: Quality) -> bool:
    """Whether the quality is FAIR, though the recall on other probes were one standard error less."""
    return quality.recall_at_1 - quality.recall_error >= FAIR[0] and quality.ratio_mean >= FAIR[1]


def reaches(quality: Quality, least: tuple[float, float]) -> bool:
    """Whether recall and mean ratio are at least ``least``."""
    return quality.recall_at_1 >= least[0] and quality.ratio_mean >= least[1]
