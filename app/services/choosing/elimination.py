"""Elimination: play an arm of large uncertainty among those that may still be the best.

``sub_elim`` keeps the living arms of a learner in stages, ``linear_elim`` measures all arms for each choice.
"""

from __future__ import annotations

from functools import partial

from app.services.bandits.bandits import Bandit
from app.services.choosing.ask import Ask, Moment, Selection
from app.services.choosing.computing import computed
from app.services.choosing.elimination_cache import full_work, rules_of, work_us
from app.services.choosing.elimination_state import Sets, exact_sets, pick_exactly
from app.services.choosing.policy import Tools
from app.storage.protocol import LearnerId


async def sub_elim(tools: Tools, ask: Ask) -> Selection:
    """Yang et al. 2022, Algorithms 2 and 3. No arms from an empty catalogue."""
    return await tools.elimination.choose(ask, tools.filtered)


async def sub_elim_sets(tools: Tools, bandit: Bandit, learner: LearnerId) -> Sets:
    """The stages of a learner, after every pass that is due."""
    return await tools.elimination.sets(bandit, learner)


async def linear_elim(tools: Tools, ask: Ask) -> Selection:
    """Yang et al. 2022, section 5: the most uncertain living arm, by an exact pass. Cost: K d^2."""
    moment = await Moment.of(tools.learners, tools.filtered, ask)
    exclude, limits = ask.excluded(moment.view), ask.limits(moment.view)
    choose = partial(pick_exactly, moment, rules_of(ask.bandit), ask.k, exclude, limits)
    us, threads = work_us(full_work(ask.bandit, moment.view)), tools.elimination.exact_choices
    found = await computed(choose, ask, moment.view, us=us, threads=threads)
    return Selection(found, moment)


async def linear_elim_sets(tools: Tools, bandit: Bandit, learner: LearnerId) -> Sets:
    """The stages of the arms that live by the posterior as it is now. Cost: K d^2."""
    moment = await Moment.now(tools.learners, bandit, learner)
    survey = partial(exact_sets, moment, rules_of(bandit))
    return await tools.elimination.exact_choices.run(survey)
