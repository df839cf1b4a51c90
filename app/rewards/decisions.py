"""Decisions after the choice: their rows in the decision log, and the waiting ones.

A row of the decision log is made from the token of its decision, as bytes. So a reward can always write the
row again, also if the row of the choice was lost. Decisions themselves are stored only for bandits that count
a default for arms without a reward (``wait_s``).

Life of a decision
    chosen      its token says everything; where the bandit has a ``wait_s`` the store has a copy
    deferred    (``"activate": false``) not stored, and not to be rewarded before its activation
    due         ``wait_s`` after it was chosen or activated: every arm without a reward gets the default
    rewarded    after that: the reward replaces the default, exactly (``fold``)
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from weakref import WeakValueDictionary

import msgspec

from app.bandits.bandit import Bandit
from app.bandits.served_bandits import Bandits
from app.bandits.settings import SignalRef
from app.catalogues.catalogues import Catalogues
from app.exposure_limits.quotas import Quotas
from app.platform.deadlines import yield_to_others
from app.records.log_entries import WaitingDecision, encode
from app.records.logged import RewardOfRow, reward_bytes
from app.records.records import pack, unpack
from app.rewards.decided_features import decided_features, reward_entry
from app.rewards.events import Event, Events
from app.rewards.tokens import Access, BadToken, Decision, TokenSigner, raw_of
from app.storage.store import Store
from app.storage.types import DecisionId, DefaultWrite, LoggedReward, RowWrite

log = logging.getLogger("shortlist.decisions")
DEDUPE_MARGIN_MS = 60_000
BATCH_SIZE = 100


def row_of(
    bandit: Bandit, decision: Decision, token: str | bytes, candidates: bytes = b""
) -> RowWrite | None:
    """The row of a decision; None if it is not logged. ``token``: text, as answered, or bytes.

    ``candidates``: those of its request, as a row keeps them.
    """
    rule = bandit.record.log
    if decision.logged is None or rule is None:
        return None
    record = raw_of(token) if isinstance(token, str) else token
    return RowWrite(
        decision.identity, decision.issued_ms, decision.known_entry, record, rule.keep_ms, candidates
    )


def logged_reward(
    bandit: Bandit,
    decision: Decision,
    token: str,
    *,
    arm: str,
    value: float,
    now_ms: int,
    judged: SignalRef | None = None,
    is_last: bool = False,
) -> LoggedReward | None:
    """Return the addition of a reward to the row of its decision; None if the decision is not logged.

    ``is_last``: the reward replaces an earlier one of its arm and signal.
    """
    row = row_of(bandit, decision, token)
    if row is None:
        return None
    signal, after_ms = None if judged is None else judged.place, now_ms - decision.issued_ms
    reward = RewardOfRow(
        decision.arms.index(arm), value, after_ms, default=False, signal=signal, is_last=is_last
    )
    return LoggedReward(row, reward_bytes(reward))


@dataclass(slots=True)
class Activation:
    """The outcome of a batch: counts, and (place in the batch, code) of the rejected decisions."""

    activated: int = 0
    duplicate: int = 0
    rejected: list[tuple[int, str]] = field(default_factory=list)


class Decisions:
    """Logs decisions, and activates them."""

    def __init__(
        self,
        store: Store,
        catalogues: Catalogues,
        bandits: Bandits,
        signer: TokenSigner,
        quotas: Quotas,
        *,
        events: Events,
    ) -> None:
        self._store = store
        self._catalogues = catalogues
        self._bandits = bandits
        self._signer = signer
        self._quotas = quotas
        self._events = events
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()  # by decision

    async def log(self, token: str, candidates: bytes = b"") -> None:
        """Log a decision of a bandit with a ``wait_s``, unless deferred.

        A second call changes nothing. ``candidates``: as of ``row_of``.
        """
        # Time 0: expired decisions are logged, too; a forged token raises.
        decision = self._signer.verify(token, now_ms=0)
        if decision.deferred:
            return
        bandit = await self._bandits.find(decision.bandit_uid, decision.bandit_version)
        if bandit is None or bandit.record.reward.wait_s is None:
            return
        record, due_ms = await self._record(bandit, decision, decision.issued_ms)
        await self._store.waiting.log(
            decision.identity,
            record,
            due_ms=due_ms,
            expires_ms=decision.expires_ms,
            known_entry=decision.known_entry,
            row=row_of(bandit, decision, token, candidates),
        )

    async def activate(self, decisions: Sequence[str | Event], access: Access = Access()) -> Activation:
        """Activate deferred decisions, which were shown: from now on they can be rewarded, and wait for
        rewards.

        ``decisions``: tokens, or the events of the choices. ``access``: of the caller.
        """
        now_ms = time.time_ns() // 1_000_000
        outcome = Activation()
        tokens = await self._events.tokens(decisions, access, "decisions")
        for start in range(0, len(tokens), BATCH_SIZE):
            batch = tokens[start : start + BATCH_SIZE]
            # Side by side they leave in one pipeline (``storage.pipelining``).
            outcomes = await asyncio.gather(*(self._activate_token(token, access, now_ms) for token in batch))
            for position, became in enumerate(outcomes, start):
                if became == "activated":
                    outcome.activated += 1
                elif became == "duplicate":
                    outcome.duplicate += 1
                else:
                    outcome.rejected.append((position, became))
        return outcome

    async def _activate_token(self, token: str | BadToken, access: Access, now_ms: int) -> str:
        await yield_to_others()
        if isinstance(token, BadToken):
            return token.reason
        try:
            decision = self._signer.verify(token, now_ms=now_ms)
        except BadToken as bad:
            return bad.reason
        bandit = await self._bandits.find(decision.bandit_uid, decision.bandit_version, names=access.bandits)
        if bandit is None:
            return "unknown_bandit"
        if not access.owns(decision):
            return "not_yours"
        return await self._activate(bandit, decision, token, now_ms) if decision.deferred else "duplicate"

    async def _activate(self, bandit: Bandit, decision: Decision, token: str, now_ms: int) -> str:
        """Count a shown decision for the current quotas, all of it or nothing, and activate it."""
        quotas = self._quotas.of.get(bandit.uid)
        if quotas is None:
            return await self._say_shown(bandit, decision, token, now_ms)
        # Named twice at once: what the first one takes must not be too little for the second one.
        async with self._locks.setdefault(decision.id, asyncio.Lock()):
            arms = bandit.catalogue.index.snapshot()
            rows = arms.whole.table.row_of_each(decision.arms).tolist()
            charge = await quotas.charge(arms, rows, "activate")
            if charge is None:
                # A repeated call must hear "duplicate", also when the quotas are used up meanwhile.
                return "duplicate" if await self._store.waiting.is_active(decision.identity) else "used_up"
            outcome = await self._say_shown(bandit, decision, token, now_ms)
            # Where the store does not answer, the decision may be active: then it counts.
            if charge and outcome != "activated":
                await quotas.refund(charge)
            return outcome

    async def _say_shown(self, bandit: Bandit, decision: Decision, token: str, now_ms: int) -> str:
        record, due_ms = None, 0
        if bandit.record.reward.wait_s is not None:
            record, due_ms = await self._record(bandit, decision, now_ms)
        return await self._store.waiting.activate(
            decision.identity,
            expires_ms=decision.expires_ms,
            known_entry=decision.known_entry,
            ttl_ms=decision.expires_ms - now_ms + DEDUPE_MARGIN_MS,
            record=record,
            due_ms=due_ms,
            row=row_of(bandit, decision, token),
        )

    async def _record(self, bandit: Bandit, decision: Decision, from_ms: int) -> tuple[bytes, int]:
        """The record to log, and when it is due. Arms without kept features are left out.

        Notes that the default will be a sign of life of an idle learner.
        """
        rule, defaults, places = bandit.record.reward, [], []
        for arm_position in range(len(decision.arms)):
            await yield_to_others()
            features = await decided_features(self._catalogues, bandit, decision, arm_position)
            if features is not None:
                places.append(arm_position)
                entry = reward_entry(
                    bandit, decision, arm_position, features, "default", value=rule.default or 0.0
                )
                defaults.append(entry)
        record = WaitingDecision(
            decision.expires_ms,
            decision.known_entry,
            defaults,
            None if decision.logged is None else places,
        )
        # Not after it has expired: then no reward could replace the default.
        due_ms = min(from_ms + round(1_000 * (rule.wait_s or 0.0)), decision.expires_ms)
        if bandit.record.idle_ttl_s is not None:
            expires_ms = due_ms + round(1_000 * bandit.record.idle_ttl_s)
            await self._store.side_data.touch(decision.identity.learner, expires_ms=expires_ms)
        return pack(record), due_ms


async def hidden_of(store: Store, deferred: Mapping[int, Decision]) -> set[int]:
    """The keys of the deferred decisions without an activation."""
    hidden, asked = set(), list(deferred.items())
    for start in range(0, len(asked), BATCH_SIZE):
        batch = asked[start : start + BATCH_SIZE]
        answers = await asyncio.gather(*(store.waiting.is_active(decision.identity) for _, decision in batch))
        hidden |= {key for (key, _), active in zip(batch, answers, strict=True) if not active}
    return hidden


def known_entry_of(data: bytes) -> int | None:
    """``WaitingDecision.known_entry`` of a record; None if it cannot be read."""
    try:
        return unpack(data, WaitingDecision).known_entry
    except msgspec.DecodeError:
        return None


def defaults_of(decisions: Sequence[tuple[DecisionId, bytes]]) -> list[DefaultWrite]:
    """The defaults of waiting decisions, one for each arm. A decision that cannot be read has none."""
    writes, now_ms = [], time.time_ns() // 1_000_000
    for identity, data in decisions:
        try:
            decision = unpack(data, WaitingDecision)
        except msgspec.DecodeError:
            log.exception("a logged decision cannot be read and gets no default")
            continue
        for number, entry in enumerate(decision.defaults):
            logged = b""
            if decision.places is not None:
                after_ms = now_ms - entry.decided_ms
                logged = reward_bytes(
                    RewardOfRow(decision.places[number], entry.value, after_ms, default=True)
                )
            writes.append(
                DefaultWrite(
                    decision=identity,
                    decision_key=f"{identity.id}/{entry.arm}",
                    issued_ms=entry.decided_ms,
                    expires_ms=decision.expires_ms,
                    known_entry=decision.known_entry,
                    payload=encode(entry),
                    logged=logged,
                )
            )
    return writes
