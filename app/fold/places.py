"""The sums of places of lists, folded with those of arms, and their fit.

The sums of a partition only grow, or lose the rewards of a forgotten key. The fit alone lets them fade, in
its version of the effects (``PlaceFit``): so the fold stays a sum, in any order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec
import numpy as np

from app.bandits.effect_version import PlaceFit
from app.fold.entry_rows import changes_of
from app.records.log_entries import RewardEntry
from app.records.place_sums import MOST_LEARNED_PLACES, PlaceSums
from app.storage.types import LogEntry
from shortlist.linear import places
from shortlist.linear.discounted_sums import exact_sum
from shortlist.linear.places import PlaceNumbers
from shortlist.types import Vector

MOVED = 0.01  # of how likely a place is looked at, from which on a version is made
WEIGHT_MOVED = 0.05  # of a weight, by itself


def with_entry(sums: PlaceSums, entry: LogEntry, reward: RewardEntry, *, sign: Literal[1, -1]) -> PlaceSums:
    """The sums of a place with an entry added, or taken back. Of bandits of one reward alone."""
    if reward.at_place is None:
        return sums
    place, examined = reward.at_place.place, 1.0 if reward.examined is None else reward.examined
    n, M, Y, V, Y_error, V_error = (
        [*numbers, *(0.0,) * (place + 1 - len(numbers))]
        for numbers in (sums.n, sums.M, sums.Y, sums.V, sums.Y_error, sums.V_error)
    )
    worth = reward.expected[0] + (reward.served[0] if reward.served else 0.0)
    below = sums.below
    for (value,), (before,), begins in changes_of(entry, reward):
        rho = 0.0 if begins else before - examined * worth
        change = value - examined * worth if begins else value
        if begins:
            n[place] += sign
            M[place] += sign * max(worth, 0.0)
        Y[place], Y_error[place] = exact_sum(Y[place], Y_error[place], sign * value, 0.0)
        squares = sign * ((rho + change) ** 2 - rho**2)
        V[place], V_error[place] = exact_sum(V[place], V_error[place], squares, 0.0)
        below += sign * (int(value < 0.0) if begins else int(before + value < 0.0) - int(before < 0.0))
    return msgspec.structs.replace(
        sums,
        version=sums.version + (sign > 0),
        n=tuple(n),
        M=tuple(M),
        Y=tuple(Y),
        V=tuple(V),
        Y_error=tuple(Y_error),
        V_error=tuple(V_error),
        below=below,
    )


def fitted_places(
    before: PlaceFit | None,
    parts: Sequence[PlaceSums],
    *,
    may_be_below: bool,
    stated: Sequence[float] | None = None,
) -> PlaceFit | None:
    """The fit of the sums of all partitions; None: no list was rewarded.

    ``before``: the fit of the version before. ``may_be_below``: rewards may be less than 0, by the settings.
    ``stated``: p of the places in use, which bounds the weights; the fitted p waits for a change to ``auto``.
    """
    if not parts:
        return before
    part_sums = _added(parts)
    if before is not None and before.all_sums == _lists(part_sums):
        return before
    numbers = PlaceNumbers(*np.zeros((4, MOST_LEARNED_PLACES)))
    since = part_sums
    if before is not None:
        numbers = PlaceNumbers(*map(np.array, before.sums))
        since = PlaceNumbers(
            *(later - np.array(earlier) for later, earlier in zip(part_sums, before.all_sums, strict=True))
        )
    numbers = places.faded(numbers, since)
    is_below = may_be_below or any(part.below > 0 for part in parts)
    held = None
    if stated is not None:
        held = np.pad(np.array(stated), (0, MOST_LEARNED_PLACES - len(stated)), mode="edge")
    p, w = np.ones((2, MOST_LEARNED_PLACES)) if is_below else places.fit(numbers, held)
    return PlaceFit(_shown(p), _shown(w), _lists(numbers), _lists(part_sums), is_below)


def have_moved(before: PlaceFit | None, after: PlaceFit | None, *, only_if_far: bool) -> bool:
    """Return whether a version is due for the places."""
    if after is None or after is before:
        return False
    ones = (1.0,) * MOST_LEARNED_PLACES
    p, w = (ones, ones) if before is None else (before.p, before.w)
    apart = np.abs(np.array(after.p) - np.array(p)).max()
    weights_apart = np.abs(np.log(np.array(after.w) / np.array(w))).max()
    is_told = before is None or before.is_below != after.is_below
    if not only_if_far:
        return is_told or bool(apart or weights_apart)
    return is_told or bool(apart > MOVED or weights_apart > WEIGHT_MOVED)


def _shown(numbers: Vector) -> list[float]:
    """As tokens have them, so that what was served is what is learned from."""
    rounded: list[float] = numbers.astype(np.float16).astype(float).tolist()
    return rounded


def _lists(numbers: PlaceNumbers) -> list[list[float]]:
    return [row.tolist() for row in numbers]


def _added(parts: Sequence[PlaceSums]) -> PlaceNumbers:
    total = np.zeros((4, MOST_LEARNED_PLACES))
    for part in parts:
        part_numbers = np.array([part.n, part.M, part.Y, part.V])
        part_numbers[2] -= part.Y_error
        part_numbers[3] -= part.V_error
        total[:, : part_numbers.shape[1]] += part_numbers
    return PlaceNumbers(*total)
