"""Elimination: play an arm of large uncertainty among those that may still be the best.

``sub_elim`` keeps the living arms of a learner in stages, ``linear_elim`` measures all arms for each choice.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from app.bandits.bandit import Bandit
from app.bandits.completion import PolicyNeeds
from app.bandits.settings import AUTO, BanditRecord
from app.catalogues.learner_snapshot import LearnerSnapshot
from app.platform.errors import FieldPath
from app.platform.pools import REQUESTS
from app.policies.base import Chooser, Policy, PolicyDependencies, mean_square_of, spread_of
from app.policies.elimination_state import Sets, exact_sets, full_work, pick_exactly, rules_of, work_us
from app.selection.selection import Candidates, Ranking, ReadSnapshot, Selection, SelectionRequest
from app.storage.types import LearnerId
from shortlist.linear import scales
from shortlist.linear.ridge import Posterior
from shortlist.linear.scales import Scales

MAX_ELIMINATION_DIM = 256
# Why elimination does not have an option.
REASONS: Mapping[str, str] = {
    "context": "an arm that is eliminated in one context may be the best one in another",
    "match": "what it eliminates it eliminates of the catalogue, for all requests",
    "prior": "what it eliminates is so for good, and a learned prior changes",
    "half_life_s": "what it eliminates is so for good",
}


class EliminationPolicy(Chooser):
    """Elimination is for good: no changing prior, no discount, and fixed scales."""

    reads = frozenset({"ridge", "exploration", "delta", "horizon", "eta"})
    takes_candidates = False
    needs = PolicyNeeds(max_dim=MAX_ELIMINATION_DIM, max_signals=1)
    begins_again = "elimination begins again: which arms are left is computed again"
    not_evaluated = "it shows what it knows least about, so what it shows next depends on every reward before"

    def check(self, record: BanditRecord) -> Iterator[tuple[FieldPath, str]]:
        yield from super().check(record)
        if record.exploration == 0:
            yield ("exploration",), f"exploration must be > 0 for the policy {self.name}"
        if record.position is not None:
            refusal = f"position cannot be combined with the policy {self.name}"
            yield ("position",), f"{refusal}: what it eliminates is so for good"

    def why_not(self, option: str) -> str:
        return REASONS.get(option) or super().why_not(option)

    def theory_delta(self, record: BanditRecord) -> float:
        """Yang et al. 2022, Algorithm 3, line 3."""
        return record.delta / 2

    def exploration(self, record: BanditRecord, dim: int, numbers: float) -> float:
        """The radius: as given, the paper's, or ours, in the unit of rewards."""
        if record.exploration == AUTO:
            return scales.RADIUS * _unit(record)
        return super().exploration(record, dim, numbers)

    def eta(self, record: BanditRecord) -> float:
        """As given, or T^-1/2, in the unit of rewards where the radius is."""
        ratio = super().eta(record)
        return ratio * _unit(record) if record.eta is None and record.exploration == AUTO else ratio

    def scales(self, record: BanditRecord, numbers: float) -> Scales:
        """No number follows from rewards: what a noise learned too small rules out would not come back."""
        ridge = scales.ridge_share(numbers) * mean_square_of(record)
        return Scales(ridge if isinstance(record.ridge, str) else record.ridge)

    @abstractmethod
    async def sets(self, dependencies: PolicyDependencies, bandit: Bandit, learner: LearnerId) -> Sets:
        """The remaining arms of a learner."""


def _unit(record: BanditRecord) -> float:
    return spread_of(record) or 1.0


class SubElim(EliminationPolicy):
    """Yang et al. 2022, Algorithms 2 and 3. No arms from an empty catalogue.

    Its choices keep what was eliminated, so they are no pure ranking.
    """

    name = "sub_elim"
    summary = "elimination in stages: an arm that may still be the best and is known least, in sublinear time"

    async def choose(self, dependencies: PolicyDependencies, request: SelectionRequest) -> Selection:
        return await dependencies.elimination.choose(request, dependencies.filtered)

    async def sets(self, dependencies: PolicyDependencies, bandit: Bandit, learner: LearnerId) -> Sets:
        """The stages of a learner, after every pass that is due."""
        return await dependencies.elimination.sets(bandit, learner)


class LinearElim(EliminationPolicy, Policy):
    """Yang et al. 2022, section 5: the most uncertain living arm, by an exact pass. Cost: K d^2."""

    name = "linear_elim"
    summary = "elimination: an arm that may still be the best and is known least, every arm measured"

    def cost_us(self, request: SelectionRequest, arms: LearnerSnapshot) -> float:
        return work_us(full_work(request.bandit, arms))

    def rank(self, posterior: Posterior, candidates: Candidates, k: int, rng: Any, prepared: None) -> Ranking:
        return Ranking(pick_exactly(posterior, candidates, k))

    async def sets(self, dependencies: PolicyDependencies, bandit: Bandit, learner: LearnerId) -> Sets:
        """The stages of the living arms, by the posterior of now. Cost: K d^2."""
        snapshot = await ReadSnapshot.now(dependencies.learners, bandit, learner)
        return await REQUESTS.run(partial(exact_sets, snapshot, rules_of(bandit)))
