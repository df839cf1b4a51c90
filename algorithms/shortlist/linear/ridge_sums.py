"""The sums that a learner keeps, for online ridge regression. What they imply is in ``ridge``.

Notation
    d               dimension of the features
    x, r            features of a chosen arm (d,), its reward
    gram            sum x x^T (d, d), without the ridge
    moment          sum r x (d,)
    squares         sum R^2 over decisions; R is the sum of a decision's rewards so far
    J               number of rewards of a decision (signals), 1 unless there are ``more``

Several signals share the gram. Signal j > 0 adds its moment sum r_j x (d,), and the products sum R_j R_i for
i <= j; those of signal 0 are ``moment`` and ``squares``. So sums with one signal are as they were without.

Source: Yang et al., "Linear Bandit Algorithms with Sublinear Time Complexity", Equation 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from shortlist import checks
from shortlist.errors import InvalidParameter
from shortlist.types import Matrix, Rows, Vector

_WIDE_DIM = 128  # from here on one learner fills a processor's cache, and the places of a triangle take long
_NOTHING: Vector = np.zeros(1)
NO_MORE: Vector = np.empty(0)
NO_MORE.setflags(write=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The amount added at a time: the sums do not depend on it, to the bit.

    ``wide_dim``    from this dimension on learners are added to one after the other,
    ``terms``       so many numbers of their sums
    ``rows``        and so many rows at a time;
    ``block_terms`` of smaller ones all numbers, and rows for about so many terms
    """

    wide_dim: int = _WIDE_DIM
    terms: int = 1 << 13
    rows: int = 16
    block_terms: int = 1 << 14


PARTS = Parts()


def _no_more() -> Vector:
    return NO_MORE


@dataclass(frozen=True, slots=True, eq=False)
class RidgeSums:
    """The sums of a learner: gram and moment, packed as the lower triangle row by row, then the vector.

    The sum is ``total - error``. ``error`` is the rounding error of the last addition, at most half a unit in
    the last place; part of the state, because the next addition corrects for it. ``observations``
    counts decisions, not rewards: the rows that were ``first``. ``weight`` is the sum of their weights, which
    is their number unless they are discounted. Shapes: (d (d + 3) / 2,) both.

    ``squares - squares_error`` is the sum of squares, compensated in the same way. Not finite where unknown:
    for sums kept without squares, or beyond the range of float64.

    ``more - more_error``: of the signals after the first, one after the other: moment (d,) and products
    (j + 1,) of signal j = 1, 2, ... Shapes: ((J - 1) d + J (J + 1) / 2 - 1,) both, empty for one signal.
    """

    total: Vector
    error: Vector
    observations: int
    weight: float
    squares: float = math.nan
    squares_error: float = 0.0
    more: Vector = field(default_factory=_no_more)
    more_error: Vector = field(default_factory=_no_more)

    @property
    def dim(self) -> int:
        """d, from the length of the packed sums."""
        return (math.isqrt(8 * len(self.total) + 9) - 3) // 2

    @property
    def has_squares(self) -> bool:
        """True if the sum of squares is known."""
        return math.isfinite(self.squares) and math.isfinite(self.squares_error)

    @property
    def gram(self) -> Matrix:
        """Shape: (d, d), a new array."""
        lower = self.lower_gram()
        return lower + np.tril(lower, -1).T

    @property
    def moment(self) -> Vector:
        """Shape: (d,)."""
        return self.total[-self.dim :]

    @property
    def signals(self) -> int:
        """J, from the length of ``more``."""
        return signals_in(len(self.more), self.dim)

    @property
    def moments(self) -> Matrix:
        """The moment of each signal. Shape: (J, d), a new array."""
        dim, count = self.dim, self.signals
        starts = [more_size(j, dim) for j in range(1, count)]
        return np.array([self.moment, *(self.more[start : start + dim] for start in starts)])

    @property
    def products(self) -> Matrix:
        """Sum R_j R_i over decisions. Shape: (J, J), a new array."""
        dim, count = self.dim, self.signals
        products = np.full((count, count), self.squares - self.squares_error)
        more = self.more - self.more_error
        for j in range(1, count):
            start = more_size(j, dim) + dim
            products[j, : j + 1] = products[: j + 1, j] = more[start : start + j + 1]
        return products

    def with_signals(self, count: int) -> RidgeSums:
        """These sums, with at least so many signals: of those that are new every reward was 0."""
        missing = more_size(count, self.dim) - len(self.more)
        if missing <= 0:
            return self
        zeros = np.zeros(missing)
        more, error = np.append(self.more, zeros), np.append(self.more_error, zeros)
        return replace(self, more=more, more_error=error)

    def without_signals(self, count: int) -> RidgeSums:
        """These sums, of the first signals: the others must be 0."""
        size = more_size(count, self.dim)
        if size >= len(self.more):
            return self
        return replace(self, more=self.more[:size].copy(), more_error=self.more_error[:size].copy())

    def with_coordinate(self) -> RidgeSums:
        """These sums, with one more coordinate, the last one: it was 0 in every row. Cost: O(d^2)."""
        dim, count = self.dim, self.signals
        row, ends = len(self.total) - dim, [more_size(j, dim) + dim for j in range(1, count)]
        places = [row] * (dim + 1) + [len(self.total)]
        return replace(
            self,
            total=np.insert(self.total, places, 0.0),
            error=np.insert(self.error, places, 0.0),
            more=np.insert(self.more, ends, 0.0),
            more_error=np.insert(self.more_error, ends, 0.0),
        )

    def lower_gram(self) -> Matrix:
        """The gram with zeros above the diagonal. Shape: (d, d), a new array."""
        return _lower(self.total[: -self.dim], self.dim)

    def lower_bordered(self, moment: Vector) -> Matrix:
        """The gram with zeros above the diagonal, and a moment as one more row. Shape: (d + 1, d + 1)."""
        dim = self.dim
        return _lower(np.concatenate((self.total[:-dim], moment, _NOTHING)), dim + 1)


def _lower(packed: Vector, dim: int) -> Matrix:
    # LAPACK packs an upper triangle by columns, which is the same order.
    upper: Matrix = lapack.dtpttr(dim, packed)[0]
    return upper.T


def more_size(count: int, dim: int) -> int:
    """Length of ``more`` for so many signals."""
    return (count - 1) * dim + count * (count + 1) // 2 - 1


def signals_in(size: int, dim: int) -> int:
    """J, for ``more`` of this length."""
    half = 2 * dim + 1
    return (math.isqrt(half**2 + 8 * (size + dim + 1)) - half) // 2 if size else 1


def empty(dim: int) -> RidgeSums:
    """Return the sums of a learner without rewards. Raises InvalidParameter (dim < 1)."""
    if dim < 1:
        raise InvalidParameter("dim must be at least 1", argument="dim")
    size = dim * (dim + 3) // 2
    return RidgeSums(np.zeros(size), np.zeros(size), 0, 0.0, 0.0)


def of(
    features: Matrix,
    values: Vector,
    first: NDArray[np.bool_],
    weights: Vector | None = None,
    *,
    before: Vector | None = None,
) -> RidgeSums:
    """Return the sums of rewards as ``add`` has them, but for rounding: they are products of matrices.

    ``weights``: by how much each row counts; None: all are 1. ``before``: as for ``add``.
    Shapes: features (n, d), values (n,) or (n, J), first (n,), weights (n,), before as values.
    Cost: n d^2 multiply-adds. Raises: InvalidShape, NonFinite (also when a sum leaves the range of float64).
    """
    checks.shape("features", features, (None, None))
    checks.shape("first", first, (len(features),))
    parts = _each(features, values, before)
    values = parts.values
    weight, squares = float(np.count_nonzero(first)), parts.squares
    more = parts.more if weights is None else weights[:, None] * parts.more
    if weights is not None:
        checks.shape("weights", weights, (len(features),))
        weight, roots, squares = float(weights @ first), np.sqrt(weights), weights * squares
        features, values = roots[:, None] * features, roots * values
    with np.errstate(over="ignore", invalid="ignore"):
        named = features if first.all() else features[first]
        gram, dim = named.T @ named, features.shape[1]
        lower = gram.take(triangle(dim)) if dim < _WIDE_DIM else gram[np.tri(dim, dtype=np.bool_)]
        total = np.concatenate((lower, values @ features))
    checks.finite("features and values", total)
    with np.errstate(over="ignore", invalid="ignore"):
        summed = float(squares.sum())
        summed_more = more.sum(axis=0) if more.shape[1] else NO_MORE
    checks.finite("features and values", summed_more)
    counted, error = int(np.count_nonzero(first)), np.zeros(len(total))
    return RidgeSums(total, error, counted, weight, summed, 0.0, summed_more, np.zeros(len(summed_more)))


def add(
    sums: RidgeSums,
    features: Matrix,
    values: Vector,
    first: NDArray[np.bool_],
    discounts: tuple[Vector, Vector] | None = None,
    *,
    before: Vector | None = None,
    parts: Parts = PARTS,
) -> RidgeSums:
    """Return the sums after more rewards, one row after the other.

    A row with ``first`` false is a further reward for a decision already counted: it adds r x to the
    moment and (b + r)^2 - b^2 to the squares, and nothing else. Every entry is a compensated sum (Kahan) in
    row order, so the result is the same to the bit however a log is cut into batches, and its error does not
    grow with the number of rows.

    ``discounts``: factors and weights. The sums are multiplied by the n-th factor before row n is added, and
    row n counts by its weight. None: all are 1. ``before``: the b, the sum of the earlier rewards of a row's
    decision; None: 0. Shapes: features (n, d), values (n,) or, of several signals, (n, J), first (n,),
    factors and weights (n,), before as values. Cost: n d (d + 3) / 2 multiply-adds, five array operations a
    row, or seven with discounts.
    Raises: InvalidShape, NonFinite (also when a sum leaves the range of float64).
    """
    if discounts is None:
        one = np.zeros(len(values), dtype=np.int64)
        return add_each([sums], one, features, values, first, before=before, parts=parts)[0]
    count = len(features)
    checks.shape("features", features, (None, sums.dim))
    checks.shape("first", first, (count,))
    each = _each(features, values, before, least=sums.signals)
    values, sums = each.values, sums.with_signals(each.count)
    factors, weights = discounts
    checks.shape("factors", factors, (count,))
    checks.shape("weights", weights, (count,))
    roots, weight = np.sqrt(weights), sums.weight
    for factor, more in zip(factors.tolist(), (weights * first).tolist(), strict=True):
        weight = weight * factor + more
    squares, more = weights * each.squares, weights[:, None] * each.more
    weighted = _Each(roots * values, squares, more, each.count)
    added = _add_by_parts(sums, roots[:, None] * features, weighted, first, factors=factors, parts=parts)
    return replace(added, weight=weight)


def add_each(
    sums: Sequence[RidgeSums],
    owners: Rows,
    features: Matrix,
    values: Vector,
    first: NDArray[np.bool_],
    *,
    before: Vector | None = None,
    parts: Parts = PARTS,
) -> list[RidgeSums]:
    """Return the sums of several learners after more rewards; row i is for ``sums[owners[i]]``.

    As ``add`` does for each by itself, to the bit, but the n-th rows of all learners are added together,
    unless each is so large that it fills a processor's cache alone.
    Shapes: owners (n,), features (n, d), values (n,) or (n, J), first (n,), before as values.
    Cost: n d (d + 3) / 2 multiply-adds, J d more for several signals, and five array operations for each row
    of the learner with most.
    Raises: InvalidShape, NonFinite (also when a sum leaves the range of float64).
    """
    dim, count = sums[0].dim, len(features)
    checks.shape("features", features, (None, dim))
    checks.shape("first", first, (count,))
    for other in sums:
        checks.shape("sums", other.total, sums[0].total.shape)
    each = _each(features, values, before, least=max(owner_sums.signals for owner_sums in sums))
    values, squares, more = each.values, each.squares, each.more
    sums = [owner_sums.with_signals(each.count) for owner_sums in sums]
    if dim >= parts.wide_dim:
        added = []
        for owner, owner_sums in enumerate(sums):
            is_own = owners == owner
            owner_parts = _Each(values[is_own], squares[is_own], more[is_own], each.count)
            once = np.ones(is_own.sum())
            added.append(
                _add_by_parts(
                    owner_sums, features[is_own], owner_parts, first[is_own], factors=once, parts=parts
                )
            )
        return added
    # In turn n the n-th row of every learner is added. Learners with more rows come first, so the learners of
    # a turn are always the first few, and a turn is one slice.
    rows_of = np.bincount(owners, minlength=len(sums))
    most_first = np.argsort(-rows_of, kind="stable")
    position = np.argsort(most_first)
    turn = np.empty(count, dtype=np.int64)
    turn[np.argsort(owners, kind="stable")] = np.arange(count) - np.repeat(
        np.cumsum(rows_of) - rows_of, rows_of
    )
    order = np.lexsort((position[owners], turn))
    size = len(sums[0].total)
    total = np.empty((len(sums), size + 1 + more.shape[1]))
    error = np.empty_like(total)
    for at, owner in enumerate(most_first.tolist()):
        owner_sums = sums[owner]
        total[at, :size], total[at, size], total[at, size + 1 :] = (
            owner_sums.total,
            owner_sums.squares,
            owner_sums.more,
        )
        error[at, :size], error[at, size] = owner_sums.error, owner_sums.squares_error
        error[at, size + 1 :] = owner_sums.more_error
    size_of_block = max(1, parts.block_terms // dim**2)
    blocks = (order[start : start + size_of_block] for start in range(0, count, size_of_block))
    with np.errstate(over="ignore", invalid="ignore"):
        terms = (_terms(features[p], values[p], first[p], squares[p], more[p]) for p in blocks)
        _fold(total, error, terms, np.bincount(turn))
    if not (np.isfinite(total[:, :size]).all() and np.isfinite(total[:, size + 1 :]).all()):
        checks.finite("features", features)  # only now it matters which argument is to blame
        checks.finite("values", values)
        checks.finite("features and values", total[:, :size])
        checks.finite("features and values", total[:, size + 1 :])
    counted = np.bincount(owners, weights=first, minlength=len(sums)).astype(int).tolist()
    return [
        RidgeSums(
            total[at, :size].copy(),
            error[at, :size].copy(),
            owner_sums.observations + new,
            owner_sums.weight + new,
            float(total[at, size]),
            float(error[at, size]),
            *((total[at, size + 1 :].copy(), error[at, size + 1 :].copy()) if more.shape[1] else ()),
        )
        for at, owner_sums, new in zip(position.tolist(), sums, counted, strict=True)
    ]


@dataclass(frozen=True, slots=True, eq=False)
class _Each:
    """The addition of each row: ``values`` x to the moment of the first signal, and to ``squares`` and
    ``more``.

    ``count`` is J. Shapes: (n,), (n,), (n, p).
    """

    values: Vector
    squares: Vector
    more: Matrix

    count: int = 1


def _each(features: Matrix, values: Vector, before: Vector | None, *, least: int = 1) -> _Each:
    """The additions for at least so many signals. Shapes: (n, d), (n,) or (n, J), before as values."""
    count = len(features)
    checks.array("values", values)
    if values.ndim == 1 and least == 1:
        checks.shape("values", values, (count,))
        return _Each(values, _squares(values, before), np.empty((count, 0)))
    if values.ndim == 1:
        values, before = values[:, None], None if before is None else before[:, None]
    checks.shape("values", values, (count, None))
    earlier = np.zeros(values.shape) if before is None else before
    checks.shape("before", earlier, values.shape)
    if values.shape[1] < least:
        values, earlier = _widened(values, least), _widened(earlier, least)
    signals, squares = values.shape[1], _squares(values, earlier)
    if signals == 1:
        return _Each(values[:, 0], squares[:, 0], np.empty((count, 0)))
    with np.errstate(over="ignore", invalid="ignore"):
        after = earlier + values
        parts = np.empty((count, signals - 1, features.shape[1] + signals))
        moments, products = parts[:, :, : features.shape[1]], parts[:, :, features.shape[1] :]
        np.multiply(features[:, None], values[:, 1:, None], out=moments)
        np.multiply(earlier[:, 1:, None], values[:, None], out=products)
        products += values[:, 1:, None] * after[:, None]
        indices = np.arange(signals - 1)
        products[:, indices, indices + 1] = squares[:, 1:]
    more = parts.reshape(count, -1).take(_places(signals, features.shape[1]), axis=1)
    return _Each(values[:, 0], squares[:, 0], more, signals)


def _widened(values: Matrix, columns: int) -> Matrix:
    """The same and zeros. Shapes: (n, J) -> (n, columns)."""
    wide = np.zeros((len(values), columns))
    wide[:, : values.shape[1]] = values
    return wide


@lru_cache(maxsize=256)
def _places(signals: int, dim: int) -> Rows:
    """The places of the numbers of ``more`` among a moment and J products of each further signal. Shape:
    (p,).
    """
    positions, further = np.arange(dim + signals), np.arange(1, signals)[:, None]
    return np.flatnonzero(positions - dim <= further)


def _squares(values: Vector, before: Vector | None) -> Vector:
    """The addition of each reward to the sum of squares: (b + r)^2 - b^2. Shapes: (n,), (n,) -> (n,)."""
    with np.errstate(over="ignore", invalid="ignore"):
        if before is None:
            return values * values
        checks.shape("before", before, values.shape)
        return values * (2.0 * before + values)


def _add_by_parts(
    known: RidgeSums,
    features: Matrix,
    each: _Each,
    first: NDArray[np.bool_],
    *,
    factors: Vector,
    parts: Parts,
) -> RidgeSums:
    """Add the rows to one learner, all rows to one part of its sums after the other."""
    dim = known.dim
    total, error = known.total.copy(), known.error.copy()
    square, square_error = np.array([known.squares]), np.array([known.squares_error])
    left = np.ascontiguousarray(features, dtype=np.float64)
    right = left if first.all() else left * first[:, None]
    steps = factors.tolist()
    space = np.empty((parts.rows, min(parts.terms + dim, _packed(dim))))
    with np.errstate(over="ignore", invalid="ignore"):
        start = 0
        while start < dim:
            stop = start + 1
            while stop < dim and _packed(stop + 1) - _packed(start) <= parts.terms:
                stop += 1
            part = slice(_packed(start), _packed(stop))
            for row in range(0, len(left), parts.rows):
                rows = slice(row, row + parts.rows)
                terms = space[: len(left[rows]), : part.stop - part.start]
                for i in range(start, stop):
                    at = _packed(i) - part.start
                    np.multiply(left[rows, i : i + 1], right[rows, : i + 1], out=terms[:, at : at + i + 1])
                _add_rows(total[part], error[part], terms, steps[rows])
            start = stop
        _add_rows(total[-dim:], error[-dim:], left * each.values[:, None], steps)
        _add_rows(square, square_error, each.squares[:, None].copy(), steps)
        more_total, more_error = known.more, known.more_error
        if len(more_total):
            more_total, more_error = more_total.copy(), more_error.copy()
            _add_rows(more_total, more_error, each.more.copy(), steps)
    if not (np.isfinite(total).all() and np.isfinite(more_total).all()):
        checks.finite("features", features)
        checks.finite("values", each.values)
        checks.finite("features and values", total)
        checks.finite("features and values", more_total)
    counted = int(np.count_nonzero(first))
    return replace(
        known,
        total=total,
        error=error,
        observations=known.observations + counted,
        weight=known.weight + counted,
        squares=float(square[0]),
        squares_error=float(square_error[0]),
        more=more_total,
        more_error=more_error,
    )


def _add_rows(total: Vector, error: Vector, terms: Matrix, factors: Sequence[float]) -> None:
    """Multiply ``total - error`` by a factor and add a row of ``terms``, one after the other, in place."""
    for term, factor in zip(terms, factors, strict=True):
        if factor != 1.0:
            np.multiply(total, factor, out=total)
            np.multiply(error, factor, out=error)
        _compensated(total, error, term)


def _packed(row: int) -> int:
    """The beginning of a row in the packed lower triangle."""
    return row * (row + 1) // 2


def _fold(total: Matrix, error: Matrix, blocks: Iterable[Matrix], sizes: Rows) -> None:
    """Add terms to the sums ``total - error``, in place: turn n adds one term to each of its first learners.

    ``blocks`` are the terms of all turns, one after the other; ``sizes`` is the number of terms of each turn.
    Shapes: total, error (m, p), each block (n, p), sizes (t,) not increasing.
    """
    learner, left = 0, sizes.tolist()[::-1]
    for terms in blocks:
        row = 0
        while row < len(terms):
            count = min(left[-1] - learner, len(terms) - row)
            part = slice(learner, learner + count)
            _compensated(total[part], error[part], terms[row : row + count])
            row, learner = row + count, learner + count
            if learner == left[-1]:
                left.pop()
                learner = 0


def _terms(
    features: Matrix, values: Vector, first: NDArray[np.bool_], squares: Vector, more: Matrix
) -> Matrix:
    """Return what each row adds to gram, moment, squares and more, packed.

    Shapes: (n, d), (n,), (n,), (n,), (n, q) -> (n, p + 1 + q).
    """
    count, dim = features.shape
    size = dim * (dim + 3) // 2
    terms = np.empty((count, size + 1 + more.shape[1]))
    left = np.ascontiguousarray(features, dtype=np.float64)
    right = left if first.all() else left * first[:, None]
    products = (left[:, :, None] * right[:, None, :]).reshape(count, dim * dim)
    products.take(triangle(dim), axis=1, out=terms[:, : size - dim])
    np.multiply(left, values[:, None], out=terms[:, size - dim : size])
    terms[:, size] = squares
    terms[:, size + 1 :] = more
    return terms


def _compensated(total: Matrix, error: Matrix, term: Matrix) -> None:
    """Add ``term`` to ``total - error``, one step of Kahan's summation. All three are overwritten."""
    np.subtract(term, error, out=term)
    np.add(total, term, out=error)
    np.subtract(error, total, out=error)
    np.subtract(error, term, out=error)
    np.add(total, term, out=total)


@lru_cache(maxsize=16)
def triangle(dim: int) -> Rows:
    """Slots of the lower triangle in a matrix (d, d) that is read row by row. Shape: (d (d + 1) / 2,)."""
    return np.flatnonzero(np.tri(dim, dtype=np.bool_))
