"""Entries of the reward log: what rewards and observations become, once they are checked.

An entry carries the features that the arm had when it was chosen, so the log alone determines every learner.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal

from app.services.bandits.bandits import GLOBAL_LEARNER, Bandit, Bandits
from app.services.bandits.settings import RewardRule, reward_payload
from app.services.catalogues.catalogues import Catalogues
from app.services.formats.records import RewardSource, context_to_bytes, pack
from app.services.learning.row_writes import logged_reward, source_of
from app.services.learning.tokens import BadToken, Decision, TokenSigner
from app.storage.protocol import LearnerId, RewardWrite
from shortlist.types import Vector

RejectCode = Literal[
    "invalid_token",
    "expired",
    "not_activated",
    "unknown_bandit",
    "arm_required",
    "unknown_arm",
    "out_of_range",
    "forgotten",
    "key_required",
    "key_not_used",
]
NOT_DECIDED = 2**53 - 1  # for known_entry: it was not chosen before anything that is in the log


@dataclass(frozen=True, slots=True)
class Reward:
    """A reward for one arm of a decision.

    ``decision``    its token
    ``arm``         may be left out when the decision has one arm
    ``reward_id``   tells several rewards of one arm apart, where a bandit sums them
    """

    decision: str
    value: float
    arm: str | None = None
    reward_id: str | None = None


@dataclass(frozen=True, slots=True)
class Observation:
    """A reward that was not decided here: history. It counts once per ``id`` and learner.

    ``context``: as it was sent, where the bandit has one.
    """

    id: str
    arm: str
    value: float
    key: str | None = None
    context: object = None


class Rejected(Exception):
    """One item of a batch is refused, the others are not."""

    def __init__(self, code: RejectCode) -> None:
        super().__init__(code)
        self.code: RejectCode = code


class RewardEntries:
    """Makes entries. ``observation_ttl_ms``: how long an observation that is sent again is a duplicate."""

    def __init__(
        self, catalogues: Catalogues, bandits: Bandits, signer: TokenSigner, *, observation_ttl_ms: int
    ) -> None:
        self._catalogues = catalogues
        self._bandits = bandits
        self._signer = signer
        self._observation_ttl_ms = observation_ttl_ms

    async def of_reward(self, reward: Reward, now_ms: int) -> tuple[RewardWrite, Decision]:
        """The entry, and the decision that is rewarded. Raises Rejected."""
        try:
            decision = self._signer.verify(reward.decision, now_ms=now_ms)
        except BadToken as bad:
            raise Rejected(bad.reason) from None
        bandit = await self._bandits.find(decision.bandit_uid, decision.bandit_version)
        if bandit is None:
            raise Rejected("unknown_bandit")
        arm, revision = _arm_of(decision, reward.arm)
        rule = bandit.record.reward
        _check_value(rule, reward.value)
        features = await self._catalogues.features_at(bandit.catalogue, arm, revision)
        if features is None:
            raise Rejected("unknown_arm")
        if bandit.context is not None:
            features = bandit.joint_features(features, decision.encoded_context)
        logged = None
        if decision.logged is not None:
            logged = logged_reward(
                bandit, decision, reward.decision, arm=arm, value=reward.value, now_ms=now_ms
            )
        decision_key = f"{decision.id}/{arm}"
        is_sum = rule.aggregate == "sum"
        write = RewardWrite(
            learner=LearnerId(decision.bandit_uid, decision.learner),
            dedupe_key=f"r/{decision_key}/{reward.reward_id or ''}" if is_sum else f"r/{decision_key}",
            decision_key=decision_key if is_sum or rule.wait_s is not None else None,
            issued_ms=decision.issued_ms,
            ttl_ms=None,
            payload=reward_payload(bandit.record, features, reward.value, decision.issued_ms),
            expires_ms=decision.expires_ms,
            known_entry=decision.known_entry,
            logged=logged,
            summed=reward.value if is_sum else None,
            source=source_of(decision, "reward", arm, revision),
        )
        return write, decision

    async def features_of(self, bandit: Bandit, arms: Collection[str]) -> Mapping[str, tuple[Vector, int]]:
        """Features of those arms that are in the catalogue now, and their revisions."""
        return await self._catalogues.features(bandit.catalogue, arms)

    def of_observation(
        self, bandit: Bandit, observation: Observation, known: tuple[Vector, int] | None, now_ms: int
    ) -> RewardWrite:
        """The entry; ``known`` are features and revision of the arm, None when it is unknown.

        Raises Rejected, and Invalid for the context.
        """
        context = bandit.encoded(observation.context)
        per_key = bandit.record.scope == "per_key"
        if per_key != (observation.key is not None):
            raise Rejected("key_required" if per_key else "key_not_used")
        _check_value(bandit.record.reward, observation.value)
        if known is None:
            raise Rejected("unknown_arm")
        features, revision = known
        encoded = None if context is None else context_to_bytes(context)
        source = RewardSource(
            "observation", observation.id, observation.arm, revision, now_ms, context=encoded
        )
        return RewardWrite(
            learner=LearnerId(bandit.uid, observation.key or GLOBAL_LEARNER),
            dedupe_key=f"o/{observation.id}",
            decision_key=None,
            issued_ms=now_ms,
            ttl_ms=self._observation_ttl_ms,
            payload=reward_payload(
                bandit.record, bandit.joint_features(features, context), observation.value, now_ms
            ),
            known_entry=NOT_DECIDED,
            source=pack(source),
        )


def _arm_of(decision: Decision, arm: str | None) -> tuple[str, int]:
    """The arm that is rewarded, and the revision of its features."""
    if arm is None:
        if len(decision.arms) > 1:
            raise Rejected("arm_required")
        return decision.arms[0], decision.revisions[0]
    try:
        return arm, decision.revisions[decision.arms.index(arm)]
    except ValueError:
        raise Rejected("unknown_arm") from None


def _check_value(rule: RewardRule, value: float) -> None:
    if (rule.min is not None and value < rule.min) or (rule.max is not None and value > rule.max):
        raise Rejected("out_of_range")
