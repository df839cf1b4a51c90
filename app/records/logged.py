"""The decision log's record of a decision and its rewards, beyond the fields of the token.

The token of a logged decision holds a ``LogPart``, from which its row can be made. The fields of the request
(``LoggedRequest``) are packed there, behind a byte for the format:

    1       msgpack
    2       msgpack, compressed
    none    larger than ``MOST_ASKED`` bytes, left out

A reward takes ``REWARD_BYTES`` at the end of the row, which a script can append without reading the row. The
highest 16 bits of a reward's time are the number of earlier rewards replaced.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

PLAIN, COMPRESSED = b"\x01", b"\x02"
FEW_BYTES = 256  # what is shorter is hardly made shorter
MOST_PACKED = 2**14  # what is longer is not even compressed: that would take longer than a choice
MOST_ASKED = 2**11
LEFT_OUT = b""
# place, value, ms after the decision, default + 2 (1 + place of the signal) + LAST
_REWARD = struct.Struct("<HdqB")
_LAST, _TIMES = 1 << 6, 48  # of the kind: only the last counts; bits of the time, behind which it is counted
REWARD_BYTES = _REWARD.size
_encode = msgspec.msgpack.Encoder().encode


class LoggedRequest(msgspec.Struct, frozen=True, array_like=True):
    """The fields of a request. ``filter``: without the bandit's. ``pins``: arm and place.

    ``diverse``: weight and over.
    """

    k: int = 1
    exclude: list[str] = []
    event_id: str | None = None
    arms: list[str] | None = None
    filter: dict[str, Any] | None = None
    pins: list[tuple[str, int]] = []
    at_most: list[tuple[str, int]] = []
    diverse: tuple[float, str] | None = None


class LogPart(msgspec.Struct, frozen=True, array_like=True):
    """The fields of a row besides the decision.

    ``numbers``   float64: the scores of all arms, then their propensities if there are any
    ``seed``      repeats the choice; ``seeded``: given by the request, else drawn
    ``pinned``    places of the pinned arms, from 0
    ``asked``     see the module; None: nothing besides one arm
    ``closed``    the last known change of quotas, and its time by the store's clock: quotas closed then;
                  None: none was; a text, in tokens and rows of version 2: the excluded arms, which are not
                  read any more; "": none was
    ``is_told``   ``closed`` and ``had`` name all arms which were not eligible
    ``had``       arms or values shown to the key too often (``exposure_limits.exposures``)
    ``prior_version``  of the learned prior, 0: none yet; None: the bandit had another prior
    ``effects_version``  of the arm effects, 0: none were found; None: the bandit had none
    ``has_candidates``  the request named its candidates; they are beside the token in the row
    ``agreement``  of the holdout's list, in the caller's order, with the policy's: whether the first arm is
                   the same, and the share of common arms; None: not ranked
    """

    policy: str
    learner_version: int
    catalogue_version: int
    numbers: bytes
    seed: int
    seeded: bool = False
    eligible: int | None = None
    group: str | None = None
    pinned: list[int] = []
    asked: bytes | None = None
    closed: tuple[str, int] | str | None = None
    had: list[str] = []
    prior_version: int | None = None
    effects_version: int | None = None
    is_told: bool = True
    has_candidates: bool = False
    agreement: tuple[bool, float] | None = None


class RewardOfRow(NamedTuple):
    """``place``: of its arm, from 0. ``default``: the value of a reward which did not come in time.

    ``signal``: its place among those of the bandit; None of a bandit without signals, and of a default.
    ``is_last``: of its arm and signal only the last counts; ``revised`` others were replaced.
    """

    place: int
    value: float
    after_ms: int
    default: bool
    signal: int | None = None
    is_last: bool = False
    revised: int = 0


def asked_bytes(asked: LoggedRequest) -> bytes | None:
    """At most ``MOST_ASKED`` bytes. Cost: below a millisecond for what is not larger than ``MOST_PACKED``."""
    if asked == LoggedRequest():
        return None
    packed = _encode(asked)
    if len(packed) <= FEW_BYTES:
        return PLAIN + packed
    if len(packed) > MOST_PACKED:
        return LEFT_OUT
    packed = COMPRESSED + zlib.compress(packed, 1)
    return packed if len(packed) <= MOST_ASKED else LEFT_OUT


def asked_of(data: bytes | None) -> LoggedRequest | None:
    """Unpack the request; None if left out."""
    if data is None:
        return LoggedRequest()
    if data == LEFT_OUT:
        return None
    packed = zlib.decompress(data[1:]) if data[:1] == COMPRESSED else data[1:]
    return msgspec.msgpack.decode(packed, type=LoggedRequest)


def reward_bytes(reward: RewardOfRow) -> bytes:
    kind = reward.default + (0 if reward.signal is None else 2 * (reward.signal + 1))
    after_ms = reward.after_ms
    if reward.is_last:
        kind, after_ms = kind + _LAST, min(max(after_ms, 0), (1 << _TIMES) - 1)
    return _REWARD.pack(reward.place, reward.value, after_ms, kind)


def rewards_of(data: bytes) -> Iterator[RewardOfRow]:
    """The rewards at the end of a row, in the order in which they came."""
    for number, value, after_ms, kind in _REWARD.iter_unpack(data):
        signal, revised = kind % _LAST // 2, 0
        if kind & _LAST:
            revised = after_ms >> _TIMES & (1 << 64 - _TIMES) - 1
        came_ms = after_ms & (1 << _TIMES) - 1 if kind & _LAST else after_ms
        of = signal - 1 if signal else None
        yield RewardOfRow(number, value, came_ms, bool(kind % 2), of, bool(kind & _LAST), revised)
