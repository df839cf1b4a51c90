"""Warm start: a learner takes up what the totals of a finished slate campaign say about features."""

from __future__ import annotations

from functools import partial

from shortlist.slates.least_squares import as_observations
from shortlist_campaigns.slates import SlateCampaign, finished
from shortlist_service.routes import Bandit, Receipt, WarmStart
from shortlist_service.work import REQUESTS


async def teach_bandit(
    warm_start: WarmStart, campaign: SlateCampaign, bandit: Bandit, key: str | None
) -> Receipt:
    """Append as many observations as the features have dimensions, or the campaign arms; each once.

    They carry all that the totals say: see docs/papers/top-k-from-totals.md. Totals know of no context: a
    bandit that has one learns from them as in a context of zeros. Raises Conflict (the campaign is still
    sampling), Invalid (key against scope, arms that the bandit's catalogue lacks).
    """
    learner = bandit.learner_for(key)
    state = finished(campaign).state
    features = warm_start.features_of(bandit, campaign.parameters.arms, "the campaign")
    rows, values = await REQUESTS.run(
        partial(as_observations, state.A, state.b, features, state.settings.slates)
    )
    return await warm_start.append(bandit, learner, rows, values, source=campaign.uid)
