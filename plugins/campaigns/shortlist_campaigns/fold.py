"""The state of a campaign, folded from its log, and how both are stored.

A campaign stores what it was made with and a log of events; its state is the fold of that log by a pure
algorithm. Records, events and snapshots of a state are msgpack. An array is stored as [dtype, shape, bytes]
and a float as its eight bytes, so a state is restored bit for bit. Reading these formats can run no code. The
size of a state in memory is estimated here too, for the cache of states.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, Generic, Protocol, TypeVar

import msgspec
import numpy as np

from shortlist_service.errors import Invalid
from shortlist_service.storage import StoredEventLog, split_uid, unpack

T = TypeVar("T")
FEWEST_BYTES = 1_024


class PullsAsked(msgspec.Struct, frozen=True, array_like=True, tag="a"):
    """One call asked for ``count`` pulls."""

    count: int


class ResultsTold(msgspec.Struct, frozen=True, array_like=True, tag="t"):
    """The results of some pulls: ``values[i]`` is that of the pull with number ``numbers[i]``."""

    numbers: list[int]
    values: list[float]


Event = PullsAsked | ResultsTold


class CampaignRecord(msgspec.Struct, frozen=True, array_like=True):
    """The record of a campaign. ``seed`` None: its seed follows from its uid (``fold.seed_of``)."""

    seed: int | None
    parameters: bytes


def options_of(parameters: msgspec.Struct, names: Iterable[str]) -> dict[str, Any]:
    """The values of those fields of a campaign's parameters that are among ``names``."""
    wanted = set(names)
    return {name: getattr(parameters, name) for name in parameters.__struct_fields__ if name in wanted}


_decoder: msgspec.msgpack.Decoder[Event] = msgspec.msgpack.Decoder(Event)


def unpack_event(data: bytes) -> Event:
    return _decoder.decode(data)


def pack_state(state: object) -> bytes:
    return msgspec.msgpack.encode(state, enc_hook=_from_array)


def unpack_state(data: bytes, kind: type[T]) -> T | None:
    """Inverse of ``pack_state``, bit for bit; None when it was written by another version of the class."""
    try:
        return msgspec.msgpack.decode(data, type=kind, dec_hook=_to_array)
    except (msgspec.DecodeError, ValueError, TypeError):
        return None


def size_of(value: object) -> int:
    """About how many bytes a state holds."""
    if isinstance(value, np.ndarray):
        return value.nbytes
    if is_dataclass(value):
        return FEWEST_BYTES + sum(size_of(getattr(value, field.name)) for field in fields(value))
    return 16 * len(value) if isinstance(value, tuple) else 0


def _from_array(value: object) -> Any:
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    raise NotImplementedError(f"a state cannot hold {type(value)}")


def _to_array(kind: Any, value: Any) -> Any:  # noqa: ARG001 - every type that msgspec does not know is an array
    dtype, shape, data = value
    return np.frombuffer(data, dtype=dtype).reshape(shape)


MOST_NAMED = 20


class CampaignState(Protocol):
    """The pulls asked for, the results taken, whether it has ended."""

    @property
    def issued(self) -> int: ...

    @property
    def observed(self) -> int: ...

    @property
    def done(self) -> bool: ...


class NumberedPull(Protocol):
    """A pull with a number. All else of a pull is known to the algorithm alone."""

    @property
    def number(self) -> int: ...


P = TypeVar("P", bound=msgspec.Struct)
S = TypeVar("S", bound=CampaignState)
Q_co = TypeVar("Q_co", bound=NumberedPull, covariant=True)


class Algorithm(Protocol[P, S, Q_co]):
    """A pure algorithm: no method changes its arguments, reads a clock, or draws but from the seed.

    ``kind``        name of this kind of campaign in the store
    ``pull``        what its API calls a pull in results: "pull", "query"
    ``parameters``  what a campaign is made with; two that are equal are the same
    ``state``       class of the states
    """

    kind: str
    pull: str
    parameters: type[P]
    state: type[S]

    def start(self, parameters: P, seed: int) -> S:
        """The state before any pull. Raises Invalid, naming the parameter."""
        ...

    def ask(self, state: S, count: int) -> tuple[S, Sequence[Q_co]]:
        """The state after asking for at most ``count`` pulls, and these; none when it has ended."""
        ...

    def tell(self, state: S, results: Sequence[tuple[int, float]]) -> S:
        """The state after results (number, value); a number that was told before changes nothing."""
        ...


@dataclass(frozen=True, slots=True)
class Campaign(Generic[P, S]):
    """A campaign after the first ``position`` events of its log.

    ``saved`` counts the events of the newest snapshot that this process knows of.
    """

    name: str
    uid: str
    parameters: P
    state: S
    position: int
    saved: int

    def pull_id(self, number: int) -> str:
        """The id of a pull for clients. No other campaign, past or present, has a pull of this id."""
        return f"{self.uid}-{number}"


def advance(
    algorithm: Algorithm[P, S, Q_co], name: str, before: Campaign[P, S] | None, stored: StoredEventLog
) -> Campaign[P, S]:
    """The campaign after the events that were read from the store, which are those after ``stored.position``.

    ``before``: as this process knew it. If it stands elsewhere, because the snapshot of that position cannot
    be read, it is returned as it is before the first event, and the caller reads again from there.
    """
    uid, record = split_uid(stored.record, CampaignRecord)
    if before is None or before.uid != uid:
        parameters = unpack(record.parameters, algorithm.parameters)
        restored = unpack_state(stored.state, algorithm.state) if stored.state is not None else None
        position = 0 if restored is None else stored.position
        state = restored or algorithm.start(parameters, seed_of(uid, record.seed))
        before = Campaign(name, uid, parameters, state, position=position, saved=position)
    if before.position != stored.position:
        return before
    state = before.state
    for data in stored.events:
        state = fold(algorithm, state, unpack_event(data))
    return replace(before, state=state, position=before.position + len(stored.events))


def fold(algorithm: Algorithm[P, S, Q_co], state: S, event: Event) -> S:
    """The state after one more event. Returns the same object if the event changes nothing."""
    if isinstance(event, PullsAsked):
        return algorithm.ask(state, event.count)[0]
    return algorithm.tell(state, list(zip(event.numbers, event.values, strict=True)))


def seed_of(uid: str, seed: int | None) -> int:
    """The seed of a campaign: the given one, else a number that follows from its random uid."""
    return int(uid, 16) if seed is None else seed


def numbers_of(campaign: Campaign[Any, Any], results: Sequence[tuple[str, float]], field: str) -> list[int]:
    """The numbers of the pulls. Raises Invalid, which names results of pulls that were never asked for.

    ``field`` is what the API calls the id of a pull.
    """
    pull_pattern = re.compile(rf"{campaign.uid}-(0|[1-9][0-9]{{0,14}})")
    matches = [pull_pattern.fullmatch(pull) for pull, _ in results]
    numbers = [int(match[1]) if match else -1 for match in matches]
    unknown = [position for position, number in enumerate(numbers) if not 0 <= number < campaign.state.issued]
    if unknown:
        message = f"this campaign did not ask for a {field} with this id"
        raise Invalid.many([(("results", position, field), message) for position in unknown[:MOST_NAMED]])
    return numbers
