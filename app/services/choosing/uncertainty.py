"""What a learner expects of arms, and how uncertain that is: a dry run and an explanation show it."""

from __future__ import annotations

from app.services.bandits.bandit import Bandit
from app.services.choosing.selection import ReadSnapshot
from shortlist.linear import ridge
from shortlist.types import Rows, TopK, Vector


def estimates_and_widths(bandit: Bandit, snapshot: ReadSnapshot, rows: Rows) -> tuple[Vector, Vector]:
    """x.theta^ of each row, and sigma ||x||_{V^-1} for the noise sigma that is used, in the unit of rewards.

    ``rows``: of ``snapshot``. Shapes: (n,) -> (n,), (n,).
    Cost: n d^2 multiply-adds; n d D in a context, of learners of D numbers.
    """
    posterior = snapshot.posterior
    features = snapshot.arms.features_of(rows)
    estimates = bandit.observed(TopK(rows, features @ posterior.theta, exact=True)).scores
    return estimates, bandit.observed_noise(1.0) * ridge.widths(posterior, features)
