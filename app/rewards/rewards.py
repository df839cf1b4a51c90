"""Rewards and observations from the API: checked, made into entries, and appended to the reward log.

The workers fold the log into learners (``workers.reward_ingestion``).
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from app.bandits.bandit import Bandit
from app.bandits.served_bandits import Bandits
from app.exposure_limits.caps import FrequencyCaps
from app.exposure_limits.quotas import Quotas
from app.fold.checkpoints import Workers
from app.learners.effect_pairs import EffectPairs, expected_together
from app.learners.learned_priors import LearnedPriors
from app.learners.learners import Learners
from app.learners.served_effects import ServedEffects
from app.platform.deadlines import yield_to_others
from app.platform.errors import Unavailable, within
from app.platform.metrics import Metrics
from app.records.arm_sums import EffectPair, pair_at
from app.rewards.decisions import hidden_of
from app.rewards.events import Events
from app.rewards.reward_entries import (
    Observation,
    RejectCode,
    Rejected,
    Reward,
    RewardEntries,
    observed_values,
)
from app.rewards.tokens import Access, Decision
from app.storage.store import Store
from app.storage.types import Appended, LearnerId, RewardWrite
from shortlist.types import Vector

APPEND_BATCH = 256  # of a batch at a time: rewards of others come between


@dataclass(slots=True)
class Receipt:
    """The outcome of a batch; ``positions`` are the last entries, per partition, to wait for.

    ``groups``: of rewards whose decision is logged with one, by their place in the batch. ``rewarded`` counts
    the accepted ones; ``taken``: their places in the batch, without replacements of a reward above 0.
    """

    accepted: int = 0
    duplicate: int = 0
    rejected: list[tuple[int, RejectCode]] = field(default_factory=list)
    positions: dict[int, str] = field(default_factory=dict)
    applied: bool = False
    groups: dict[int, str] = field(default_factory=dict)
    rewarded: dict[str, int] = field(default_factory=dict)
    taken: list[int] = field(default_factory=list)


class Rewards:
    """Appends rewards to the log.

    ``entries``    makes the entries
    ``events``     finds the decisions of rewards that name an event
    ``quotas``, ``frequency_caps``   count rewards above 0
    ``learners``, ``priors``, ``effects``   say what is expected of the arms of observations
    ``workers``    are woken when something was appended
    """

    def __init__(
        self,
        store: Store,
        bandits: Bandits,
        entries: RewardEntries,
        workers: Workers,
        quotas: Quotas,
        *,
        events: Events,
        frequency_caps: FrequencyCaps,
        learners: Learners,
        priors: LearnedPriors,
        effects: ServedEffects,
        metrics: Metrics,
    ) -> None:
        self._store = store
        self._learners = learners
        self._priors = priors
        self._effects = effects
        self._pairs = EffectPairs(store.effects, metrics)
        self._bandits = bandits
        self._entries = entries
        self._events = events
        self._workers = workers
        self._quotas = quotas
        self._frequency_caps = frequency_caps
        self._metrics = metrics
        self._accepted, self._duplicate = map(metrics.rewards.labels, ("accepted", "duplicate"))

    async def reward(self, rewards: Sequence[Reward], access: Access = Access()) -> Receipt:
        """Append rewards for decisions; each is accepted, a duplicate, or rejected with a code.

        ``access``: of the caller.

        Raises Invalid, before anything is appended: a signal that the bandit lacks, or needs, and a key
        likewise. Raises TooLarge: see ``Events``.
        """
        now_ms = time.time_ns() // 1_000_000
        receipt = Receipt()
        writes: list[tuple[int, RewardWrite]] = []
        deferred: dict[int, Decision] = {}
        decisions: dict[int, Decision] = {}
        tokens = await self._events.tokens([item.decision for item in rewards], access, "rewards")
        for position, item in enumerate(rewards):
            if position:  # a single reward does not yield
                await yield_to_others()
            try:
                with within(("rewards", position)):
                    write, decision = await self._entries.of_reward(item, tokens[position], now_ms, access)
            except Rejected as refusal:
                receipt.rejected.append((position, refusal.code))
            else:
                writes.append((position, write))
                decisions[position] = decision
                if decision.logged is not None and decision.logged.group is not None:
                    receipt.groups[position] = decision.logged.group
                if decision.deferred:
                    deferred[position] = decision
        # only deferred decisions are looked up in the store: all others were active at once
        if deferred:
            hidden = await hidden_of(self._store, deferred)
            receipt.rejected += [(position, "not_activated") for position in hidden]
            writes = [item for item in writes if item[0] not in hidden]
        await self.append(writes, receipt)
        # After the log has them: what is counted for quotas may be too little after a crash, never too much.
        await self._count(decisions, rewards, receipt)
        return receipt

    async def _count(
        self, decisions: Mapping[int, Decision], rewards: Sequence[Reward], receipt: Receipt
    ) -> None:
        """Count what was accepted now, where quotas and frequency caps count rewards. What is lost here is
        not counted: the rewards are in the log, so they are acknowledged.
        """
        rewarded, capped = defaultdict[str, list[tuple[str, str | None]]](list), []
        for position in receipt.taken:
            decision, reward = decisions[position], rewards[position]
            bandit = self._bandits.by_uid(decision.bandit_uid)
            # A reward of 0 or less means nothing was bought or clicked, which uses up nothing.
            if bandit is not None and reward.value > 0:
                arm = reward.arm or decision.arms[0]
                if bandit.uid in self._quotas.of:
                    rewarded[bandit.uid].append((arm, reward.signal))
                if bandit.record.repeats is not None:
                    capped.append((bandit, decision, arm))
        for uid, arms_and_signals in rewarded.items():
            if (bandit := self._bandits.by_uid(uid)) is not None:
                with contextlib.suppress(Unavailable):
                    await self._quotas.count_rewards(bandit, arms_and_signals)
        for start in range(0, len(capped), APPEND_BATCH):  # side by side they leave in one pipeline
            await asyncio.gather(*(self._note(*item) for item in capped[start : start + APPEND_BATCH]))

    async def _note(self, bandit: Bandit, decision: Decision, arm: str) -> None:
        """Note a reward of a key or visitor, where the frequency cap of its bandit counts rewards."""
        learner, arms = decision.identity.learner, decision.arms
        with contextlib.suppress(Unavailable):
            await self._frequency_caps.record_reward(
                bandit, learner, decision.visitor, decision=decision.id, arms=arms, arm=arm
            )

    async def observe(self, bandit: Bandit, observations: Sequence[Observation]) -> Receipt:
        """Append history to the log of one bandit, once per observation id and key.

        Raises Invalid, before anything is appended: a context of another form than the bandit's, or none
        where one is needed.
        """
        # All arms in one read, rather than one for each observation.
        features = await self._entries.features_of(bandit, {item.arm for item in observations})
        now_ms = time.time_ns() // 1_000_000
        receipt = Receipt()
        writes: dict[int, RewardWrite] = {}
        for position, item in enumerate(observations):
            await yield_to_others()
            try:
                with within(("observations", position)):
                    arm_features = features.get(item.arm)
                    writes[position] = self._entries.of_observation(bandit, item, arm_features, now_ms)
            except Rejected as refusal:
                receipt.rejected.append((position, refusal.code))
        served = bandit
        if bandit.record.arm_effects != "off":
            served = await self._effects.serving(await self._priors.serving(bandit))
        if served.learns_effects:
            accepted = {position: observations[position] for position in writes}
            for position, pair in (await self._pairs_of(served, accepted, features)).items():
                item = observations[position]
                writes[position] = self._entries.of_observation(
                    bandit, item, features[item.arm], now_ms, pair
                )
        return await self.append(list(writes.items()), receipt)

    async def _pairs_of(
        self,
        bandit: Bandit,
        observations: Mapping[int, Observation],
        features: Mapping[str, tuple[Vector, int]],
    ) -> Mapping[int, EffectPair]:
        """Return the expected rewards and the effects, now, of the arms of observations, by place.

        Raises Unavailable.
        """
        by_key, pairs = dict[str, dict[str, int]](), dict[int, EffectPair]()
        for position, item in observations.items():
            # A repeated id counts once.
            by_key.setdefault(item.key or "", {}).setdefault(item.id, position)
        for key, places in by_key.items():
            positions = list(places.values())
            items = [observations[position] for position in positions]
            learner, posterior = await self._learners.current(bandit, bandit.learner_for(key))
            knowledge = await self._learners.knowledge(bandit, learner)
            arms = [item.arm for item in items]
            await yield_to_others()
            joint = np.array(
                [bandit.joint_features(features[item.arm][0], bandit.encoded(item.context)) for item in items]
            )
            values = np.array([observed_values(bandit, item) for item in items])
            served = np.zeros(values.shape)
            if bandit.effects is not None:
                served = bandit.effects.served(arms, values.shape[1])
            expected = expected_together(bandit, knowledge, joint, values, served)
            is_far = [item.value is not None and bandit.is_far(item.value) for item in items]
            expected[is_far] = np.nan  # the key learns alone
            data = self._pairs.of(bandit, expected, served, sigma=posterior.sigma, decisions=len(items))
            pairs |= {
                position: pair_at(data, number, len(items)) for number, position in enumerate(positions)
            }
        return pairs

    async def append(self, writes: Sequence[tuple[int, RewardWrite]], receipt: Receipt) -> Receipt:
        """Append entries, each once, and note on the receipt what became of the one at each position."""
        for start in range(0, len(writes), APPEND_BATCH):
            if start:
                await yield_to_others()
            by_partition: dict[int, list[tuple[int, RewardWrite]]] = defaultdict(list)
            for position, write in writes[start : start + APPEND_BATCH]:
                by_partition[write.learner.partition(self._store.partitions)].append((position, write))
            if len(by_partition) == 1:  # as nearly always
                [(partition, items)] = by_partition.items()
                await self._append_to(partition, items, receipt)
            else:
                appends = (
                    self._append_to(partition, items, receipt) for partition, items in by_partition.items()
                )
                await asyncio.gather(*appends)
        # Partitions answer in any order; clients get the places of their batch in ascending order.
        receipt.rejected.sort()
        self._measure(receipt)
        return receipt

    def _measure(self, receipt: Receipt) -> None:
        """Count the receipt in the metrics."""
        self._accepted.inc(receipt.accepted)
        if receipt.duplicate:
            self._duplicate.inc(receipt.duplicate)
        for group, count in receipt.rewarded.items():
            self._metrics.group_rewards.labels(group).inc(count)
        for _, code in receipt.rejected:
            self._metrics.rewards.labels(code).inc()

    async def wait(self, receipt: Receipt) -> None:
        """Return when everything accepted is applied, or after a while; ``applied`` says which."""
        waits = [self._workers.wait_applied(*position) for position in receipt.positions.items()]
        receipt.applied = all(await asyncio.gather(*waits))

    async def _append_to(
        self, partition: int, items: Sequence[tuple[int, RewardWrite]], receipt: Receipt
    ) -> None:
        writes = [write for _, write in items]
        await self._touch(writes)
        outcomes = await self._store.rewards.append(partition, writes)
        for (position, _), outcome in zip(items, outcomes, strict=True):
            _count(receipt, partition, position, outcome)
        # After each part of a batch, not at the end: folding begins while the rest is appended.
        self._workers.wake(partition)

    async def _touch(self, writes: Sequence[RewardWrite]) -> None:
        """Before the append: note the time to live of learners, so that none lives without an end."""
        now_ms, touches = time.time_ns() // 1_000_000, dict[LearnerId, int]()
        for write in writes:
            bandit = self._bandits.by_uid(write.learner.bandit_uid)
            if bandit is not None and bandit.record.idle_ttl_s is not None:
                touches[write.learner] = now_ms + round(1_000 * bandit.record.idle_ttl_s)
        if touches:  # side by side they leave in one pipeline
            touch = self._store.side_data.touch
            await asyncio.gather(*(touch(learner, expires_ms=ms) for learner, ms in touches.items()))


def _count(receipt: Receipt, partition: int, position: int, outcome: Appended) -> None:
    if outcome.status == "forgotten" or outcome.status == "expired":  # noqa: PLR1714 - narrows the type
        receipt.rejected.append((position, outcome.status))
        return
    # Of a duplicate too: whoever waits for it waits until the first one is applied.
    receipt.positions[partition] = outcome.entry_id
    if outcome.status == "accepted":
        receipt.accepted += 1
        if not outcome.revised:
            receipt.taken.append(position)
        if (group := receipt.groups.get(position)) is not None:
            receipt.rewarded[group] = receipt.rewarded.get(group, 0) + 1
    else:
        receipt.duplicate += 1
