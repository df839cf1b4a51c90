"""The states of learners, which the folded part of the reward log determines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from app.storage.learner_id import LearnerId
from app.storage.protocol.reward_log import DeadLetter, Partitioned


@dataclass(frozen=True, slots=True)
class LearnerChanges:
    """What has changed in a partition since a watermark that the caller knows.

    ``watermark``   where it is now
    ``newest``      entry id of the newest entry of the log
    ``learners``    whose states were written; None: not known whose
    ``removed``     whose states were removed in between, whatever became of them afterwards
    """

    watermark: str
    newest: str
    learners: Sequence[LearnerId] | None = ()
    removed: Sequence[LearnerId] = ()


class LearnerStates(Partitioned, Protocol):
    """States, opaque bytes, by partition and learner."""

    async def watermark(self, partition: int) -> str:
        """The watermark; "0-0" before the first."""
        ...

    async def states(self, partition: int, learners: Sequence[LearnerId]) -> Sequence[bytes | None]:
        """The states that the partition holds of these learners; all at one moment."""
        ...

    async def all_states(self, partition: int, uids: Sequence[str]) -> tuple[str, Mapping[LearnerId, bytes]]:
        """The watermark, and the states of all learners of these bandits, at one moment: for offline use."""
        ...

    async def apply(
        self,
        partition: int,
        *,
        expected: str,
        watermark: str,
        states: Mapping[LearnerId, bytes | None],
        dead: Sequence[DeadLetter] = (),
    ) -> bool:
        """Compare and set: if the watermark is ``expected``, set it with all states and dead letters.

        None removes a state. States of a deleted bandit are left out. False: the watermark is another one,
        and nothing was done. After a lost reply that may be one's own: read the watermark again.
        """
        ...

    async def changed_learners(self, partition: int, since: str) -> LearnerChanges:
        """Whose states were written after the watermark ``since``; "" and one above it are not known."""
        ...
