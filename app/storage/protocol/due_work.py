"""What becomes due by the clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from app.storage.learner_id import DecisionId, LearnerId
from app.storage.protocol.reward_log import Partitioned
from app.storage.protocol.waiting_decisions import DefaultWrite


@dataclass(frozen=True, slots=True)
class Due:
    """What time has made due in a partition.

    ``decisions``   logged decisions whose time to be rewarded is over, with their records
    ``idle``        learners whose time to live is over
    ``erase``       learners that are forgotten and not erased yet, with the id of the entry that forgot them
    """

    decisions: Sequence[tuple[DecisionId, bytes]]
    idle: Sequence[LearnerId]
    erase: Mapping[LearnerId, str]


class DueWork(Partitioned, Protocol):
    """Work for whoever comes: any number of processes may do it at the same time."""

    async def due(self, partition: int, now_ms: int, count: int) -> Due:
        """At most about ``count`` of each kind."""
        ...

    async def append_defaults(
        self, partition: int, decisions: Sequence[DecisionId], writes: Sequence[DefaultWrite]
    ) -> str | None:
        """Append the defaults that these decisions of a partition still owe, and remove them from the logged.

        Returns the last entry id, if any. Of several calls for one decision only one appends.
        """
        ...
