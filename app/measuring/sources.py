"""Where an evaluation reads arms and learners: from a running service, or from a file of arms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from app.bandits.bandit import Bandit
from app.bandits.prior_version import PriorVersion
from app.bandits.registry import Bandits
from app.catalogues.catalogues import Catalogues
from app.catalogues.learner_snapshot import LearnerSnapshot
from app.decision_log.rows import Row
from app.filtering.filtered_snapshots import FilteredSnapshots
from app.filters.filter import Filter
from app.learning.learned_priors import LearnedPriors
from app.measuring.logged_lists import revision_in
from app.measuring.outcomes import Terms, terms_of
from app.platform.errors import Invalid
from app.policies.warm_up import Covers
from shortlist.types import Matrix, Vector

FILTER_BYTES = 256 << 20

ShownArms = Sequence[tuple[Row, str]]


@dataclass
class HeldSource:
    """Of one bandit, whose catalogue does not change and is in memory, without a store.

    ``priors``: versions of its learned prior, by number.
    """

    covers: Covers = field(default_factory=Covers)
    filtered: FilteredSnapshots = field(
        default_factory=lambda: FilteredSnapshots(capacity_bytes=FILTER_BYTES)
    )
    priors: Mapping[int, PriorVersion] = field(default_factory=dict)

    async def snapshot(self, bandit: Bandit, arm_filter: Filter | None) -> LearnerSnapshot:
        """The arms that a filter matches."""
        return bandit.seen(await self.filtered.of(bandit.catalogue, arm_filter))

    async def features(self, bandit: Bandit, shown: ShownArms) -> tuple[Matrix, Sequence[bool]]:
        """Those that arms of decisions had when they were shown, and whether they are known.

        Shapes: -> (n, d), (n,). Raises Invalid.
        """
        index = bandit.catalogue.index.snapshot()
        rows = index.table.row_of_each([arm for _, arm in shown])
        if (rows < 0).any():
            raise Invalid("an arm of a logged decision is missing from the arms")
        return index.features_of(rows), [True] * len(shown)

    async def prior(self, bandit: Bandit, number: int) -> PriorVersion | None:  # noqa: ARG002 - as below
        """A version of its learned prior; None: it is not known."""
        return self.priors.get(number)

    async def terms(self, bandit: Bandit, version: int) -> Terms:
        """By which decisions of a version of the bandit are counted, with the weights of now."""
        return terms_of((await self.then(bandit, version)).record, bandit.weights)

    async def then(self, bandit: Bandit, version: int) -> Bandit:  # noqa: ARG002 - the log has no versions
        """A version of the bandit; of one that is no longer kept, that of now."""
        return bandit


class ServedSource(HeldSource):
    """Of a running service."""

    def __init__(
        self,
        bandits: Bandits,
        catalogues: Catalogues,
        filtered: FilteredSnapshots,
        covers: Covers,
        priors: LearnedPriors,
    ) -> None:
        super().__init__(covers, filtered)
        self._priors = priors
        self._bandits = bandits
        self._catalogues = catalogues

    async def features(self, bandit: Bandit, shown: ShownArms) -> tuple[Matrix, Sequence[bool]]:
        """A catalogue that did not change since a decision has its features still."""
        index, version = bandit.catalogue.index.snapshot(), bandit.catalogue.version
        rows = index.table.row_of_each([arm for _, arm in shown])
        features = index.features_of(np.maximum(rows, 0)) if index.table.rows else np.zeros((len(shown), 0))
        known = rows >= 0
        then = dict[tuple[str, int], Vector | None]()
        for place, (row, arm) in enumerate(shown):
            revision = revision_in(row, arm)
            if (row.catalogue_version == version and known[place]) or revision is None:
                continue
            if (arm, revision) not in then:
                then[arm, revision] = await self._catalogues.features_at(bandit.catalogue, arm, revision)
            vector = then[arm, revision]
            known[place] = vector is not None
            if vector is not None:
                features[place] = vector
        return features, known.tolist()

    async def prior(self, bandit: Bandit, number: int) -> PriorVersion | None:
        return await self._priors.version(bandit.uid, number)

    async def then(self, bandit: Bandit, version: int) -> Bandit:
        return await self._bandits.find(bandit.uid, version) or bandit
