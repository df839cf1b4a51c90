"""Who learns: the identity of a learner, in one type."""

from __future__ import annotations

import zlib
from typing import NamedTuple


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
        return zlib.crc32(self.member.encode()) % partitions
