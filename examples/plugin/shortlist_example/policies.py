"""Ensemble sampling, for linear rewards: a few models a learner, of which each choice follows one.

Source: Lu and Van Roy, "Ensemble Sampling" (2017), section 4.1: model j is the ridge regression of rewards to
which noise was added, w_j,s to the s-th, from a start that was drawn as well. With the sum u_j of x_s w_j,s
and a standard normal z_j it is theta + sigma V^-1 (u_j + ridge^1/2 z_j). The service keeps no rewards by
themselves; of some that came together the sum of x_s w_j,s is normal, and its covariance what they add to V.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.random import Generator
from pydantic import Field

from shortlist.evaluation.logged import MAX_PLACES
from shortlist.types import Matrix
from shortlist_service.policies import (
    Candidates,
    Covers,
    Document,
    Evaluable,
    PolicyNeeds,
    Pool,
    Posterior,
    Ranking,
    StatefulPolicy,
    ThompsonTarget,
)

MOST_MODELS = 30
DRAWS = 1_000


class Options(Document, frozen=True):
    """``models``: how many of the models of a learner are used."""

    models: Annotated[int, Field(ge=1, le=MOST_MODELS)] = 10


@dataclass(frozen=True, eq=False)
class Ensemble:
    """Shapes: gram (d, d), the sum of x x^T; noise (30, d), the u_j; start (30, d), the z_j."""

    gram: Matrix
    noise: Matrix
    start: Matrix

    def grown_to(self, gram: Matrix, rng: Generator) -> Ensemble:
        """The models after the rewards that made ``gram`` of the own. Cost: O(d^3)."""
        values, vectors = np.linalg.eigh(gram - self.gram)
        steps = rng.standard_normal(self.noise.shape) * np.sqrt(values.clip(min=0.0))
        return Ensemble(gram, self.noise + steps @ vectors.T, self.start)


def gram_of(posterior: Posterior) -> Matrix:
    """V - ridge I, where root root^T is sigma^2 V^-1. Cost: O(d^3)."""
    precision = posterior.sigma**2 * np.linalg.inv(posterior.root @ posterior.root.T)
    return np.asarray(precision - posterior.ridge * np.eye(len(precision)))


class EnsembleSampling(StatefulPolicy[Ensemble], Evaluable):
    """Explores by the differences of models, which change a little with each reward."""

    name = "ensemble"
    summary = "one model of an ensemble, drawn at random, and the best arms by it"
    own_options = Options
    reads = frozenset({"ridge", "exploration"})
    lists_by_score = True
    needs = PolicyNeeds(arms_in_memory=False, max_signals=1)
    target_draws = True

    def start(self, posterior: Posterior, rng: Generator) -> Ensemble:
        shape = MOST_MODELS, len(posterior.theta)
        nothing = Ensemble(np.zeros((shape[1], shape[1])), np.zeros(shape), rng.standard_normal(shape))
        return nothing.grown_to(gram_of(posterior), rng)

    def follow(self, state: Ensemble, posterior: Posterior, rng: Generator) -> Ensemble:
        return state.grown_to(gram_of(posterior), rng)

    def nbytes(self, state: Ensemble) -> int:
        return sum(int(array.nbytes) for array in (state.gram, state.noise, state.start))

    def rank(
        self, posterior: Posterior, candidates: Candidates, k: int, rng: Generator, prepared: Ensemble
    ) -> Ranking:
        model = rng.integers(self.options_of(candidates.bandit.record).models)
        noise = prepared.noise[model] + posterior.ridge**0.5 * prepared.start[model]
        step = posterior.root @ (posterior.root.T @ noise) / posterior.sigma
        query = posterior.theta + candidates.bandit.exploration * step
        return Ranking(candidates.search(query, k), drawn=True)

    async def target(self, covers: Covers, pool: Pool) -> ThompsonTarget:
        """Over all ensembles that a learner could have, a model is a draw from the posterior."""
        return ThompsonTarget(pool.arms, pool.arms, min(max(pool.k, 1), MAX_PLACES), DRAWS)

    def caveats(self, bandit: object) -> tuple[str]:
        return ("propensities are those over all ensembles, not of the one that a learner has",)
