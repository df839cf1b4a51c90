"""What a learner expects of arms, and how uncertain that is: a dry run and an explanation show it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from app.services.choosing.selection import ReadSnapshot, SelectionRequest
from shortlist.linear import ridge
from shortlist.types import Rows, TopK, Vector


def measured(
    request: SelectionRequest, snapshot: ReadSnapshot, rows: Rows
) -> tuple[Vector, Vector, Sequence[float | None]]:
    """x.theta^ of each row, sigma ||x||_{V^-1} for the noise sigma that is used, and the part of the former
    that a new key has too; in the unit of rewards. There is no such part without a learned prior.

    ``rows``: of ``snapshot``. Shapes: (n,) -> (n,), (n,), n.
    Cost: n d^2 multiply-adds; n d D in a context, of learners of D numbers.
    """
    bandit, posterior = request.bandit, snapshot.posterior
    features = snapshot.arms.features_of(rows)
    estimates = bandit.observed(TopK(rows, features @ posterior.theta, exact=True)).scores
    widths = bandit.observed_noise(1.0) * ridge.widths(posterior, features)
    mean = bandit.prior_mean
    if mean is None:
        return estimates, widths, [None] * len(rows)
    if bandit.context is not None and request.context is not None:
        mean = bandit.context.queries(mean, np.asarray(request.context)[None])[0]
    return estimates, widths, (features @ mean).tolist()
