"""The synthetic environment of the sublinear paper: Gaussian arms keep coming, rewards are linear and noisy.

Notation
    theta*      true parameter (d,), standard normal
    K, T        arms at the end, steps
    C           arms that arrive together (C_change), every ``PERIOD`` steps

Everything random is drawn before the first step, so that policies compared on one seed meet the same arms at
the same times and the same noise.

Source: Yang et al., "Linear Bandit Algorithms with Sublinear Time Complexity", section 7.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from app.algorithms import checks
from app.algorithms.types import Matrix, Vector
from app.errors import InvalidParameter

DIM = 16
PERIOD = 20


@dataclass(frozen=True, slots=True, eq=False)
class Environment:
    """Shapes: theta (d,), arms (K, d) in order of arrival, means (K,), noise (T,), best (T,).

    ``best[t]`` is the largest mean among the arms that are there at step t.
    """

    theta: Vector
    arms: Matrix
    means: Vector
    noise: Vector
    best: Vector
    change: int

    @property
    def steps(self) -> int:
        return len(self.noise)

    def available(self, step: int) -> int:
        """How many arms, the first ones, are there at a step."""
        return len(self.arms) - self.change * ((self.steps - 1) // PERIOD - step // PERIOD)

    def reward(self, step: int, arm: int) -> float:
        return float(self.means[arm] + self.noise[step])

    def regret(self, step: int, arm: int) -> float:
        return float(self.best[step] - self.means[arm])


def make(arms: int, steps: int, *, change: int = 2, dim: int = DIM, seed: int) -> Environment:
    """Draw an environment. Raises InvalidParameter when more arms would arrive than there are at the end."""
    checks.in_range("steps", steps, least=1)
    arriving = change * ((steps - 1) // PERIOD)
    if arms <= arriving:
        raise InvalidParameter(f"arms must be more than the {arriving} that arrive", loc=("arms",))
    rng = np.random.default_rng(seed)
    theta = rng.standard_normal(dim)
    features = rng.standard_normal((arms, dim))
    noise = rng.standard_normal(steps)
    means = features @ theta
    last = arms - arriving - 1 + change * (np.arange(steps) // PERIOD)
    return Environment(theta, features, means, noise, np.maximum.accumulate(means)[last], change)
