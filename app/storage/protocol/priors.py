"""The versions of the learned priors of bandits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class PriorWrite:
    """A version that is to be stored. The record is opaque.

    ``expected``     number of the version that it follows; 0: it is the first
    ``since_ms``     when it was made: not before the one that it follows
    ``named_after``  versions that were replaced before then, in ms, are in no row of the decision log
    """

    expected: int
    since_ms: int
    record: bytes
    named_after_ms: int


@dataclass(frozen=True, slots=True)
class FoldedCounts:
    """How many entries of the log were folded for a bandit, and how many of them forgot a learner or gave it
    a state.
    """

    entries: int = 0
    replaced: int = 0


class PriorStore(Protocol):
    """Versions are numbered from 1, without a gap. The newest is kept for as long as the bandit."""

    async def changes(self) -> int:
        """A number that grows with every version of any bandit."""
        ...

    async def numbers(self) -> Mapping[str, int]:
        """The number of the newest version of each bandit that has any, by its uid."""
        ...

    async def read(self, bandit_uid: str, number: int) -> bytes | None:
        """The record of a version; None: it is not kept."""
        ...

    async def kept(self, bandit_uid: str) -> Sequence[int]:
        """The numbers of the versions that are kept, in order."""
        ...

    async def write(self, name: str, bandit_uid: str, version: PriorWrite) -> int | None:
        """Store the version under the next number, and return that, if the newest is the expected one.

        0: it is another one, and nothing was done. After a lost reply that may be one's own. None: there is
        no bandit of this name and uid.
        """
        ...

    async def folded(self, bandit_uids: Sequence[str]) -> Sequence[FoldedCounts]:
        """What was folded for these bandits, in all partitions. A call for each partition."""
        ...
