"""What an evaluation needs, without a store: arms in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from app.errors import Invalid
from app.filters.filter import Filter
from app.services.bandits.bandits import Bandit
from app.services.catalogues.filtered_snapshots import FilteredSnapshots
from app.services.catalogues.learner_snapshot import LearnerSnapshot
from app.services.choosing.covers import Covers
from app.services.decision_log.rows import Row
from app.services.measuring.outcomes import terms_of
from shortlist.types import Matrix

FILTER_BYTES = 256 << 20


@dataclass(slots=True)
class HeldSource:
    """A ``Source`` of one bandit, whose catalogue does not change."""

    covers: Covers = field(default_factory=Covers)
    filtered: FilteredSnapshots = field(
        default_factory=lambda: FilteredSnapshots(capacity_bytes=FILTER_BYTES)
    )

    async def view(self, bandit: Bandit, arm_filter: Filter | None) -> LearnerSnapshot:
        return bandit.seen(await self.filtered.of(bandit.catalogue, arm_filter))

    async def features(
        self, bandit: Bandit, shown: Sequence[tuple[Row, str]]
    ) -> tuple[Matrix, Sequence[bool]]:
        index = bandit.catalogue.index.snapshot()
        found = index.view.row_of_each([arm for _, arm in shown])
        if (found < 0).any():
            raise Invalid("an arm of a logged decision is not among the arms")
        return index.features_of(found), [True] * len(shown)

    async def default(self, bandit: Bandit, version: int) -> float:  # noqa: ARG002 - the log has no terms
        return terms_of(bandit.record.reward).default
