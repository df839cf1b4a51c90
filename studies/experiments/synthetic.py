"""The synthetic environment of the sublinear paper: Gaussian arms keep coming, rewards are linear and noisy.

Notation
    theta*      true parameter (d,), standard normal
    K, T        arms that are ever there, steps
    C           arms that arrive together (C_change), every ``PERIOD`` steps
    B           number of such times, (T - 1) // PERIOD

Everything random is drawn before the first step, so that policies compared on one seed meet the same arms at
the same times and the same noise.

Source: Yang et al., "Linear Bandit Algorithms with Sublinear Time Complexity", section 7 and appendix C.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shortlist import checks
from shortlist.errors import InvalidParameter
from shortlist.types import NO_ROWS, Matrix, Rows, Vector

DIM = 16
PERIOD = 20


@dataclass(frozen=True, slots=True, eq=False)
class Environment:
    """Shapes: arms (K, d) in order of arrival, means (K,), noise (T,), best (T,).

    The ``first`` arms are there from the beginning. ``best[t]`` is the largest mean among the arms that are
    there at step t. ``gone`` (B, C) names the arms that leave when the next ones arrive; (B, 0): none does.
    """

    arms: Matrix
    means: Vector
    noise: Vector
    best: Vector
    first: int
    change: int
    gone: Rows

    @property
    def steps(self) -> int:
        return len(self.noise)

    def available(self, step: int) -> int:
        """How many arms, the first ones, have arrived at a step."""
        return min(len(self.arms), self.first + self.change * (step // PERIOD))

    def leaving(self, step: int) -> Rows:
        """The arms that leave at a step."""
        return self.gone[step // PERIOD - 1] if step and step % PERIOD == 0 else NO_ROWS

    def reward(self, step: int, arm: int) -> float:
        return float(self.means[arm] + self.noise[step])

    def regret(self, step: int, arm: int) -> float:
        return float(self.best[step] - self.means[arm])


def make(
    arms: int, steps: int, *, change: int = 2, dim: int = DIM, deletions: bool = False, seed: int
) -> Environment:
    """Draw an environment of ``arms`` arms in all; with ``deletions`` as many leave as arrive, at random.

    Raises InvalidParameter when more arms would arrive than there are at the end.
    """
    checks.in_range("steps", steps, least=1)
    batches = (steps - 1) // PERIOD
    if arms <= change * batches:
        raise InvalidParameter(f"arms must be more than the {change * batches} that arrive", argument="arms")
    rng = np.random.default_rng(seed)
    theta = rng.standard_normal(dim)
    features = rng.standard_normal((arms, dim))
    noise = rng.standard_normal(steps)
    means = features @ theta
    gone = _departures(arms, change, batches, rng) if deletions else np.empty((batches, 0), dtype=np.int64)
    first = arms - change * batches
    best = _best(means, gone, first, change)[np.arange(steps) // PERIOD]
    return Environment(features, means, noise, best, first, change, gone)


def _departures(arms: int, change: int, batches: int, rng: np.random.Generator) -> Rows:
    """Random arms among those that are there before each batch. Shape: (batches, change)."""
    there = np.arange(arms - change * batches)
    gone = np.empty((batches, change), dtype=np.int64)
    for batch in range(batches):
        places = rng.choice(len(there), size=change, replace=False)
        gone[batch] = there[places]
        there[places] = arms - change * (batches - batch) + np.arange(change)
    return gone


def _best(means: Vector, gone: Rows, first: int, change: int) -> Vector:
    """The largest mean that is there after each number of batches. Shape: (batches + 1,)."""
    batches = len(gone)
    if not gone.size:
        best: Vector = np.maximum.accumulate(means)[first - 1 + change * np.arange(batches + 1)]
        return best
    left = np.full(len(means), batches + 1)
    left[gone] = np.arange(1, batches + 1)[:, None]
    came = np.maximum(0, -(-(np.arange(len(means)) - first + 1) // change))
    return np.array([means[(came <= batch) & (left > batch)].max() for batch in range(batches + 1)])
