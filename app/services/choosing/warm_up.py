"""Warm-up: a new key is first shown k arms that cover the catalogue, by greedy k-center, each in its slot.

The warm-up ends when the key has been shown all centres, or has as many rewards as there are centres: then
its learner knows more than they could tell it. Slots are taken in the store, so neither a restart nor another
process shows one twice. They are forgotten with the learner, and when a key made no choice for as long as a
token lives.

Centres are those of the catalogue as it was a short while ago; with a filter, of the arms that it let in
(``covers``). An arm that is gone, or that the caller excludes, gives its slot to the policy. Centres are
unlike each other anyway: a list that shows some is not made diverse.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from app.indexes.snapshot import merged
from app.services.catalogues.learner_snapshot import LearnerSnapshot
from app.services.choosing.covers import Covers
from app.services.choosing.limits import LimitedSolver, Limits
from app.services.choosing.selection import ReadSnapshot, SelectionRequest
from app.storage.protocol import Store
from shortlist.types import NO_ROWS, MipsSolver, Rows, TopK, Vector


@dataclass(frozen=True, slots=True)
class CentersFirst:
    """The solver of a warm-up: first the eligible ``centers``, then the best arms of ``solver``.

    Both within the ``limits`` of the rules: centres count first, however low they score.
    """

    arms: LearnerSnapshot
    solver: MipsSolver
    centers: Rows
    limits: Limits | None = None

    def search(self, query: Vector, k: int, exclude: Rows = NO_ROWS) -> TopK:
        rows, solver = self.centers[~np.isin(self.centers, exclude)][:k], self.solver
        if self.limits is not None:
            rows = rows[self.limits.take_allowed(rows, k)]
            solver = LimitedSolver(self.arms, solver, self.limits.after(rows))
        if not len(rows):
            return solver.search(query, k, exclude)
        shown = TopK(rows, self.arms.features_of(rows) @ query, exact=False)
        rest = TopK(NO_ROWS, np.empty(0), exact=False)
        if len(rows) < k:
            rest = solver.search(query, k - len(rows), np.union1d(exclude, rows))
        return merged(shown, rest, k)


class WarmUp:
    """The slots of all keys that are warmed up."""

    def __init__(self, store: Store, covers: Covers, *, ttl_ms: int) -> None:
        self._store = store
        self._covers = covers
        self._ttl_ms = ttl_ms

    async def before(
        self, solver: MipsSolver, request: SelectionRequest, snapshot: ReadSnapshot
    ) -> MipsSolver:
        """A solver that shows the centres whose slot it is, and then what ``solver`` finds, within the rules.

        ``solver`` within the rules when the learner knows enough. The same claim takes the same slots.
        Raises Unavailable.
        """
        arms, rule = snapshot.arms, request.bandit.record.explore
        if rule is None or snapshot.learner_version >= rule.centers:
            return request.limited(arms, solver)
        ids = await self._covers.of(request.bandit.catalogue, request.arm_filter, arms, rule.centers)
        start = await self._first_slot(request, most=len(ids))
        centers = arms.rows_of(ids[start : start + request.k])
        if not len(centers):
            return request.limited(arms, solver)
        return CentersFirst(arms, solver, centers, request.limits(arms))

    async def _first_slot(self, request: SelectionRequest, *, most: int) -> int:
        """The first of the slots that are now the request's; of a dry run, that would be."""
        choices = self._store.choices
        if request.dry_run:
            return await choices.next_warm_up_slot(request.learner)
        return await choices.take_warm_up_slots(
            request.learner, count=request.k, most=most, claim=request.claim or "", ttl_ms=self._ttl_ms
        )
