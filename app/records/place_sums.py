"""What lists say of their places: how likely the arm at each is looked at, and how noisy rewards are there.

A token has both numbers of each place of its list, as float16 from the second place on: at the first both are
1. So a decision is learned by what it was made with, whoever folds its rewards, and when.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

MOST_LEARNED_PLACES = 20  # further ones are as the last

Numbers = tuple[float, ...]


class AtPlace(NamedTuple):
    """Where an arm stood, from 0 to the last of ``MOST_LEARNED_PLACES``, and what a reward weighs there."""

    place: int
    weight: float


class PlaceSums(msgspec.Struct, frozen=True, array_like=True):
    """What the rewards of one partition say of the places of lists, of each: see ``shortlist.linear.places``.

    ``version``     how many entries were added
    ``n``           how many decisions; ``Y`` their rewards, ``M`` what was expected of their arms if they are
                    looked at, where that is above 0, ``V`` squared residuals
    ``Y_error``, ``V_error``   what is to be taken off, as in ``ArmSums``
    ``below``       how many decisions earned less than 0
    ``space``       always 0: a place is one in any catalogue
    """

    version: int = 0
    n: Numbers = ()
    M: Numbers = ()
    Y: Numbers = ()
    V: Numbers = ()
    Y_error: Numbers = ()
    V_error: Numbers = ()
    below: int = 0
    space: int = 0


def places_to_bytes(examination: Sequence[float], weights: Sequence[float], count: int) -> bytes:
    """Both numbers of the first ``count`` places, as a token has them."""
    last = min(count, len(examination))
    numbers = [number for both in zip(examination[1:last], weights[1:last], strict=True) for number in both]
    return struct.pack(f"<{len(numbers)}e", *numbers)


def examined_at(data: bytes, place: int) -> tuple[float, float]:
    """How likely a place is looked at, and what a reward weighs there. ``place``: from 0."""
    if not place or not data:
        return 1.0, 1.0
    both: tuple[float, float] = struct.unpack_from("<2e", data, min(4 * (place - 1), len(data) - 4))
    return both
