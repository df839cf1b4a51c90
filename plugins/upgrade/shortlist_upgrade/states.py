"""States of learners, and sums of arms: the numbers stay, to the bit."""

from __future__ import annotations

import math
import struct
from typing import Any

import msgspec

# Formats of a state. The first three are of 0.1 and have no squared rewards; of the second one its weight is
# the number of observations.
_PLAIN, _UNWEIGHED, _DISCOUNTED = 1, 2, 3
_WITH_SQUARES = {_PLAIN: 4, _UNWEIGHED: 5, _DISCOUNTED: 5}
_OBSERVATIONS = struct.Struct("<16xQ")  # at the end of the header
_DISCOUNT_BYTES = 16  # time and half-life, behind the header
_ERRORS = 11  # place of the errors of R and Q in the sums of an arm; those of 2.0.0 end before
_BYTES_OF_ALL = b""


def new_state(data: bytes) -> bytes:
    """The state of a learner. Squares that are unknown are so for good."""
    kind = data[0]
    if kind not in _WITH_SQUARES:
        return data
    start = _OBSERVATIONS.size + _DISCOUNT_BYTES
    if kind == _UNWEIGHED:
        (observations,) = _OBSERVATIONS.unpack_from(data)
        data = data[:start] + struct.pack("<d", observations) + data[start:]
    return bytes([_WITH_SQUARES[kind]]) + data[1:] + struct.pack("<dd", math.nan, 0.0)


def new_arm_sums(field: bytes, value: bytes) -> tuple[bytes, bytes] | None:
    """2.0.0 had the sums of the newest revision of an arm under its id."""
    if field == _BYTES_OF_ALL:
        return None
    if b" " in field:
        return field, value
    sums: list[Any] = msgspec.msgpack.decode(value)
    if len(sums) < _ERRORS:
        sums += [[0.0] * len(sums[-2]), [0.0] * len(sums[-1])]
    return b"%s %d" % (field, sums[3]), msgspec.msgpack.encode(sums)
