"""Formats of what is stored: msgpack for documents, raw little-endian float64 for numbers.

A record of the registry begins with its uid (16 hexadecimal characters); of the rest the store knows nothing.
Reading any of these formats can run no code.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.records.arm_sums import EffectTerms
from app.records.behaviour import BehaviourRecord
from app.records.features import FeaturesRule, Reduction
from app.records.history_prior import HistoryPriorRecord
from app.storage.types import UID_LENGTH
from shortlist.linear.ridge_sums import RidgeSums, more_size, signals_in
from shortlist.types import Vector

STATE_FORMAT, DISCOUNTED_STATE_FORMAT = 4, 5
# The same, and then what belongs to further signals, and its errors.
SIGNALS_STATE_FORMAT, DISCOUNTED_SIGNALS_STATE_FORMAT = 6, 7
_STATE_HEADER = struct.Struct("<BxHIQQ")  # format, dim, space, version, observations
_DISCOUNT_HEADER = struct.Struct("<Qdd")  # follows in a discounted state: time_ms, half_life_s, weight
_SQUARES = struct.Struct("<dd")  # the sum of squared rewards, and its error
MOVED = "_moved"  # in the entry of a move: it stands for all learners of the bandit in the partition

T = TypeVar("T")
_NO_FEATURES = b"\xc4\x00"  # how a payload goes on after its first byte, if it has none


class CatalogueRecord(msgspec.Struct, frozen=True):
    """What a catalogue is made with. What has a default came later: an older version passes it over.

    ``features``    what the features are made from; None: they are given
    ``reduction``   of their embedding, if its basis was given with them
    ``display``     how it is shown to people, which alone may change
    ``behaviour``   of a catalogue that follows another one
    ``prior``       what a history knows of keys, for the features of this catalogue; None: nothing
    """

    dim: int
    index: dict[str, str | int | None]
    target_recall: float = 0.95
    features: FeaturesRule | None = None
    reduction: Reduction | None = None
    display: dict[str, str] | None = None
    behaviour: BehaviourRecord | None = None
    prior: HistoryPriorRecord | None = None


class ArmDocument(msgspec.Struct, frozen=True, array_like=True):
    """What an arm carries besides its features."""

    tags: list[str]
    metadata: dict[str, Any]


class UnfittedArmDocument(msgspec.Struct, frozen=True, array_like=True):
    """That of an arm whose catalogue has no basis yet: with its embedding, float32."""

    tags: list[str]
    metadata: dict[str, Any]
    embedding: bytes


def embedding_of(data: bytes) -> NDArray[np.float32]:
    """The embedding of an ``UnfittedArmDocument``."""
    return np.frombuffer(msgspec.msgpack.decode(data, type=UnfittedArmDocument).embedding, dtype="<f4")


def attributes_of(data: bytes) -> tuple[list[str], dict[str, Any]]:
    """The tags and the metadata of a document in the store."""
    if not data:
        return [], {}
    document = msgspec.msgpack.decode(data, type=ArmDocument)
    return document.tags, document.metadata


class RewardTerms(msgspec.Struct, frozen=True, array_like=True):
    """What the fold must know of a bandit that waits for rewards or discounts.

    ``default``       the reward that the entry replaces, if the log says that it replaces one
    ``decided_ms``    when the arm was chosen
    ``half_life_s``   0: nothing is discounted
    """

    default: float = 0.0
    decided_ms: int = 0
    half_life_s: float = 0.0


class SignalTerms(msgspec.Struct, frozen=True, array_like=True):
    """What the fold must know of a bandit with signals.

    ``place``     of the signal that the reward is of; None: the entry is of all signals together
    ``defaults``  of each signal, float64, what is missing at the end is 0; or all that an observation says
    ``sums``      whether the rewards of this signal are summed; else one replaces those before it
    """

    place: int | None
    defaults: bytes = b""
    sums: bool = False


class RewardPayload(msgspec.Struct, frozen=True, array_like=True):
    """Payload of an entry of the reward log: the features of the arm when it was chosen, and the reward.

    An entry with a ``state`` gives it to a learner that has none; one with neither state nor features forgets
    the learner, or is a move of all of them (``MOVED``). ``signal``: of a bandit with signals. ``space``:
    which move of the bandit the features are from, 0: none; of a move its own number. ``effect``: of a
    decision that was made with arm effects.
    """

    features: bytes
    value: float = 0.0
    terms: RewardTerms | None = None
    state: bytes = b""
    signal: SignalTerms | None = None
    space: int = 0
    effect: EffectTerms | None = None


class RewardSource(msgspec.Struct, frozen=True, array_like=True):
    """What an entry of the reward log is of. The fold needs none of it: it is for who reads the log.

    ``kind``        "reward", "default" or "observation"
    ``id``          of the decision, or of the observation
    ``revision``    of the features of the arm
    ``decided_ms``  when the arm was chosen, or the observation was
    ``logged``      whether the decision is in the decision log
    ``context``     as it was encoded, float32; None: the bandit has none
    ``examined``    by what the features are multiplied, where the bandit has a ``position``
    """

    kind: str
    id: str
    arm: str
    revision: int
    decided_ms: int
    logged: bool = False
    context: bytes | None = None
    examined: float | None = None


class LoggedDecision(msgspec.Struct, frozen=True, array_like=True):
    """A decision that waits for rewards, with what its defaults need.

    ``payloads``      for each arm, the payload of the entry that its default makes
    ``places``        of the arms among those of the decision, if it has a row in the decision log
    ``known_entry``   as in ``storage.types.RewardWrite``
    ``sources``       for each arm, the ``RewardSource`` of its default
    """

    bandit_uid: str
    learner: str
    id: str
    issued_ms: int
    expires_ms: int
    arms: list[str]
    payloads: list[bytes]
    known_entry: int
    places: list[int] | None
    sources: list[bytes]


@dataclass(frozen=True, slots=True)
class LearnerState:
    """The state of a learner.

    ``version``       number of log entries that were folded into the sums
    ``time_ms``       with a half-life: when its newest decision was made; the sums are discounted to it
    ``half_life_s``   0: nothing is discounted
    ``space``         which move of its bandit its numbers are from; 0: none
    """

    version: int
    sums: RidgeSums
    time_ms: int = 0
    half_life_s: float = 0.0
    space: int = 0


def pack(record: msgspec.Struct) -> bytes:
    return msgspec.msgpack.encode(record)


def unpack(data: bytes, kind: type[T]) -> T:
    return msgspec.msgpack.decode(data, type=kind)


def state_payload(state: bytes = b"") -> bytes:
    """The payload of an entry that gives a learner a state, or forgets it."""
    return msgspec.msgpack.encode((b"", 0.0, None, state))


def about_dim(payload: bytes) -> int:
    """The dimension of the learner of an entry, or a little more, from the length of its payload."""
    # Mostly features, d numbers; or else a state, which has d (d + 3).
    numbers = len(payload) // 8
    return math.isqrt(numbers) if has_state(payload) else numbers


def has_state(payload: bytes) -> bool:
    """Whether an entry gives a state; also that of a move, which has neither."""
    return payload[1:3] == _NO_FEATURES


def move_payload(number: int) -> bytes:
    """The payload of the entry of a move."""
    return msgspec.msgpack.encode((b"", 0.0, None, b"", None, number))


def with_uid(uid: str, record: msgspec.Struct) -> bytes:
    return uid.encode("ascii") + pack(record)


def split_uid(data: bytes, kind: type[T]) -> tuple[str, T]:
    return data[:UID_LENGTH].decode("ascii"), unpack(data[UID_LENGTH:], kind)


def vector_to_bytes(vector: Vector) -> bytes:
    # Little-endian whatever the machine is: a store may be moved to another one.
    return np.ascontiguousarray(vector, dtype="<f8").tobytes()


def context_to_bytes(context: NDArray[np.float32]) -> bytes:
    return context.astype("<f4", copy=False).tobytes()


def bytes_to_context(data: bytes) -> NDArray[np.float32]:
    return np.frombuffer(data, dtype="<f4").astype(np.float32, copy=False)


def bytes_to_vector(data: bytes) -> Vector:
    return np.frombuffer(data, dtype="<f8").astype(np.float64, copy=False)


def state_bytes(dim: int, *, discounted: bool, signals: int = 1) -> int:
    """Size of what ``state_to_bytes`` makes."""
    header = _STATE_HEADER.size + discounted * _DISCOUNT_HEADER.size
    return header + 8 * dim * (dim + 3) + _SQUARES.size + 16 * more_size(signals, dim)


def state_to_bytes(state: LearnerState) -> bytes:
    """Header, then the lower triangles of gram and of its errors, the moment and its errors, and the squares.

    Squares that are not finite are unknown: NaN, so that one state has one form.
    Size: 40 + 8 d (d + 3) bytes, 24 more when discounted, and 16 d + 8 J for each further one of J signals.
    """
    sums, dim = state.sums, state.sums.dim
    known = (sums.squares, sums.squares_error) if sums.has_squares else (math.nan, 0.0)
    squares = _SQUARES.pack(*known)
    if len(sums.more):
        kind = DISCOUNTED_SIGNALS_STATE_FORMAT if state.half_life_s else SIGNALS_STATE_FORMAT
    else:
        kind = DISCOUNTED_STATE_FORMAT if state.half_life_s else STATE_FORMAT
    header = _STATE_HEADER.pack(kind, dim, state.space, state.version, sums.observations)
    if state.half_life_s:
        header += _DISCOUNT_HEADER.pack(state.time_ms, state.half_life_s, sums.weight)
    numbers = (sums.total[:-dim], sums.error[:-dim], sums.total[-dim:], sums.error[-dim:])
    more = map(vector_to_bytes, (sums.more, sums.more_error)) if len(sums.more) else ()
    return header + b"".join(map(vector_to_bytes, numbers)) + squares + b"".join(more)


def bytes_to_state(data: bytes) -> LearnerState:
    """Inverse of ``state_to_bytes``, bit for bit."""
    kind, dim, space, version, observations = _STATE_HEADER.unpack_from(data)
    offset, time_ms, half_life_s, weight = _STATE_HEADER.size, 0, 0.0, float(observations)
    if kind in (DISCOUNTED_STATE_FORMAT, DISCOUNTED_SIGNALS_STATE_FORMAT):
        time_ms, half_life_s, weight = _DISCOUNT_HEADER.unpack_from(data, offset)
        offset += _DISCOUNT_HEADER.size
    elif kind not in (STATE_FORMAT, SIGNALS_STATE_FORMAT):
        raise ValueError(f"learner state of unknown format {kind}")
    numbers = np.frombuffer(data, dtype="<f8", offset=offset)
    more = list[Vector]()
    if kind in (SIGNALS_STATE_FORMAT, DISCOUNTED_SIGNALS_STATE_FORMAT):
        end = dim * (dim + 3) + 2
        numbers, rest = numbers[:end], numbers[end:]
        if len(rest) % 2 or more_size(signals_in(len(rest) // 2, dim), dim) != len(rest) // 2:
            raise ValueError(f"learner state of dimension {dim} with {len(rest)} numbers of signals")
        more = [part.astype(np.float64) for part in np.split(rest, 2)]
    if len(numbers) != dim * (dim + 3) + 2:
        raise ValueError(f"learner state of dimension {dim} with {len(numbers)} numbers")
    numbers, squares = numbers[:-2], numbers[-2:].tolist()
    half = dim * (dim + 1) // 2
    # Copies, so that the state does not hold the bytes of the answer.
    total = np.concatenate((numbers[:half], numbers[-2 * dim : -dim]), dtype=np.float64)
    error = np.concatenate((numbers[half : 2 * half], numbers[-dim:]), dtype=np.float64)
    sums = RidgeSums(total, error, observations, weight, *squares, *more)
    return LearnerState(version, sums, time_ms, half_life_s, space)


def differing(stored: msgspec.Struct, asked: msgspec.Struct) -> list[str]:
    """The names of the fields in which two records of one class differ."""
    return [name for name in asked.__struct_fields__ if getattr(stored, name) != getattr(asked, name)]
