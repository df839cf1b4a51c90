"""Who learns and which decision was made; rows of the decision log, and decisions that wait for rewards."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

UID_LENGTH = 16
"""Hexadecimal digits of the random uid of a catalogue, bandit or event log. Its record begins with it."""
Activated = Literal["activated", "duplicate", "forgotten", "expired"]


class LearnerId(NamedTuple):
    """One learner of one bandit. ``name`` is the key of the caller, or a fixed word for the only one.

    The names that follow from it are part of the store's format: they never change.
    """

    bandit_uid: str
    name: str

    @property
    def member(self) -> str:
        """How the learner is named among the members of a key: "<bandit uid>/<name>"."""
        return f"{self.bandit_uid}/{self.name}"

    @classmethod
    def of_member(cls, member: str) -> LearnerId:
        """Inverse of ``member``: a uid has no slash."""
        uid, _, name = member.partition("/")
        return cls(uid, name)

    def partition(self, partitions: int) -> int:
        """The one of ``partitions`` that holds the learner: the same in every process, forever."""
        return zlib.crc32(f"{self.bandit_uid}/{self.name}".encode()) % partitions


class ArmId(NamedTuple):
    """One arm of one bandit, with the features of one revision."""

    bandit_uid: str
    arm: str
    revision: int


class DecisionId(NamedTuple):
    """One decision for one learner; what is kept of it is kept in the partition of the learner."""

    learner: LearnerId
    id: str

    @property
    def member(self) -> str:
        """How the decision is named among the members of a key: "<bandit uid>/<name>/<decision id>"."""
        return f"{self.learner.member}/{self.id}"

    @classmethod
    def of_member(cls, member: str) -> DecisionId:
        """Inverse of ``member``: the id of a decision has no slash."""
        learner, _, decision = member.rpartition("/")
        return cls(LearnerId.of_member(learner), decision)


@dataclass(frozen=True, slots=True)
class RowWrite:
    """A row as it is when it is decided. The record and the candidates are opaque.

    ``issued_ms``     when it was decided: rows are in the order of this, and of the decision's id
    ``known_entry``   as in ``RewardWrite``: no row is kept of a learner that was forgotten since
    ``keep_ms``       how long rows of the bandit are kept, for the first one of a bandit
    ``candidates``    what the request named; empty: nothing, or it is not kept. No reward can bring it later
    """

    decision: DecisionId
    issued_ms: int
    known_entry: int
    record: bytes
    keep_ms: int
    candidates: bytes = b""


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
    candidates: bytes = b""


@dataclass(frozen=True, slots=True)
class StoredRows:
    """Some rows in their order. ``following``: the position after which there may be more, else empty.

    ``newest``: the number of the newest entry of the reward log then: the rows have the rewards up to there.
    """

    rows: Sequence[StoredRow]
    following: str
    newest: int = 0


@dataclass(frozen=True, slots=True)
class DefaultWrite:
    """The default of one arm of a logged decision: appended unless a reward with this decision key came.

    ``issued_ms``: when it was decided. ``expires_ms``, ``known_entry``: as in ``RewardWrite``.
    ``logged``: what is put at the end of the decision's row in the decision log; nothing if it has none.
    """

    decision: DecisionId
    decision_key: str
    issued_ms: int
    expires_ms: int
    known_entry: int
    payload: bytes
    logged: bytes = b""


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


class Exposures(NamedTuple):
    """What a key was shown lately, arms or values, and when in ms, by the clock of the store.

    ``allowed``: none of what is shown now was shown too often before. ``remembered``: all of it, and nothing
    was dropped to make room. ``names``: under which each of ``shown`` was written.
    """

    allowed: bool
    remembered: bool
    now_ms: int
    shown: Sequence[tuple[str, int]]
    names: Sequence[str] = ()
