"""Entries of the reward log: their types, and the one codec which writes and reads them.

An entry is a field of a stream, beside its learner and the signals before (``LogEntry``):

    1  RewardEntry    a reward, a default or an observation: the lesson for a learner, and for an arm
    2  StateEntry     a state, for a learner without one
    3  ForgetEntry    the learner starts again
    4  MoveEntry      all learners of the bandit are of another catalogue from here on

Each is a msgpack array with its number first. A new field goes to the end, and has a default.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import msgspec

from app.records.age_sums import AtAge
from app.records.arm_sums import ArmTime
from app.records.place_sums import AtPlace
from app.storage.types import LogEntry

NUMBER_BYTES = 8
MOVED = "_moved"  # in the entry of a move: it stands for all learners of the bandit in the partition


class RewardEntry(msgspec.Struct, frozen=True, array_like=True, tag=1, gc=False):
    """The lesson of one reward.

    ``features``    of the arm when it was chosen, in its context, as the learner has them: float64, (D,)
    ``value``       the reward
    ``kind``        "other": a warm start, which names no decision and no arm
    ``id``          of the decision, or of the observation
    ``arm``, ``revision``   the arm, and of its features
    ``decided_ms``  when the arm was chosen, or the observed event happened
    ``logged``      True if the decision is in the decision log
    ``space``       number of the last move of the bandit before the features, 0: none
    ``context``     the encoded one, float32; None: the bandit has none
    ``examined``    the factor of the features; None: the bandit has no ``position``
    ``served``      with arm effects, of each signal: subtracted from the reward before the key learns
    ``expected``    of each signal: subtracted before the arm learns; (): the arm learns nothing
    ``half_life_s`` 0: nothing is discounted for the key
    ``signal``      place of the reward's signal, 0 for the only one; None: the entry is of all signals
                    together, and ``defaults`` are their values
    ``sums``        rewards of this signal are summed; else a later one takes the place of one before
    ``defaults``    of each signal, or of the only reward, while none has come; missing ones are 0
    ``arm_time``    the time by which the arm fades; None: as the key, by ``half_life_s`` and ``decided_ms``
    ``at_place``    where the arm stood in a list, for bandits which learn of places; None for others
    ``at_age``      how old the arm was, and its age's part of ``served``; None: unknown
    """

    features: bytes
    value: float = 0.0
    kind: Literal["reward", "default", "observation", "other"] = "other"
    id: str = ""
    arm: str = ""
    revision: int = 0
    decided_ms: int = 0
    logged: bool = False
    space: int = 0
    context: bytes | None = None
    examined: float | None = None
    served: tuple[float, ...] = ()
    expected: tuple[float, ...] = ()
    half_life_s: float = 0.0
    signal: int | None = 0
    sums: bool = False
    defaults: tuple[float, ...] = ()
    arm_time: ArmTime | None = None
    at_place: AtPlace | None = None
    at_age: AtAge | None = None

    @property
    def weight(self) -> float:
        """The weight of the reward, beside rewards of other places."""
        return 1.0 if self.at_place is None else self.at_place.weight


class StateEntry(msgspec.Struct, frozen=True, array_like=True, tag=2, gc=False):
    """``state``: as ``state_to_bytes`` has it."""

    state: bytes


class ForgetEntry(msgspec.Struct, frozen=True, array_like=True, tag=3, gc=False):
    """The learner's state, and its contributions to arms, go."""


class MoveEntry(msgspec.Struct, frozen=True, array_like=True, tag=4, gc=False):
    """``space``: number of the move. The entry bears the name ``MOVED`` in place of a learner's."""

    space: int


Content = RewardEntry | StateEntry | ForgetEntry | MoveEntry


@dataclass(frozen=True, slots=True)
class Unreadable:
    """The content of an entry written by another program, or by a later version."""

    reason: str


class DecodedEntry(NamedTuple):
    """An entry with its decoded content."""

    entry: LogEntry
    content: Content | Unreadable


class WaitingDecision(msgspec.Struct, frozen=True, array_like=True):
    """A decision waiting for rewards.

    ``known_entry``   as in ``storage.types.RewardWrite``
    ``defaults``      for each arm, the entry made of its default
    ``places``        of the arms among those of the decision, if it has a row in the decision log
    """

    expires_ms: int
    known_entry: int
    defaults: list[RewardEntry]
    places: list[int] | None = None


Item = tuple[LogEntry, RewardEntry]
encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Content).decode


def decoded(entry: LogEntry) -> DecodedEntry:
    """Decode an entry: at the door of each reader of a log, once. Cost: a microsecond."""
    try:
        return DecodedEntry(entry, _decode(entry.payload))
    except msgspec.DecodeError as error:
        return DecodedEntry(entry, Unreadable(f"{type(error).__name__}: {error}"[:200]))


def decoded_all(entries: Iterable[LogEntry]) -> list[DecodedEntry]:
    """``decoded`` of each."""
    return [decoded(entry) for entry in entries]


def dim_of(content: Content | Unreadable) -> int:
    """The dimension of the learner changed by an entry, or a little more; 0 where unknown."""
    if isinstance(content, RewardEntry):
        return len(content.features) // NUMBER_BYTES
    if isinstance(content, StateEntry):  # which has d (d + 3) numbers
        return math.isqrt(len(content.state) // NUMBER_BYTES)
    return 0
