"""How records look in the store: msgpack for documents, raw little-endian float64 for numbers.

A record of the registry begins with its uid (16 hexadecimal characters); the store relies on nothing else.
No format here can run code when it is read.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.algorithms.linear.ridge import RidgeSums
from app.algorithms.types import Matrix, Vector

UID_LENGTH = 16
STATE_FORMAT = 1
_STATE_HEADER = struct.Struct("<BxHxxxxQQ")  # format, dim, version, observations

T = TypeVar("T")


class CatalogueRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a catalogue is made with."""

    dim: int
    index: dict[str, str | int | None]


class RewardRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What counts as a reward of a bandit."""

    min: float | None = None
    max: float | None = None
    aggregate: Literal["first", "sum"] = "first"


class BanditRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a bandit is made with."""

    catalogue: str
    policy: str
    scope: Literal["global", "per_key"]
    ridge: float
    exploration: float | str
    delta: float
    horizon: int
    shortlist: int
    eta: float | None
    reward: RewardRule


class ArmDocument(msgspec.Struct, frozen=True, array_like=True):
    """What an arm carries besides its features."""

    tags: list[str]
    metadata: dict[str, Any]


class RewardPayload(msgspec.Struct, frozen=True, array_like=True):
    """Body of an entry of the reward log: the features that the arm had when it was chosen, and the reward.

    Without features the entry says that the learner is forgotten.
    """

    features: bytes
    value: float = 0.0


@dataclass(frozen=True, slots=True)
class LearnerState:
    """A learner: its sums, and the number of log entries that were folded into them."""

    version: int
    sums: RidgeSums


def pack(record: msgspec.Struct) -> bytes:
    return msgspec.msgpack.encode(record)


def unpack(data: bytes, kind: type[T]) -> T:
    return msgspec.msgpack.decode(data, type=kind)


def with_uid(uid: str, record: msgspec.Struct) -> bytes:
    return uid.encode("ascii") + pack(record)


def split_uid(data: bytes, kind: type[T]) -> tuple[str, T]:
    return data[:UID_LENGTH].decode("ascii"), unpack(data[UID_LENGTH:], kind)


def vector_to_bytes(vector: Vector) -> bytes:
    return np.ascontiguousarray(vector, dtype="<f8").tobytes()


def bytes_to_vector(data: bytes) -> Vector:
    return np.frombuffer(data, dtype="<f8").astype(np.float64, copy=False)


@lru_cache(maxsize=64)
def _triangle(dim: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    return np.tril_indices(dim)


def state_to_bytes(state: LearnerState) -> bytes:
    """Header, then gram and gram_error (packed lower triangles), moment and moment_error.

    Size: 24 + 8 (d(d+1) + 2d) bytes.
    """
    sums = state.sums
    dim = sums.moment.size
    triangle = _triangle(dim)
    numbers = (sums.gram[triangle], sums.gram_error[triangle], sums.moment, sums.moment_error)
    header = _STATE_HEADER.pack(STATE_FORMAT, dim, state.version, sums.observations)
    return header + b"".join(map(vector_to_bytes, numbers))


def bytes_to_state(data: bytes) -> LearnerState:
    """Inverse of ``state_to_bytes``, bit for bit."""
    state_format, dim, version, observations = _STATE_HEADER.unpack_from(data)
    if state_format != STATE_FORMAT:
        raise ValueError(f"learner state of unknown format {state_format}")
    numbers = np.frombuffer(data, dtype="<f8", offset=_STATE_HEADER.size).astype(np.float64)
    half = dim * (dim + 1) // 2
    gram, gram_error, moment, moment_error = np.split(numbers, [half, 2 * half, 2 * half + dim])
    sums = RidgeSums(_symmetric(gram, dim), moment, _symmetric(gram_error, dim), moment_error, observations)
    return LearnerState(version, sums)


def _symmetric(packed: Vector, dim: int) -> Matrix:
    rows, columns = _triangle(dim)
    full = np.empty((dim, dim))
    full[rows, columns] = packed
    full[columns, rows] = packed
    return full
