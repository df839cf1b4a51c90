"""The sums of arms of all partitions as arrays, and which of them count (``arm_effects``, "Sizes").

Sums of several partitions of one revision of an arm are added: all are faded to one time first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from app.records.age_sums import AgeSums
from app.records.arm_sums import ArmSums, MergedSums
from app.records.place_sums import PlaceSums
from app.records.records import unpack
from app.storage.arm_effects import AGES, MERGED, PLACES, SumsOf
from shortlist.linear import arm_effects
from shortlist.linear.arm_effects import EffectSums
from shortlist.types import Matrix, Rows

Sums: TypeAlias = ArmSums | MergedSums
Numbers: TypeAlias = NDArray[np.float64]
"""n, R, Q and F, of each signal, of some sums. Shape: (4, J, P)."""
POWERS = np.array([1.0, 1.0, 2.0, 2.0])[:, None, None]
"""Of a weight or a factor, in n, R, Q and F."""


class Step(NamedTuple):
    """Sums of one revision of an arm. ``is_merged``: they are ``MergedSums``."""

    arm: str
    revision: int
    is_merged: bool = False


class Totals(NamedTuple):
    """The sums of each step over all partitions, faded to one time; ``decisions``: of the counted sums.

    An arm has all its steps, also steps without a counted sum. Shape: numbers (4, J, P).
    """

    places: Mapping[Step, int]
    numbers: Numbers
    decisions: int


def sums_of(revision: int, data: bytes) -> Sums:
    """The stored sums of a revision."""
    return unpack(data, MergedSums) if revision == MERGED else unpack(data, ArmSums)


def step_of(arm: str, sums: Sums) -> Step:
    return Step(arm, sums.revision, isinstance(sums, MergedSums))


def numbers_of(
    owns: Sequence[Sums], signals: int, *, half_life_s: float | None = None, until_ms: int = 0
) -> Numbers:
    """The numbers of some sums, faded to ``until_ms``. Older sums have 0 of a newer signal."""
    numbers = np.array(
        [_of_signals([getattr(sums, name) for sums in owns], signals) for name in ("n", "R", "Q", "F")]
    )
    return numbers if half_life_s is None else numbers * weights_of(owns, half_life_s, until_ms) ** POWERS


def weights_of(owns: Sequence[Sums], half_life_s: float, until_ms: int) -> Numbers:
    """The weights by ``until_ms`` of a reward of the time of each of these sums. Shape: (P,)."""
    times = np.array([sums.time_ms for sums in owns], dtype=float)
    weights: Numbers = np.exp2(np.minimum(times - until_ms, 0.0) / (1_000.0 * half_life_s))
    return weights


def _of_signals(numbers: Sequence[float | tuple[float, ...]], signals: int) -> Matrix:
    """Shape: (J, P)."""
    if all(isinstance(values, float) for values in numbers):
        return np.tile(np.array(numbers, dtype=float), (signals, 1))
    padded = [
        (*values, *(0.0,) * (signals - len(values)))[:signals]
        if isinstance(values, tuple)
        else (values,) * signals
        for values in numbers
    ]
    return np.array(padded, dtype=float).reshape(-1, signals).T


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """The sums of one partition. Shapes: ``places`` of their steps, ``decisions`` (P,), numbers (4, J, P)."""

    places: Rows
    numbers: Numbers
    sizes: Matrix
    decisions: Rows


class CollectedSums:
    """The sums of a bandit, partition by partition, of ``space`` alone, its newest move.

    ``half_life_s``, ``until_ms``: by the ``ArmClock``, whose half-life None stands for none.
    """

    def __init__(
        self, *, space: int, signals: int, half_life_s: float | None = None, until_ms: int = 0
    ) -> None:
        self._space, self._signals = space, signals
        self._half_life_s, self._until_ms = half_life_s, until_ms
        self._places = dict[Step, int]()
        self._parts = list[_Part]()
        self.places = list[PlaceSums]()  # of lists, one of each partition
        self.ages = list[AgeSums]()  # likewise

    def add(self, stored: Mapping[SumsOf, bytes]) -> dict[SumsOf, bytes]:
        """Take the sums of a partition, by arm and revision; return those of before a move."""
        owns, stale = list[tuple[str, Sums]](), dict[SumsOf, bytes]()
        for (arm, revision), data in stored.items():
            if revision == PLACES:
                self.places.append(unpack(data, PlaceSums))
                continue
            if revision == AGES:
                self.ages.append(unpack(data, AgeSums))
                continue
            sums = sums_of(revision, data)
            if sums.space == self._space:
                owns.append((arm, sums))
            elif sums.space < self._space:
                stale[arm, revision] = data
        self.add_sums(owns)
        return stale

    def add_sums(self, owns: Sequence[tuple[str, Sums]]) -> None:
        """Take the sums of a partition, by arm."""
        if not owns:
            return
        known_places, sums = self._places, [arm_sums for _, arm_sums in owns]
        places = np.array(
            [known_places.setdefault(step_of(arm, arm_sums), len(known_places)) for arm, arm_sums in owns]
        )
        numbers = numbers_of(sums, self._signals)
        sizes = np.array(
            [
                arm_effects.sizes(signal_sums, discounted=self._is_discounted)
                for signal_sums in by_signal(numbers)
            ]
        )
        if self._half_life_s is not None:
            numbers *= weights_of(sums, self._half_life_s, self._until_ms) ** POWERS
        decisions = np.array([arm_sums.decisions for arm_sums in sums])
        self._parts.append(_Part(places, numbers, sizes, decisions))

    def totals(self) -> Totals:
        """The totals of the counted sums: all but those far larger than usual and unconfirmed by others.

        Cost: O(sums).
        """
        if not self._parts:
            return Totals({}, np.zeros((4, self._signals, 0)), 0)
        largest = np.array([part.sizes.max(axis=1) for part in self._parts])
        usual = np.array([arm_effects.most_usual(of_signal) for of_signal in largest.T])[:, None]
        places = np.concatenate([part.places for part in self._parts])
        numbers = np.concatenate([part.numbers for part in self._parts], axis=2)
        sizes = np.concatenate([part.sizes for part in self._parts], axis=1)
        decisions = np.concatenate([part.decisions for part in self._parts])
        counts: NDArray[np.bool_] = np.all(sizes <= usual, axis=0)
        # Never subtracted again: huge uncounted sums would leave no digit of the others.
        totals = self._added(places[counts], numbers[:, :, counts])
        unusual = np.flatnonzero(~counts)
        if len(unusual):
            unusual_numbers = numbers[:, :, unusual]
            wholes = totals + self._added(places[unusual], unusual_numbers)
            others = wholes[:, :, places[unusual]] - unusual_numbers
            is_confirmed = [
                (size <= limit) | arm_effects.confirmed(mine, theirs, discounted=self._is_discounted)
                for size, limit, mine, theirs in zip(
                    sizes[:, unusual], usual, by_signal(unusual_numbers), by_signal(others), strict=True
                )
            ]
            counts[unusual] = np.all(is_confirmed, axis=0)
            counted = unusual[counts[unusual]]
            totals += self._added(places[counted], numbers[:, :, counted])
        return Totals(self._places, totals, int(decisions[counts].sum()))

    @property
    def _is_discounted(self) -> bool:
        return self._half_life_s is not None

    def _added(self, places: Rows, numbers: Numbers) -> Numbers:
        """Numbers by step. Shapes: (E,), (4, J, E) -> (4, J, P)."""
        steps = len(self._places)
        rows = numbers.reshape(4 * self._signals, -1)
        added = [np.bincount(places, weights=row, minlength=steps) for row in rows]
        return np.array(added, dtype=float).reshape(4, self._signals, steps)


def by_signal(numbers: Numbers) -> Sequence[EffectSums]:
    """The sums of each signal."""
    n, R, Q, F = numbers
    return [EffectSums(n[j], R[j], Q[j], F[j]) for j in range(len(n))]
