"""An even pace: which quotas hold their arms back in a slice of time, so that they follow their plans.

The plan is a straight line from 0 to ``most`` over the window. A quota takes part in a slice with a
probability: what the plan lacks a little later, by what would be shown until then if it always took part.

Notation
    n           quotas; ``rate`` is 0 of one that has no even pace, or no window now: it takes part
    plan        most * (time since the window began) / (its length)
    demand      shows a second, if the quota always took part; not below the rate of the plan
    part        the probability to take part in a slice

Times are in seconds, by a clock that does not jump.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

SLICE_S = 0.1
LOOK_AHEAD_S, LOOK_AHEAD = 1.0, 200  # a plan is looked at so far ahead, or by a part of its window
SMOOTH, PART_SMOOTH = 0.5, 0.1  # weights of the last demand, and of the last slice
LEAST_PART = 0.02  # of a round that a quota took part in: else it tells nothing of the demand

# One structured array, 0 of a new quota: all are drawn by a handful of calls, whatever their number.
# ``absent``: 1 - part, smoothed. ``looked_at``: when demand was last estimated; ``looked``: shown by then.
COLUMNS = ("rate", "ahead", "began", "others", "demand", "absent", "looked_at", "looked")
PACE = np.dtype([(name, np.float64) for name in COLUMNS])


def refresh(
    row: Any, window: tuple[float, float], most: int, others: int, spent: int, *, now: float, is_new: bool
) -> None:
    """Write what was heard of a quota in its ``window`` (began, until); of one that goes on estimate demand.

    ``others``, ``spent``: what other processes have shown, and this one.
    """
    began, until = window
    length, shown = until - began, others + spent
    if is_new or not row["rate"]:
        row["looked_at"], row["looked"] = now, shown
    row["rate"], row["began"], row["others"] = most / length, began, others
    # A plan that is looked at only to the next slice would answer each gap with all or nothing; further
    # ahead, what it lacks is spread over more slices.
    row["ahead"] = max(LOOK_AHEAD_S, length / LOOK_AHEAD)
    passed, part = now - row["looked_at"], 1.0 - row["absent"]
    # Over less time a handful of shows more or less would be taken for another demand.
    if passed < LOOK_AHEAD_S / 2:
        return
    # Shows come only in slices where it took part, and are divided by how many: close to 0 that is noise.
    if part > LEAST_PART:
        demand = (shown - row["looked"]) / passed / part
        # The first estimate is taken whole: smoothed from 0 it would be too small for seconds, and the quota
        # would run ahead of its plan.
        row["demand"] += (SMOOTH if row["demand"] else 1.0) * (demand - row["demand"])
    row["looked_at"], row["looked"] = now, shown


def draw(
    pace: NDArray[Any], spent: NDArray[np.int64], now: float, rng: np.random.Generator
) -> NDArray[np.bool_]:
    """Which hold back in the slice that begins now: (n,); ``spent`` (n,) was shown by this process.

    Cost: some nanoseconds for each.
    """
    lacks = pace["rate"] * (now + pace["ahead"] - pace["began"]) - pace["others"] - spent
    # Not below the rate: where demand is not known yet, the quota takes part as if it were just enough for
    # its plan.
    most = pace["ahead"] * np.maximum(pace["demand"], pace["rate"])
    # Where there is no rate a quota takes part: the division writes only where there is one.
    parts = np.ones(len(pace))
    np.divide(lacks, most, out=parts, where=pace["rate"] > 0.0)
    np.clip(parts, 0.0, 1.0, out=parts)
    pace["absent"] += PART_SMOOTH * (1.0 - parts - pace["absent"])
    return rng.random(len(parts)) >= parts
