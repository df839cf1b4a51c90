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
    view = snapshot.view
    present = np.concatenate([NO_ROWS, *(view.rows_of([arm]) for arm in request.arms or ())])
    rows = present[~np.isin(present, request.excluded(view))]
    limits = request.limits(view)
    if limits is None:
        rows = rows[: request.k]
    else:
        rows = rows[await computed(partial(limits.take_allowed, rows, request.k), request, view, us=0.0)]
    hits = TopK(rows, view.features_of(rows) @ snapshot.posterior.theta, exact=True)
    return Selection(request.bandit.observed(hits), snapshot)
