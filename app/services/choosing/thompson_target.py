"""Thompson sampling as a target: how often its draws of theta give the same list.

Without exploration nothing is drawn, and it is exact. Else a situation takes ``DRAWS`` searches of the index,
from a seed that follows from the situation alone; where there are few arms, one comparison of all of them.
``solver`` and ``shortlist`` of the bandit are not asked: what an index would miss is neglected. So is a
warm-up.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from app.services.bandits.bandits import Bandit
from app.services.catalogues.adaptive_solver import ExactSolver
from app.services.catalogues.learner_view import LearnerView
from app.services.choosing.covers import Covers
from app.services.choosing.target import Lists, Pool, Situations, Targets, Weighed
from shortlist.evaluation import simulated_target as algorithm
from shortlist.evaluation.logged import MAX_PLACES
from shortlist.linear.linear_ts import draws
from shortlist.types import Matrix, MipsSolver, Rows

DRAWS = 1_000
NO_ARM = -2  # differs from every row, and from -1: no arm of the pool
TOGETHER = 2_000_000  # arms in the draws of decisions that are weighed at once
SCANNED = 2_000_000  # numbers of the features that are compared with many draws at once, faster than an index
FEW_PLACES = 10  # are found one after the other: faster than by a partition
SCORES = 500_000  # of draws that are compared at once

Known = tuple[Rows, Matrix]


@dataclass(frozen=True, slots=True, eq=False)
class ThompsonTarget:
    """``draws``: for each situation, of ``k`` arms."""

    view: LearnerView
    solver: MipsSolver
    exploration: float
    k: int
    draws: int

    @property
    def known_bytes(self) -> int:
        return 500 + 16 * self.draws * self.k

    def know(self, situations: Situations, check: Callable[[], None]) -> Sequence[Known]:
        """The lists that are drawn in each situation, and the scores of their arms."""
        return [self._drawn(situations, place, check) for place in range(len(situations))]

    def _drawn(self, situations: Situations, place: int, check: Callable[[], None]) -> Known:
        posterior, exclude = situations.posterior(place), situations.exclude[place]
        rng = np.random.default_rng(zlib.crc32(repr(situations.names[place]).encode()))
        queries = draws(posterior, self.draws, exploration=self.exploration, rng=rng)
        is_small = self.view.size * self.view.view.dim <= SCANNED
        rows = (self._scanned if is_small else self._searched)(queries, exclude, check)
        distinct, places = np.unique(rows, return_inverse=True)
        features = self.view.plain.features_of(np.maximum(distinct, 0))
        scores = np.where(distinct >= 0, features @ situations.queries[place], 0.0)
        return rows, scores[places].reshape(rows.shape)

    def _searched(self, queries: Matrix, exclude: Rows, check: Callable[[], None]) -> Rows:
        """The best arms for each query, as the policy searches them. Shapes: (draws, d') -> (draws, k)."""
        rows = np.full((len(queries), self.k), NO_ARM, dtype=np.int64)
        for place, query in enumerate(queries):
            check()
            found = self.solver.search(query, self.k, exclude)
            rows[place, : len(found.rows)] = found.rows
        return rows

    def _scanned(self, queries: Matrix, exclude: Rows, check: Callable[[], None]) -> Rows:
        """The best arms for each query, all compared. Shapes: (draws, d') -> (draws, k)."""
        rows = np.full((len(queries), self.k), NO_ARM, dtype=np.int64)
        arms = np.sort(self.view.eligible(exclude))
        count = min(self.k, len(arms))
        if not count:
            return rows
        features = self.view.features_of(arms)
        step = max(1, SCORES // len(arms))
        for start in range(0, len(queries), step):
            check()
            part = slice(start, start + step)
            rows[part, :count] = arms[_best(queries[part] @ features.T, count)]
        return rows

    def weigh(self, situations: Situations, known: Sequence[Known], lists: Lists) -> Weighed:  # noqa: ARG002
        places = lists.rows.shape[1]
        found = Weighed(np.zeros(lists.rows.shape), np.zeros(lists.rows.shape))
        step = max(1, TOGETHER // (self.draws * max(places, 1)))
        for start in range(0, len(lists.rows), step):
            part = slice(start, start + step)
            used, which = np.unique(lists.which[part], return_inverse=True)
            rows = np.array([known[place][0][:, :places] for place in used.tolist()])
            scores = np.array([known[place][1][:, :places] for place in used.tolist()])
            found.propensities[part], found.expected[part] = algorithm.weigh(
                rows, scores, which, lists.rows[part]
            )
        return found


def _best(scores: Matrix, count: int) -> Rows:
    """Slots of the largest scores of each row, the largest first; scores are overwritten.

    Shapes: (n, K) -> (n, count). Cost: n K, at most ``FEW_PLACES`` times.
    """
    if count > FEW_PLACES:
        some = np.argpartition(-scores, count - 1, axis=1)[:, :count]
        order = np.argsort(-np.take_along_axis(scores, some, axis=1), axis=1)
        best: Rows = np.take_along_axis(some, order, axis=1)
        return best
    found = np.empty((len(scores), count), dtype=np.int64)
    for place in range(count):
        found[:, place] = scores.argmax(axis=1)
        scores[np.arange(len(scores)), found[:, place]] = -np.inf
    return found


def _targets(solver_of: Callable[[LearnerView], MipsSolver]) -> Targets:
    async def of(covers: Covers, pool: Pool) -> ThompsonTarget:  # noqa: ARG001 - as all targets
        exploration = pool.bandit.exploration
        draws = DRAWS if exploration else 1
        k = min(max(pool.k, 1), MAX_PLACES)
        return ThompsonTarget(pool.view, solver_of(pool.view), exploration, k, draws)

    return Targets(of, _caveats, needs_noise=True)


def _caveats(bandit: Bandit) -> Sequence[str]:
    found = []
    if bandit.exploration:
        accuracy = (
            f"with a standard error of up to {0.5 / DRAWS**0.5:.3f}; lists that it rarely draws are missed"
        )
        policy = f"{bandit.record.policy} does not know its propensities"
        found.append(f"{policy}: each was estimated from {DRAWS:,} draws, {accuracy}")
    if bandit.record.explore is not None:
        found.append("the policy was evaluated without its warm-up of new keys")
    return found


SUB_TS = _targets(lambda view: view)
LINEAR_TS = _targets(ExactSolver)
