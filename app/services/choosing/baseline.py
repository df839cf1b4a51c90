"""A baseline: the arms that were asked for, in that order, with their estimated rewards. Nothing is drawn."""

from __future__ import annotations

from functools import partial

import numpy as np

from app.services.bandits.shifted import observed
from app.services.choosing.ask import Ask, Moment, Selection
from app.services.choosing.computing import computed
from app.services.choosing.policy import Tools
from shortlist.types import NO_ROWS, TopK


async def baseline(tools: Tools, ask: Ask) -> Selection:
    """Serve the arms of ``ask.arms`` that are in the catalogue and not excluded, at most k."""
    moment = await Moment.of(tools.learners, tools.filtered, ask)
    view = moment.view
    present = np.concatenate([NO_ROWS, *(view.rows_of([arm]) for arm in ask.arms or ())])
    rows = present[~np.isin(present, ask.excluded(view))]
    limits = ask.limits(view)
    if limits is None:
        rows = rows[: ask.k]
    else:
        rows = rows[await computed(partial(limits.take_allowed, rows, ask.k), ask, view, us=0.0)]
    found = TopK(rows, view.features_of(rows) @ moment.posterior.theta, exact=True)
    if ask.bandit.record.shift_rewards:
        found = observed(found)
    return Selection(found, moment)
