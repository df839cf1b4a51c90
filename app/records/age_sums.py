"""What rewards say of the ages of arms: how old each arm was, in the token, and sums of each bin of ages.

A token has of each arm its bin when it was chosen, and what of its effect was due to its age, as the upper
half of a float32. So a decision is learned by what it was made with, whoever folds its rewards, and when.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from shortlist.linear.ages import BINS, bin_of
from shortlist.types import Vector

AGE_BYTES = 3
_UNKNOWN = 255  # in place of a bin
_PAIR_BYTES = 8  # of one arm, and one signal: what stands before the ages
_HALF = 16  # bits of a float32

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


def ages_to_bytes(came_ms: Sequence[int], now_ms: int, effects: Sequence[float]) -> bytes:
    """The ages of some arms as a token has them; b"" if none is known.

    ``came_ms``: 0 where that is not known. ``effects``: what the age of each adds, ``as_in_tokens``.
    """
    if not any(came_ms):
        return b""
    parts = list[int]()
    for came, effect in zip(came_ms, effects, strict=True):
        parts.append(bin_of(now_ms - came) if came else _UNKNOWN)
        parts.append(_bits_of(effect) if effect else 0)
    return struct.pack("<" + "BH" * len(effects), *parts)


def age_at(data: bytes, number: int, arms: int) -> AtAge | None:
    """The age of one of so many arms, after their pairs; None: it is not known."""
    begin = len(data) // (_PAIR_BYTES * arms) * _PAIR_BYTES * arms
    if begin == len(data):
        return None
    age_bin, bits = struct.unpack_from("<BH", data, begin + AGE_BYTES * number)
    return None if age_bin == _UNKNOWN else AtAge(age_bin, float(np.uint32(bits << _HALF).view(np.float32)))


def _bits_of(effect: float) -> int:
    bits: int = struct.unpack("<I", struct.pack("<f", effect))[0]
    return bits >> _HALF
