"""What requests leave in the store is counted by kind, and no more of a kind is held than its bound."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, Protocol

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
