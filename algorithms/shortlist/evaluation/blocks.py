"""Blocks of decisions, in the order of time: all decisions of a block are weighed with the learners before
it.

Notation
    n           decisions
    b           blocks: ``BLOCKS`` of them, or n if less, as even as can be

The number of decisions of a log is known only at its end. So the times of every s-th decision are kept while
reading, and s is doubled when they become too many: memory does not grow with n, and a block differs from n /
b decisions by a few thousandths of n at most.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shortlist import checks
from shortlist.types import Rows, Vector

BLOCKS = 20
_KEPT = 2_048


@dataclass(frozen=True, slots=True, eq=False)
class Clock:
    """``times`` of the decisions 0, ``step``, 2 ``step``, ... of ``count``. Shape: (ceil(count / step),)."""

    count: int
    step: int
    times: Vector


@dataclass(frozen=True, slots=True, eq=False)
class Blocks:
    """``first``: number of the first decision of each, from 0; ``times``: when it was made. Shapes: (b,)."""

    first: Rows
    times: Vector

    def __len__(self) -> int:
        return len(self.first)

    def known_to(self, times: Vector) -> Rows:
        """The first block that knows what came at these times, b where none does. Shapes: (m,) -> (m,).

        What comes at the very time at which a block begins is not known to it.
        """
        block_numbers: Rows = np.searchsorted(self.times, times, side="right")
        return block_numbers


def start() -> Clock:
    """The clock before the first decision."""
    return Clock(0, 1, np.empty(0))


def add(clock: Clock, times: Vector) -> Clock:
    """The clock after some more decisions, in their order. Shapes: times (m,). Raises: InvalidShape."""
    checks.shape("times", times, (None,))
    times_kept = np.concatenate((clock.times, times[-clock.count % clock.step :: clock.step]))
    count, step = clock.count + len(times), clock.step
    while len(times_kept) > _KEPT:
        times_kept, step = times_kept[::2], 2 * step
    return Clock(count, step, times_kept)


def of(clock: Clock) -> Blocks:
    """The blocks of all decisions. Times that go back count as the latest before them. Cost: O(1)."""
    count = len(clock.times)
    places = np.unique(np.arange(BLOCKS) * count // BLOCKS) if count else np.empty(0, dtype=np.int64)
    return Blocks(places * clock.step, np.maximum.accumulate(clock.times)[places])
