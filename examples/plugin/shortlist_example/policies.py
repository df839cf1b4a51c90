"""Top-two Thompson sampling, for linear rewards.

Source: Russo, "Simple Bayesian Algorithms for Best-Arm Identification" (2016), section 3.3. With probability
``beta`` the arms of largest x.theta of one draw are shown, else those of a draw that has another best arm.
"""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
from pydantic import Field

from shortlist.linear import linear_ts
from shortlist_service.policies import Candidates, Document, Policy, PolicyNeeds, Posterior, Ranking

MAX_DRAWS = 20  # after so many draws with one best arm it is as good as known


class Options(Document, frozen=True):
    """``beta``: how often the best arm of the first draw is shown."""

    beta: Annotated[float, Field(gt=0, le=1)] = 0.5


class TopTwo(Policy):
    """Shows the second best guess half of the time, so that it is told from the best one sooner."""

    name = "top_two"
    summary = "draws until two draws disagree on the best arm, and shows the list of one of them"
    own_options = Options
    reads = frozenset({"ridge", "exploration"})
    lists_by_score = True
    needs = PolicyNeeds(arms_in_memory=False)
    not_evaluated = "it draws from posteriors until two draws differ, which has no known propensity"

    def rank(
        self, posterior: Posterior, candidates: Candidates, k: int, rng: np.random.Generator, prepared: Any
    ) -> Ranking:
        exploration = candidates.bandit.exploration
        beta = self.options_of(candidates.bandit.record).beta
        leader = candidates.search(linear_ts.draw(posterior, exploration=exploration, rng=rng), k)
        if rng.random() >= beta and len(leader.rows):
            for _ in range(MAX_DRAWS):
                challenger = candidates.search(linear_ts.draw(posterior, exploration=exploration, rng=rng), k)
                if challenger.rows[0] != leader.rows[0]:
                    return Ranking(candidates.bandit.observed(challenger))
        return Ranking(candidates.bandit.observed(leader))
