"""Arm effects of a catalogue in an engine: the engine proposes arms, and the head is compared beside them.

An engine is asked by features alone. So the arms of largest b_i + 2.5 e s_i of a version, the head, are read
by id and held in memory. A choice takes the arms of the head that may be the best, has the store say what
they are like now, and ranks them together with what the engine proposes. All are ranked with the effects of
the newest version, also while its head is being read: until then the head is that of the version before.

Notation as in ``arm_effects``. J: signals.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial

import numpy as np

from app.bandits.effect_version import EffectVersion
from app.catalogues.catalogue import Catalogue
from app.catalogues.learner_snapshot import LearnerSnapshot
from app.indexes.snapshot import ResidentSnapshot, Snapshot
from app.platform.deadlines import task_for_all
from app.platform.pools import REQUESTS
from app.policies.arm_effects import (
    LEAST_ASKED,
    MOST_HEAD,
    OPTIMISM,
    ArmEffects,
    EffectSolver,
    directions_of,
)
from shortlist.types import NO_ROWS, Matrix, MipsSolver, Rows, TopK, Vector

HEAD_NUMBERS = 1 << 20  # of the features of a head: 8 MB, a millisecond of a choice
NUMBER_BYTES, ARM_BYTES = 20, 1_000  # of an arm in a head, about


def head_size(dim: int) -> int:
    """The most arms that the head of such a catalogue has."""
    return max(1, min(MOST_HEAD, HEAD_NUMBERS // dim))


@dataclass(frozen=True, slots=True, eq=False)
class EngineHead:
    """The arms of a head, as they were read: ``rows`` of ``arms``, ascending.

    Shapes: rows (n,), effects, variances (J, n), directions (4, n).
    """

    arms: ResidentSnapshot
    rows: Rows
    effects: Matrix
    variances: Matrix
    directions: Matrix

    @classmethod
    def of(cls, version: EffectVersion, arms: ResidentSnapshot) -> EngineHead:
        """Cost: a look-up for each of ``arms``."""
        rows = arms.listed
        revisions = arms.table.revisions[rows]
        ids = [arms.id_of(row) for row in rows.tolist()]
        effects, deviations = version.of_arms(ids)
        return cls(arms, rows, effects, deviations**2, directions_of(revisions).astype(np.float64))

    def scores(self, effects: EngineEffects, query: Vector, w: Vector | None) -> Vector:
        """What each arm is worth. Shapes: query (d,), w (4,) -> (n,). Cost: n d."""
        weights = effects.weights[: len(self.effects)]
        scores: Vector = (self.arms.table.features @ query)[self.rows] + weights @ self.effects
        if w is not None:
            noises = effects.exploration * np.sqrt(weights**2 @ self.variances)
            scores += noises * (w @ self.directions)
        return scores


@dataclass(frozen=True, eq=False)
class EngineEffects(ArmEffects):
    """The effects of a version, weighed as a bandit weighs its signals; ``head`` None: it is not read yet."""

    version: EffectVersion
    weights: Vector
    exploration: float
    head: EngineHead | None

    def worth(self, arms: LearnerSnapshot, rows: Rows, w: Vector | None = None) -> Vector:
        ids = list(map(arms.id_of, rows.tolist()))
        revisions = np.array(list(map(arms.revision_of, rows.tolist())), dtype=np.int64)
        effects, deviations = self.version.of_arms(ids)
        weights = self.weights[: len(effects)]
        worth: Vector = weights @ effects
        if w is not None:
            worth += self.exploration * np.sqrt(weights**2 @ deviations**2) * (w @ directions_of(revisions))
        return worth

    def solver(
        self, arms: LearnerSnapshot, solver: MipsSolver, rng: np.random.Generator | None = None
    ) -> EffectSolver:
        return EngineEffectSolver(arms, solver, self, rng)


@dataclass(eq=False)
class EngineEffectSolver(EffectSolver):
    """Of arms in an engine; never exact. For ``SEARCHES``: it waits for the engine and for the store."""

    effects: EngineEffects

    def search(self, query: Vector, k: int, exclude: Rows = NO_ROWS) -> TopK:
        plain, head, w = self.arms.plain, self.effects.head, self._drawn()
        rows = self.solver.search(query, max(LEAST_ASKED, 2 * k), exclude).rows
        if head is not None:
            near = head.scores(self.effects, self.arms.catalogue_query(query), w)
            ids = _contenders(head, near, k, plain, exclude)
            rows = np.union1d(rows, plain.admitted(ids, exclude))
        scores = self.scores_of(query, rows)
        # Among equals the oldest features come first, as without effects.
        revisions = np.array([self.arms.revision_of(row) for row in rows.tolist()])
        best = np.lexsort((revisions, -scores))[:k] if len(rows) else NO_ROWS
        return TopK(rows[best], scores[best], exact=False)

    def search_exact(self, query: Vector, k: int, exclude: Rows = NO_ROWS) -> TopK:
        """As ``search``: nobody compares all arms here."""
        return self.search(query, k, exclude)


class HeadFollower:
    """The head of one bandit, which follows its effects and the catalogue. For the event loop."""

    def __init__(self, catalogue: Catalogue) -> None:
        self.catalogue = catalogue
        self.head: EngineHead | None = None
        assert catalogue.index.resident is None  # noqa: S101 - for the type checker
        self._held = catalogue.index.hold()
        self._number = 0  # of the version of the head
        self._reading: asyncio.Task[None] | None = None

    @property
    def most_bytes(self) -> int:
        dim = self.catalogue.dim
        return head_size(dim) * (NUMBER_BYTES * dim + ARM_BYTES)

    @property
    def is_reading(self) -> bool:
        return self._reading is not None

    def follow(self, version: EffectVersion, weights: Vector, exploration: float) -> None:
        """Read the head of this version in the background, if it or its arms are newer than the one here.

        Not of an older version, with which a decision is explained. What failed is tried by the next call.
        """
        is_due = version.number > self._number
        if version.number == self._number:
            is_due = not self._held.is_current
        if is_due and not self.is_reading:
            self._reading = task_for_all(self._read(version, weights, exploration))
            self._reading.add_done_callback(lambda _: setattr(self, "_reading", None))

    async def _read(self, version: EffectVersion, weights: Vector, exploration: float) -> None:
        most = head_size(self.catalogue.dim)
        ids = await REQUESTS.run(partial(most_promising, version, weights, exploration, most))
        await self._held.hold(ids)
        self.head = await REQUESTS.run(partial(EngineHead.of, version, self._held.snapshot()))
        self._number = version.number


def _contenders(head: EngineHead, scores: Vector, k: int, plain: Snapshot, exclude: Rows) -> list[str]:
    """Ids of the ``k`` best arms of a head that ``plain`` lets in, in no order. ``exclude``: rows of that."""
    is_eligible = np.zeros(head.arms.table.rows, dtype=np.bool_)
    is_eligible[plain.matching(head.arms)] = True
    is_eligible[head.arms.rows_of([plain.id_of(row) for row in exclude.tolist()])] = False
    places = np.flatnonzero(is_eligible[head.rows])
    if len(places) > k:
        places = places[np.argpartition(-scores[places], k)[:k]]
    return [head.arms.id_of(row) for row in head.rows[places].tolist()]


def most_promising(version: EffectVersion, weights: Vector, exploration: float, most: int) -> list[str]:
    """Ids of the arms of largest b_i + 2.5 e s_i, at most so many. Cost: O(J K)."""
    effects, deviations = version.at(slice(None))
    weights = weights[: len(effects)]
    promise = weights @ effects + OPTIMISM * exploration * np.sqrt(weights**2 @ deviations**2)
    places = np.arange(len(promise))
    if len(promise) > most:
        places = np.argpartition(-promise, most)[:most]
    return [version.names[place] for place in places.tolist()]
