"""Who learns and which decision was made; rows of the decision log, and decisions waiting for rewards."""

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

    The names made of a learner are part of the store's format, and never change.
    """

    bandit_uid: str
    name: str

    @property
    def member(self) -> str:
        """The learner's name among the members of a key: "<bandit uid>/<name>"."""
        return f"{self.bandit_uid}/{self.name}"

    @classmethod
    def of_member(cls, member: str) -> LearnerId:
        """Inverse of ``member``: a uid has no slash."""
        uid, _, name = member.partition("/")
        return cls(uid, name)

    def partition(self, partitions: int) -> int:
        """The number of the learner's partition: the same in every process, forever."""
        return zlib.crc32(f"{self.bandit_uid}/{self.name}".encode()) % partitions


class ArmId(NamedTuple):
    """One arm of one bandit, with the features of one revision."""

    bandit_uid: str
    arm: str
    revision: int


class DecisionId(NamedTuple):
    """One decision for one learner; its records are kept in the partition of the learner."""

    learner: LearnerId
    id: str

    @property
    def member(self) -> str:
        """The decision's name among the members of a key: "<bandit uid>/<name>/<decision id>"."""
        return f"{self.learner.member}/{self.id}"

    @classmethod
    def of_member(cls, member: str) -> DecisionId:
        """Inverse of ``member``: the id of a decision has no slash."""
        learner, _, decision = member.rpartition("/")
        return cls(LearnerId.of_member(learner), decision)


@dataclass(frozen=True, slots=True)
class RowWrite:
    """A new row. The record and the candidates are opaque.

    ``issued_ms``     when it was decided: rows are ordered by this time and the decision's id
    ``known_entry``   as in ``RewardWrite``: no row is kept of a learner forgotten since
    ``keep_ms``       how long rows of the bandit are kept, for the first one of a bandit
    ``candidates``    the request's candidates; empty: none, or not kept. No reward can bring them later
    """

    decision: DecisionId
    issued_ms: int
    known_entry: int
    record: bytes
    keep_ms: int
    candidates: bytes = b""


@dataclass(frozen=True, slots=True)
class LoggedReward:
    """The decision log's part of a reward: ``reward`` is put at the end of the row; a missing row is made
    first.
    """

    row: RowWrite
    reward: bytes


@dataclass(frozen=True, slots=True)
class StoredRow:
    """A stored row. ``position``: its place in the order of rows. ``rewards``: one after the other."""

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

    ``issued_ms``: the time of the decision. ``expires_ms``, ``known_entry``: as in ``RewardWrite``.
    ``logged``: addition to the end of the decision's row in the decision log, if there is a row.
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
    """The work due in a partition.

    ``decisions``   logged decisions whose time to be rewarded is over, with their records
    ``idle``        learners whose time to live is over
    ``erase``       forgotten learners, not yet erased, with the id of the forgetting entry
    """

    decisions: Sequence[tuple[DecisionId, bytes]]
    idle: Sequence[LearnerId]
    erase: Mapping[LearnerId, str]


class Exposures(NamedTuple):
    """Recent exposures of a key, arms or values, with their times in ms by the clock of the store.

    ``allowed``: nothing in this choice was shown too often before. ``remembered``: all exposures are kept,
    and none was dropped to make room. ``names``: the name of each of ``shown`` in the store.
    """

    allowed: bool
    remembered: bool
    now_ms: int
    shown: Sequence[tuple[str, int]]
    names: Sequence[str] = ()
