"""The heap augmented arm set Psi_s: the arms of one stage, ordered by their upper bounds.

Notation
    s               index of the stage; every arm in it had a width of at most 2^-s when it was placed
    bound           x.theta^ + 2^-s at the moment the arm was placed (n,)
    r               elimination threshold: an arm whose bound is below r cannot be the best
    n               number of entries; those of deleted arms stay until the set is rebuilt (lazy deletion)

A sorted array is a heap whose pops are one slice. Most entries are in a large run that is never changed,
so states of a learner share it; what is pushed goes to a small second run, which is merged into the first
once it is longer than the square root of it: a push costs O(sqrt n) amortised, in one vector operation.

Source: Yang et al., "Linear Bandit Algorithms with Sublinear Time Complexity", Algorithm 2. Its query
(lines 15 to 18) is ``sub_elim.choose``: one index serves all stages, so a set has no index of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from app.algorithms.linear.living_arms import LivingArms
from app.algorithms.types import Rows, Vector


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """Entries in ascending order of bound. Shapes: bounds (n,), rows (n,)."""

    bounds: Vector
    rows: Rows

    def __len__(self) -> int:
        return len(self.rows)

    def merged(self, bounds: Vector, rows: Rows) -> Run:
        order = np.argsort(bounds, kind="stable")
        places = np.searchsorted(self.bounds, bounds[order])
        return Run(np.insert(self.bounds, places, bounds[order]), np.insert(self.rows, places, rows[order]))

    def split(self, threshold: float) -> tuple[Rows, Run]:
        """Return the rows of bound below ``threshold``, and the rest."""
        first = int(np.searchsorted(self.bounds, threshold))
        bounds, rows = self.bounds[first:], self.rows[first:]
        base = bounds.base
        if isinstance(base, np.ndarray) and 2 * len(bounds) < len(
            base
        ):  # else a few arms hold many in memory
            bounds, rows = bounds.copy(), rows.copy()
        return self.rows[:first], Run(bounds, rows)


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
        late = places - len(self.settled)
        return np.concatenate((self.settled.rows[places[late < 0]], self.pushed.rows[late[late >= 0]]))

    def push(self, rows: Rows, estimates: Vector) -> HeapArms:
        """Add arms with the bounds ``estimates`` + 2^-s (lines 5 to 8). Shapes: (m,), (m,)."""
        # DEVIATION (Alg. 2, line 8): two sorted runs, whose pops are slices, stand for a binary heap.
        pushed = self.pushed.merged(estimates + 2.0**-self.stage, rows)
        if len(pushed) ** 2 <= len(self.settled):
            return replace(self, pushed=pushed)
        return replace(self, settled=self.settled.merged(pushed.bounds, pushed.rows), pushed=_EMPTY)

    def eliminate(self, threshold: float) -> tuple[Rows, HeapArms]:
        """Return the rows whose bound is below ``threshold``, and the set without them (lines 9 to 14)."""
        low, settled = self.settled.split(threshold)
        low_pushed, pushed = self.pushed.split(threshold)
        if not len(low) and not len(low_pushed):
            return low, self
        return np.concatenate((low, low_pushed)), HeapArms(self.stage, settled, pushed)

    def kept(self, living: LivingArms) -> HeapArms:
        """Return the set with only the entries of living arms (lazy deletion, carried out)."""
        runs = []
        for run in (self.settled, self.pushed):
            stay = living.mask(run.rows)
            runs.append(Run(run.bounds[stay], run.rows[stay]))
        return HeapArms(self.stage, *runs)
