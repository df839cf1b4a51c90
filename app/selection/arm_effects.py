"""Arm effects in a choice: the search for arms whose features and effect together promise most.

Notation
    b_i, s_i    effect of arm i and its deviation, 0 and tau of an arm without rewards; of the weighted sum.
                b_i has what the age of the arm adds, as of the version
    g_i, w      a unit vector of R^4 from the revision of arm i; w ~ N(0, I_4), drawn after theta~
    e           how much is explored, as for theta~
    H           the head: the arms of largest b_i + 2.5 e s_i

An arm is worth x_i.q + b_i + e s_i (g_i.w): of a drawn q a draw of the whole, and with w = 0 an estimate.
Where all arms are scanned, the scan adds what each has beyond x_i.q, and the list is the best one. An index
knows nothing of effects: extended vectors in a graph drop its recall. There its c best arms by x_i.q and the
head are ranked by their worth. An arm in neither is worth at most the c-th x_i.q and B(|w|), where B(t) is
the largest b_i + t e s_i outside of the head. Where the index is exact and less was found, all arms are
scanned; a graph may miss arms anyway. B is convex in t, so between points where it is known it lies below
the chord.

Source: Fagin, Lotem and Naor, "Optimal Aggregation Algorithms for Middleware" (2003), section 4: lists by
each part of a score, and a threshold for what was in none of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.bandits.effect_version import EffectVersion
from app.catalogues.adaptive_solver import ExactSolver
from app.catalogues.learner_snapshot import LearnerSnapshot
from app.filtering.filtered_snapshot import FilteredSnapshot
from app.indexes.filtered_search import is_gathered, strike_out
from app.storage.types import OF_REQUEST
from shortlist.index.exact import merged
from shortlist.index.table import SPARE, TableSnapshot, not_in
from shortlist.mips.exact import candidates, error_bound, unit_scale
from shortlist.types import NO_ROWS, Matrix, MipsSolver, Rows, TopK, Vector

Numbers = NDArray[np.float32]

DIRECTIONS = 4
MOST_HEAD = 4_096
LEAST_ASKED = 64  # of an index: with 48 a graph of 1,000,000 arms misses 4 of 100 best arms
MORE_ASKED = 6  # times as many: among 1,000,000 arms of low rank with 4 it misses 4 of 100
OPTIMISM = 2.5  # deviations by which an arm belongs to the head
GRID = np.array([0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 9.0])
ROW_BYTES = 8  # its numbers
HEAD_BYTES = 4
FEWER = 4  # a table of so many times fewer arms than the version is asked instead
_FEW_ROWS = 64
_CHUNK = 8_192
_UNIT = 2.0**-24  # roundoff of float32
_GAMMA = 0x9E3779B97F4A7C15
_MIX = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)


def directions_of(revisions: Rows) -> Numbers:
    """g_i of arms with features of these revisions, uniform over all directions. Shapes: (n,) -> (4, n).

    Sources: Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators" (2014), the finalizer;
    Shoemake, "Uniform Random Rotations" (1992).
    """
    # A number in place of the id: a search meets a hundred arms that none has met before.
    bits = revisions.astype(np.uint64) * np.uint64(_GAMMA)
    for shift, factor in zip((30, 27), _MIX, strict=True):
        bits = (bits ^ (bits >> np.uint64(shift))) * np.uint64(factor)
    bits ^= bits >> np.uint64(31)
    one, two, three = ((bits >> np.uint64(at)).astype(np.uint16) / 65_536.0 for at in (0, 16, 32))
    long, short = np.sqrt(1.0 - one), np.sqrt(one)
    two, three = 2.0 * math.pi * two, 2.0 * math.pi * three
    parts = (long * np.sin(two), long * np.cos(two), short * np.sin(three), short * np.cos(three))
    return np.array(parts, dtype=np.float32)


class Directions:
    """g_i of the arms of one table, by row. For any thread."""

    def __init__(self) -> None:
        # With how many rows of it are known. One tuple, read once: another thread may put a larger one in its
        # place.
        self._drawn_directions = np.empty((DIRECTIONS, 0), dtype=np.float32), 0

    def of(self, table: TableSnapshot, rows: Rows) -> Numbers:
        """Shapes: (n,) -> (4, n). Cost: .13 us for each while some of them are not known."""
        directions, count = self._drawn_directions
        if rows.max(initial=-1) < count:
            return directions.take(rows, axis=1)
        return directions_of(table.revisions[rows])

    def of_all(self, table: TableSnapshot) -> Numbers:
        """The numbers of all rows, without a copy. Shape: (4, rows). Cost: .13 us for each new row."""
        directions, count = self._drawn_directions
        if count < table.rows:
            if directions.shape[1] < table.rows:
                grown = np.empty((DIRECTIONS, row_capacity(table.rows)), dtype=np.float32)
                grown[:, :count] = directions[:, :count]
                directions = grown
            for start in range(count, table.rows, _CHUNK):  # few at a time stay in a cache
                part = slice(start, min(start + _CHUNK, table.rows))
                directions[:, part] = directions_of(table.revisions[part])
            self._drawn_directions = directions, table.rows
        return directions[:, : table.rows]


@dataclass(frozen=True, slots=True, eq=False)
class Head:
    """The arms of largest b_i + 2.5 e s_i, side by side. ``deaths``: how many arms had died by then.

    ``features``: [x_i ; b_i ; e s_i g_i], whose product with [q ; 1 ; w] is what an arm is worth.
    Shapes: rows (H,) ascending, features (H, d + 5).
    """

    rows: Rows
    features: NDArray[np.floating[Any]]
    largest_norm: float
    deaths: int

    def with_more(self, rows: Rows, features: NDArray[np.floating[Any]], norm: float) -> Head:
        """This head and more rows, which are later ones."""
        both = np.asfortranarray(np.concatenate((self.features, features)))
        return Head(np.concatenate((self.rows, rows)), both, max(self.largest_norm, norm), self.deaths)

    def contenders(
        self, query: Vector, w: Vector | None, k: int, hidden: NDArray[np.bool_] | None, least: float
    ) -> Rows:
        """Rows that may be the best k outside of ``hidden`` (H,); those worth less than ``least`` may lack.

        Shapes: query (d,), w (4,).
        """
        joint = np.concatenate((query, (1.0,), np.zeros(DIRECTIONS) if w is None else w))
        scaled, norm = unit_scale(joint)
        dtype = self.features.dtype
        scores = self.features @ scaled.astype(dtype, copy=False)
        if hidden is not None:
            scores[hidden] = -np.inf
        error = error_bound(len(joint), self.largest_norm, norm, dtype)
        return self.rows[candidates(scores, error, k, least if scaled is joint else -math.inf)]


@dataclass(eq=False)
class ArmEffects:
    """The effects of a bandit's arms beyond their features: those of a version, by the rows of a table,
    weighed as the bandit weighs its signals.

    ``effects``, ``noises``  b_i and e s_i of each row, and of later rows, without rewards (n,)
    ``rows``                 number of rows with known arms
    ``most_head``            H
    """

    version: EffectVersion
    directions: Directions
    exploration: float
    effects: Numbers
    noises: Numbers
    weights: Vector
    rows: int
    most_head: int = MOST_HEAD
    _head: Head | None = None

    @classmethod
    def of(
        cls,
        version: EffectVersion,
        directions: Directions,
        table: TableSnapshot,
        weights: Vector,
        exploration: float,
        *,
        most_head: int = MOST_HEAD,
    ) -> ArmEffects:
        """Cost: O(K), and a look-up for each arm of the version, or of a small table."""
        record, count = version.record, len(weights)
        spread = float(np.sqrt(weights**2 @ np.array(record.variances[:count])))
        # Rows to come are of new arms, as far as anybody knows.
        effects = np.full(row_capacity(table.rows), version.first_age, dtype=np.float32)
        noises = np.full(len(effects), exploration * spread, dtype=np.float32)
        if table.rows < len(version.names) // FEWER:
            none_yet = cls(version, directions, exploration, effects, noises, weights, 0, most_head)
            return none_yet.with_rows(table)
        rows = table.row_of_each(version.names)
        with_effects = np.flatnonzero(rows >= 0)
        own_effects, deviations = version.at(with_effects)
        effects[: table.rows] = version.age_effects(table.came)
        effects[rows[with_effects]] += weights @ own_effects[:count]
        noises[rows[with_effects]] = exploration * np.sqrt(weights**2 @ deviations[:count] ** 2)
        return cls(version, directions, exploration, effects, noises, weights, table.rows, most_head)

    def only_of_catalogue(self, table: TableSnapshot) -> ArmEffects:
        """These effects, before their use, without arms of the request, whatever their ids."""
        brought = np.flatnonzero(table.revisions == OF_REQUEST)
        self.effects[brought] = self.noises[brought] = 0.0
        return self

    def with_rows(self, table: TableSnapshot) -> ArmEffects:
        """These effects, with the rows since: new rows of changed arms keep the effects of the arms.

        Cost: a look-up for each of them, and where any arm had rewards a copy of the head.
        """
        names = [table.ids[row] for row in range(self.rows, table.rows)]
        own_effects, deviations = self.version.of_arms(names)
        ages = self.version.age_effects(table.came[self.rows : table.rows])
        is_known = self.version.names.places_of(names) >= 0
        rows = self.rows + np.flatnonzero(is_known | (ages != self.version.first_age))
        if not len(rows):
            self.rows = table.rows
            return self
        count, came = len(self.weights), rows - self.rows
        # Nobody has looked at these rows yet.
        self.effects[rows] = self.weights @ own_effects[:count, came] + ages[came]
        self.noises[rows] = self.exploration * np.sqrt(self.weights**2 @ deviations[:count, came] ** 2)
        grown = replace(self, rows=table.rows, _head=None)
        if self._head is not None and len(self._head.rows) + len(rows) <= 2 * self.most_head:
            grown._head = self._head.with_more(rows, *grown.head_features(table, rows))
            if "bound_of_others" in self.__dict__:  # a bound still: these rows are in the head
                grown.__dict__["bound_of_others"] = self.bound_of_others
        return grown

    def memory_bytes(self, dim: int) -> int:
        return 10_000 + ROW_BYTES * len(self.effects) + HEAD_BYTES * self.most_head * (dim + 7)

    def head(self, table: TableSnapshot) -> Head:
        """The head of the arms alive at the first call. Cost: O(K), once."""
        if self._head is None:
            rows = table.live_rows
            if len(rows) > self.most_head:
                promise = self.effects[rows] + np.float32(OPTIMISM) * self.noises[rows]
                rows = np.sort(rows[np.argpartition(-promise, self.most_head)[: self.most_head]])
            self._head = Head(rows, *self.head_features(table, rows), len(table.dead))
        return self._head

    def head_features(self, table: TableSnapshot, rows: Rows) -> tuple[NDArray[np.floating[Any]], float]:
        """``features`` and ``largest_norm`` of a head of these rows."""
        features = np.hstack((table.features[rows], self.extended(table, rows)))
        norm = float(np.linalg.norm(features, axis=1).max(initial=0.0))
        # Dimension-major, as ``table.aligned_empty``: few rows are multiplied faster that way.
        return np.asfortranarray(features.astype(table.working.dtype, copy=False)), norm

    @cached_property
    def bound_of_others(self) -> Vector:
        """B at the points of ``GRID``; after ``head``. Cost: O(K), once."""
        is_other = np.ones(len(self.effects), dtype=bool)  # those that come later as well
        if self._head is not None:
            is_other[self._head.rows] = False
        effects, noises = self.effects[is_other].astype(np.float64), self.noises[is_other]
        return np.array([(effects + t * noises).max(initial=-np.inf) for t in GRID])

    @cached_property
    def largest(self) -> tuple[float, float]:
        """The largest |b_i| and e s_i."""
        return float(np.abs(self.effects).max()), float(self.noises.max())

    def worth(self, arms: LearnerSnapshot, rows: Rows, w: Vector | None = None) -> Vector:
        """b_i + e s_i (g_i.w); without w b_i. Shapes: rows (n,), w (4,) -> (n,)."""
        worth: Vector = self.effects[rows].astype(np.float64)
        if w is not None:
            worth += self.noises[rows] * (w @ self.directions.of(arms.plain.table, rows))
        return worth

    def worth_of_all(self, table: TableSnapshot, w: Vector | None) -> Numbers:
        """``worth`` of all rows, within ``error`` of it. Shape: (rows,). Cost: 24 bytes read for each."""
        effects = self.effects[: table.rows]
        if w is None:
            return effects
        worth: Numbers = w.astype(np.float32) @ self.directions.of_all(table)
        worth *= self.noises[: table.rows]
        worth += effects
        return worth

    def error(self, w: Vector | None) -> float:
        """Bound on the rounding of ``worth_of_all``, and of a sum with it."""
        effect, noise = self.largest
        return 16.0 * _UNIT * (effect + noise * _length(w))

    def extended(self, table: TableSnapshot, rows: Rows) -> Matrix:
        """[b_i ; e s_i g_i], of which ``worth`` is the product with [1 ; w]. Shapes: (n,) -> (n, 5)."""
        directions = self.directions.of(table, rows).T.astype(np.float64)
        return np.column_stack((self.effects[rows], self.noises[rows, None] * directions))

    def bound(self, w: Vector | None) -> float:
        """The largest worth beyond x_i.q outside of the head."""
        length = _length(w)
        return float(np.interp(length, GRID, self.bound_of_others)) if length <= GRID[-1] else math.inf


def _length(w: Vector | None) -> float:
    return 0.0 if w is None else float(np.linalg.norm(w))


def row_capacity(rows: int) -> int:
    """Rows that arrays by row have space for: some more come before the next version does."""
    return int(SPARE * rows) + _FEW_ROWS


@dataclass(eq=False)
class EffectSolver:
    """Finds the arms of largest worth. ``solver`` finds those of largest x.q among ``arms``.

    ``rng``: draws w with the first search; None: no exploration.
    """

    arms: LearnerSnapshot
    solver: MipsSolver
    effects: ArmEffects
    rng: np.random.Generator | None = None
    w: Vector | None = None

    def search(self, query: Vector, k: int, exclude: Rows = NO_ROWS) -> TopK:
        """The ``k`` arms outside of ``exclude`` of largest worth. Shapes: query (d',), exclude (e,)."""
        # DEVIATION (Fagin, Lotem and Naor, section 4): no deeper, a graph that is asked for more takes longer
        asked = max(LEAST_ASKED, 2 * k)
        near = self._near(query, k, asked, exclude)
        if near is None:
            return self.search_exact(query, k, exclude)
        w = self._drawn()
        worth = near.scores + self.effects.worth(self.arms, near.rows, w)
        best = self._with_head(TopK(near.rows, worth, near.exact), query, k, exclude)
        # An answer of a graph cannot be proved, and an answer from all arms needs no proof.
        if near.exact and len(near.rows) >= asked:
            is_best = best.scores[-1] >= near.scores[-1] + self.effects.bound(w)
            return best if is_best else self.search_exact(query, k, exclude)
        return best

    def _near(self, query: Vector, k: int, asked: int, exclude: Rows) -> TopK | None:
        """Arms of large x.q and these scores, enough to find the best k among them and the head.

        The best ``asked`` of an exact index; all arms if these are fewer. None: a scan with the effects takes
        less time.
        """
        table_arms, is_index = self.arms.plain, self.solver is self.arms
        if table_arms.is_scanned or isinstance(self.solver, ExactSolver):
            return None
        if is_index and table_arms.structure is not None and table_arms.structure.leaves_to_scan(asked):
            return None
        graph = table_arms.proposing if is_index and not table_arms.is_filtered else None
        if graph is not None and 2 * asked < self.arms.size:
            # All arms looked at by a graph, rather than the best half. More of a graph with too few for such
            # lists: without effects they are scanned, which takes ten times as long.
            count = (MORE_ASKED if graph.leaves_to_scan(k) else 2) * asked
            rows = table_arms.propose(self.arms.catalogue_query(query), count, exclude)
            if rows is not None:
                return TopK(rows, self.arms.features_of(rows) @ query, exact=False)
        hits = self.solver.search(query, asked, exclude)
        return TopK(hits.rows, hits.scores, hits.exact or len(hits.rows) < asked)

    def search_exact(self, query: Vector, k: int, exclude: Rows = NO_ROWS) -> TopK:
        """As ``search``, and every eligible arm is compared. Cost: a scan, and 24 bytes more for each arm."""
        table_arms, w = self.arms.plain, self._drawn()
        table, query_of_table = table_arms.table, self.arms.catalogue_query(query)
        if table_arms.is_scanned:  # as a search of it
            table_arms.recent.append(query_of_table)
        if isinstance(table_arms, FilteredSnapshot) and is_gathered(table, table_arms.members):
            rows = table_arms.members.rows
            return self._ranked(query, rows[not_in(rows, exclude)] if len(exclude) else rows, k)
        working = table.working
        scaled, norm = unit_scale(query_of_table)
        if scaled is not query_of_table:  # products with effects added would leave the range of float32
            working, norm = table.features, float(np.linalg.norm(query_of_table))
        scores = working @ query_of_table.astype(working.dtype, copy=False)
        scores += self.effects.worth_of_all(table, w)
        slope, offset = table.error_line
        error = (slope + 2.0 * _UNIT * table.largest_norm) * norm + offset + self.effects.error(w)
        if isinstance(table_arms, FilteredSnapshot):
            strike_out(scores, table_arms.members.mask)
        elif len(table.dead):
            scores[table.dead] = -np.inf
        scores[exclude] = -np.inf
        return self._ranked(query, candidates(scores, error, k), k)

    def _with_head(self, near: TopK, query: Vector, k: int, exclude: Rows) -> TopK:
        """The best k of ``near``, in any order, and of the head."""
        order = np.argsort(-near.scores, kind="stable")[:k]
        best = TopK(near.rows[order], near.scores[order], near.exact)
        least = float(best.scores[-1]) if len(order) == k else -math.inf
        head = self._head(query, k, exclude, least)
        head = head[not_in(head, best.rows)]
        if not len(head):
            return best
        return merged(best, TopK(head, self.scores_of(query, head), exact=True), k)

    def _head(self, query: Vector, k: int, exclude: Rows, least: float) -> Rows:
        """Rows of the head among its best k perhaps, and worth ``least``."""
        table_arms, hidden = self.arms.plain, None
        head = self.effects.head(table_arms.whole.table)
        if table_arms.is_filtered or len(table_arms.table.dead) != head.deaths:
            hidden = ~table_arms.lets_in(head.rows)
        if len(exclude):
            is_excluded = ~not_in(head.rows, exclude)
            hidden = is_excluded if hidden is None else hidden | is_excluded
        least -= self.arms.constant_score(query)
        return head.contenders(self.arms.catalogue_query(query), self.w, k, hidden, least)

    def scores_of(self, query: Vector, rows: Rows) -> Vector:
        """The worth of rows. Shapes: (d',), (n,) -> (n,)."""
        scores: Vector = self.arms.features_of(rows) @ query
        return scores + self.effects.worth(self.arms, rows, self._drawn())

    def _drawn(self) -> Vector | None:
        if self.rng is not None and self.w is None:
            self.w = self.rng.standard_normal(DIRECTIONS)
        return self.w

    def _ranked(self, query: Vector, rows: Rows, k: int) -> TopK:
        scores = self.scores_of(query, rows)
        order = np.argsort(-scores, kind="stable")[:k]
        return TopK(rows[order], scores[order], exact=True)
