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

T = TypeVar("T")


class CatalogueRecord(msgspec.Struct, frozen=True):
    """The record of a catalogue. Fields with a default came later: an older version passes them over.

    ``features``    the source of the features; None: they are given
    ``reduction``   of their embedding, if its basis was given with them
    ``display``     names for people, the only field which may change
    ``behaviour``   of a catalogue which follows another one
    ``prior``       the prior of keys from a history, for the features of this catalogue; None: none
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
    """The data of an arm besides its features."""

    tags: list[str]
    metadata: dict[str, Any]


class UnfittedArmDocument(msgspec.Struct, frozen=True, array_like=True):
    """The document of an arm whose catalogue has no basis yet: with its embedding, float32."""

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


@dataclass(frozen=True, slots=True)
class LearnerState:
    """The state of a learner.

    ``version``       number of log entries folded into the sums
    ``time_ms``       with a half-life: when its newest decision was made; the sums are discounted to it
    ``half_life_s``   0: nothing is discounted
    ``space``         number of its bandit's last move; 0: none
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

    Squares which are not finite are unknown: NaN, so one state has one form. Size: 40 + 8 d (d + 3) bytes, 24
    more when discounted, and 16 d + 8 J for each further one of J signals.
    """
    sums, dim = state.sums, state.sums.dim
    with_error = (sums.squares, sums.squares_error) if sums.has_squares else (math.nan, 0.0)
    squares = _SQUARES.pack(*with_error)
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
        numbers, more_signals = numbers[:end], numbers[end:]
        if (
            len(more_signals) % 2
            or more_size(signals_in(len(more_signals) // 2, dim), dim) != len(more_signals) // 2
        ):
            raise ValueError(f"learner state of dimension {dim} with {len(more_signals)} numbers of signals")
        more = [part.astype(np.float64) for part in np.split(more_signals, 2)]
    if len(numbers) != dim * (dim + 3) + 2:
        raise ValueError(f"learner state of dimension {dim} with {len(numbers)} numbers")
    numbers, squares = numbers[:-2], numbers[-2:].tolist()
    half = dim * (dim + 1) // 2
    # Copies: the state must not hold the bytes of the answer.
    total = np.concatenate((numbers[:half], numbers[-2 * dim : -dim]), dtype=np.float64)
    error = np.concatenate((numbers[half : 2 * half], numbers[-dim:]), dtype=np.float64)
    sums = RidgeSums(total, error, observations, weight, *squares, *more)
    return LearnerState(version, sums, time_ms, half_life_s, space)


def differing(stored: msgspec.Struct, asked: msgspec.Struct) -> list[str]:
    """The names of the fields in which two records of one class differ."""
    return [name for name in asked.__struct_fields__ if getattr(stored, name) != getattr(asked, name)]
