"""Policies that serve named arms in their order, for baselines and holdouts. Nothing is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from app.catalogues.learner_snapshot import LearnerSnapshot
from app.policies.base import Policy
from app.selection.selection import Candidates, Ranking, SelectionRequest
from shortlist.linear.ridge import Posterior
from shortlist.types import TopK

CERTAIN = 1.0  # propensity of an arm that is pinned or named


class Baseline(Policy):
    """Serve the allowed arms of the request, of those in the catalogue, at most k.

    Scores are their estimated rewards.
    """

    name = "baseline"
    summary = "the arms that the request names, in that order"

    def cost_us(self, request: SelectionRequest, arms: LearnerSnapshot) -> float:
        return 0.0

    def named(self, request: SelectionRequest) -> Sequence[str]:
        """The ids of the arms to serve."""
        return request.arms or ()

    def rank(self, posterior: Posterior, candidates: Candidates, k: int, rng: Any, prepared: None) -> Ranking:
        arms = candidates.arms
        present = arms.rows_of(self.named(candidates.request))
        rows = present[~np.isin(present, candidates.exclude)]
        limits = candidates.limits
        rows = rows[:k] if limits is None else rows[limits.take_allowed(rows, k)]
        hits = TopK(rows, arms.features_of(rows) @ posterior.theta, exact=True)
        propensities = [CERTAIN] * len(rows) if self.has_propensities else None
        return Ranking(hits, propensities)


class FixedList(Baseline):
    """A baseline whose arms are certain: those of the request, or else of the holdout."""

    name = "fixed"
    summary = "the arms that the holdout names, in that order"
    has_propensities = True

    def named(self, request: SelectionRequest) -> Sequence[str]:
        rule = request.bandit.record.holdout
        if request.arms is not None or rule is None or isinstance(rule.serve, str):
            return request.arms or ()
        return rule.serve.arms
