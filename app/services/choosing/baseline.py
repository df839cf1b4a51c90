"""A baseline: the arms that were asked for, in that order, with their estimated rewards. Nothing is drawn."""

from __future__ import annotations

from functools import partial

import numpy as np

from app.services.choosing.computing import computed
from app.services.choosing.policy import PolicyDependencies
from app.services.choosing.selection import ReadSnapshot, Selection, SelectionRequest
from shortlist.types import NO_ROWS, TopK


async def baseline(dependencies: PolicyDependencies, request: SelectionRequest) -> Selection:
    """Serve the arms of ``request.arms`` that are in the catalogue and not excluded, at most k."""
    snapshot = await ReadSnapshot.of(dependencies.learners, dependencies.filtered, request)
    arms = snapshot.arms
    present = np.concatenate([NO_ROWS, *(arms.rows_of([arm]) for arm in request.arms or ())])
    rows = present[~np.isin(present, request.excluded(arms))]
    limits = request.limits(arms)
    if limits is None:
        rows = rows[: request.k]
    else:
        rows = rows[await computed(partial(limits.take_allowed, rows, request.k), request, arms, us=0.0)]
    hits = TopK(rows, arms.features_of(rows) @ snapshot.posterior.theta, exact=True)
    return Selection(request.bandit.observed(hits), snapshot)
