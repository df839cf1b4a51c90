"""Quality of an engine's proposals, measured against a scan of all arms of the store.

Notation
    P, B        number of probes, arms of a page
    recall@1    share of the probes whose best arm is among the proposals
    ratio       score of the best proposal over the best arm's
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import numpy as np

from app.engines.engine_contract import ArmEngine
from app.engines.engine_index import CopyQuality, EngineIndex
from app.engines.proposals import asked_for
from app.platform.deadlines import yield_to_others
from app.records.records import bytes_to_vector
from app.storage.store import Store
from app.storage.types import Followed, Position
from shortlist.types import Matrix, Vector

PROBES = 64
PAGE = 1_000
EFS = (64, 128, 256, 512)
SEED = 0x6D696C76


@dataclass(frozen=True, slots=True)
class Probing:
    """One measurement. ``alive`` is called between pages of arms."""

    index: EngineIndex
    engine: ArmEngine
    store: Store
    followed: Followed
    alive: Callable[[], Awaitable[object]]

    async def measured(self) -> CopyQuality:
        """The least ``ef`` of ``EFS`` with the recall of the catalogue, or the last; and the quality at this
        ``ef``.

        Cost: every arm is read once, K P d multiplications; P searches for each ``ef``. Raises Unavailable.
        """
        probes = self._probes()
        ids, scores = await self._compared(probes)
        options, quality = self.index.options, CopyQuality(arms=self.followed.arms)
        for ef in EFS if options.ef_search is None else (options.ef_search,):
            quality = await self._tried(probes, ids, scores, ef)
            if quality.recall_at_1 >= options.target_recall:
                break
        return quality

    def _probes(self) -> Matrix:
        """The probes: half of them served queries, if there were so many. Shape: -> (P, d)."""
        dim, recent = self.index.dim, list(self.index.recent)[-PROBES // 2 :]
        rng = np.random.default_rng((SEED, int(self.index.uid[:8], 16)))
        drawn = rng.normal(size=(PROBES - len(recent), dim))
        return np.concatenate((drawn, np.array(recent).reshape(-1, dim)))

    async def _compared(self, probes: Matrix) -> tuple[Sequence[str], Vector]:
        """The best arm of each probe among all, and its score; a page of arms at a time."""
        ids, scores = [""] * len(probes), np.full(len(probes), -np.inf)
        uid, newest, after = self.index.uid, self.followed.version, Position()
        while page := await self.store.followed_arms.changes(uid, after, PAGE, newest=newest):
            after = page[-1]
            arms = [arm for arm in await self.store.arms.read(uid, [change.arm for change in page]) if arm]
            if arms:
                products = np.array([bytes_to_vector(arm.features) for arm in arms]) @ probes.T
                rows, largest = products.argmax(axis=0), products.max(axis=0)
                for probe in np.flatnonzero(largest > scores).tolist():
                    ids[probe], scores[probe] = arms[rows[probe]].id, largest[probe]
            await yield_to_others()
            await self.alive()
        return ids, scores

    async def _tried(self, probes: Matrix, ids: Sequence[str], scores: Vector, ef: int) -> CopyQuality:
        hits, ratios = 0, list[float]()
        limit = asked_for(self.index.options.shortlist)
        for probe, arm, score in zip(probes, ids, scores.tolist(), strict=True):
            near = probe.astype(np.float32)
            proposed = await self.engine.search(self.followed.collection, near, limit, ef=ef)
            hits += arm in proposed
            ratios.append(1.0 if arm in proposed else await self._ratio(proposed, probe, score))
        return CopyQuality(ef, hits / len(probes), float(np.mean(ratios)), min(ratios), self.followed.arms)

    async def _ratio(self, proposed: Sequence[str], probe: Vector, score: float) -> float:
        """The ratio of the best proposal: 1 less its relative distance to the best score."""
        arms = [arm for arm in await self.store.arms.read(self.index.uid, proposed) if arm is not None]
        best = max((float(bytes_to_vector(arm.features) @ probe) for arm in arms), default=-abs(score))
        return 1.0 - max(score - best, 0.0) / (abs(score) or 1.0)
