"""An even pace: which quotas hold their arms back in a slice of time, so that they follow their plans.

The plan is a straight line from 0 to ``most`` over the window. A quota takes part in a slice with a
probability: what the plan lacks a little later, by what would be shown until then if it always took part.

Notation
    n           quotas with an even pace; each has a place
    plan        most * (time since the window began) / (its length)
    demand      shows a second, if the quota always took part; not below the rate of the plan
    part        the probability to take part in a slice

Times are in seconds, by a clock that does not jump.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

SLICE_S = 0.1
LOOK_AHEAD_S, LOOK_AHEAD = 1.0, 200  # a plan is looked at this far ahead, or a part of so many of its window
SMOOTH, PART_SMOOTH = 0.5, 0.1  # weights of the last demand, and of the last slice
LEAST_PART = 0.02  # of a round that a quota took part in: else it tells nothing of the demand

_COLUMNS = ("rate", "ahead", "began", "shown", "demand", "part", "looked_at", "looked")


class Pace:
    """The state of n quotas. One that has no window now takes part."""

    def __init__(self, count: int) -> None:
        self._state = np.zeros(count, dtype=[(name, np.float64) for name in _COLUMNS])
        self._state["part"] = 1.0

    def __len__(self) -> int:
        return len(self._state)

    def take_over(self, place: int, before: Pace, its_place: int) -> None:
        """What another one knew of a quota."""
        self._state[place] = before._state[its_place]

    def hear(
        self, place: int, *, most: int, began: float, until: float, shown: int, moment: float, is_new: bool
    ) -> None:
        """What was shown so far in a window; of one that is not new the demand is estimated."""
        row, length = self._state[place], until - began
        if is_new:
            row["looked_at"], row["looked"] = moment, shown
        row["rate"], row["began"], row["shown"] = most / length, began, shown
        row["ahead"] = max(LOOK_AHEAD_S, length / LOOK_AHEAD)
        passed = moment - row["looked_at"]
        if passed >= LOOK_AHEAD_S / 2:
            if row["part"] > LEAST_PART:
                demand = (shown - row["looked"]) / passed / row["part"]
                row["demand"] += (SMOOTH if row["demand"] else 1.0) * (demand - row["demand"])
            row["looked_at"], row["looked"] = moment, shown

    def stop(self, place: int) -> None:
        """It has no window now."""
        self._state[place]["rate"] = 0.0

    def show(self, place: int, count: int) -> None:
        self._state[place]["shown"] += count

    def draw(self, moment: float, rng: np.random.Generator) -> NDArray[np.bool_]:
        """Which hold back in the slice that begins now: (n,). Cost: some nanoseconds for each."""
        state = self._state
        lacks = state["rate"] * (moment + state["ahead"] - state["began"]) - state["shown"]
        most = state["ahead"] * np.maximum(state["demand"], state["rate"])
        parts = np.ones(len(state))
        np.divide(lacks, most, out=parts, where=state["rate"] > 0.0)
        np.clip(parts, 0.0, 1.0, out=parts)
        state["part"] += PART_SMOOTH * (parts - state["part"])
        return rng.random(len(parts)) >= parts
