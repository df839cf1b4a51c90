"""What the row of a decision keeps of its candidates: at most ``MOST_LOGGED_BYTES``, compressed.

It stands beside the token in the row, not in it. So a row that is made of its token alone has none: a reward
makes one where the row of the choice was lost, and an activation always.
"""

from __future__ import annotations

import zlib

import msgspec
import numpy as np

from shortlist.types import Matrix

MOST_LOGGED_BYTES = 16 << 10
LEFT_OUT = b""
_PIECE = 4 << 10  # is compressed at a time, so that what is too large is given up early
_encode = msgspec.msgpack.Encoder().encode


class LoggedCandidates(msgspec.Struct, frozen=True, array_like=True):
    """``ids``: of all, in the caller's order.

    ``own``         places of the arms of the request alone, from 0, ascending
    ``features``    of these, float32, one arm after the other
    ``documents``   of these, as ``StoredArm`` has them; empty where nothing had to read them
    """

    ids: list[str]
    own: list[int] = []
    features: bytes = b""
    documents: list[bytes] = []

    @property
    def own_features(self) -> Matrix:
        """Of the arms of the request. Shape: (own, d)."""
        return np.frombuffer(self.features, dtype="<f4").astype(np.float64).reshape(len(self.own), -1)


def candidates_bytes(candidates: LoggedCandidates) -> bytes:
    """Packed and compressed; ``LEFT_OUT`` of what is too large. Cost: half a millisecond at most, or so."""
    packed, compressor = _encode(candidates), zlib.compressobj(1)
    pieces, size = list[bytes](), 0
    for start in range(0, len(packed), _PIECE):
        pieces.append(compressor.compress(packed[start : start + _PIECE]))
        size += len(pieces[-1])
        if size > MOST_LOGGED_BYTES:
            return LEFT_OUT
    pieces.append(compressor.flush())
    return LEFT_OUT if size + len(pieces[-1]) > MOST_LOGGED_BYTES else b"".join(pieces)


def candidates_of(data: bytes) -> LoggedCandidates | None:
    """What was packed; None if it was left out."""
    if data == LEFT_OUT:
        return None
    return msgspec.msgpack.decode(zlib.decompress(data), type=LoggedCandidates)
