"""Limits on the arms of one choice with the same value of a field, counted while its places are filled.

Notation
    n           considered rows
    v           pairs of such a row and one of its values in a limited field
    remaining   of a value: number of further arms allowed

Taken arms count: pinned arms first. An arm without the field is never blocked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from app.catalogues.learner_snapshot import LearnerSnapshot
from app.filters.coded_values import Small, ascending, coded, coded_among
from app.filters.columns import spread
from app.filters.fields import Value
from app.indexes.snapshot import Snapshot
from app.selection.arm_effects import EffectSolver
from shortlist.types import NO_ROWS, MipsSolver, Rows, TopK, Vector

OVERSAMPLING = 4
FULL_RANKING_DIVISOR = 16  # one of so many arms is asked for: then a ranking of all costs little more
_FIRST = 64  # rows that are looked at together


class Limit(Protocol):
    """A limit on the arms of one choice in each of some groups. An arm is in any number of groups.

    ``field``: of metadata, with a group for each value; None: other groups.
    """

    @property
    def field(self) -> str | None: ...

    def pairs(self, arms: Snapshot, rows: Rows) -> tuple[Small, Small, Rows]:
        """The pairs of a position in ``rows`` and the code of a group of its arm: positions (v,), codes (v,).

        Codes count from 0. Then how many arms there may be of each code, those of ``rows`` included. What is
        known of a row: ``arms.attributes`` (``coded`` reads a field), ``arms.table.features``, and
        ``arms.table.revisions`` (K,), which grow with every write of an arm. Cost: O(n + v).
        """
        ...


@dataclass(frozen=True, slots=True)
class AtMost:
    """At most ``count`` arms of one choice share a value of ``field``."""

    field: str
    count: int

    def pairs(self, arms: Snapshot, rows: Rows) -> tuple[Small, Small, Rows]:
        values = coded(arms.attributes, self.field, rows)
        return values.places, values.codes, np.full(values.count, self.count)


@dataclass(frozen=True, slots=True, eq=False)
class CappedValues:
    """A limit on the arms of some values of ``field``; other values are unlimited."""

    field: str
    left: Sequence[tuple[Value, int]]

    def pairs(self, arms: Snapshot, rows: Rows) -> tuple[Small, Small, Rows]:
        places, codes = coded_among(arms.attributes, self.field, rows, [value for value, _ in self.left])
        return places, codes, np.array([left for _, left in self.left])


@dataclass(frozen=True, slots=True, eq=False)
class Limits:
    """All limits of one choice, and the rows ``taken`` for it."""

    each: Sequence[Limit]
    arms: Snapshot
    taken: Rows

    def after(self, rows: Rows) -> Limits:
        """With these rows taken as well, whether they were allowed or not."""
        return replace(self, taken=np.concatenate((self.taken, rows)))

    def take_allowed(self, rows: Rows, most: int) -> Rows:
        """The positions of the allowed rows, at most ``most``, taken in the order of ``rows``.

        Cost: O(n + v) of the rows up to the last one, in growing blocks.
        """
        # Blocks grow: mostly the first rows suffice, and their values alone are read.
        limits, start, size, allowed = self, 0, max(_FIRST, OVERSAMPLING * most), NO_ROWS
        while start < len(rows) and len(allowed) < most:
            block = rows[start : start + size]
            positions = limits.over(block).take_in_order(most - len(allowed))
            limits = limits.after(block[positions])
            allowed = np.concatenate((allowed, positions + start))
            start, size = start + size, OVERSAMPLING * size
        return allowed

    def over(self, rows: Rows) -> AllowedRows:
        """The next allowed rows, out of ``rows``."""
        return AllowedRows(self, rows)


class AllowedRows:
    """The state of some distinct rows: allowed next, or barred. ``barred``: true of rows that may not be
    taken (n,).

    Costs O(n + v) to make, and O(n + v) for all calls of ``take`` together: a full value bars its rows once.
    """

    def __init__(self, limits: Limits, rows: Rows) -> None:
        remaining, positions, codes = self._pairs(limits, rows)
        # One memory, seen in two ways: numpy writes, and ``bytearray.find`` finds the next allowed row.
        self._bytes = bytearray(len(rows))
        self.barred = np.frombuffer(self._bytes, dtype=np.bool_)
        self.barred[positions[remaining[codes] <= 0]] = True
        # A value bars nothing if all its arms may be taken.
        is_scarce = (np.bincount(codes, minlength=len(remaining)) > remaining) & (remaining > 0)
        is_limited = is_scarce[codes]
        positions, codes = positions[is_limited], codes[is_limited]
        order = ascending(codes)
        positions, codes = positions[order], codes[order]
        self._remaining = remaining
        self._rows_of, self._rows_from = positions, codes.searchsorted(np.arange(len(remaining) + 1))
        order = ascending(positions)
        positions, codes = positions[order], codes[order]
        # a list of an arm may have the same value twice: it counts once
        once = np.ones(len(codes), dtype=np.bool_)
        once[1:] = (codes[1:] != codes[:-1]) | (positions[1:] != positions[:-1])
        self._codes_of = codes[once]
        self._codes_from = positions[once].searchsorted(np.arange(len(rows) + 1))

    @staticmethod
    def _pairs(limits: Limits, rows: Rows) -> tuple[Rows, Small, Small]:
        """The remaining numbers of all values, and the pairs: positions of rows, and values."""
        taken_count = len(limits.taken)
        both = np.concatenate((limits.taken, rows)) if taken_count else rows
        positions: list[Small] = []
        codes: list[Small] = []
        remaining: list[Rows] = []
        count = 0
        for limit in limits.each:
            own_positions, own_codes, left = limit.pairs(limits.arms, both)
            if taken_count:
                is_taken = own_positions < taken_count
                # Unique: an arm may have a value twice, and takes one place.
                pairs = own_codes[is_taken].astype(np.int64) * taken_count + own_positions[is_taken]
                left = left - np.bincount(np.unique(pairs) // taken_count, minlength=len(left))
                own_positions, own_codes = (
                    own_positions[~is_taken] - np.int32(taken_count),
                    own_codes[~is_taken],
                )
            remaining.append(left)
            positions.append(own_positions)
            codes.append(own_codes + np.int32(count))
            count += len(left)
        return np.concatenate(remaining), np.concatenate(positions), np.concatenate(codes)

    def take(self, position: int) -> Rows:
        """Count the row at this position; return the newly barred positions, its own first."""
        self.barred[position] = True
        codes = self._codes_of[self._codes_from[position] : self._codes_from[position + 1]]
        if not len(codes):
            return np.array([position])
        self._remaining[codes] -= 1
        full = codes[self._remaining[codes] == 0]
        _, pairs = spread(self._rows_from[full], self._rows_from[full + 1])
        others = self._rows_of[pairs]
        self.barred[others] = True
        return np.concatenate(([position], others))

    def take_in_order(self, most: int) -> Rows:
        """Take one row after the other while any may be taken, at most ``most``; returns their positions."""
        positions: list[int] = []
        position = self._bytes.find(0)
        while position >= 0 and len(positions) < most:
            self.take(position)
            positions.append(position)
            position = self._bytes.find(0, position)
        return np.array(positions, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class LimitedSolver:
    """The best arms of ``solver`` within the limits.

    While too few arms are allowed the solver is asked for more, at last for all arms in order. Cost: at most
    a few rankings of all arms.
    """

    arms: LearnerSnapshot
    solver: MipsSolver
    limits: Limits

    def search(self, query: Vector, k: int, exclude: Rows = NO_ROWS) -> TopK:
        request, ranking = k, self.solver if isinstance(self.solver, EffectSolver) else self.arms
        while True:
            is_last = request > k and FULL_RANKING_DIVISOR * request >= self.arms.size
            if is_last:
                hits = ranking.search_exact(query, max(self.arms.size, 1), exclude)
            else:
                hits = self.solver.search(query, request, exclude)
            positions = self.limits.take_allowed(hits.rows, k)
            if is_last or len(positions) == k or len(hits.rows) < request:
                return TopK(hits.rows[positions], hits.scores[positions], hits.exact)
            request *= OVERSAMPLING
