"""Elimination in the tables: the most uncertain living arm by a scan, and one wide enough by a sample.

Notation
    n, d        living arms, dimension
    w           ||x||_{V^-1} of a living arm; x_t the arm that was played, u = V^-1 x_t
    p           length of the shortlist: arms of the lowest stage that are drawn and compared

After a reward V becomes V + x_t x_t^T, and w^2 becomes w^2 - (u.x)^2 / (1 + u.x_t) (Sherman and Morrison):
n d multiply-adds for all arms, not n d^2. That is the best scan we know, and the baseline.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from shortlist.index.table import aligned_empty
from shortlist.linear import elimination, sub_elim
from shortlist.linear.elimination import Elimination, EliminationRules
from shortlist.linear.living_arms import NO_ARMS
from shortlist.linear.most_uncertain_arm import Finder, StageSample, Watched
from shortlist.linear.ridge import Posterior, widths
from shortlist.types import Matrix, Rows
from studies.experiments.synthetic import Environment

REFRESH = 1_000
_MOST_DEAD = 0.1


class WidthScan:
    """Proposes the most uncertain living arm: w^2 of each is kept in float32, and computed again at times."""

    def __init__(self, features: Matrix) -> None:
        self._features = features
        size, dim = features.shape
        self._working = aligned_empty(size, dim)
        self.rows = np.empty(size, dtype=np.int64)
        self.squares: NDArray[np.float32] = np.empty(size, dtype=np.float32)
        self.count = 0
        self._living = NO_ARMS
        self._rewards = 0

    def add(self, came: Rows, posterior: Posterior) -> None:
        new = slice(self.count, self.count + len(came))
        self.rows[new] = came
        self._working[new] = self._features[came]
        self.squares[new] = widths(posterior, self._features[came]) ** 2
        self.count += len(came)
        self._living = NO_ARMS  # some of them may not live: look again

    def learned(self, arm: int, before: Posterior) -> None:
        """Follow V through one reward."""
        features = self._features[arm]
        towards = before.root @ (features @ before.root)
        shared = self._working[: self.count] @ towards.astype(np.float32)
        np.multiply(shared, shared, out=shared)
        shared *= np.float32(1.0 / (1.0 + towards @ features))
        self.squares[: self.count] -= shared
        self._rewards += 1

    def __call__(self, posterior: Posterior, state: Elimination, _rng: np.random.Generator) -> Rows:
        if state.living is not self._living or self._rewards >= REFRESH:
            self._follow(posterior, state)
        widest = int(self.squares[: self.count].argmax())
        return self.rows[widest : widest + 1]

    def _follow(self, posterior: Posterior, state: Elimination) -> None:
        """Arms that were eliminated count no more; many of them are taken out."""
        dead = ~state.living.mask(self.rows[: self.count])
        self.squares[: self.count][dead] = -1.0
        if self._rewards >= REFRESH or np.count_nonzero(dead) > _MOST_DEAD * self.count:
            rows = self.rows[: self.count][~dead]
            self.count = self._rewards = 0
            self.add(rows, posterior)
        self._living = state.living


class Eliminating:
    """Algorithm 3 with every pass that is due done at once: both policies, but for the search."""

    find: Finder

    def __init__(self, environment: Environment, rules: EliminationRules) -> None:
        self._features = environment.arms
        self._rules = rules
        self._state = Elimination(rules)

    def start(self, rows: Rows, posterior: Posterior) -> None:
        self._state = elimination.start(posterior, rows, self.features_of, self._rules)

    def change(self, came: Rows, left: Rows, posterior: Posterior) -> None:
        if len(left):
            raise NotImplementedError("the tables delete no arm under elimination")
        self._state = elimination.add(self._state, posterior, came, self.features_of)

    def upkeep(self) -> None:
        """Nothing is kept up in the background."""

    def choose(self, posterior: Posterior, rng: np.random.Generator) -> int:
        self._state, found = sub_elim.play(self._state, posterior, self.features_of, self.find, k=1, rng=rng)
        return int(found.rows[0])

    def learned(self, _arm: int, _before: Posterior, /) -> None:
        """The stages hold what was true when the arms were placed."""

    def scans(self, _posterior: Posterior, /) -> dict[str, Callable[[], object]]:
        """Only baselines scan."""
        return {}

    def features_of(self, rows: Rows) -> Matrix:
        return self._features.take(rows, axis=0)


class LinearElim(Eliminating):
    """The most uncertain of all living arms, by the scan of ``WidthScan``."""

    def __init__(self, environment: Environment, rules: EliminationRules) -> None:
        super().__init__(environment, rules)
        self._scan = WidthScan(environment.arms)
        self.find = self._scan
        self._present = 0

    def start(self, rows: Rows, posterior: Posterior) -> None:
        super().start(rows, posterior)
        self._scan.add(rows, posterior)
        self._present = len(rows)

    def change(self, came: Rows, left: Rows, posterior: Posterior) -> None:
        super().change(came, left, posterior)
        self._scan.add(came, posterior)
        self._present += len(came)

    def learned(self, arm: int, before: Posterior, /) -> None:
        self._scan.learned(arm, before)

    def scans(self, posterior: Posterior, /) -> dict[str, Callable[[], object]]:
        """The paper's scan, "through all the arms": the width of every one, from V^-1, at every step."""
        present = self._features[: self._present]
        return {"printed": lambda: widths(posterior, present).argmax()}


class SubElim(Eliminating):
    """Sub-Elim as the service runs it: p arms of the lowest stage, and the most uncertain when placed."""

    def __init__(self, environment: Environment, rules: EliminationRules, *, shortlist: int) -> None:
        super().__init__(environment, rules)
        self.find = Watched(sample=StageSample(shortlist))
