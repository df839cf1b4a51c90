"""Elimination: play an arm of large uncertainty among those that may still be the best.

``sub_elim`` keeps the living arms of a learner in stages, ``linear_elim`` measures all arms for each choice.
"""

from __future__ import annotations

from functools import partial

from app.services.bandits.bandit import Bandit
from app.services.choosing.computing import computed
from app.services.choosing.elimination_cache import full_work, rules_of, work_us
from app.services.choosing.elimination_state import Sets, exact_sets, pick_exactly
from app.services.choosing.policy import PolicyDependencies
from app.services.choosing.selection import ReadSnapshot, Selection, SelectionRequest
from app.storage.protocol import LearnerId


async def sub_elim(dependencies: PolicyDependencies, request: SelectionRequest) -> Selection:
    """Yang et al. 2022, Algorithms 2 and 3. No arms from an empty catalogue."""
    return await dependencies.elimination.choose(request, dependencies.filtered)


async def sub_elim_sets(dependencies: PolicyDependencies, bandit: Bandit, learner: LearnerId) -> Sets:
    """The stages of a learner, after every pass that is due."""
    return await dependencies.elimination.sets(bandit, learner)


async def linear_elim(dependencies: PolicyDependencies, request: SelectionRequest) -> Selection:
    """Yang et al. 2022, section 5: the most uncertain living arm, by an exact pass. Cost: K d^2."""
    snapshot = await ReadSnapshot.of(dependencies.learners, dependencies.filtered, request)
    exclude, limits = request.excluded(snapshot.arms), request.limits(snapshot.arms)
    choose = partial(pick_exactly, snapshot, rules_of(request.bandit), request.k, exclude, limits)
    us, threads = work_us(full_work(request.bandit, snapshot.arms)), dependencies.elimination.exact_choices
    hits = await computed(choose, request, snapshot.arms, us=us, threads=threads)
    return Selection(hits, snapshot)


async def linear_elim_sets(dependencies: PolicyDependencies, bandit: Bandit, learner: LearnerId) -> Sets:
    """The stages of the arms that live by the posterior as it is now. Cost: K d^2."""
    snapshot = await ReadSnapshot.now(dependencies.learners, bandit, learner)
    survey = partial(exact_sets, snapshot, rules_of(bandit))
    return await dependencies.elimination.exact_choices.run(survey)
