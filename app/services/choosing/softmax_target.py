"""Softmax as a target: its propensities are exact, over all eligible arms.

An arm that is excluded takes its share from the sum over all arms, as one that was drawn does.

Scores are those of many situations at once, products of matrices, a block of arms at a time: memory does not
grow with the catalogue. Cost: K d for each situation, and O(k) for a list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from app.indexes.snapshot import Snapshot, scores_of
from app.services.choosing.covers import Covers
from app.services.choosing.target import Lists, Pool, Situations, Targets, Weighed
from shortlist.evaluation import softmax_target as algorithm
from shortlist.evaluation.softmax_target import Totals
from shortlist.types import Matrix, Rows

TOGETHER = 256  # situations
BLOCK = 256  # arms: their scores in TOGETHER situations fit into the cache of a core

Known = tuple[float, float, float]


@dataclass(frozen=True, slots=True, eq=False)
class SoftmaxTarget:
    """``rows``: of all eligible arms (K,)."""

    view: Snapshot
    rows: Rows
    temperature: float
    known_bytes: int = 200

    def know(self, situations: Situations, check: Callable[[], None]) -> Sequence[Known]:
        """The totals of each situation."""
        found: list[Known] = []
        for start in range(0, len(situations), TOGETHER):
            queries = situations.queries[start : start + TOGETHER]
            totals = algorithm.totals(
                self._blocks(check),
                queries,
                temperature=self.temperature,
                largest_norm=self.view.largest_norm,
            )
            columns = (totals.top, totals.mass, totals.moment)
            found += zip(*(column.tolist() for column in columns), strict=True)
        return found

    def weigh(self, situations: Situations, known: Sequence[Known], lists: Lists) -> Weighed:
        columns = np.array(known).T
        totals = Totals(*columns).of(lists.which)
        found = algorithm.weigh(totals, lists.scores, lists.eligible, temperature=self.temperature)
        lost = np.flatnonzero(found.lost)
        if len(lost):
            self._walk(situations, lists, lost, found.propensities, found.expected)
        return Weighed(found.propensities, found.expected)

    def _blocks(self, check: Callable[[], None]) -> Iterator[Matrix]:
        for start in range(0, len(self.rows), BLOCK):
            check()
            yield self.view.features_of(self.rows[start : start + BLOCK])

    def _walk(
        self, situations: Situations, lists: Lists, lost: Rows, propensities: Matrix, expected: Matrix
    ) -> None:
        """Overwrite what rounding has lost. Cost: K d for each situation among them, k K for each list."""
        order = np.argsort(self.rows)
        lost = lost[np.argsort(lists.which[lost], kind="stable")]
        before = -1
        for decision in lost.tolist():
            if lists.which[decision] != before:
                before = int(lists.which[decision])
                scores = scores_of(self.view.view, self.rows, situations.queries[before])
            rows = lists.rows[decision]
            places = order[np.minimum(np.searchsorted(self.rows, rows, sorter=order), len(order) - 1)]
            places = np.where(rows >= 0, places, -1)
            walked = algorithm.walk(scores, places, temperature=self.temperature)
            propensities[decision], expected[decision] = walked


async def _of(covers: Covers, pool: Pool) -> SoftmaxTarget:  # noqa: ARG001 - as all targets
    view = pool.view.plain
    return SoftmaxTarget(view, view.eligible(), pool.bandit.record.temperature or 1.0)


TARGETS = Targets(_of, by_exclusion=False)
