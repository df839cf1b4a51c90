"""Who learns, and which decision was made: the identities of learners and decisions, as types."""

from __future__ import annotations

import zlib
from typing import NamedTuple

UID_LENGTH = 16
"""Hexadecimal digits of the random uid of a catalogue, bandit or campaign. Its record begins with it."""


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
        """The one of ``partitions`` that holds the learner: the same in every process, for ever."""
        return zlib.crc32(f"{self.bandit_uid}/{self.name}".encode()) % partitions


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
