"""The candidates in the row of a decision: at most ``MOST_LOGGED_BYTES``, compressed.

They are beside the token in the row, not in the token. So a row made of its token alone has none: a reward
makes one where the row of the choice was lost, and an activation always.
"""

from __future__ import annotations

import zlib

import msgspec
import numpy as np
from numpy.typing import NDArray

from shortlist.types import Matrix

MOST_LOGGED_BYTES = 16 << 10
LEFT_OUT = b""
_SAMPLE = 4 << 10  # of the numbers, which tells how short they can be made in a tenth of the time
_encode = msgspec.msgpack.Encoder().encode


class LoggedCandidates(msgspec.Struct, frozen=True, array_like=True):
    """``ids``: of all, in the caller's order.

    ``own``         places of the arms of the request alone, from 0, ascending
    ``features``    of these, float32, one arm after the other
    ``documents``   of these, as ``StoredArm`` has them; empty where no reader needs them
    ``said``        places of the arms with the request's numbers (``match``), ascending
    ``match``       these numbers, float32, one arm after the other
    ``match_dim``   count of a request's numbers for an arm
    """

    ids: list[str]
    own: list[int] = []
    features: bytes = b""
    documents: list[bytes] = []
    said: list[int] = []
    match: bytes = b""
    match_dim: int = 0

    @property
    def own_features(self) -> Matrix:
        """The features of the request's own arms. Shape: (own, d)."""
        return np.frombuffer(self.features, dtype="<f4").astype(np.float64).reshape(len(self.own), -1)

    @property
    def said_numbers(self) -> NDArray[np.float32]:
        """The request's numbers of arms. Shape: (said, m)."""
        return np.frombuffer(self.match, dtype="<f4").astype(np.float32).reshape(len(self.said), -1)


def candidates_bytes(candidates: LoggedCandidates) -> bytes:
    """Packed and compressed; ``LEFT_OUT`` of what is too large.

    Cost: 10 us of 200 ids, 100 us of 16 kB of numbers, 30 us of what is left out for its numbers.
    """
    for numbers in (candidates.features, candidates.match):
        if len(numbers) > MOST_LOGGED_BYTES:
            sample = numbers[:_SAMPLE]
            if len(zlib.compress(sample, 1)) * len(numbers) > MOST_LOGGED_BYTES * len(sample):
                return LEFT_OUT
    packed = zlib.compress(_encode(candidates), 1)
    return packed if len(packed) <= MOST_LOGGED_BYTES else LEFT_OUT


def candidates_of(data: bytes) -> LoggedCandidates | None:
    """Unpack the candidates; None if left out."""
    if data == LEFT_OUT:
        return None
    return msgspec.msgpack.decode(zlib.decompress(data), type=LoggedCandidates)
