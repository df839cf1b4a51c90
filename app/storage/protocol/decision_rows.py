"""Rows of the decision log: one for each decision that is logged, with the rewards that came for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from app.storage.protocol.learner_id import DecisionId, LearnerId


@dataclass(frozen=True, slots=True)
class RowWrite:
    """A row as it is when it is decided. The record is opaque.

    ``issued_ms``     when it was decided: rows are in the order of this, and of the decision's id
    ``known_entry``   as in ``RewardWrite``: no row is kept of a learner that was forgotten since
    ``keep_ms``       how long rows of the bandit are kept, for the first one of a bandit
    """

    decision: DecisionId
    issued_ms: int
    known_entry: int
    record: bytes
    keep_ms: int


@dataclass(frozen=True, slots=True)
class LoggedReward:
    """What the decision log keeps of a reward: ``reward`` is put at the end of the row, which is made first
    if it is not there.
    """

    row: RowWrite
    reward: bytes


@dataclass(frozen=True, slots=True)
class StoredRow:
    """A row as it is now. ``position``: its place in the order of rows. ``rewards``: one after the other."""

    position: str
    learner: LearnerId
    record: bytes
    rewards: bytes


@dataclass(frozen=True, slots=True)
class StoredRows:
    """Some rows in their order. ``following``: the position after which there may be more, else empty."""

    rows: Sequence[StoredRow]
    following: str


class DecisionRows(Protocol):
    """The decision log. What has a row, and no other rows, goes when the learner is erased or the bandit
    deleted. A row that was dropped is never made again.
    """

    async def write(self, partition: int, rows: Sequence[RowWrite]) -> None:
        """Keep those that are not there, unless their learner was forgotten or their bandit deleted."""

    async def read_row(self, decision: DecisionId, issued_ms: int) -> StoredRow | None: ...

    async def read(
        self,
        partition: int,
        bandit_uid: str,
        *,
        after: str,
        before: str,
        count: int,
        most_bytes: int,
        newest_first: bool = False,
    ) -> StoredRows:
        """The first rows after the position ``after`` and before ``before``, of all learners of a partition.

        Ends of positions will do: any text that a position begins with. ``count`` rows at most, and no more
        once they have ``most_bytes``. With ``newest_first`` the last of them, in descending order.
        """
        ...

    async def logs(self, partition: int) -> Mapping[str, int]:
        """For how many ms rows are kept, of each bandit that has any in the partition, by its uid."""
        ...

    async def kept_from(self, partition: int, bandit_uid: str) -> int:
        """The ms before which rows of a bandit in the partition were dropped; 0: none was."""
        ...

    async def sizes(self, partition: int, bandit_uid: str, *, pieces: int) -> Sequence[tuple[int, float]]:
        """What the rows of a bandit in the partition take, in at most so many pieces of one length.

        Of each piece, the oldest first: when one of its rows was decided, in ms, and how many bytes all its
        rows take, if they are like this one. Exact where there are no more rows than pieces.
        """
        ...

    async def trim(
        self, partition: int, bandit_uid: str, *, before_ms: int, count: int, keep_ms: int | None = None
    ) -> int:
        """Drop the oldest rows that were decided before then, at most ``count``; return how many.

        If there are any, no row from before then is made from now on. ``keep_ms``: for how long rows of the
        bandit are kept from now on.
        """
        ...
