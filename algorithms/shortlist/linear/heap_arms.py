"""The heap augmented arm set Psi_s: the arms of one stage, ordered by their upper bounds.

Notation
    s               index of the stage; every arm in it had a width of at most 2^-s when placed
    bound           upper bound x.theta^ + w of an arm at the moment it was placed (n,)
    r               elimination threshold: an arm whose bound is below r cannot be the best
    n               number of entries; those of deleted arms stay until the set is rebuilt (lazy deletion)

The paper uses a heap to remove the arms below r without reading the others. Here arrays do the same. An array
keeps its least bound, so an elimination without effect reads one number. The first effective eliminations
filter the array. After the fourth the array is sorted, and from then on an elimination is a slice. Most
arrays are never sorted, because r rises rarely. Rows that stay in the order of the catalogue are read from
memory ten times as fast.

A set has two runs of entries. Most entries are in the long run, which is never changed, so the states of a
learner share it. New entries go to the short run. Once the short run is longer than the square root of the
long one, both are joined: a push costs O(sqrt n) amortised, in one vector operation.

Source: Yang et al., "Linear Bandit Algorithms with Sublinear Time Complexity", Algorithm 2. Its query
(lines 15 to 18) is ``sub_elim.choose``: one index serves all stages, so a set has no index of its own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from shortlist.linear.living_arms import LivingArms
from shortlist.types import NO_ROWS, Rows, Vector

_FILTERS = 4


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """Entries, in ascending order of bound after ``_FILTERS`` eliminations. Shapes: bounds, rows (n,).

    ``least`` is the smallest bound, inf without entries. ``eliminations`` counts those that removed entries.
    """

    bounds: Vector
    rows: Rows
    least: float = math.inf
    eliminations: int = 0

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def is_sorted(self) -> bool:
        """True if the entries are in the order of their bounds."""
        return self.eliminations >= _FILTERS

    def joined(self, other: Run) -> Run:
        """Return the entries of both. Cost: O(n)."""
        least = min(self.least, other.least)
        if not self.is_sorted:
            bounds, rows = (self.bounds, other.bounds), (self.rows, other.rows)
            return Run(np.concatenate(bounds), np.concatenate(rows), least, self.eliminations)
        order = np.argsort(other.bounds, kind="stable")
        places = np.searchsorted(self.bounds, other.bounds[order])
        merged = np.insert(self.bounds, places, other.bounds[order])
        return Run(merged, np.insert(self.rows, places, other.rows[order]), least, self.eliminations)

    def split(self, threshold: float) -> tuple[Rows, Run]:
        """Return the rows of bound below ``threshold``, and the rest."""
        if not self.least < threshold:
            return NO_ROWS, self
        if self.is_sorted:
            return self._sliced(int(np.searchsorted(self.bounds, threshold)))
        low = self.bounds < threshold
        high = self._with(self.bounds[~low], self.rows[~low], self.eliminations + 1)
        return self.rows[low], high._sorted() if high.is_sorted else high

    def kept(self, stay: NDArray[np.bool_]) -> Run:
        """Return the entries where ``stay`` is true. Shape: (n,)."""
        return self._with(self.bounds[stay], self.rows[stay], self.eliminations)

    def _sliced(self, first: int) -> tuple[Rows, Run]:
        bounds, rows = self.bounds[first:], self.rows[first:]
        base = bounds.base
        # A slice keeps its whole array in memory: a short one is copied.
        if isinstance(base, np.ndarray) and 2 * len(bounds) < len(base):
            bounds, rows = bounds.copy(), rows.copy()
        return self.rows[:first], self._with(bounds, rows, self.eliminations)

    def _sorted(self) -> Run:
        order = np.argsort(self.bounds, kind="stable")
        return Run(self.bounds[order], self.rows[order], self.least, self.eliminations)

    @staticmethod
    def _with(bounds: Vector, rows: Rows, eliminations: int) -> Run:
        return Run(bounds, rows, float(bounds.min(initial=math.inf)), eliminations)


_EMPTY = Run(np.empty(0), np.empty(0, dtype=np.int64))


@dataclass(frozen=True, slots=True, eq=False)
class HeapArms:
    """Psi_s as a value: ``push`` and ``eliminate`` return another one."""

    stage: int
    settled: Run = _EMPTY
    pushed: Run = _EMPTY

    def __len__(self) -> int:
        return len(self.settled) + len(self.pushed)

    @property
    def rows(self) -> Rows:
        """The rows of all entries, deleted arms included, in no order. Shape: (n,)."""
        if not len(self.pushed):
            return self.settled.rows
        return np.concatenate((self.settled.rows, self.pushed.rows))

    @property
    def nbytes(self) -> int:
        """Memory of the entries, those included that an elimination has left in the same arrays."""
        arrays = (array for run in (self.settled, self.pushed) for array in (run.bounds, run.rows))
        return sum((array if array.base is None else array.base).nbytes for array in arrays)

    def draw(self, size: int, rng: np.random.Generator) -> Rows:
        """Draw the rows of ``size`` entries with replacement. Shape: (size,)."""
        places = rng.integers(0, len(self), size)
        if not len(self.pushed):
            return self.settled.rows[places]
        late = places - len(self.settled)
        return np.concatenate((self.settled.rows[places[late < 0]], self.pushed.rows[late[late >= 0]]))

    def push(self, rows: Rows, bounds: Vector) -> HeapArms:
        """Add arms with their upper bounds (lines 5 to 8). Shapes: (m,), (m,)."""
        # DEVIATION (Alg. 2, line 8): two runs instead of a heap, sorted once they have been filtered often.
        pushed = self.pushed.joined(Run(bounds, rows, float(bounds.min(initial=math.inf))))
        if len(pushed) ** 2 <= len(self.settled):
            return replace(self, pushed=pushed)
        return replace(self, settled=self.settled.joined(pushed), pushed=_EMPTY)

    def eliminate(self, threshold: float) -> tuple[Rows, HeapArms]:
        """Return the rows whose bound is below ``threshold``, and the set without them (lines 9 to 14)."""
        low, settled = self.settled.split(threshold)
        low_pushed, pushed = self.pushed.split(threshold)
        if not len(low) and not len(low_pushed):
            return low, self
        return np.concatenate((low, low_pushed)), HeapArms(self.stage, settled, pushed)

    def kept(self, living: LivingArms) -> HeapArms:
        """Return the set without the entries of arms that no longer live."""
        runs = (run.kept(living.mask(run.rows)) for run in (self.settled, self.pushed))
        return HeapArms(self.stage, *runs)
