"""Makes entries of the reward log from rewards and observations, or rejects them.

An entry carries the features of the arm at the choice, so the log alone determines every learner.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from app.bandits.bandit import GLOBAL_LEARNER, Bandit
from app.bandits.served_bandits import Bandits
from app.bandits.settings import MAX_AHEAD_MS, RewardRule, SignalRef, SignalRule
from app.bandits.signals import check_names
from app.catalogues.catalogues import Catalogues
from app.platform.errors import Invalid
from app.records.arm_sums import EffectPair, taken_off
from app.records.log_entries import RewardEntry, encode
from app.records.records import context_to_bytes, vector_to_bytes
from app.rewards.decided_features import decided_features, reward_entry
from app.rewards.decisions import logged_reward
from app.rewards.events import Event
from app.rewards.tokens import Access, BadToken, Decision, TokenSigner
from app.storage.types import NOT_DECIDED, LearnerId, RewardWrite, SignalWrite
from shortlist.types import Vector

RejectCode = Literal[
    "invalid_token",
    "expired",
    "not_activated",
    "unknown_event",
    "unknown_bandit",
    "not_yours",
    "arm_required",
    "unknown_arm",
    "out_of_range",
    "in_future",
    "unknown_signal",
    "forgotten",
    "key_required",
    "key_not_used",
]
FIRST_MS = 10**11  # of observations: what is less is taken for seconds


@dataclass(frozen=True, slots=True)
class Reward:
    """A reward for one arm of a decision.

    ``decision``    its token, or its event
    ``arm``         may be left out when the decision has one arm; of an event, the first is meant then
    ``reward_id``   tells several rewards of one arm apart, where a bandit sums them
    ``signal``      the name of the reward, where the bandit has several
    ``at``          time of the value, ms since 1970; needed where the last one counts, elsewhere unused
    """

    decision: str | Event
    value: float
    arm: str | None = None
    reward_id: str | None = None
    signal: str | None = None
    at: int | None = None


@dataclass(frozen=True, slots=True)
class Observation:
    """A reward from history, without a decision here. Counts once per ``id`` and learner.

    ``context``: as sent, where the bandit has one. ``values``: of its signals, instead of ``value``; absent
    ones are at their default. ``at``: the time, ms since 1970; None: now.
    """

    id: str
    arm: str
    value: float | None
    key: str | None = None
    context: object = None
    values: Mapping[str, float] | None = None
    at: int | None = None


class Rejected(Exception):
    """One item of a batch is refused, the others are not."""

    def __init__(self, code: RejectCode) -> None:
        super().__init__(code)
        self.code: RejectCode = code


class RewardEntries:
    """Makes entries. ``observation_ttl_ms``: how long a repeated observation is a duplicate."""

    def __init__(
        self, catalogues: Catalogues, bandits: Bandits, signer: TokenSigner, *, observation_ttl_ms: int
    ) -> None:
        self._catalogues = catalogues
        self._bandits = bandits
        self._signer = signer
        self._observation_ttl_ms = observation_ttl_ms

    async def of_reward(
        self, reward: Reward, token: str | BadToken, now_ms: int, access: Access = Access()
    ) -> tuple[RewardWrite, Decision]:
        """The entry and the decision of a reward. ``token``: of the decision, also where the reward names an
        event. ``access``: of the caller.

        Raises Rejected, and Invalid for signal and time.
        """
        if isinstance(token, BadToken):
            raise Rejected(token.reason)
        try:
            decision = self._signer.verify(token, now_ms=now_ms)
        except BadToken as bad:
            raise Rejected(bad.reason) from None
        # By the uid, not by the name: a bandit made again under the name of a deleted one is another one. By
        # the version: the terms of the decision are those of the reward.
        bandit = await self._bandits.find(decision.bandit_uid, decision.bandit_version, names=access.bandits)
        if bandit is None:
            raise Rejected("unknown_bandit")
        if not access.owns(decision):
            raise Rejected("not_yours")
        arm_position = _place_of(decision, reward)
        arm = decision.arms[arm_position]
        judged = self._judged(bandit, reward.signal)
        rule = bandit.record.reward if judged is None else judged.rule
        _check_value(rule, reward.value)
        at_ms = _time_of(rule, reward, now_ms)
        features = await decided_features(self._catalogues, bandit, decision, arm_position)
        if features is None:
            raise Rejected("unknown_arm")
        entry = reward_entry(
            bandit, decision, arm_position, features, "reward", value=reward.value, judged=judged
        )
        logged = logged_reward(
            bandit,
            decision,
            token,
            arm=arm,
            value=reward.value,
            now_ms=now_ms,
            judged=judged,
            is_last=at_ms is not None,
        )
        decision_key = f"{decision.id}/{arm}"
        dedupe_key: str | None = f"r/{decision_key}"
        signal = None
        # Where the first reward of an arm is the only one to count, its dedupe key alone records the arrival.
        if judged is not None or rule.aggregate != "first" or bandit.record.reward.wait_s is not None:
            place = 0 if judged is None else judged.place
            signal = SignalWrite(decision_key, place, reward.value, rule.aggregate, at_ms or 0)
            of_signal = "" if judged is None else f"{place}/"
            dedupe_key = f"r/{decision_key}/{of_signal}{reward.reward_id or ''}" if entry.sums else None
        write = RewardWrite(
            LearnerId(decision.bandit_uid, decision.learner),
            decision.known_entry,
            encode(entry),
            dedupe_key,
            expires_ms=decision.expires_ms,
            signal=signal,
            logged=logged,
        )
        return write, decision

    def _judged(self, bandit: Bandit, signal: str | None) -> SignalRef | None:
        """Return the signal of the bandit, as it was at the decision. Raises Invalid, Rejected."""
        signals, newest = bandit.record.signals, self._bandits.by_uid(bandit.uid)
        if signals is None:
            if signal is not None:
                raise Invalid("the bandit of this decision has no signals", path=("signal",))
            return None
        if signal is None:
            names = ", ".join(signals)
            raise Invalid(
                f"the bandit of this decision has several signals, name one: {names}", path=("signal",)
            )
        if (judged := SignalRef.of(signals, signal)) is not None:
            return judged
        if newest is not None and signal in (newest.record.signals or {}):
            raise Rejected("unknown_signal")  # it came after the decision
        raise Invalid("the bandit of this decision has no such signal", path=("signal",))

    async def features_of(self, bandit: Bandit, arms: Collection[str]) -> Mapping[str, tuple[Vector, int]]:
        """Features and revisions of the arms, of those in the catalogue now."""
        return await self._catalogues.features(bandit.catalogue, arms)

    def of_observation(
        self,
        bandit: Bandit,
        observation: Observation,
        arm_features: tuple[Vector, int] | None,
        now_ms: int,
        pair: EffectPair | None = None,
    ) -> RewardWrite:
        """The entry. ``arm_features``: features and revision of the arm; None: unknown.

        ``pair``: the expected reward of the arm now, and its effect; None: no arm effects.

        Raises Rejected, and Invalid for the context, the values and the time.
        """
        context = bandit.encoded(observation.context)
        values = _observed_values(bandit, observation)
        at_ms = _observed_at(observation, now_ms)
        per_key = bandit.record.scope == "per_key"
        if per_key != (observation.key is not None):
            raise Rejected("key_required" if per_key else "key_not_used")
        for rule, value in values:
            _check_value(rule, value)
        if arm_features is None:
            raise Rejected("unknown_arm")
        features, revision = arm_features
        record = bandit.record
        served, expected = taken_off(pair)
        entry = RewardEntry(
            vector_to_bytes(bandit.joint_features(features, context)),
            observation.value or 0.0,
            "observation",
            observation.id,
            observation.arm,
            revision,
            at_ms,
            space=record.space,
            context=None if context is None else context_to_bytes(context),
            served=served,
            expected=expected,
            half_life_s=record.key_half_life_s or 0.0,
            signal=0 if record.signals is None else None,
            defaults=record.defaults(observation.values or {}),
            arm_time=record.arm_time(at_ms),
        )
        return RewardWrite(
            LearnerId(bandit.uid, observation.key or GLOBAL_LEARNER),
            NOT_DECIDED,  # a learner that was forgotten takes up its history again
            encode(entry),
            f"o/{observation.id}",
            ttl_ms=self._observation_ttl_ms,
        )


def _place_of(decision: Decision, reward: Reward) -> int:
    """The place of the rewarded arm, from 0."""
    if reward.arm is None:
        # By token a reward without an arm stays refused: the caller may not know that the decision is a list.
        if len(decision.arms) > 1 and isinstance(reward.decision, str):
            raise Rejected("arm_required")
        return 0
    try:
        return decision.arms.index(reward.arm)
    except ValueError:
        raise Rejected("unknown_arm") from None


def observed_values(bandit: Bandit, observation: Observation) -> Sequence[float]:
    """The reward, or the value of each signal, of an observation that an entry was made of."""
    if bandit.record.signals is None:
        return [observation.value or 0.0]
    values = observation.values or {}
    return [values.get(name, rule.default or 0.0) for name, rule in bandit.record.signals.items()]


def _observed_values(
    bandit: Bandit, observation: Observation
) -> Sequence[tuple[RewardRule | SignalRule, float]]:
    """The observed values, each with its rule. Raises Invalid."""
    signals = bandit.record.signals
    if signals is None:
        if observation.values is not None:
            raise Invalid("the bandit has no signals", path=("values",))
        if observation.value is None:
            raise Invalid("is required", path=("value",))
        return [(bandit.record.reward, observation.value)]
    if observation.value is not None:
        raise Invalid("the bandit has signals: send values, with one number for each signal", path=("value",))
    if not observation.values:
        raise Invalid(f"must name at least one of: {', '.join(signals)}", path=("values",))
    check_names(signals, observation.values, "values")
    return [(signals[name], value) for name, value in observation.values.items()]


def _time_of(rule: RewardRule | SignalRule, reward: Reward, now_ms: int) -> int | None:
    """When the reward was so; None where the last one does not count. Raises Invalid, Rejected."""
    if rule.aggregate != "last":
        return None
    if reward.at is None:
        raise Invalid(
            "is required where the last reward counts: when it was so, in ms since 1970", path=("at",)
        )
    if reward.at > now_ms + MAX_AHEAD_MS:
        raise Rejected("in_future")
    return reward.at


def _observed_at(observation: Observation, now_ms: int) -> int:
    """The time of an observation, ms since 1970. Raises Invalid."""
    if observation.at is None:
        return now_ms
    if observation.at > now_ms + MAX_AHEAD_MS:
        raise Invalid("is in the future; it must be in milliseconds since 1970", path=("at",))
    if observation.at < FIRST_MS:
        raise Invalid("is before March 1973; it must be in milliseconds since 1970", path=("at",))
    return observation.at


def _check_value(rule: RewardRule | SignalRule, value: float) -> None:
    if (rule.min is not None and value < rule.min) or (rule.max is not None and value > rule.max):
        raise Rejected("out_of_range")
