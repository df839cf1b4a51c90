"""Warm start: a learner takes up what the totals of a finished slate campaign say about features."""

from __future__ import annotations

import time
from functools import partial

import numpy as np

from app.bandits.bandit import Bandit
from app.bandits.settings import reward_payload
from app.campaigns.slates import SlateCampaign, finished
from app.learning.reward_entries import NOT_DECIDED
from app.learning.rewards import Receipt, Rewards
from app.platform.errors import Invalid
from app.platform.long_work import REQUESTS
from app.storage.types import RewardWrite
from shortlist.slates.least_squares import as_observations
from shortlist.types import Matrix, Vector


class SlateWarmStart:
    """What finished campaigns found out, as observations in the reward log.

    ``ttl_ms`` is how long the store knows that an observation was appended.
    """

    def __init__(self, rewards: Rewards, *, ttl_ms: int) -> None:
        self._rewards = rewards
        self._ttl_ms = ttl_ms

    async def append(self, campaign: SlateCampaign, bandit: Bandit, key: str | None) -> Receipt:
        """Append as many observations as the features have dimensions, or the campaign arms; each once.

        They carry all that the totals say: see docs/papers/top-k-from-totals.md. Totals know of no context: a
        bandit that has one learns from them as in a context of zeros. Raises Conflict (the campaign is still
        sampling), Invalid (key against scope, arms that the bandit's catalogue lacks).
        """
        learner = bandit.learner_for(key)
        state = finished(campaign).state
        features = _features(campaign, bandit)
        rows, values = await REQUESTS.run(
            partial(as_observations, state.A, state.b, features, state.settings.slates)
        )
        now_ms = time.time_ns() // 1_000_000
        writes = [
            RewardWrite(
                learner=learner,
                dedupe_key=f"c/{campaign.uid}/{place}",
                decision_key=None,
                issued_ms=now_ms,
                ttl_ms=self._ttl_ms,
                payload=reward_payload(bandit.record, row, float(value), now_ms),
                known_entry=NOT_DECIDED,
            )
            for place, (row, value) in enumerate(zip(_joint(rows, bandit), values, strict=True))
        ]
        return await self._rewards.append(list(enumerate(writes)), Receipt())


def _features(campaign: SlateCampaign, bandit: Bandit) -> Matrix:
    bandit.catalogue.need_arms("a warm start")
    arms = bandit.catalogue.index.snapshot()
    each = [arms.rows_of([arm]) for arm in campaign.parameters.arms]
    missing = sum(not len(rows) for rows in each)
    if missing:
        text = f"{missing} arms of the campaign are not in the catalogue of this bandit"
        raise Invalid(text, path=("bandit",))
    found = np.concatenate(each)
    features: Matrix = (bandit.seen(arms) if bandit.record.intercept else arms).features_of(found)
    return features


def _joint(rows: Matrix, bandit: Bandit) -> list[Vector]:
    """What a learner learns from: rows are of features, and of the constant, which is a column of them."""
    if not bandit.record.intercept:
        return [bandit.joint_features(row, None) for row in rows]
    return [bandit.joint_features(row[:-1], None, float(row[-1])) for row in rows]
