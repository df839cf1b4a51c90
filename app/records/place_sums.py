"""Places of lists: how likely the arm at each is looked at, and how noisy rewards are there.

A token has both numbers of each place of its list, as float16 from the second place on: at the first both are
1. So a decision is learned by the numbers of its choice, whoever folds its rewards, and when.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

MOST_LEARNED_PLACES = 20  # further ones are as the last
PLACE_BYTES = 4  # of each place from the second on

Numbers = tuple[float, ...]


class AtPlace(NamedTuple):
    """The place of an arm, from 0 to the last of ``MOST_LEARNED_PLACES``, and the weight of a reward
    there.
    """

    place: int
    weight: float


class PlaceSums(msgspec.Struct, frozen=True, array_like=True):
    """Sums of the rewards of one partition by places of lists, for each: see ``shortlist.linear.places``.

    ``version``     number of added entries
    ``n``           number of decisions; ``Y`` their rewards, ``M`` the expected rewards of their arms if
                    looked at, where above 0, ``V`` squared residuals
    ``Y_error``, ``V_error``   subtracted errors, as in ``ArmSums``
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
    """The probability of a look at a place, and the weight of a reward there. ``place``: from 0."""
    if not place or not data:
        return 1.0, 1.0
    both: tuple[float, float] = struct.unpack_from(
        "<2e", data, min(PLACE_BYTES * (place - 1), len(data) - PLACE_BYTES)
    )
    return both
