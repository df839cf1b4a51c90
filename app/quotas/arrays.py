"""What choices read of all quotas of a bandit at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from app.quotas.pacing import PACE, draw

UNBOUNDED = 2**31 - 1


class QuotaArrays:
    """What choices read of all quotas at once, by their numbers, and write: ``spent``.

    ``used_up``, ``held_back``: whether arms of a quota are not eligible now; ``pace``: see ``pacing``, and
    ``rates`` the rates in it;
    ``most``: may be spent in the window, as far as this process has heard, where a quota limits;
    ``one_arm``: whether a list has one arm of it at most. ``enough``: while no more than this is spent,
    nothing is lacking and nothing runs low. ``windows``: how many have begun.
    """

    def __init__(self) -> None:
        # One place is beyond all numbers: an array of none would need a case of its own.
        self.used_up = np.zeros(1, dtype=np.bool_)
        self.held_back = np.zeros(1, dtype=np.bool_)
        self.one_arm = np.zeros(1, dtype=np.bool_)
        self.pace = np.zeros(1, dtype=PACE)
        self.rates = self.pace["rate"]
        self.most = np.full(1, UNBOUNDED, dtype=np.int64)
        # Choices read and write a few of these, one by one: in an array that takes three times as long.
        self.spent = np.zeros(1, dtype=np.int64).data
        self.enough = [UNBOUNDED]
        self.windows = 0

    @property
    def out(self) -> NDArray[np.bool_]:
        """Whether the arms of a quota are not eligible now."""
        return self.used_up | self.held_back

    def grow(self, number: int) -> None:
        """Have a place for this number."""
        # Half as much again, so that the arrays are copied O(log n) times while quotas are added one by one.
        more = max(number + 2, 3 * number // 2) - len(self.most)
        if more <= 0:
            return
        self.used_up = np.pad(self.used_up, (0, more))
        self.held_back = np.pad(self.held_back, (0, more))
        self.one_arm = np.pad(self.one_arm, (0, more))
        self.pace = np.concatenate((self.pace, np.zeros(more, dtype=PACE)))
        self.rates = self.pace["rate"]
        self.most = np.pad(self.most, (0, more), constant_values=UNBOUNDED)
        self.spent = np.pad(self.spent, (0, more)).data
        self.enough += [UNBOUNDED] * more

    def clear(self, number: int) -> None:
        """No quota has this number now."""
        self.used_up[number] = self.held_back[number] = self.one_arm[number] = False
        self.most[number] = self.enough[number] = UNBOUNDED
        self.pace[number] = 0.0

    def draw(self, now: float, rng: np.random.Generator) -> bool:
        """Draw which quotas hold back in the slice that begins now; whether that is something new."""
        if not self.pace["rate"].any():
            return False
        before = self.held_back
        self.held_back = draw(self.pace, np.asarray(self.spent, dtype=np.int64), now, rng)
        return not np.array_equal(before, self.held_back)

    def few(self, k: int) -> dict[int, int]:
        """How much is left of the quotas, by their numbers, of which a list of k may take more."""
        left = self.most - np.asarray(self.spent, dtype=np.int64)
        # Arms of those that are out are not eligible at all, so no list can take any of them.
        numbers = np.flatnonzero((left < np.where(self.one_arm, 1, k)) & ~self.out)
        return dict(zip(numbers.tolist(), left[numbers].tolist(), strict=True))
