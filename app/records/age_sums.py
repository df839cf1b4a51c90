"""What rewards say of the ages of arms: how old each arm was, in the token, and sums of each bin of ages.

A token has of each arm its bin when it was chosen, and what of its effect was due to its age, as the upper
half of a float32. So a decision is learned by what it was made with, whoever folds its rewards, and when.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from shortlist.linear.ages import BINS, FROM_S, bin_of
from shortlist.types import Vector

AGE_BYTES = 3
_NO_AGE = b"\xff\0\0"
_PAIR_BYTES = 8  # of one arm, and one signal: what stands before the ages
_MOST_KEPT = 1_024  # arms that came at different times, whose bytes are kept: about 300 kB
_EVER = 1 << 63
_NOT_KEPT = _EVER, 0, b""

Numbers = tuple[float, ...]
_ZEROS: Numbers = (0.0,) * BINS


class AtAge(NamedTuple):
    """The bin of the age of an arm when it was chosen, and what of its effect was due to its age."""

    bin: int
    effect: float


class AgeSums(msgspec.Struct, frozen=True, array_like=True):
    """What the rewards of one partition say of ages, of each bin: see ``shortlist.linear.ages``.

    ``version``     how many entries were added
    ``n``, ``R``    of all time; ``R_error`` is to be taken off ``R``, as in ``ArmSums``
    ``space``       always 0: an age is one in any catalogue
    """

    version: int = 0
    n: Numbers = _ZEROS
    R: Numbers = _ZEROS
    R_error: Numbers = _ZEROS
    space: int = 0


def as_in_tokens(effects: Vector) -> list[float]:
    """What ages add, as tokens have it, so that what was served is what is learned from. Shape: (n,)."""
    bits = effects.astype("<f4").view("<u4") & 0xFFFF0000
    found: list[float] = bits.view("<f4").astype(float).tolist()
    return found


def halves_of(effects: Sequence[float]) -> list[bytes]:
    """What a token has of each of these effects, which are ``as_in_tokens``: the upper half of a float32."""
    return [struct.pack("<f", effect)[2:] for effect in effects]


class TokenAges:
    """The ages of arms as tokens have them while one version serves.

    ``since_ms``: when it was made. ``effects``: what each bin adds by it, ``as_in_tokens``.
    """

    def __init__(self, since_ms: int, effects: Sequence[float]) -> None:
        self._since_ms = since_ms
        self._halves = halves_of(effects)
        # By when an arm came: from when to when its bytes are these.
        self._kept: dict[int, tuple[int, int, bytes]] = {}

    def of(self, came_ms: Sequence[int], now_ms: int) -> bytes:
        """The bytes of some arms; b"" if the age of none is known. ``came_ms``: 0 where that is not known."""
        if not any(came_ms):
            return b""
        parts: list[bytes] = []
        kept = self._kept
        for came in came_ms:  # a choice pays for each line here
            from_ms, until_ms, part = kept.get(came, _NOT_KEPT)
            if not from_ms <= now_ms < until_ms:
                part = self._of_one(came, now_ms) if came else _NO_AGE
            parts.append(part)
        return b"".join(parts)

    def _of_one(self, came: int, now_ms: int) -> bytes:
        age_bin = bin_of(now_ms - came)
        part = bytes([age_bin]) + self._halves[bin_of(self._since_ms - came)]
        from_ms = came + 1_000 * FROM_S[age_bin] if age_bin else 0
        until_ms = came + 1_000 * FROM_S[age_bin + 1] if age_bin + 1 < BINS else _EVER
        if len(self._kept) >= _MOST_KEPT:
            self._kept.clear()
        self._kept[came] = from_ms, until_ms, part
        return part


NOTHING_ADDED = TokenAges(0, [0.0] * BINS)


def age_at(data: bytes, number: int, arms: int) -> AtAge | None:
    """The age of one of so many arms, after their pairs; None: it is not known."""
    begin = len(data) // (_PAIR_BYTES * arms) * _PAIR_BYTES * arms
    if begin == len(data):
        return None
    own = data[begin + AGE_BYTES * number : begin + AGE_BYTES * (number + 1)]
    if own == _NO_AGE:
        return None
    (effect,) = struct.unpack("<f", b"\0\0" + own[1:])
    return AtAge(own[0], effect)
