"""What choices read of all quotas of a bandit at once, by their numbers.

An even pace follows a plan: a straight line from 0 to ``most`` over the window. A quota holds its arms back
for a slice of time if as much was shown as the plan allows by the end of the slice. Within a slice it does so
once it is ahead by ``1 / MOST_AHEAD`` of ``most``; not sooner, since then eligible arms are found anew.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

UNBOUNDED = 2**31 - 1
SLICE_S = 0.1
MOST_AHEAD = 200

QUOTA = np.dtype(
    [
        ("used_up", np.bool_),  # its arms are not eligible
        ("held_back", np.bool_),  # nor in this slice
        ("one_arm", np.bool_),  # a list has one arm of it at most
        ("most", np.int64),  # may be spent in the window, as far as this process has heard
        ("rate", np.float64),  # of an even pace, in shows a second; 0: there is none, or no window now
        ("began", np.float64),  # the window, by a clock that does not jump
        ("others", np.float64),  # was shown in it by other processes
        ("planned", np.float64),  # this process may show by the end of the slice
    ],
    align=True,
)
NO_QUOTA = np.array((False, False, False, UNBOUNDED, 0.0, 0.0, 0.0, 0.0), QUOTA)


class QuotaArrays:
    """``rows`` (n,) of ``QUOTA``. Choices write ``spent``: by this process, in the window.

    ``enough``: while no more than this is spent, nothing is lacking and nothing runs low. ``windows``: how
    many have begun.
    """

    def __init__(self) -> None:
        # One place is beyond all numbers: an array of none would need a case of its own.
        self.rows = np.full(1, NO_QUOTA)
        # Choices read and write a few of these, one by one: in an array that takes three times as long.
        self.spent = np.zeros(1, dtype=np.int64).data
        self.enough = [UNBOUNDED]
        self.windows = 0

    @property
    def out(self) -> NDArray[np.bool_]:
        """Whether the arms of a quota are not eligible now."""
        out: NDArray[np.bool_] = self.rows["used_up"] | self.rows["held_back"]
        return out

    def grow(self, number: int) -> None:
        """Have a place for this number."""
        # Half as much again, so that the arrays are copied O(log n) times while quotas are added one by one.
        more = max(number + 2, 3 * number // 2) - len(self.rows)
        if more > 0:
            self.rows = np.append(self.rows, np.full(more, NO_QUOTA))
            self.spent = np.pad(self.spent, (0, more)).data
            self.enough += [UNBOUNDED] * more

    def clear(self, number: int) -> None:
        """No quota has this number now."""
        self.rows[number], self.enough[number] = NO_QUOTA, UNBOUNDED

    def hold_back(self, now: float) -> bool:
        """Find which quotas hold back in the slice that begins now; whether that is something new."""
        rows = self.rows
        is_paced = rows["rate"] > 0.0
        if not is_paced.any():
            return False
        rows["planned"] = rows["rate"] * (now + SLICE_S - rows["began"]) - rows["others"]
        is_ahead = is_paced & (np.asarray(self.spent) >= rows["planned"])
        is_new = not np.array_equal(rows["held_back"], is_ahead)
        rows["held_back"] = is_ahead
        return is_new

    def left_below(self, k: int) -> dict[int, int]:
        """How much is left of the quotas, by their numbers, of which a list of k may take more."""
        left = self.rows["most"] - np.asarray(self.spent)
        # Arms of those that are out are not eligible at all, so no list can take any of them.
        numbers = np.flatnonzero((left < np.where(self.rows["one_arm"], 1, k)) & ~self.out)
        return dict(zip(numbers.tolist(), left[numbers].tolist(), strict=True))
