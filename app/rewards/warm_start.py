"""Warm start: a learner takes up, once, what somebody else found out about features."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from app.bandits.bandit import Bandit
from app.platform.errors import Invalid
from app.platform.phrases import counted
from app.records.log_entries import RewardEntry, encode
from app.records.records import vector_to_bytes
from app.rewards.rewards import Receipt, Rewards
from app.storage.types import NOT_DECIDED, LearnerId, RewardWrite
from shortlist.types import Matrix, Vector


class WarmStart:
    """Appends observations of features to the reward log.

    ``ttl_ms``: how long the store remembers appended observations.
    """

    def __init__(self, rewards: Rewards, *, ttl_ms: int) -> None:
        self._rewards = rewards
        self._ttl_ms = ttl_ms

    def features_of(self, bandit: Bandit, arms: Sequence[str], owner: str) -> Matrix:
        """Features of arms as a bandit learns from them, (n, d); its intercept is the last column.

        ``owner``: the owner of the arms, for errors. Raises Invalid (arms missing in the bandit's catalogue).
        """
        bandit.catalogue.need_arms("a warm start")
        snapshot = bandit.catalogue.index.snapshot()
        rows = [snapshot.rows_of([arm]) for arm in arms]
        if missing := sum(not len(row) for row in rows):
            are = counted(missing, f"arm of {owner} is", f"arms of {owner} are")
            raise Invalid(f"{are} not in the catalogue of this bandit", path=("bandit",))
        seen = bandit.seen(snapshot) if bandit.record.intercept else snapshot
        features: Matrix = seen.features_of(np.concatenate(rows))
        return features

    async def append(
        self, bandit: Bandit, learner: LearnerId, rows: Matrix, values: Vector, *, source: str
    ) -> Receipt:
        """Append observations: of features ``rows`` (m, d), as ``features_of`` has them, ``values`` (m,).

        Each is appended once for a ``source``, such as the uid of a campaign: after a lost answer call again
        with the same rows. A bandit with a context learns from them as in a context of zeros.
        """
        now_ms, writes = time.time_ns() // 1_000_000, list[RewardWrite]()
        for number, (row, value) in enumerate(zip(rows, values, strict=True)):
            if bandit.record.intercept:
                joint = bandit.joint_features(row[:-1], None, float(row[-1]))
            else:
                joint = bandit.joint_features(row, None)
            entry = RewardEntry(
                vector_to_bytes(joint),
                float(value),
                decided_ms=now_ms,
                space=bandit.record.space,
                half_life_s=bandit.record.key_half_life_s or 0.0,
                defaults=bandit.record.defaults(),
            )
            writes.append(
                RewardWrite(learner, NOT_DECIDED, encode(entry), f"c/{source}/{number}", ttl_ms=self._ttl_ms)
            )
        return await self._rewards.append(list(enumerate(writes)), Receipt())
