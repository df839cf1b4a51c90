"""The states of learners, which the folded part of the reward log determines.

A learner is stored as a checkpoint, its whole state at some entry, and a tail: the entries of the log that
were folded since. A reader that folds the tail into the checkpoint has the state, bit for bit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from app.storage.protocol.learner_id import LearnerId
from app.storage.protocol.priors import FoldedCounts
from app.storage.protocol.reward_log import DeadLetter, LogEntry


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
