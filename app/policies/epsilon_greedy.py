"""Epsilon-greedy: the best estimate, and sometimes any arm. Propensities are exact after one search.

As a target of evaluations its propensities are exact too. Cost: K d for each situation, O(k^2) for a list.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from app.catalogues.adaptive_solver import ExactSolver
from app.catalogues.learner_snapshot import LearnerSnapshot
from app.indexes.snapshot import Snapshot
from app.policies import uniform
from app.policies.base import ANY_PRIOR, Policy
from app.policies.targets import NO_ARM, Evaluable, EvaluationBatch, Lists, Pool, Weighed
from app.selection.covers import Covers
from app.selection.list_limits import Limits
from app.selection.selection import Candidates, Drawn, Ranking, SelectionRequest
from shortlist.evaluation.logged import MAX_PLACES
from shortlist.index.exact import scores_of
from shortlist.linear import epsilon_greedy as algorithm
from shortlist.linear.ridge import Posterior
from shortlist.types import Matrix, Rows, TopK, Vector

EPSILON = 0.1  # where absent
_NUMBER_US = 0.01  # for each number of the features, where limits make all arms be ranked
_EXPLORED_US = 20.0  # for each place that may be drawn
BATCH_SIZE = 4_000_000  # arms of situations whose lists are weighed at once


class EpsilonGreedy(Policy, Evaluable):
    """At each place the best remaining arm, or with probability ``epsilon`` any of them."""

    name = "epsilon_greedy"
    summary = "the best estimate, and with probability epsilon an arm drawn at random"
    options = ANY_PRIOR | {"context", "match", "epsilon"}
    reads = frozenset({"ridge", "arm_effects"})
    defaults: ClassVar[Mapping[str, object]] = {"epsilon": EPSILON}
    has_propensities = True

    def cost_us(self, request: SelectionRequest, arms: LearnerSnapshot) -> float:
        if request.limits:
            return _NUMBER_US * arms.size * arms.table.dim
        return arms.expected_us + _EXPLORED_US * request.k

    def rank(
        self, posterior: Posterior, candidates: Candidates, k: int, rng: np.random.Generator, prepared: None
    ) -> Ranking:
        theta = candidates.arms.catalogue_query(posterior.theta)
        offset = candidates.arms.constant_score(posterior.theta)
        epsilon, limits = candidates.bandit.record.epsilon or 0.0, candidates.limits
        # Without limits the best of what is left is the next of one search; with them each arm that is taken
        # may bar others.
        if limits is None:
            return _searched(candidates, theta, k, epsilon, rng).ranking(offset)
        return _scanned(candidates, limits, theta, k=k, epsilon=epsilon, rng=rng).ranking(offset)

    def first(self, posterior: Posterior, candidates: Candidates, prepared: None) -> tuple[Rows, Vector]:
        theta = candidates.arms.catalogue_query(posterior.theta)
        rows, epsilon = candidates.firsts(), candidates.bandit.record.epsilon or 0.0
        scores = scores_of(candidates.arms.plain.table, rows, theta) + candidates.effects_of(rows)
        propensities = np.full(len(rows), epsilon / max(len(rows), 1))
        if len(rows):
            propensities[scores.argmax()] += 1.0 - epsilon
        return rows, propensities

    async def target(self, covers: Covers, pool: Pool) -> EpsilonGreedyTarget:
        k = min(max(pool.k, 1), MAX_PLACES)
        return EpsilonGreedyTarget(pool.arms.plain, pool.bandit.record.epsilon or 0.0, k)


def _searched(
    candidates: Candidates, theta: Vector, k: int, epsilon: float, rng: np.random.Generator
) -> Drawn:
    """Draw by a search of the index for k arms; drawn arms need no search. Cost: O(k) besides."""
    arms, taken_rows = candidates.arms.plain, candidates.exclude
    solver = candidates.with_effects(arms, arms)
    hits = solver.search(theta, k, candidates.exclude)
    best_first, position = hits.rows.tolist(), 0

    def best() -> int:
        nonlocal position
        while position < len(best_first) and best_first[position] in taken_rows:
            position += 1
        if position < len(best_first):
            return int(best_first[position])
        # an approximate search missed some
        return int(candidates.with_effects(arms, ExactSolver(arms)).search(theta, 1, taken_rows).rows[0])

    def any_one() -> int:
        rows, _ = uniform.draw(arms, k=1, rng=rng, exclude=taken_rows, seeded=candidates.request.seeded)
        return int(rows[0])

    def took(row: int) -> int:
        nonlocal taken_rows
        taken_rows = np.append(taken_rows, row)
        return arms.size - len(taken_rows)

    drawn = algorithm.in_turn(best, any_one, took, left=candidates.size, k=k, epsilon=epsilon, rng=rng)
    scores = arms.features_of(drawn.places) @ theta + candidates.effects_of(drawn.places)
    return Drawn(TopK(drawn.places, scores, hits.exact), drawn.propensities)


def _scanned(
    candidates: Candidates, limits: Limits, theta: Vector, *, k: int, epsilon: float, rng: np.random.Generator
) -> Drawn:
    """Within limits: all arms are ranked. Cost: K d."""
    arms, rows = candidates.arms.plain, candidates.scan()
    scores = scores_of(arms.table, rows, theta) + candidates.effects_of(rows)
    left = limits.over(rows)
    drawn = algorithm.choose(scores, k=k, epsilon=epsilon, rng=rng, take=left.take, barred=left.barred)
    return Drawn(TopK(rows[drawn.places], scores[drawn.places], exact=True), drawn.propensities)


@dataclass(frozen=True, slots=True, eq=False)
class KnownSituation:
    """``best``: the first arms by estimate, NO_ARM beyond the last, and what is ``predicted`` of them (k,).

    ``size`` arms, whose predictions sum to ``total`` and are from ``least`` to ``most``.
    """

    best: Rows
    predicted: Vector
    size: int
    total: float
    least: float
    most: float


@dataclass(frozen=True, slots=True, eq=False)
class EpsilonGreedyTarget:
    """Over the ``arms`` of a pool, for lists of at most ``k``."""

    arms: Snapshot
    epsilon: float
    k: int

    @property
    def known_bytes(self) -> int:
        return 500 + 16 * self.k

    def prepare(self, situations: EvaluationBatch, check: Callable[[], None]) -> Sequence[KnownSituation]:
        return [self._known(situations, position, check) for position in range(len(situations))]

    def _known(self, situations: EvaluationBatch, position: int, check: Callable[[], None]) -> KnownSituation:
        check()
        rows = self.arms.eligible(situations.exclude[position])
        scores = situations.scores(self.arms, rows, position)
        low, high = (float(bound[position]) for bound in situations.bounds)
        predictions = scores.clip(low, high)
        first = np.argsort(-scores, kind="stable")[: self.k]
        best, predicted = np.full(self.k, NO_ARM, dtype=np.int64), np.zeros(self.k)
        best[: len(first)], predicted[: len(first)] = rows[first], predictions[first]
        drawable = predictions if self.epsilon else predicted[: len(first)]
        least = float(drawable.min()) if len(rows) else 0.0
        most = float(drawable.max()) if len(rows) else 0.0
        return KnownSituation(best, predicted, len(rows), float(predictions.sum()), least, most)

    def weigh(self, situations: EvaluationBatch, prepared: Sequence[KnownSituation], lists: Lists) -> Weighed:
        least = np.array([situation.least for situation in prepared])[lists.which]
        most = np.array([situation.most for situation in prepared])[lists.which]
        weighed = Weighed(np.zeros(lists.rows.shape), np.zeros(lists.rows.shape), least, most)
        low, high = (bound[lists.which][:, None] for bound in situations.bounds)
        predicted = lists.scores.clip(low, high)
        step = max(1, BATCH_SIZE // self.k)
        for start in range(0, len(lists.rows), step):
            part = slice(start, start + step)
            batch = [prepared[which] for which in lists.which[part].tolist()]
            columns = self._weighed(batch, lists.rows[part], predicted[part])
            weighed.propensities[part], weighed.expected[part] = columns
        return weighed

    def _weighed(
        self, prepared: Sequence[KnownSituation], rows: Rows, predicted: Matrix
    ) -> tuple[Matrix, Matrix]:
        """Propensities and expected predictions of lists, one place after the other.

        ``prepared``: of the situation of each. Shapes: rows, predicted (n, k) -> (n, k), (n, k).
        """
        best, values = (
            np.array([situation.best for situation in prepared]),
            np.array([situation.predicted for situation in prepared]),
        )
        left = np.array([float(situation.size) for situation in prepared])
        total = np.array([situation.total for situation in prepared])
        propensities, expected = np.zeros(rows.shape), np.zeros(rows.shape)
        is_taken, everyone = np.zeros(best.shape, dtype=np.bool_), np.arange(len(best))
        for position in range(rows.shape[1]):
            shown, top = rows[:, position], is_taken.argmin(axis=1)
            # Where nothing is left the quotient is not used, but would warn.
            has_left, safe = left > 0, np.maximum(left, 1.0)
            is_shown = (shown >= 0) & has_left
            greedy = (1.0 - self.epsilon) * (shown == best[everyone, top])
            propensities[:, position] = np.where(is_shown, self.epsilon / safe + greedy, 0.0)
            mean = (1.0 - self.epsilon) * values[everyone, top] + self.epsilon * total / safe
            expected[:, position] = np.where(has_left, mean, 0.0)
            is_taken |= best == shown[:, None]
            left -= is_shown
            total -= np.where(is_shown, predicted[:, position], 0.0)
        return propensities, expected

    def drawn(
        self, situations: EvaluationBatch, prepared: KnownSituation, position: int
    ) -> tuple[Rows, Vector]:
        best = prepared.best[prepared.best != NO_ARM]
        if not self.epsilon or not prepared.size:
            return best, np.ones(len(best))
        rows = self.arms.eligible(situations.exclude[position])
        counts = np.full(len(rows), self.epsilon * self.k / len(rows))
        counts[np.isin(rows, best)] += 1.0 - self.epsilon
        return rows, np.minimum(counts, 1.0)
