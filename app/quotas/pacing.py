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

from app.quotas.share import QuotaArrays, QuotaShare, Window

SLICE_S = 0.1
LOOK_AHEAD_S, LOOK_AHEAD = 1.0, 200  # a plan is looked at this far ahead, or a part of so many of its window
SMOOTH, PART_SMOOTH = 0.5, 0.1  # weights of the last demand, and of the last slice
LEAST_PART = 0.02  # of a round that a quota took part in: else it tells nothing of the demand

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

    def refresh(self, place: int, window: Window, spent: int, most: int, now: float, *, is_new: bool) -> None:
        """What was shown so far in a window; of one that is not new the demand is estimated."""
        row, length = self._state[place], window.until - window.began
        shown = window.others + spent
        if is_new:
            row["looked_at"], row["looked"] = now, shown
        row["rate"], row["began"], row["others"] = most / length, window.began, window.others
        # A plan that is looked at only to the next slice would answer each gap with all or nothing; further
        # ahead, what it lacks is spread over more slices.
        row["ahead"] = max(LOOK_AHEAD_S, length / LOOK_AHEAD)
        passed = now - row["looked_at"]
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
            row["looked_at"], row["looked"] = now, shown

    def stop(self, place: int) -> None:
        """It has no window now."""
        self._state[place]["rate"] = 0.0

    def draw(self, now: float, spent: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.bool_]:
        """Which hold back in the slice that begins now: (n,); ``spent`` (n,) was shown by this process.

        Cost: some nanoseconds for each.
        """
        state = self._state
        lacks = state["rate"] * (now + state["ahead"] - state["began"]) - state["others"] - spent
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

    def __len__(self) -> int:
        return len(self.pace) - len(self._free)

    def follow(self, share: QuotaShare, held_back: NDArray[np.bool_]) -> None:
        """A quota is new, or was changed. ``held_back``, by number: False where there is no even pace."""
        if share.quota.rule.pace != "even":
            if share.place >= 0:
                held_back[share.number] = False
            self.leave(share)
        elif share.place < 0:
            # Doubled, so that places are copied O(log n) times.
            if not self._free:
                count, more = len(self.pace), max(len(self.pace), 16)
                self.pace.grow(more)
                self._numbers = np.pad(self._numbers, (0, more), constant_values=-1)
                self._free = [*range(count + more - 1, count - 1, -1)]
            share.place = self._free.pop()
            self._numbers[share.place] = share.number

    def leave(self, share: QuotaShare) -> None:
        """It is gone, or has no even pace any more."""
        if share.place >= 0:
            self.pace.forget(share.place)
            self._numbers[share.place] = -1
            self._free.append(share.place)
            share.place = -1

    def refresh(self, share: QuotaShare, most: int, now: float, *, is_new: bool) -> None:
        """What the store told of a quota that allows ``most``. ``is_new``: another window has begun."""
        if share.place < 0:
            return
        if isinstance(share.state, Window) and share.state.ends_ms is not None:
            self.pace.refresh(share.place, share.state, share.spent, most, now, is_new=is_new)
        else:
            self.pace.stop(share.place)

    def stop(self, share: QuotaShare) -> None:
        """Its window is over."""
        if share.place >= 0:
            self.pace.stop(share.place)

    def draw(self, now: float, rng: np.random.Generator, arrays: QuotaArrays) -> bool:
        """Write which hold back in the slice that begins now, by number; whether that is something new."""
        if not len(self):
            return False
        numbers, held_back = self._numbers, arrays.held_back
        # Of a place that is free the number is -1: there nothing is spent, and nothing is ever held back.
        held = self.pace.draw(now, np.asarray(arrays.spent)[numbers], rng)
        if np.array_equal(held, held_back[numbers]):
            return False
        held_back[numbers] = held
        return True
