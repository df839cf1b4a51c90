"""Arm effects in a choice: the search for arms whose features and effect together promise most.

Notation
    b_i, s_i    effect of arm i and its deviation, 0 and tau of an arm without rewards; of the weighted sum
    g_i, w      a unit vector of R^4 from the id of the arm; w ~ N(0, I_4), drawn after theta~
    e           how much is explored, as for theta~
    H           the head: the arms of largest b_i + 2.5 e s_i

An arm is worth x_i.q + b_i + e s_i (g_i.w): of a drawn q a draw of the whole, and with w = 0 an estimate. The
index knows nothing of effects: extended vectors in a graph drop its recall. The c best arms by x_i.q, which
the index finds, and the head are ranked by their worth. An arm in neither is worth at most the c-th x_i.q and
B(|w|), where B(t) is the largest b_i + t e s_i outside of the head. Where as much was found, the list is the
best one; else c grows. B is convex in t, so between points where it is known it lies below the chord.

Source: Fagin, Lotem and Naor, "Optimal Aggregation Algorithms for Middleware" (2003), section 4: lists by
each part of a score, and a threshold for what was in none of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np

from app.bandits.bandit import Bandit
from app.bandits.effect_version import EffectVersion
from app.catalogues.learner_snapshot import LearnerSnapshot
from app.indexes.table import TableSnapshot, not_in
from app.platform.cache import BoundedCache
from shortlist.types import NO_ROWS, Matrix, MipsSolver, Rows, TopK, Vector

DIRECTIONS = 4
MOST_HEAD = 4_096
LEAST_ASKED = 16  # of the index
MOST_ASKED = 4_096
MORE = 4
OPTIMISM = 2.5  # deviations by which an arm belongs to the head
GRID = np.array([0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 9.0])
ROW_BYTES = 40  # about what a row takes in memory: its numbers, and its share of the head
_DIGEST_BYTES = 6


def direction_of(arm: str) -> Sequence[float]:
    """g_i, uniform over all directions. Shape: (4,).

    Source: Shoemake, "Uniform Random Rotations" (1992).
    """
    digest = blake2b(arm.encode(), digest_size=_DIGEST_BYTES).digest()
    one, two, three = (int.from_bytes(digest[at : at + 2], "little") / 65_536.0 for at in (0, 2, 4))
    short, long = math.sqrt(one), math.sqrt(1.0 - one)
    two, three = 2.0 * math.pi * two, 2.0 * math.pi * three
    return long * math.sin(two), long * math.cos(two), short * math.sin(three), short * math.cos(three)


class Directions:
    """g_i of the arms of one table, by row; each is computed when it is first needed. For any thread."""

    def __init__(self) -> None:
        self._found: Matrix = np.empty((0, DIRECTIONS))
        self._known = np.zeros(0, dtype=bool)

    def of(self, table: TableSnapshot, rows: Rows) -> Matrix:
        """Shape: (n, 4). Cost: about two microseconds for each row that is new."""
        if table.rows > len(self._known):
            found, known = np.zeros((2 * table.rows, DIRECTIONS)), np.zeros(2 * table.rows, dtype=bool)
            found[: len(self._found)], known[: len(self._known)] = self._found, self._known
            self._found, self._known = found, known
        # Both are read once: another thread may put larger ones in their place.
        found, known = self._found, self._known
        missing = rows[~known[rows]]
        if len(missing):
            found[missing] = [direction_of(table.ids[row]) for row in missing.tolist()]
            known[missing] = True  # after its direction: another thread may read it then
        return found[rows]


@dataclass(eq=False)
class RowEffects:
    """The effects of a version, by the rows of a table, weighed as a bandit weighs its signals.

    ``effects``, ``deviations``  of each row that was there; a later one has no rewards. Shapes: (n,)
    ``spread``                   the deviation of an arm without rewards
    ``head``                     its rows, ascending; ``is_whole``: all that were alive
    ``rest``                     B at the points of ``GRID``
    """

    version: EffectVersion
    directions: Directions
    exploration: float
    spread: float
    effects: Vector
    deviations: Vector
    head: Rows
    is_whole: bool
    rest: Vector

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
    ) -> RowEffects:
        """Cost: O(K), and a look-up for each arm of the version. ``most_head``: H."""
        record, count = version.record, len(weights)
        spread = float(np.sqrt(weights**2 @ np.array(record.variances[:count])))
        effects, deviations = np.zeros(table.rows), np.full(table.rows, spread)
        rows = table.row_of_each(record.arms)
        same = np.flatnonzero(rows >= 0)
        same = same[table.revisions[rows[same]] == np.array(record.revisions, dtype=np.int64)[same]]
        effects[rows[same]] = weights @ version.effects[:count, same]
        deviations[rows[same]] = np.sqrt(weights**2 @ version.deviations[:count, same] ** 2)
        head, others = table.live_rows, NO_ROWS
        if not (is_whole := len(head) <= most_head):
            promise = effects[head] + OPTIMISM * exploration * deviations[head]
            order = np.argpartition(-promise, most_head)
            head, others = np.sort(head[order[:most_head]]), head[order[most_head:]]
        # An arm that comes later has no rewards.
        rest = GRID * exploration * spread
        if len(others):
            bounds = [(effects[others] + t * exploration * deviations[others]).max() for t in GRID]
            rest = np.maximum(rest, bounds)
        return cls(version, directions, exploration, spread, effects, deviations, head, is_whole, rest)

    @property
    def bytes(self) -> int:
        return 10_000 + ROW_BYTES * len(self.effects)

    def worth(self, table: TableSnapshot, rows: Rows, w: Vector | None = None) -> Vector:
        """b_i + e s_i (g_i.w); without w b_i. Shapes: rows (n,), w (4,) -> (n,)."""
        is_known = rows < len(self.effects)
        own = rows if is_known.all() else np.where(is_known, rows, 0)
        effects, deviations = self.effects[own], self.deviations[own]
        if own is not rows:
            effects, deviations = effects * is_known, np.where(is_known, deviations, self.spread)
        if w is None:
            return effects
        found: Vector = effects + self.exploration * deviations * (self.directions.of(table, rows) @ w)
        return found

    def extended(self, table: TableSnapshot, rows: Rows) -> Matrix:
        """[b_i ; e s_i g_i], of which ``worth`` is the product with [1 ; w]. Shapes: (n,) -> (n, 5)."""
        is_known = rows < len(self.effects)
        own = np.where(is_known, rows, 0)
        deviations = np.where(is_known, self.deviations[own], self.spread)
        noise = self.exploration * deviations[:, None] * self.directions.of(table, rows)
        return np.column_stack((self.effects[own] * is_known, noise))

    def bound(self, w: Vector | None) -> float:
        """The most that an arm outside of the head has beyond x_i.q."""
        length = 0.0 if w is None else float(np.linalg.norm(w))
        return float(np.interp(length, GRID, self.rest)) if length <= GRID[-1] else math.inf


class EffectTables:
    """The row effects of bandits, each of one version and table. ``capacity_bytes`` bounds their memory."""

    def __init__(self, *, capacity_bytes: int) -> None:
        self._held: BoundedCache[tuple[str, Sequence[float]], RowEffects] = BoundedCache(capacity_bytes)
        self._directions: BoundedCache[int, Directions] = BoundedCache(capacity_bytes)

    def of(self, bandit: Bandit, arms: LearnerSnapshot) -> RowEffects | None:
        """Those of a bandit as it is served; None: it has none. Awaits nothing."""
        version = bandit.effects
        if version is None or not version.record.arms or arms.plain.waits:
            return None
        table = arms.plain.whole.table
        weights = (1.0,) if bandit.weighing is None else bandit.weighing.weights
        key = bandit.uid, weights
        held, directions = self._held.get(key), self._directions.get(table.number)
        # Rows that came since have no rewards; after a compaction rows have other numbers.
        is_of_now = (
            held is not None
            and held.directions is directions
            and held.version is version
            and held.exploration == bandit.exploration
            and table.rows <= 2 * len(held.effects)
        )
        if is_of_now:
            return held
        if directions is None:
            directions = Directions()
            self._directions.put(table.number, directions, 40 * table.rows)
        held = RowEffects.of(version, directions, table, np.array(weights), bandit.exploration)
        self._held.put(key, held, held.bytes)
        return held


@dataclass(eq=False)
class EffectSolver:
    """Finds the arms that are worth most. ``solver`` finds those of largest x.q among ``arms``.

    ``rng``: w is drawn from it with the first search; None: no exploration.
    """

    arms: LearnerSnapshot
    solver: MipsSolver
    effects: RowEffects
    rng: np.random.Generator | None = None
    w: Vector | None = None
    most_asked: int = MOST_ASKED

    def search(self, query: Vector, k: int, exclude: Rows = NO_ROWS) -> TopK:
        if self.rng is not None and self.w is None:
            self.w = self.rng.standard_normal(DIRECTIONS)
        plain, head = self.arms.plain, self.effects.head
        head = head[plain.lets_in(head)]
        if len(exclude):
            head = head[not_in(head, exclude)]
        # All that are here may be in the head; of those that came since it was made, some are not.
        if self.effects.is_whole and len(head) == plain.size - len(exclude):
            return self._best(query, head, k, is_exact=True)
        asked = max(LEAST_ASKED, 2 * k)
        while True:
            near = self.solver.search(query, asked, exclude)
            is_all = len(near.rows) < asked
            found = self._best(query, np.union1d(near.rows, head), k, is_exact=near.exact or is_all)
            if is_all:
                return found
            least = float((self.arms.features_of(near.rows[-1:]) @ query)[0]) + self.effects.bound(self.w)
            if len(found.rows) == k and found.scores[-1] >= least:
                return found
            if asked >= self.most_asked:
                return TopK(found.rows, found.scores, exact=False)
            asked = min(MORE * asked, max(self.most_asked, k))

    def _best(self, query: Vector, rows: Rows, k: int, *, is_exact: bool) -> TopK:
        scores = self.arms.features_of(rows) @ query
        scores += self.effects.worth(self.arms.plain.table, rows, self.w)
        order = np.argsort(-scores, kind="stable")[:k]
        return TopK(rows[order], scores[order], is_exact)
