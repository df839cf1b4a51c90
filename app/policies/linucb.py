"""LinUCB: the arms of largest upper confidence bound. Every eligible arm is measured, in a thread.

Exact as a target of evaluations: without draws.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from app.bandits.completion import PolicyNeeds
from app.catalogues.learner_snapshot import LearnerSnapshot
from app.policies.base import ANY_PRIOR, Policy, PolicyDependencies
from app.policies.elimination_state import full_work, work_us
from app.policies.targets import NO_ARM, Evaluable, EvaluationBatch, Pool
from app.policies.thompson import Prepared, ThompsonTarget
from app.selection.arm_effects import ArmEffects
from app.selection.covers import Covers
from app.selection.list_limits import Limits
from app.selection.selection import Candidates, Ranking, ReadSnapshot, SelectionRequest
from shortlist.evaluation import logged
from shortlist.linear import linucb as algorithm
from shortlist.linear.ridge import Posterior
from shortlist.types import NO_ROWS, Rows, TopK, Vector

ALPHA = 1.0  # where absent
MAX_LINUCB_WORK = 2e8  # K d^2, about a tenth of a second of one core


class LinUcb(Policy, Evaluable):
    """The arms of largest estimate plus ``alpha`` of its standard deviations."""

    name = "linucb"
    summary = "the largest upper confidence bound; every eligible arm is measured"
    options = ANY_PRIOR | {"context", "match", "alpha"}
    reads = frozenset({"ridge", "arm_effects"})
    defaults: ClassVar[Mapping[str, object]] = {"alpha": ALPHA}
    lists_by_score = True
    needs = PolicyNeeds(max_work=MAX_LINUCB_WORK)
    target_draws = True

    async def prepare(
        self, dependencies: PolicyDependencies, request: SelectionRequest, snapshot: ReadSnapshot
    ) -> None:
        """The catalogue may have grown since the bandit was made. Raises Invalid."""
        self.check_size(request.bandit.catalogue)

    def cost_us(self, request: SelectionRequest, arms: LearnerSnapshot) -> float:
        return work_us(full_work(request.bandit, arms))

    def rank(
        self, posterior: Posterior, candidates: Candidates, k: int, rng: np.random.Generator, prepared: None
    ) -> Ranking:
        arms, alpha = candidates.arms, candidates.bandit.record.alpha or 0.0
        bounds = UpperBounds(arms, posterior, alpha, candidates.limits, candidates.effects)
        solver = candidates.request.diversified(arms, bounds)
        return Ranking(solver.search(posterior.theta, k, candidates.exclude))

    async def target(self, covers: Covers, pool: Pool) -> LinUcbTarget:
        k = min(max(pool.k, 1), logged.MAX_PLACES)
        return LinUcbTarget(pool.arms, pool.arms, k, draws=1, alpha=pool.bandit.record.alpha or 0.0)


@dataclass(frozen=True, slots=True, eq=False)
class UpperBounds:
    """Ranks arms by their upper confidence bounds, within ``limits``. The query is not asked."""

    arms: LearnerSnapshot
    posterior: Posterior
    alpha: float
    limits: Limits | None = None
    effects: ArmEffects | None = None

    def search(self, query: Vector, k: int, exclude: Rows = NO_ROWS) -> TopK:
        rows = np.sort(self.arms.eligible(exclude))
        bounds = algorithm.upper_bounds(self.posterior, rows, self.arms.features_of, alpha=self.alpha)
        if self.effects is not None:  # the width is that of the features alone
            bounds += self.effects.worth(self.arms, rows)
        order = np.argsort(-bounds, kind="stable")
        if self.limits is not None:
            order = order[self.limits.take_allowed(rows[order], k)]
        return TopK(rows[order[:k]], bounds[order[:k]], exact=True)


@dataclass(frozen=True, slots=True, eq=False)
class LinUcbTarget(ThompsonTarget):
    """A list without chance: one draw."""

    alpha: float = ALPHA

    def _drawn(self, situations: EvaluationBatch, position: int, check: Callable[[], None]) -> Prepared:
        check()
        posterior, exclude = situations.posterior(position), situations.exclude[position]
        bounds = UpperBounds(self.arms, posterior, self.alpha, effects=situations.effects)
        hits = bounds.search(posterior.theta, self.k, exclude)
        rows, scores = np.full((1, self.k), NO_ARM, dtype=np.int64), np.zeros((1, self.k))
        low, high = (bound[position] for bound in situations.bounds)
        rows[0, : len(hits.rows)] = hits.rows
        estimates = situations.scores(self.arms.plain, hits.rows, position)
        scores[0, : len(hits.rows)] = estimates.clip(low, high)
        return rows, scores
