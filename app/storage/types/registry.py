"""Which catalogues, bandits and workers there are, and how much requests leave in the store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, Protocol


@dataclass(frozen=True, slots=True)
class Registry:
    """All catalogues and bandits: name -> record. The version grows with every change.

    ``quotas``: of bandits that have some, or had: their uid -> a number that grows when they change.
    """

    catalogues: Mapping[str, bytes] = field(default_factory=dict)
    bandits: Mapping[str, bytes] = field(default_factory=dict)
    version: int = 0
    quotas: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BanditChange:
    """What a change does to the versions that are kept of a bandit: ``kept`` by number, and ``dropped``."""

    kept: Mapping[int, bytes]
    dropped: Sequence[int] = ()


class RegistryStore(Protocol):
    """Records of catalogues and bandits by name. A record begins with a uid of 16 characters."""

    async def read(self) -> Registry: ...

    async def version(self) -> int: ...

    async def create_catalogue(self, name: str, record: bytes) -> bytes:
        """Store ``record`` if the name is free; return the record that the name has now."""
        ...

    async def delete_catalogue(self, name: str, uid: str) -> Literal["deleted", "missing", "in_use"]:
        """Remove the catalogue, then its arms: two steps, and ``deletions`` names it in between.

        From then on its arms cannot be written: NotFound.
        """
        ...

    async def create_bandit(self, name: str, record: bytes, *, catalogue: str) -> bytes | None:
        """As ``create_catalogue``; None when the catalogue does not exist."""
        ...

    async def change_bandit(
        self, name: str, uid: str, change: BanditChange, *, expected: bytes, record: bytes
    ) -> bytes | None:
        """Store ``record`` in place of ``expected``, if the name has exactly that.

        Return the record that the name has then: another one when somebody else has changed it, None when
        there is none. A version that is kept already stays as it is. ``uid`` is that of both records.
        """
        ...

    async def bandit_versions(self, uid: str, versions: Sequence[int]) -> Sequence[bytes | None]:
        """The records that were kept of these versions, in their order; None: none was."""
        ...

    async def delete_bandit(self, name: str, uid: str, *, catalogue: str) -> bool:
        """Remove the bandit with its versions, then the states of its learners: a step for each partition.

        From then on no state of it is written (``LearnerStates.apply``). False when it was not there. The
        rest that is kept of its learners is left to ``LearnerSideData.erase_bandit``; ``deletions`` names it
        until they are gone.
        """
        ...

    async def deletions(self) -> Mapping[str, Literal["bandit", "catalogue"]]:
        """What was deleted and is not all gone yet, by uid."""
        ...

    async def erase_catalogue(self, uid: str) -> None:
        """Remove the remains of a deleted catalogue. In steps; ``deletions`` names it until it is gone."""


class WriteOnce(Protocol):
    """Write-once registers by name, in the registry (``partition`` None) or in a partition."""

    async def put(self, partition: int | None, name: str, value: bytes, *, ttl_ms: int | None) -> bytes:
        """Store ``value`` unless the name has one; return the one that it has now.

        ``ttl_ms`` None: it stays for ever.
        """
        ...

    async def get(self, partition: int | None, name: str) -> bytes | None: ...


class WorkerLeases(Protocol):
    """Leases of workers by name, by the clock of the store. A lease is no lock: it only saves work."""

    async def join(self, name: str, lease_ms: int) -> Sequence[str]:
        """Begin a worker's lease, or begin it anew; return the names of all that hold one."""
        ...

    async def leave(self, name: str) -> None:
        """End the lease of a worker."""


Kind = Literal["events", "turns", "waiting", "activations", "dedupe", "campaigns", "log", "repeats"]

# Each process lets a partition hold so much of a bound, in sixteenths: the rest is for what other processes
# write to other partitions meanwhile. Of repeats a quarter is for keys of whom something is remembered.
SIXTEENTHS = 15
SIXTEENTHS_FOR_NEW = 11

# What each kind is, as an error says it. The bound of a kind is the setting SHORTLIST_MAX_<KIND>_MB.
KINDS: Mapping[Kind, str] = MappingProxyType(
    {
        "events": "choices kept for an event_id",
        "turns": "slots of warm-ups",
        "waiting": "decisions that wait for rewards",
        "activations": "activated decisions",
        "dedupe": "dedupe keys of rewards and observations",
        "campaigns": "campaigns and results of campaigns",
        "log": "rows of the decision log",
        "repeats": "arms that keys and visitors have had",
    }
)


class Usage(Protocol):
    """All figures are bytes of the store's memory, as far as they can be known: rather too many than too few.

    A call that would make a kind larger than its bound raises ``StoreFull``, or ``QuotaReached`` where
    nothing expires, and changes nothing; of "log" the oldest rows go instead, soon, and of "repeats" less is
    remembered. What is held stays until
    its time. Counting and writing are one step, so no crash parts them.
    """

    @property
    def bounds(self) -> Mapping[Kind, int]:
        """Of each kind."""
        ...

    async def read(self) -> Mapping[Kind, int]:
        """What all partitions hold now. Further writes of this process are held against it."""
        ...
