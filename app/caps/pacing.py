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

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from app.caps.rules import QuotaShare

SLICE_S = 0.1
LOOK_AHEAD_S, LOOK_AHEAD = 1.0, 200  # a plan is looked at this far ahead, or a part of so many of its window
SMOOTH, PART_SMOOTH = 0.5, 0.1  # weights of the last demand, and of the last slice
LEAST_PART = 0.02  # of a round that a quota took part in: else it tells nothing of the demand

MOST_CHANGED = 300_000  # arms that are let in or held back in a slice: about a millisecond

_COLUMNS = ("rate", "ahead", "began", "shown", "demand", "part", "looked_at", "looked")


class Pace:
    """The state of n quotas. One that has no window now takes part."""

    def __init__(self, count: int) -> None:
        self._state = np.zeros(count, dtype=[(name, np.float64) for name in _COLUMNS])
        self._state["part"] = 1.0
        self._shown = self._state["shown"]  # a view: every choice writes to it

    def __len__(self) -> int:
        return len(self._state)

    def take_over(self, place: int, before: Pace, its_place: int) -> None:
        """What another one knew of a quota."""
        self._state[place] = before._state[its_place]

    def refresh(
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
        self._shown[place] += count

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


class PacedQuotas:
    """The quotas with an even pace by their numbers. ``pace``: their state, by their places."""

    def __init__(self) -> None:
        self.pace = Pace(0)
        self._numbers: NDArray[np.int64] = np.empty(0, dtype=np.int64)
        self._turn = 0

    def follow(self, quotas: Iterable[QuotaShare], held_back: NDArray[np.bool_]) -> None:
        """These are the quotas now. ``held_back``, by number: False where there is no even pace any more."""
        lives = [*quotas]
        paced, before = [live for live in lives if live.quota.rule.pace == "even"], self.pace
        numbers = np.array([live.number for live in paced], dtype=np.int64)
        if np.array_equal(numbers, self._numbers) and all(live.paced >= 0 for live in paced):
            return
        held_back[np.setdiff1d(self._numbers, numbers)] = False
        self._numbers, self.pace = numbers, Pace(len(paced))
        places = {live: place for place, live in enumerate(paced)}
        for live in lives:
            its_place, live.paced = live.paced, places.get(live, -1)
            if its_place >= 0 and live.paced >= 0:
                self.pace.take_over(live.paced, before, its_place)

    def draw(
        self,
        moment: float,
        rng: np.random.Generator,
        held_back: NDArray[np.bool_],
        sizes: NDArray[np.int32],
    ) -> bool:
        """Write which hold back in the slice that begins now, by number; whether that is something new.

        Where it changes for many arms (``sizes``, by number) quotas take turns: the others stay as they are.
        """
        held, numbers = self.pace.draw(moment, rng), self._numbers
        changed = np.flatnonzero(held != held_back[numbers])
        if not len(changed):
            return False
        changed = np.roll(changed, -int(changed.searchsorted(self._turn)))
        arms = np.append(sizes, 0)[np.minimum(numbers[changed], len(sizes))].astype(np.int64)
        now = changed[np.cumsum(arms) - arms < MOST_CHANGED]  # the first at least
        held_back[numbers[now]] = held[now]
        self._turn = int(now[-1]) + 1
        return True
