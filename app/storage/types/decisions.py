"""Decisions: rows of the log, those that wait for rewards, and choices made for events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from app.storage.types.learner_id import DecisionId, LearnerId


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


Activated = Literal["activated", "duplicate", "forgotten", "expired"]


@dataclass(frozen=True, slots=True)
class DefaultWrite:
    """The default of one arm of a logged decision: appended unless a reward with this decision key came.

    ``issued_ms``, ``expires_ms``, ``known_entry``: of the decision, as in ``RewardWrite``.
    ``logged``: what is put at the end of the decision's row in the decision log; nothing if it has none.
    ``source``: as in ``RewardWrite``.
    """

    decision: DecisionId
    decision_key: str
    issued_ms: int
    expires_ms: int
    payload: bytes
    known_entry: int | None = None
    logged: bytes = b""
    source: bytes = b""


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


class WaitingDecisions(Protocol):
    """What bandits need that wait for rewards, or activate decisions later. Records are opaque.

    Any number of processes may do what is due at the same time.

    ``issued_ms``, ``expires_ms``, ``known_entry``: of the decision, as in ``RewardWrite``. One whose rewards
    the store refuses as expired is neither logged nor activated.
    """

    async def log(
        self,
        decision: DecisionId,
        record: bytes,
        *,
        due_ms: int,
        expires_ms: int,
        known_entry: int | None = None,
        row: RowWrite | None = None,
    ) -> None:
        """Keep the decision until its defaults are appended, from ``due_ms`` on; and its row."""

    async def activate(
        self,
        decision: DecisionId,
        *,
        issued_ms: int,
        expires_ms: int,
        known_entry: int | None = None,
        ttl_ms: int,
        record: bytes | None,
        due_ms: int,
        row: RowWrite | None = None,
    ) -> Activated:
        """Say that the decision was shown, for ``ttl_ms``, and log it if there is a record; keep its row."""
        ...

    async def is_active(self, decision: DecisionId) -> bool: ...

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


class Had(NamedTuple):
    """What a key has had lately, arms or else, and when in ms, by the clock of the store.

    ``allowed``: none of what was shown was had too often before. ``remembered``: all of it, and nothing
    was dropped to make room.
    """

    allowed: bool
    remembered: bool
    now_ms: int
    arms: Sequence[tuple[str, int]]


class Choices(Protocol):
    """An event of a learner has one value, written once; it goes when the learner is erased.

    The slots 0, 1, 2 ... of a learner's warm-up are taken once each; they go when the learner is forgotten.
    """

    async def put_event(self, learner: LearnerId, event: str, value: bytes, *, ttl_ms: int) -> bytes:
        """Store ``value`` for ``ttl_ms`` unless the event has one; return the one that it has now."""
        ...

    async def get_event(self, learner: LearnerId, event: str) -> bytes | None: ...

    async def take_warm_up_slots(
        self, learner: LearnerId, *, count: int, most: int, claim: str, ttl_ms: int
    ) -> int:
        """Take the next ``count`` slots; return the first of them, at least ``most`` if all are taken.

        The same ``claim`` gets the same slots: with one that is not empty the call is idempotent. All slots
        of the learner are free again ``ttl_ms`` after the last call that took some.
        """
        ...

    async def take_repeats(
        self, key: LearnerId, shown: Sequence[tuple[str, str]], *, within_ms: int, most: int, kept: int
    ) -> Had:
        """Write what a key has now, (name, arm) each once, unless it has an arm more than ``most`` times.

        ``most`` 0: any number. The last ``kept`` are kept, for ``within_ms``. They go with the learner.
        Without room what is new takes the place of the oldest that the key has had; of a key that has had
        nothing, nothing is kept.
        """
        ...

    async def drop_repeats(self, key: LearnerId, shown: Sequence[tuple[str, str]]) -> None:
        """As if these had not been written."""

    async def next_warm_up_slot(self, learner: LearnerId) -> int:
        """The slot that ``take_warm_up_slots`` would take next without a claim; none is taken."""
        ...
