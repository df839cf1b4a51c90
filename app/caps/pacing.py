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

from app.caps.rules import QuotaArrays, QuotaShare

SLICE_S = 0.1
LOOK_AHEAD_S, LOOK_AHEAD = 1.0, 200  # a plan is looked at this far ahead, or a part of so many of its window
SMOOTH, PART_SMOOTH = 0.5, 0.1  # weights of the last demand, and of the last slice
LEAST_PART = 0.02  # of a round that a quota took part in: else it tells nothing of the demand

MOST_CHANGED = 300_000  # arms that are released or held back in a slice: about a millisecond

_COLUMNS = ("rate", "ahead", "began", "others", "demand", "part", "looked_at", "looked")


class Pace:
    """The state of n quotas. One that has no window now takes part."""

    def __init__(self, count: int) -> None:
        # One structured array: all quotas of a slice are drawn by a handful of calls, whatever their number.
        self._state = np.zeros(count, dtype=[(name, np.float64) for name in _COLUMNS])
        self._state["part"] = 1.0

    def __len__(self) -> int:
        return len(self._state)

    def grow(self, count: int) -> None:
        """So many more."""
        self._state = np.concatenate((self._state, Pace(count)._state))

    def forget(self, place: int) -> None:
        """Another quota may have this place."""
        self._state[place] = 0.0
        self._state["part"][place] = 1.0

    def refresh(self, quota: QuotaShare, most: int, moment: float, *, is_new: bool) -> None:
        """What was shown so far in a window; of one that is not new the demand is estimated."""
        row, length = self._state[quota.paced], quota.until - quota.began
        shown = quota.others + quota.spent
        if is_new:
            row["looked_at"], row["looked"] = moment, shown
        row["rate"], row["began"], row["others"] = most / length, quota.began, quota.others
        # A plan that is looked at only to the next slice would answer each gap with all or nothing; further
        # ahead, what it lacks is spread over more slices.
        row["ahead"] = max(LOOK_AHEAD_S, length / LOOK_AHEAD)
        passed = moment - row["looked_at"]
        # Over less time a handful of shows more or less would be taken for another demand.
        if passed >= LOOK_AHEAD_S / 2:
            # Shows are divided by how much the quota took part: close to 0 that is noise.
            if row["part"] > LEAST_PART:
                # What would have been shown if it had always taken part: shows come only in slices where it
                # did.
                demand = (shown - row["looked"]) / passed / row["part"]
                # The first estimate is taken whole: smoothed from 0 it would be too small for seconds, and
                # the quota would run ahead of its plan.
                row["demand"] += (SMOOTH if row["demand"] else 1.0) * (demand - row["demand"])
            row["looked_at"], row["looked"] = moment, shown

    def stop(self, place: int) -> None:
        """It has no window now."""
        self._state[place]["rate"] = 0.0

    def draw(self, moment: float, spent: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.bool_]:
        """Which hold back in the slice that begins now: (n,); ``spent`` (n,) was shown by this process.

        Cost: some nanoseconds for each.
        """
        state = self._state
        lacks = state["rate"] * (moment + state["ahead"] - state["began"]) - state["others"] - spent
        # Not below the rate: where demand is not known yet, the quota takes part as if it were just enough
        # for its plan.
        most = state["ahead"] * np.maximum(state["demand"], state["rate"])
        # Where there is no window a quota takes part: the division writes only where there is a rate.
        parts = np.ones(len(state))
        np.divide(lacks, most, out=parts, where=state["rate"] > 0.0)
        np.clip(parts, 0.0, 1.0, out=parts)
        state["part"] += PART_SMOOTH * (parts - state["part"])
        return rng.random(len(parts)) >= parts


class PacedQuotas:
    """The quotas with an even pace by their numbers. ``pace``: their state, by their places.

    A place that is free has the number -1, and takes part.
    """

    def __init__(self) -> None:
        self.pace = Pace(0)
        self._numbers: NDArray[np.int64] = np.empty(0, dtype=np.int64)
        self._free: list[int] = []
        self._turn = 0

    def __len__(self) -> int:
        return len(self.pace) - len(self._free)

    def follow(self, quota: QuotaShare, held_back: NDArray[np.bool_]) -> None:
        """A quota is new, or is another now. ``held_back``, by number: False where there is no even pace."""
        if quota.quota.rule.pace != "even":
            self.leave(quota, held_back)
        elif quota.paced < 0:
            # Doubled, so that places are copied O(log n) times.
            if not self._free:
                known, more = len(self.pace), max(len(self.pace), 16)
                self.pace.grow(more)
                self._numbers = np.pad(self._numbers, (0, more), constant_values=-1)
                self._free = [*range(known + more - 1, known - 1, -1)]
            quota.paced = self._free.pop()
            self._numbers[quota.paced] = quota.number

    def leave(self, quota: QuotaShare, held_back: NDArray[np.bool_]) -> None:
        """It is gone, or has no even pace any more."""
        if quota.paced >= 0:
            held_back[quota.number] = False
            self.pace.forget(quota.paced)
            self._numbers[quota.paced] = -1
            self._free.append(quota.paced)
            quota.paced = -1

    def refresh(self, quota: QuotaShare, most: int, moment: float, *, is_new: bool) -> None:
        """What the store told of a quota that allows ``most``. ``is_new``: another window has begun."""
        if quota.paced < 0:
            return
        if not quota.holds or quota.ends_ms is None:
            self.pace.stop(quota.paced)
            return
        self.pace.refresh(quota, most, moment, is_new=is_new)

    def stop(self, quota: QuotaShare) -> None:
        """Its window is over."""
        if quota.paced >= 0:
            self.pace.stop(quota.paced)

    def draw(
        self, moment: float, rng: np.random.Generator, arrays: QuotaArrays, sizes: NDArray[np.int32]
    ) -> bool:
        """Write which hold back in the slice that begins now, by number; whether that is something new.

        Where it changes for many arms (``sizes``, by number) quotas take turns: the others stay as they are.
        """
        if not len(self):
            return False
        numbers, held_back = self._numbers, arrays.held_back
        # Of a place that is free the number is -1: there nothing is spent.
        held = self.pace.draw(moment, np.asarray(arrays.spent)[numbers], rng)
        changed = np.flatnonzero(held != held_back[numbers])
        if not len(changed):
            return False
        # In turns from where the last slice ended: quotas of many arms would else always wait behind those
        # before them.
        changed = np.roll(changed, -int(changed.searchsorted(self._turn)))
        # A quota whose arms are not found yet has a number beyond ``sizes``: the 0 that is appended stands
        # for it.
        arms = np.append(sizes, 0)[np.minimum(numbers[changed], len(sizes))].astype(np.int64)
        # Before each is added: so the first always changes, also one of more arms than the bound.
        now = changed[np.cumsum(arms) - arms < MOST_CHANGED]  # the first at least
        held_back[numbers[now]] = held[now]
        self._turn = int(now[-1]) + 1
        return True
