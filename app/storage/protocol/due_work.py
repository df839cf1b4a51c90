"""What becomes due by the clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from app.storage.protocol.learner_id import DecisionId, LearnerId, Partitioned
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
    """Work for all processes: any number of them may do it at the same time."""

    async def due(self, partition: int, now_ms: int, count: int) -> Due:
        """At most about ``count`` of each kind."""
        ...

    async def append_defaults(
        self, partition: int, decisions: Sequence[DecisionId], writes: Sequence[DefaultWrite]
    ) -> str | None:
        """Append the defaults that these decisions of a partition still owe, and remove them from the logged.

        Returns the last entry id, if any. Of several calls for one decision only one appends. Their dedupe
        keys are counted, and never refused: a decision that waits is owed its default.
        """
        ...

    async def drop_expired(self, partition: int, *, margin_ms: int, count: int) -> int:
        """Drop what is kept of decisions that expired ``margin_ms`` ago by the store's clock.

        Their dedupe keys go, and what is known of learners that were forgotten before all of them. In the
        same step, rewards of all decisions that may need any of it are refused from now on, for good. At most
        ``count`` of each kind; returns how many were dropped.
        """
        ...

    async def count_dedupe_keys(self, partition: int) -> int:
        """How many dedupe keys of decisions are kept. Cost: a step for each ten minutes of a token's life."""
        ...
