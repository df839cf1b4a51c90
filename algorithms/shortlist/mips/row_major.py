"""Arms in rows, as they were given: nothing is prepared, and sampled coordinates are picked out of each row.

For vectors of the query, and for a permutation by the caller's seed. A sampled coordinate takes several times
as long as in a scan, or over ``blocked`` arms. So a search saves reads here before it saves time.

Notation: as in ``columns``. Without columns the rewards are f_j less the middle of the given range. All read
terms are compared with the range.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np

from shortlist import checks
from shortlist.mips import columns as column_values
from shortlist.mips.answer import Objective
from shortlist.mips.blocked import grain_of, rounded
from shortlist.mips.columns import Columns, Given
from shortlist.mips.read_costs import READS_ALONE, ReadCosts
from shortlist.mips.rewards import scores
from shortlist.types import Matrix, Rows, Vector

_ENTRIES = 2**16
_UNIT = 2.0**-53


class RowMajorRewards:
    """``Rewards`` over the rows of an array, in float64, the coordinates in a random order."""

    def __init__(
        self,
        vectors: Given,
        query: Given,
        *,
        rng: np.random.Generator,
        objective: Objective = "inner_product",
        value_range: tuple[float, float] | None = None,
        rows: Rows | None = None,
        columns: Columns | None = None,
        costs: ReadCosts = READS_ALONE,
    ) -> None:
        """Prepare a query; ``rng`` must be secret to the user. Without columns, a range must be given.

        ``value_range`` bounds every product q_j x_j, or (q_j - x_j)^2. ``columns`` are those of the arms.
        ``costs`` are those from which a search chooses its plan.
        Shapes: vectors (v, N), finite, of which the arms are ``rows`` (n,), or all; query (N,). The vectors
        are not checked here, for that would read everything. Cost: O(N).
        Raises: InvalidShape, NonFinite, InvalidParameter.
        """
        checks.shape("vectors", vectors, (None, None))
        self.query, _ = column_values.check_query(query, vectors.shape[1], objective)
        column_values.check_range(value_range)
        self.objective = objective
        self.costs = costs
        self.bounds = column_values.bounds(columns, self.query, objective, value_range)
        self.violated = self.bounds.violated
        self._vectors, self._rows = vectors, rows
        self._rng = rng
        self.reward_range = None if value_range is None else column_values.term_range(value_range, objective)
        self._base = self._bases(columns)
        # What lies outside the range is summed too.
        peak = float(np.abs(self._base).max()) + 2.0 * self.bounds.largest
        self.noise = (self.dim + 8) * _UNIT * peak
        self.sum_noise = self.whole_noise = self.noise * self.dim

    @property
    def size(self) -> int:
        """n: how many arms."""
        return len(self._vectors) if self._rows is None else len(self._rows)

    @property
    def dim(self) -> int:
        """N: how many coordinates."""
        return len(self.query)

    def root_mean_squares(self) -> None:
        """Nothing is known before it is read."""

    def rounded(self, t: float) -> int:
        """As ``CoordinateRewards.rounded``: a multiple of the grain."""
        return rounded(t, grain_of(self.dim), self.dim)

    def pull(self, start: int, stop: int, places: Rows | None) -> Vector:
        """As ``CoordinateRewards.pull``. Cost: a gather of (stop - start) coordinates of each arm."""
        return np.concatenate([terms.sum(axis=1) for terms in self._terms(start, stop, places)])

    def pull_squares(self, start: int, stop: int, places: Rows | None) -> tuple[Vector, Vector]:
        """As ``CoordinateRewards.pull_squares``; the sums of squares are exact."""
        sums, squares = [], []
        for terms in self._terms(start, stop, places):
            sums.append(terms.sum(axis=1))
            squares.append(np.einsum("ij,ij->i", terms, terms))
        return np.concatenate(sums), np.concatenate(squares)

    def whole(self, places: Rows) -> Vector:
        """As ``CoordinateRewards.whole``."""
        return self.pull(0, self.dim, places)

    def scores(self, places: Rows) -> tuple[Rows, Vector]:
        """As ``CoordinateRewards.scores``, in float64."""
        rows = places if self._rows is None else self._rows[places]
        if self.reward_range is not None:
            for values in self._values(places, slice(None), self.dim):
                self._compare(column_values.term(values, self.query, self.objective))
        return rows, scores(self._vectors, rows, self.query, self.objective)

    @cached_property
    def coordinate_order(self) -> Rows:
        """Drawn when it is first needed: a plan needs none, and drawing takes longer than planning."""
        return self._rng.permutation(self.dim)

    def _terms(self, start: int, stop: int, places: Rows | None) -> Iterator[Matrix]:
        """Yield y, the coordinates in any order, of a few arms at a time; note whether the range holds."""
        every = stop - start == self.dim
        picked: Rows | slice = slice(None) if every else np.sort(self.coordinate_order[start:stop])
        query, base = self.query[picked], self._base[picked]
        for values in self._values(places, picked, stop - start):
            terms = column_values.term(values, query, self.objective)
            self._compare(terms)
            terms -= base
            yield terms

    def _values(self, places: Rows | None, picked: Rows | slice, width: int) -> Iterator[Given]:
        vectors, rows = self._vectors, self._rows
        if places is not None:
            rows = places if rows is None else rows[places]
        step = max(1, _ENTRIES // width)
        for start in range(0, self.size if rows is None else len(rows), step):
            part = slice(start, start + step)
            if rows is None:
                yield vectors[part][:, picked] if isinstance(picked, slice) else vectors[part].take(picked, 1)
            elif isinstance(picked, slice):
                yield vectors[rows[part]]
            else:
                yield vectors[rows[part, None], picked]

    def _bases(self, columns: Columns | None) -> Vector:
        if columns is not None:
            return column_values.term(columns.center, self.query, self.objective)
        if self.reward_range is None:
            return np.zeros(self.dim)
        return np.full(self.dim, (self.reward_range[0] + self.reward_range[1]) / 2.0)

    def _compare(self, terms: Matrix) -> None:
        if self.reward_range is not None and not self.violated:
            self.violated = bool(terms.min() < self.reward_range[0] or terms.max() > self.reward_range[1])
