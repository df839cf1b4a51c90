"""Elimination: play an arm of large uncertainty among those that may still be the best.

``sub_elim`` keeps the living arms of a learner in stages, ``linear_elim`` measures all arms for each choice.
"""

from __future__ import annotations

from functools import partial
from typing import NoReturn

from app.bandits.bandit import Bandit
from app.bandits.settings import BanditRecord
from app.policies.base import Policy, PolicyDependencies
from app.policies.computing import computed
from app.policies.elimination_state import Sets, exact_sets, full_work, pick_exactly, rules_of, work_us
from app.policies.selection import ReadSnapshot, Selection, SelectionRequest
from app.storage.types import LearnerId

MAX_ELIMINATION_DIM = 256


class EliminationPolicy(Policy):
    """Elimination is for good, so it has no prior that changes and does not discount.

    Its choices keep what was eliminated, so they are no pure ranking: ``choose`` is overridden.
    """

    reads = frozenset({"ridge", "exploration", "delta", "horizon", "eta"})
    eliminates = True
    needs_exploration = True
    fixed_scales = True
    max_dim = MAX_ELIMINATION_DIM
    max_signals = 1
    not_evaluated = "it shows what it knows least about, so what it shows next depends on every reward before"

    def theory_delta(self, record: BanditRecord) -> float:
        """Yang et al. 2022, Algorithm 3, line 3."""
        return record.delta / 2

    def rank(self, *_: object) -> NoReturn:
        raise NotImplementedError("choose does not rank: it needs the state of elimination")


class SubElim(EliminationPolicy):
    """Yang et al. 2022, Algorithms 2 and 3. No arms from an empty catalogue."""

    name = "sub_elim"
    summary = "elimination in stages: an arm that may still be the best and is known least, in sublinear time"

    async def choose(self, dependencies: PolicyDependencies, request: SelectionRequest) -> Selection:
        return await dependencies.elimination.choose(request, dependencies.filtered)

    async def sets(self, dependencies: PolicyDependencies, bandit: Bandit, learner: LearnerId) -> Sets:
        """The stages of a learner, after every pass that is due."""
        return await dependencies.elimination.sets(bandit, learner)


class LinearElim(EliminationPolicy):
    """Yang et al. 2022, section 5: the most uncertain living arm, by an exact pass. Cost: K d^2."""

    name = "linear_elim"
    summary = "elimination: an arm that may still be the best and is known least, every arm measured"

    async def choose(self, dependencies: PolicyDependencies, request: SelectionRequest) -> Selection:
        snapshot = await ReadSnapshot.of(dependencies.learners, dependencies.filtered, request)
        exclude, limits = request.excluded(snapshot.arms), request.limits_among(snapshot.arms)
        choose = partial(pick_exactly, snapshot, rules_of(request.bandit), request.k, exclude, limits)
        us, threads = (
            work_us(full_work(request.bandit, snapshot.arms)),
            dependencies.elimination.exact_choices,
        )
        hits = await computed(choose, request, snapshot.arms, us=us, threads=threads)
        return Selection(hits, snapshot=snapshot)

    async def sets(self, dependencies: PolicyDependencies, bandit: Bandit, learner: LearnerId) -> Sets:
        """The stages of the arms that live by the posterior as it is now. Cost: K d^2."""
        snapshot = await ReadSnapshot.now(dependencies.learners, bandit, learner)
        survey = partial(exact_sets, snapshot, rules_of(bandit))
        return await dependencies.elimination.exact_choices.run(survey)
