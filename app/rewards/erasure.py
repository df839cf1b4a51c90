"""Erasure: all that is kept of a learner goes, by whichever way.

There are three reasons to forget: somebody deletes a learner (``forget``), a learner was idle for too long
(``expire``), or its bandit was deleted (``erase_bandit``). The list of what is kept, by the keys of the store
(``storage.redis_keys``), and what removes it for a learner and for all learners of a deleted bandit:

    what is kept                               keys                  of a learner     of a deleted bandit
    its state                                  states                fold             at once
    its rewards since its checkpoint           tails                 fold             at once
    what it taught arms, see below             effects               fold             at once
    its rewards and observations               log                   erase            erase
    rewards that could not be folded           dead                  erase            erase
    decisions that wait for rewards            decisions, due        erase            erase
    choices made for events                    event, events         erase            erase
    arms that it has had                       had                   forget           erase
    until when it is not idle                  idle                  forget           erase
    dedupe keys of rewards                     seen-until            drop             erase
    dedupe keys of observations                seen                  expires          erase
    which decisions are activated              active                expires          erase
    that older decisions are refused           forgotten             drop             erase
    until when that is known                   forgotten-until       drop             erase
    that it is to be erased                    erase                 erase            erase
    its rows in the decision log               rows, row-times       erase            erase
    how long rows are kept                     row-logs              never there      erase
    how many entries were folded               folded                counts them all  at once
    which moves are folded and carried out     spaces                never there      at once
    its name among the last changes            changes               pushed out       pushed out
    the uid of its bandit, as deleted          deleted               never there      expires

A visitor of a bandit of scope global is no learner: ``forget_visitor`` erases the rows, the choices for
events and the arms had that name it.

Quotas are of a bandit, not of its learners: ``erase_bandit`` removes them too.

    at once    in the call that deletes the bandit
    forget     in the same atomic step that appends an entry which forgets the learner to the reward log
    fold       when a worker folds that entry
    erase      by ``erase`` after the fold, or by ``erase_bandit``
    expires    by itself. An observation that is sent again stays a duplicate until then
    drop       by ``drop_expired``, which refuses in the same step all decisions that it could be needed for
    pushed out by newer changes. A process reads there what it has to read again

Of what it taught arms the fold takes back what the reward log still has, exactly, by one pass over the log
for all learners of a batch. Before that sums do not say whose they are, and stay. A version of the effects
that was made with them serves until the next one, a second later.

A version of the learned prior that was fitted with its sums serves until the next one, which is fitted as
soon as the worker knows of the fold; older versions are used for rows of the decision log alone. All versions
are deleted with the bandit.

In the memory of every process: the learner's posterior is replaced at the process's next poll after the
fold; states of policies and the history for frequency caps are dropped (``forgotten``).
What a process keeps of a deleted bandit is never used again, and is evicted when the space is needed.
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
    """Forgets learners. Every step is safe to repeat, and any number of processes may do it at the same time.

    ``workers``         the processes that fold the reward log
    ``token_ttl_ms``    how long a decision can be rewarded
    ``event_decision``  the decision of the choice that is stored for an event, None: unsaid. The record is
                        written by serving
    ``forgotten``       is told of learners: what this process made of their states is to be dropped
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

        Returns when everything is gone; what cannot be erased in time, since no worker runs, is left to the
        workers' housekeeping. Raises Unavailable.
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
        """Forget a learner that is idle since before ``now_ms``; False when it is not.

        To ``erase`` it becomes due once this is folded.
        """
        entry_id = await self._store.side_data.expire(
            learner, payload=FORGET, now_ms=now_ms, ttl_ms=self._ttl_ms
        )
        if entry_id is None:
            return False
        self._workers.wake(learner.partition(self._store.partitions))
        return True

    async def erase(self, learner: LearnerId, entry_id: str) -> bool:
        """Erase what the entry ``entry_id`` has forgotten; False while that entry is not folded.

        What was decided since then stays: a key that comes back is not forgotten a second time.
        """

        def event_knew(record: bytes) -> int | None:
            decision = self._event_decision(record)
            return None if decision is None else decision.known_entry

        return await self._store.side_data.erase(
            learner, entry_id, decision_knew=known_entry_of, event_knew=event_knew
        )

    async def forget_visitor(self, learner: LearnerId, visitor: str) -> None:
        """Erase what names a visitor of a bandit of scope global, whose one learner is ``learner``.

        Its rows in the decision log, its choices for events, and what it has had. What was learned stays. A
        decision of before that is rewarded later has a row again: repeat this once such tokens have expired.
        Costs a read of all rows and events of the bandit. Raises Unavailable.
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
