"""Erasure: all data of a learner go, for any of three reasons.

Somebody deletes a learner (``forget``), a learner was idle for too long (``expire``), or its bandit was
deleted (``erase_bandit``). The data by the keys of the store (``storage.redis_keys``), and their removal for
one learner and for all learners of a deleted bandit:

    data                                       keys                  of a learner     of a deleted bandit
    its state                                  states                fold             at once
    its rewards since its checkpoint           tails                 fold             at once
    sums of the arms it taught, see below      effects               fold             at once
    its rewards and observations               log                   erase            erase
    rewards the fold refused                   dead                  erase            erase
    decisions waiting for rewards              decisions, due        erase            erase
    choices made for events                    event, events         erase            erase
    arms of earlier choices                    had                   forget           erase
    end of its time to live                    idle                  forget           erase
    dedupe keys of rewards                     seen-until            drop             erase
    dedupe keys of observations                seen                  expires          erase
    activated decisions                        active                expires          erase
    mark: older decisions are refused          forgotten             drop             erase
    end of that mark                           forgotten-until       drop             erase
    mark: to be erased                         erase                 erase            erase
    its rows in the decision log               rows, row-times       erase            erase
    time to live of rows                       row-logs              never there      erase
    number of folded entries                   folded                counts them all  at once
    moves, folded and carried out              spaces                never there      at once
    its name among the last changes            changes               pushed out       pushed out
    the uid of its bandit, as deleted          deleted               never there      expires

A visitor of a bandit of scope global is no learner: ``forget_visitor`` erases its rows, its choices for
events and its earlier arms.

Quotas are of a bandit, not of its learners: ``erase_bandit`` removes them too.

    at once    in the call that deletes the bandit
    forget     in the atomic step of ``forget``, with its entry in the reward log
    fold       when a worker folds that entry
    erase      by ``erase`` after the fold, or by ``erase_bandit``
    expires    by time. A repeated observation stays a duplicate until then
    drop       by ``drop_expired``, which refuses in the same step all decisions that could need the key
    pushed out by newer changes. A process reads the list to find stale copies

The fold takes the learner's entries back out of the sums of arms, exactly, as far as the reward log still has
them: one pass over the log for all learners of a batch. Older parts of the sums name no learner, and stay. A
version of the effects with those entries serves until the next one, a second later.

A learned prior fitted with its sums serves until the next version, which the worker fits as soon as it knows
of the fold; only rows of the decision log use older versions. All versions are deleted with the bandit.

In the memory of every process: the learner's posterior is replaced at the process's next poll after the
fold; states of policies and the history for frequency caps are dropped (``forgotten``).
Copies of a deleted bandit are never used again, and leave the caches when space is needed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import msgspec

from app.fold.checkpoints import Workers
from app.records.log_entries import ForgetEntry, encode
from app.rewards.decisions import DEDUPE_MARGIN_MS, known_entry_of
from app.rewards.tokens import Decision, decision_of
from app.storage.store import Store
from app.storage.types import LearnerId

FORGET = encode(ForgetEntry())


class Erasure:
    """Forgets learners. Every step may be repeated, also by several processes at the same time.

    ``workers``         the processes that fold the reward log
    ``token_ttl_ms``    how long a decision can be rewarded
    ``event_decision``  the decision of the choice that is stored for an event, None: unsaid. The record is
                        written by serving
    ``forgotten``       called with learners: this process must drop the copies of their states
    """

    def __init__(
        self,
        store: Store,
        workers: Workers,
        *,
        token_ttl_ms: int,
        event_decision: Callable[[bytes], Decision | None],
        forgotten: Callable[[Sequence[LearnerId]], None] = lambda _: None,
    ) -> None:
        self._store = store
        self._workers = workers
        self._event_decision = event_decision
        self._forgotten = forgotten
        self._ttl_ms = token_ttl_ms + DEDUPE_MARGIN_MS

    async def forget(self, learner: LearnerId) -> None:
        """Forget a learner, and refuse every reward for a decision it has made so far.

        Returns when everything is gone. Without a running worker the housekeeping of workers erases the rest
        later. Raises Unavailable.
        """
        entry_id = await self._store.side_data.append_forget(
            learner, payload=FORGET, now_ms=time.time_ns() // 1_000_000, ttl_ms=self._ttl_ms
        )
        partition = learner.partition(self._store.partitions)
        self._workers.wake(partition)
        applied = await self._workers.wait_applied(partition, entry_id)
        # after the fold: before it, a choice would fill the caches from the old state again
        self._forgotten([learner])
        if applied:
            await self.erase(learner, entry_id)

    async def expire(self, learner: LearnerId, now_ms: int) -> bool:
        """Forget a learner that is idle since before ``now_ms``; return False for others.

        ``erase`` is due after the fold.
        """
        entry_id = await self._store.side_data.expire(
            learner, payload=FORGET, now_ms=now_ms, ttl_ms=self._ttl_ms
        )
        if entry_id is None:
            return False
        self._workers.wake(learner.partition(self._store.partitions))
        return True

    async def erase(self, learner: LearnerId, entry_id: str) -> bool:
        """Erase the data forgotten by the entry ``entry_id``; return False before its fold.

        Later decisions stay: a returning key is not forgotten a second time.
        """

        def event_knew(record: bytes) -> int | None:
            decision = self._event_decision(record)
            return None if decision is None else decision.known_entry

        return await self._store.side_data.erase(
            learner, entry_id, decision_knew=known_entry_of, event_knew=event_knew
        )

    async def forget_visitor(self, learner: LearnerId, visitor: str) -> None:
        """Erase the data of a visitor of a bandit of scope global, whose one learner is ``learner``.

        Its rows in the decision log, its choices for events, and its earlier arms. The learner keeps its
        sums. A later reward of an older decision writes a row again: call once more after the tokens have
        expired. Costs a read of all rows and events of the bandit. Raises Unavailable.
        """

        def names(decision: Decision | None) -> bool:
            return decision is not None and visitor in {decision.visitor, decision.owner}

        await self._store.side_data.erase_visitor(
            learner,
            visitor,
            row_names=lambda record: names(_decision_of(record)),
            event_names=lambda record: names(self._event_decision(record)),
        )
        self._forgotten([LearnerId(learner.bandit_uid, visitor)])

    async def erase_bandit(self, uid: str) -> None:
        """Erase the remains of all learners of a deleted bandit."""
        await self._store.quotas.erase(uid)
        await self._store.side_data.erase_bandit(uid)


def _decision_of(record: bytes) -> Decision | None:
    """The decision of a row; None if it cannot be read."""
    try:
        return decision_of(record)
    except msgspec.MsgspecError:
        return None
