"""Inverse-gap weighting as a target: its propensities are exact, among the candidates of each situation.

Cost: a search of the index for each situation, and O(n k) for a list of k among n candidates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from app.indexes.snapshot import Snapshot
from app.services.choosing.covers import Covers
from app.services.choosing.igw import candidates, near_and_cover
from app.services.choosing.target import Lists, Pool, Situations, Targets, Weighed
from shortlist.evaluation import igw_target as algorithm
from shortlist.types import Rows, Vector

NO_CANDIDATE = -2  # differs from every row, and from -1: no arm of the pool
TOGETHER = 4_000_000  # numbers: candidates of decisions that are weighed at once

Known = tuple[Rows, Vector]


@dataclass(frozen=True, slots=True, eq=False)
class IgwTarget:
    """``cover``, ``count``, ``gamma``: as in ``igw.draw``."""

    view: Snapshot
    cover: Rows
    count: int
    gamma: float

    @property
    def known_bytes(self) -> int:
        return 500 + 16 * (self.count + len(self.cover))

    def know(self, situations: Situations, check: Callable[[], None]) -> Sequence[Known]:
        """The candidates of each situation, and their estimates."""
        found: list[Known] = []
        for query, exclude in zip(situations.queries, situations.exclude, strict=True):
            check()
            pool = candidates(self.view, query, self.cover, count=self.count, exclude=exclude)
            found.append((pool.rows, pool.estimates))
        return found

    def weigh(self, situations: Situations, known: Sequence[Known], lists: Lists) -> Weighed:  # noqa: ARG002
        widest = max((len(rows) for rows, _ in known), default=0)
        rows = np.full((len(known), widest), NO_CANDIDATE, dtype=np.int64)
        estimates = np.zeros((len(known), widest))
        for place, (own, scores) in enumerate(known):
            rows[place, : len(own)], estimates[place, : len(own)] = own, scores
        found = Weighed(np.zeros(lists.rows.shape), np.zeros(lists.rows.shape))
        step = max(1, TOGETHER // max(widest, 1))
        for start in range(0, len(lists.rows), step):
            part = slice(start, start + step)
            which = lists.which[part]
            near, drawn = rows[which], lists.rows[part]
            places = np.full(drawn.shape, -1, dtype=np.int64)
            for j in range(drawn.shape[1]):
                same = near == drawn[:, j, None]
                places[:, j] = np.where(same.any(axis=1), same.argmax(axis=1), -1)
            found.propensities[part], found.expected[part] = algorithm.weigh(
                estimates[which], near != NO_CANDIDATE, places, gamma=self.gamma
            )
        return found


async def _of(covers: Covers, pool: Pool) -> IgwTarget:
    record, view = pool.bandit.record, pool.view.plain
    count, cover = await near_and_cover(covers, pool.bandit, pool.arm_filter, view, k=pool.k)
    return IgwTarget(view, cover, count, 0.0 if record.gamma is None else record.gamma)


TARGETS = Targets(_of)
