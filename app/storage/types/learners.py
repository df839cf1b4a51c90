"""The states of learners, their priors, and what is kept of a learner besides.

The states of learners, which the folded part of the reward log determines.

A learner is stored as a checkpoint, its whole state at some entry, and a tail: the entries of the log that
were folded since. A reader that folds the tail into the checkpoint has the state, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from app.storage.types.learner_id import LearnerId
from app.storage.types.reward_log import DeadLetter, LogEntry


@dataclass(frozen=True, slots=True)
class PriorWrite:
    """A version that is to be stored. The record is opaque.

    ``expected``     number of the version that it follows; 0: it is the first
    ``since_ms``     when it was made: not before the one that it follows
    ``named_after``  versions that were replaced before then, in ms, are in no row of the decision log
    """

    expected: int
    since_ms: int
    record: bytes
    named_after_ms: int


@dataclass(frozen=True, slots=True)
class FoldedCounts:
    """How many entries of the log were folded for a bandit, and how many of them forgot a learner or gave it
    a state.
    """

    entries: int = 0
    replaced: int = 0


class PriorStore(Protocol):
    """Versions are numbered from 1, without a gap. The newest is kept for as long as the bandit."""

    async def changes(self) -> int:
        """A number that grows with every version of any bandit."""
        ...

    async def numbers(self) -> Mapping[str, int]:
        """The number of the newest version of each bandit that has any, by its uid."""
        ...

    async def read(self, bandit_uid: str, number: int) -> bytes | None:
        """The record of a version; None: it is not kept."""
        ...

    async def kept(self, bandit_uid: str) -> Sequence[int]:
        """The numbers of the versions that are kept, in order."""
        ...

    async def write(self, name: str, bandit_uid: str, version: PriorWrite) -> int | None:
        """Store the version under the next number, and return that, if the newest is the expected one.

        0: it is another one, and nothing was done. After a lost reply that may be one's own. None: there is
        there is no bandit with this name and uid.
        """
        ...

    async def folded(self, bandit_uids: Sequence[str]) -> Sequence[FoldedCounts]:
        """What was folded for these bandits, in all partitions. A call for each partition."""
        ...


@dataclass(frozen=True, slots=True)
class StoredLearner:
    """What the store has of one learner.

    ``checkpoint``  its state at some entry of the log, opaque bytes; None: nothing came before the tail
    ``tail``        the entries that were folded since, in log order
    ``continues``   the caller named an entry of the tail: ``tail`` is what comes after it, without checkpoint
    """

    checkpoint: bytes | None = None
    tail: Sequence[LogEntry] = ()
    continues: bool = False


@dataclass(frozen=True, slots=True)
class LearnerChanges:
    """What has changed in a partition since a watermark that the caller knows.

    ``watermark``   where it is now
    ``newest``      entry id of the newest entry of the log
    ``learners``    whose states have changed; None: not known whose
    ``removed``     whose states were removed in between, whatever became of them afterwards
    """

    watermark: str
    newest: str
    learners: Sequence[LearnerId] | None = ()
    removed: Sequence[LearnerId] = ()


class LearnerStates(Protocol):
    """Checkpoints and tails, by partition and learner."""

    async def watermark(self, partition: int) -> str:
        """The watermark; "0-0" before the first."""
        ...

    async def stored(
        self, partition: int, learners: Sequence[LearnerId], known: Mapping[LearnerId, str] | None = None
    ) -> Sequence[StoredLearner]:
        """What the partition holds of these learners; all at one moment.

        ``known`` names the last entry that the caller has folded of a learner. If that is in the tail, only
        what comes after it is read (``continues``).
        """
        ...

    async def all_stored(
        self, partition: int, uids: Sequence[str]
    ) -> tuple[str, Mapping[LearnerId, StoredLearner]]:
        """The watermark, and all learners of these bandits, at one moment: for offline use."""
        ...

    async def names(self, partition: int, uid: str) -> Sequence[str]:
        """The names of the learners of a bandit in the partition, in order. Cost: one step for each."""
        ...

    async def apply(
        self,
        partition: int,
        *,
        expected: str,
        watermark: str,
        states: Mapping[LearnerId, bytes | None],
        tails: Mapping[LearnerId, Sequence[str]] | None = None,
        dead: Sequence[DeadLetter] = (),
        folded: Mapping[str, FoldedCounts] | None = None,
    ) -> bool:
        """Compare and set: if the watermark is ``expected``, set it with all states, tails and dead letters.

        ``states`` are checkpoints: the tail of the learner goes. None removes the learner. ``tails`` are ids
        of entries, in log order, that are put at the end of the tail of a learner, which keeps its
        checkpoint. Learners of a deleted bandit are left out. A watermark that stays where it is says that
        no learner has changed: they only get checkpoints. False: the watermark is another one, and nothing
        was done. After a lost reply that may be one's own: read the watermark again.
        ``folded``: by uid, what this adds to ``PriorStore.folded``; of bandits that have a learner here.
        """
        ...

    async def changed(self, since: Mapping[int, str]) -> Mapping[int, LearnerChanges]:
        """Whose states have changed in each of these partitions, after its watermark ``since``.

        A watermark of "" and one above that of the partition are not known.
        """
        ...


Knew = Callable[[bytes], int | None]
"""From the record of a decision: number of the newest entry of the log that was known then, None: unsaid."""


class LearnerSideData(Protocol):
    """Forgetting is an entry of the reward log: the state goes when it is folded, the rest by ``erase``."""

    async def touch(self, learner: LearnerId, *, expires_ms: int) -> None:
        """The learner is not idle before then. Never makes the time shorter."""

    async def append_forget(self, learner: LearnerId, *, payload: bytes, now_ms: int, ttl_ms: int) -> str:
        """Append an entry that forgets the learner, and return its id.

        In the same step all rewards of decisions from before are refused: for ``ttl_ms`` at least, and until
        the store refuses all that is as old (``drop_expired``). The learner is no longer idle, has taken no
        slot of a warm-up, and is noted as one to ``erase``. Idempotent by ``now_ms``: repeated, it returns
        the id of the first entry.
        """
        ...

    async def expire(self, learner: LearnerId, *, payload: bytes, now_ms: int, ttl_ms: int) -> str | None:
        """As ``append_forget`` if the learner is idle since before ``now_ms``, else None without effect."""
        ...

    async def erase(
        self, learner: LearnerId, entry_id: str, *, decision_knew: Knew, event_knew: Knew
    ) -> bool:
        """Remove log entries up to ``entry_id``, dead letters, rows, decisions that wait, choices for events.

        ``entry_id`` is that of the entry that forgot the learner. What was decided knowing of it stays: the
        learner may have come back before all is erased, and several processes may erase at the same time.
        ``decision_knew`` reads the record of a decision that waits, ``event_knew`` that of a choice for an
        event. In steps. False, and nothing is done, while that entry is not folded.
        """
        ...

    async def erase_bandit(self, uid: str) -> None:
        """Remove everything that is kept of all learners of a deleted bandit, under any key.

        In steps; ``RegistryStore.deletions`` names the bandit until all is gone. Costs a scan of all keys of
        the store, and of the logs of all partitions.
        """
