"""The format of campaigns in the store: msgpack. Also the size of a state in memory.

An array is stored as [dtype, shape, bytes], a float as its eight bytes, so a state is restored bit for bit.
No format here can run code when it is read.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

import msgspec
import numpy as np

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
    """What a campaign was made with. ``seed`` None: its seed follows from its uid (``fold.seed_of``)."""

    seed: int | None
    parameters: bytes


def options_of(parameters: msgspec.Struct, names: Iterable[str]) -> dict[str, Any]:
    """The values of those fields of a campaign's parameters that are among ``names``."""
    known = set(names)
    return {name: getattr(parameters, name) for name in parameters.__struct_fields__ if name in known}


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
