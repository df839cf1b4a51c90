"""Warm-up: a new key is first shown k arms that cover the catalogue, by greedy k-center, each in its turn.

The warm-up ends when the key has been shown all centres, or has as many rewards as there are centres: then
its learner knows more than they could tell it. Turns are taken in the store, so neither a restart nor another
process shows one twice. They are forgotten with the learner, and when a key made no choice for as long as a
token lives.

Centres are those of the catalogue as it was a short while ago; with a filter, of the arms that it let in. An
arm that is gone, or that the caller excludes, gives its turn to the policy. Of a large catalogue they are
those of an even sample of its arms.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

import numpy as np

from app.algorithms.kcenter.naive_greedy import naive_greedy
from app.algorithms.types import NO_ROWS, Matrix, MipsSolver, Rows, TopK, Vector
from app.indexes.snapshot import merged
from app.services.bounded.cache import BoundedCache
from app.services.catalogues.learner_view import LearnerView
from app.services.choosing.ask import Ask, Moment
from app.services.choosing.rules import LimitedSolver, Limits
from app.storage.protocol import WarmUpTurns

MOST_READS = 100_000_000
LEAST_COUNTED = 10  # the copy of the arms costs about as much as this many centres
REFRESH_S = 1.0
REST = 20.0
CENTERS_BYTES = 4 << 20
ID_BYTES = 200


_Identity = tuple[str, int, str]  # catalogue, number of centres, filter


@dataclass(slots=True)
class _Centers:
    """Ids of the centres of one version of a catalogue, and when they are worth making again."""

    version: int
    ids: list[str]
    rest_until: float


@dataclass(frozen=True, slots=True)
class CentersFirst:
    """The solver of a warm-up: first the eligible ``centers``, then the best arms of ``solver``.

    Both within the ``limits`` of the rules: centres count first, however low they score.
    """

    view: LearnerView
    solver: MipsSolver
    centers: Rows
    limits: Limits | None = None

    def search(self, query: Vector, k: int, exclude: Rows = NO_ROWS) -> TopK:
        rows, solver = self.centers[~np.isin(self.centers, exclude)][:k], self.solver
        if self.limits is not None:
            limits = self.limits.copy()
            rows = rows[limits.take_allowed(rows, k)]
            solver = LimitedSolver(self.view, solver, limits)
        if not len(rows):
            return solver.search(query, k, exclude)
        shown = TopK(rows, self.view.features_of(rows) @ query, exact=False)
        rest = TopK(NO_ROWS, np.empty(0), exact=False)
        if len(rows) < k:
            rest = solver.search(query, k - len(rows), np.union1d(exclude, rows))
        return merged(shown, rest, k)


class WarmUp:
    """The turns of all keys that are warmed up."""

    def __init__(self, store: WarmUpTurns, *, ttl_ms: int) -> None:
        self._store = store
        self._ttl_ms = ttl_ms
        self._known: BoundedCache[_Identity, _Centers] = BoundedCache(CENTERS_BYTES)
        self._making: dict[_Identity, asyncio.Task[_Centers]] = {}

    async def before(self, solver: MipsSolver, ask: Ask, moment: Moment) -> MipsSolver:
        """A solver that shows the centres whose turn it is, and then what ``solver`` finds, within the rules.

        ``solver`` within the rules when the learner knows enough. The same claim takes the same turns.
        Raises Unavailable.
        """
        bandit, view = ask.bandit, moment.view
        rule = bandit.record.explore
        if rule is None or moment.learner_version >= rule.centers:
            return ask.limited(view, solver)
        wanted = "" if ask.wanted is None else ask.wanted.key
        identity = bandit.catalogue.uid, rule.centers, wanted
        ids = (await self._centers(identity, bandit.catalogue.version, view)).ids
        start = await self._store.take_turns(
            ask.learner, count=ask.k, most=len(ids), claim=ask.claim or "", ttl_ms=self._ttl_ms
        )
        centers = view.rows_of(ids[start : start + ask.k])
        return CentersFirst(view, solver, centers, ask.limits(view))

    async def _centers(self, identity: _Identity, version: int, view: LearnerView) -> _Centers:
        """The centres, made now if there are none, and beside this call if they are old."""
        known = self._known.get(identity)
        if known is None or not known.ids:
            return await asyncio.shield(self._make(identity, version, view))
        if known.version != version and time.monotonic() >= known.rest_until:
            self._make(identity, version, view)
        return known

    def _make(self, identity: _Identity, version: int, view: LearnerView) -> asyncio.Task[_Centers]:
        making = self._making.get(identity)
        if making is None:
            making = asyncio.create_task(self._made(identity, version, view))
            self._making[identity] = making
        return making

    async def _made(self, identity: _Identity, version: int, view: LearnerView) -> _Centers:
        try:
            started = time.monotonic()
            ids = await asyncio.to_thread(center_ids, view, identity[1])
            took = time.monotonic() - started
            made = _Centers(version, ids, time.monotonic() + max(REFRESH_S, REST * took))
            self._known.put(identity, made, ID_BYTES * (1 + len(ids)) + len(identity[2]))
            return made
        finally:
            del self._making[identity]


def center_ids(view: LearnerView, k: int) -> list[str]:
    """Ids of ``k`` centres, the longest arm first: among the first choices it is what rewards tell most of.

    Cost: n d k reads, of an even sample of the n arms when that is more than ``MOST_READS``.
    """
    rows = view.eligible()
    step = -(-len(rows) * view.view.dim * max(k, LEAST_COUNTED) // MOST_READS)
    rows = rows[:: max(step, 1)]
    if not len(rows):
        return []
    points: Matrix = view.features_of(rows)
    first = int(np.argmax(np.linalg.norm(points, axis=1)))
    found = naive_greedy(points, k=min(k, len(rows)), first=first, rng=np.random.default_rng(0))
    return [view.id_of(row) for row in rows[found.centers].tolist()]
