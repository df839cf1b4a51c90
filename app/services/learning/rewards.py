"""Rewards and observations: checked, looked up, and appended to the reward log.

What is appended carries the features of the arm as it was when it was chosen, so the log alone determines
every learner. Applying it is the worker's work (``workers.reward_ingestion``).
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from app.algorithms.types import Vector
from app.services.bandits.bandits import GLOBAL_LEARNER, Bandit, Bandits
from app.services.catalogues.catalogues import Catalogues
from app.services.formats.records import RewardPayload, RewardRule, pack, reward_payload
from app.services.learning.decisions import DEDUPE_MARGIN_MS, hidden_of
from app.services.learning.tokens import BadToken, Decision, TokenSigner
from app.storage.protocol import Appended, LearnerId, RewardWrite, Store

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
APPEND_BATCH = 500
WAIT_S = 10.0


@dataclass(frozen=True, slots=True)
class Reward:
    """A reward for one arm of a decision."""

    decision: str
    value: float
    arm: str | None = None
    reward_id: str | None = None


@dataclass(frozen=True, slots=True)
class Observation:
    """A reward that was not decided here: history."""

    id: str
    arm: str
    value: float
    key: str | None = None


@dataclass(slots=True)
class Receipt:
    """What became of a batch; ``positions`` are the last entries, per partition, to wait for."""

    accepted: int = 0
    duplicate: int = 0
    rejected: list[tuple[int, RejectCode]] = field(default_factory=list)
    positions: dict[int, str] = field(default_factory=dict)
    applied: bool = False


class Rejected(Exception):
    """One item of a batch is refused, the others are not."""

    def __init__(self, code: RejectCode) -> None:
        super().__init__(code)
        self.code: RejectCode = code


class Workers(Protocol):
    """Whoever applies the reward log."""

    def wake(self, partition: int) -> None:
        """There is something new in the log of this partition."""

    async def wait_applied(self, partition: int, entry_id: str) -> bool:
        """True once the entry is applied; False when it is not within ``WAIT_S``."""
        ...


class Rewards:
    """The way into the reward log."""

    def __init__(
        self,
        store: Store,
        catalogues: Catalogues,
        bandits: Bandits,
        signer: TokenSigner,
        workers: Workers,
        *,
        token_ttl_ms: int,
        observation_ttl_ms: int,
        received: Callable[[Receipt], None],
    ) -> None:
        self._store = store
        self._catalogues = catalogues
        self._bandits = bandits
        self._signer = signer
        self._workers = workers
        self._token_ttl_ms = token_ttl_ms
        self._observation_ttl_ms = observation_ttl_ms
        self._received = received

    async def reward(self, rewards: Sequence[Reward]) -> Receipt:
        """Append rewards for decisions; each is accepted, a duplicate, or rejected with a code."""
        now_ms = time.time_ns() // 1_000_000
        receipt = Receipt()
        writes: list[tuple[int, RewardWrite]] = []
        deferred: dict[int, Decision] = {}
        for position, item in enumerate(rewards):
            try:
                write, decision = await self._from_decision(item, now_ms)
            except Rejected as refusal:
                receipt.rejected.append((position, refusal.code))
            else:
                writes.append((position, write))
                if decision.deferred:
                    deferred[position] = decision
        if deferred:
            hidden = await hidden_of(self._store, deferred)
            receipt.rejected += [(position, "not_activated") for position in hidden]
            writes = [item for item in writes if item[0] not in hidden]
        return await self.append(writes, receipt)

    async def observe(self, bandit: Bandit, observations: Sequence[Observation]) -> Receipt:
        """Append history to the log of one bandit, once per observation id."""
        arms = {item.arm for item in observations}
        features = await self._catalogues.features(bandit.catalogue, arms)
        now_ms = time.time_ns() // 1_000_000
        receipt = Receipt()
        writes: list[tuple[int, RewardWrite]] = []
        for position, item in enumerate(observations):
            try:
                writes.append(
                    (position, self._from_observation(bandit, item, features.get(item.arm), now_ms))
                )
            except Rejected as refusal:
                receipt.rejected.append((position, refusal.code))
        return await self.append(writes, receipt)

    async def forget(self, learner: LearnerId) -> None:
        """Forget a learner, refuse every reward for a decision it has made so far, and erase its traces.

        What cannot be erased yet, since no worker runs, is left to the workers' chores.
        """
        partition = learner.partition(self._store.partitions)
        entry = await self._store.append_forget(
            learner,
            payload=pack(RewardPayload(b"")),
            now_ms=time.time_ns() // 1_000_000,
            ttl_ms=self._token_ttl_ms + DEDUPE_MARGIN_MS,
        )
        self._workers.wake(partition)
        if await self._workers.wait_applied(partition, entry):
            await self._store.erase(learner, entry)

    async def wait(self, receipt: Receipt) -> None:
        """Return when everything accepted is applied, or after ``WAIT_S``; ``applied`` says which."""
        waits = [self._workers.wait_applied(*position) for position in receipt.positions.items()]
        receipt.applied = all(await asyncio.gather(*waits))

    async def _from_decision(self, reward: Reward, now_ms: int) -> tuple[RewardWrite, Decision]:
        try:
            decision = self._signer.verify(reward.decision, now_ms=now_ms)
        except BadToken as bad:
            raise Rejected(bad.reason) from None
        bandit = await self._bandits.find(decision.bandit_uid)
        if bandit is None:
            raise Rejected("unknown_bandit")
        arm, revision = _arm_of(decision, reward.arm)
        rule = bandit.record.reward
        _check_value(rule, reward.value)
        features = await self._catalogues.features_at(bandit.catalogue, arm, revision)
        if features is None:
            raise Rejected("unknown_arm")
        word = f"{decision.id}/{arm}"
        write = RewardWrite(
            learner=decision.identity.learner,
            once=f"r/{word}/{reward.reward_id or ''}" if rule.aggregate == "sum" else f"r/{word}",
            first=word if rule.aggregate == "sum" or rule.wait_s is not None else None,
            issued_ms=decision.issued_ms,
            ttl_ms=decision.expires_ms - now_ms + DEDUPE_MARGIN_MS,
            payload=reward_payload(bandit.record, features, reward.value, decision.issued_ms),
        )
        return write, decision

    def _from_observation(
        self, bandit: Bandit, observation: Observation, features: Vector | None, now_ms: int
    ) -> RewardWrite:
        per_key = bandit.record.scope == "per_key"
        if per_key != (observation.key is not None):
            raise Rejected("key_required" if per_key else "key_not_used")
        _check_value(bandit.record.reward, observation.value)
        if features is None:
            raise Rejected("unknown_arm")
        return RewardWrite(
            learner=LearnerId(bandit.uid, observation.key or GLOBAL_LEARNER),
            once=f"o/{observation.id}",
            first=None,
            issued_ms=now_ms,
            ttl_ms=self._observation_ttl_ms,
            payload=reward_payload(bandit.record, features, observation.value, now_ms),
        )

    async def append(self, writes: Sequence[tuple[int, RewardWrite]], receipt: Receipt) -> Receipt:
        """Append entries, each once, and note on the receipt what became of the one at each position."""
        by_partition: dict[int, list[tuple[int, RewardWrite]]] = defaultdict(list)
        for position, write in writes:
            by_partition[write.learner.partition(self._store.partitions)].append((position, write))
        appends = [self._append_to(partition, items, receipt) for partition, items in by_partition.items()]
        await (appends[0] if len(appends) == 1 else asyncio.gather(*appends))  # nearly always one
        receipt.rejected.sort()
        self._received(receipt)
        return receipt

    async def _append_to(
        self, partition: int, items: Sequence[tuple[int, RewardWrite]], receipt: Receipt
    ) -> None:
        for start in range(0, len(items), APPEND_BATCH):
            batch = items[start : start + APPEND_BATCH]
            await self._touch([write for _, write in batch])
            outcomes = await self._store.append_rewards(partition, [write for _, write in batch])
            for (position, _), outcome in zip(batch, outcomes, strict=True):
                _count(receipt, partition, position, outcome)
            self._workers.wake(partition)

    async def _touch(self, writes: Sequence[RewardWrite]) -> None:
        """Before anything is appended: no learner with a time to live may come to be without it."""
        now_ms = time.time_ns() // 1_000_000
        for learner in {write.learner for write in writes}:
            bandit = self._bandits.by_uid(learner.bandit_uid)
            if bandit is not None and bandit.record.idle_ttl_s is not None:
                expires_ms = now_ms + round(1_000 * bandit.record.idle_ttl_s)
                await self._store.touch(learner, expires_ms=expires_ms)


def entry_order(entry_id: str) -> tuple[int, int]:
    """Entry ids compare as pairs of numbers."""
    milliseconds, _, sequence = entry_id.partition("-")
    return int(milliseconds), int(sequence)


def _arm_of(decision: Decision, arm: str | None) -> tuple[str, int]:
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


def _count(receipt: Receipt, partition: int, position: int, outcome: Appended) -> None:
    if outcome.status == "forgotten":
        receipt.rejected.append((position, "forgotten"))
        return
    receipt.positions[partition] = outcome.entry_id
    if outcome.status == "accepted":
        receipt.accepted += 1
    else:
        receipt.duplicate += 1
