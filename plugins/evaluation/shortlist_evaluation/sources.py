"""The arms and learners of an evaluation: from a running service, or from a file of arms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import msgspec
import numpy as np
from numpy.typing import NDArray

from shortlist.linear import ridge_sums
from shortlist.linear.learned_prior import LearnedPrior
from shortlist.types import Matrix
from shortlist_service.catalogues import (
    CandidateList,
    Catalogues,
    FilteredSnapshots,
    LoggedCandidates,
    Snapshot,
    among,
    candidates_in,
)
from shortlist_service.constraints import Filter, LearnerId
from shortlist_service.decision_log import Row, ShownArms, learner_of, revisions_in
from shortlist_service.errors import Invalid
from shortlist_service.learners import (
    EffectVersion,
    LearnedPriors,
    LearnerState,
    PriorVersion,
    ServedEffects,
    begins_with,
)
from shortlist_service.policies import Bandit, Covers, LearnerSnapshot, Posterior
from shortlist_service.routes import Bandits, Learners
from shortlist_service.work import MEASURING

FILTER_BYTES = 256 << 20


@dataclass
class HeldSource:
    """The source of one bandit, whose catalogue does not change and is in memory, without a store.

    ``priors``: versions of its learned prior, by number. ``logged_by``: with the settings of the decisions;
    None: with the evaluated ones. ``learners``: their states, by name: before the log, or now, as for the
    evaluation; None: only rows tell them.
    """

    covers: Covers = field(default_factory=Covers)
    filtered: FilteredSnapshots = field(
        default_factory=lambda: FilteredSnapshots(capacity_bytes=FILTER_BYTES)
    )
    priors: Mapping[int, PriorVersion] = field(default_factory=dict)
    logged_by: Bandit | None = None
    learners: Mapping[str, LearnerState] | None = None

    @property
    def knows_learners(self) -> bool:
        """True if ``posterior`` has the present learners."""
        return self.learners is not None

    async def posterior(self, key: str | None, bandit: Bandit) -> Posterior:
        """The present posterior of a key's learner. ``bandit``: by some weights of its signals."""
        state = (self.learners or {}).get(learner_of(bandit, key).name)
        return bandit.posterior(ridge_sums.empty(bandit.learner_dim) if state is None else state.sums)

    async def of_now(self, weighed: Sequence[Bandit]) -> Sequence[Bandit]:
        """The bandit, by several weights, with the newest prior and arm effects."""
        newest = self.priors[max(self.priors)] if self.priors else None
        return weighed if newest is None else [bandit.with_prior(newest) for bandit in weighed]

    def learners_before(self, bandit: Bandit) -> dict[LearnerId, LearnerState]:
        """The learners before the log, as far as its rows do not tell."""
        return {LearnerId(bandit.uid, name): state for name, state in (self.learners or {}).items()}

    async def snapshot(
        self, bandit: Bandit, arm_filter: Filter | None, candidates: bytes | None = None
    ) -> LearnerSnapshot:
        """The arms that a filter matches. ``candidates``: of these alone, as of ``PoolName``."""
        if candidates is None:
            return bandit.seen(await self.filtered.of(bandit.catalogue, arm_filter))
        candidate_list = CandidateList.of_logged(msgspec.msgpack.decode(candidates, type=LoggedCandidates))
        arms: Snapshot = candidates_in(bandit.catalogue.index.snapshot(), candidate_list)
        return bandit.seen(arms if arm_filter is None else among(arms, arm_filter))

    async def features(self, bandit: Bandit, shown: ShownArms) -> tuple[Matrix, Sequence[bool]]:
        """The features of decisions' arms when they were shown, and whether they are known.

        Shapes: -> (n, d), (n,). Raises Invalid.
        """
        index = bandit.catalogue.index.snapshot()
        rows = index.table.row_of_each([arm for _, arm in shown])
        if (rows < 0).any():
            raise Invalid("an arm of a logged decision is missing from the arms")
        return index.features_of(rows), [True] * len(shown)

    async def arms_version(self, bandit: Bandit) -> int:  # noqa: ARG002 - as below
        """The version of the catalogue from which on it has had these arms with these features."""
        return 0  # a file of arms has no versions: they are those of the log

    async def prior(self, bandit: Bandit, number: int) -> PriorVersion | None:  # noqa: ARG002 - as below
        """A version of its learned prior; None: it is not known."""
        return self.priors.get(number)

    async def first(self, bandit: Bandit) -> LearnedPrior | None:  # noqa: ARG002 - as below
        """The prior of the history that it began with: in a file, the version without own keys."""
        learned = (version.learned for version in self.priors.values())
        return next((prior for prior in learned if prior is not None and not prior.own_keys), None)

    async def effects(self, bandit: Bandit, number: int) -> EffectVersion | None:  # noqa: ARG002 - as below
        """A version of its arm effects; None: it is not kept."""
        return None

    async def versions(self, bandit: Bandit, rows: Sequence[Row]) -> Mapping[int, Bandit]:
        """The bandit as it made decisions, by its version; the present one where none is kept."""
        return dict.fromkeys((row.bandit_version for row in rows), self.logged_by or bandit)


@dataclass(kw_only=True)
class ServedSource(HeldSource):
    """The source of a running service."""

    bandits: Bandits
    catalogues: Catalogues
    learned_priors: LearnedPriors
    served_effects: ServedEffects
    served_learners: Learners

    @property
    def knows_learners(self) -> bool:
        return True

    async def posterior(self, key: str | None, bandit: Bandit) -> Posterior:
        return await self.served_learners.load_uncached(bandit, learner_of(bandit, key))

    async def of_now(self, weighed: Sequence[Bandit]) -> Sequence[Bandit]:
        bandit = weighed[0]
        if bandit.record.prior != "learned":
            return weighed
        prior = await self.learned_priors.newest(bandit.uid)
        weighed = [bandit.with_prior(prior) for bandit in weighed]
        if bandit.record.arm_effects != "auto":
            return weighed
        effects = await self.served_effects.newest(bandit.uid)
        return [bandit.with_effects(effects) for bandit in weighed]

    async def features(self, bandit: Bandit, shown: ShownArms) -> tuple[Matrix, Sequence[bool]]:
        """A catalogue that did not change since a decision has its features still."""
        index, version = bandit.catalogue.index.snapshot(), bandit.catalogue.version

        def of_now() -> tuple[Matrix, NDArray[np.bool_], Mapping[tuple[str, int], list[int]]]:
            rows = index.table.row_of_each([arm for _, arm in shown])
            is_known = rows >= 0
            features = (
                index.features_of(np.maximum(rows, 0)) if index.table.rows else np.zeros((len(rows), 0))
            )
            return features, is_known, _earlier(shown, is_known, version)

        features, is_known, earlier = await MEASURING.run(of_now)
        for (arm, revision), places in earlier.items():
            vector = await self.catalogues.features_at(bandit.catalogue.uid, arm, revision)
            is_known[places] = vector is not None
            if vector is not None:
                features[places] = vector
        return features, is_known.tolist()

    async def arms_version(self, bandit: Bandit) -> int:
        return await self.catalogues.arms_version(bandit.catalogue)

    async def prior(self, bandit: Bandit, number: int) -> PriorVersion | None:
        return await self.learned_priors.version(bandit.uid, number)

    async def first(self, bandit: Bandit) -> LearnedPrior | None:
        moves = await self.bandits.moves(bandit)
        last = moves[-1] if moves else None
        return await MEASURING.run(partial(begins_with, bandit.record, bandit.history, last))

    async def effects(self, bandit: Bandit, number: int) -> EffectVersion | None:
        return await self.served_effects.version(bandit.uid, number)

    async def versions(self, bandit: Bandit, rows: Sequence[Row]) -> Mapping[int, Bandit]:
        numbers = {row.bandit_version for row in rows}
        return {number: await self.bandits.find(bandit.uid, number) or bandit for number in numbers}


def _earlier(
    shown: ShownArms, is_known: NDArray[np.bool_], version: int
) -> Mapping[tuple[str, int], list[int]]:
    """At which places the features of an arm's revision are wanted.

    A token is read once for all arms of its decision: one of 100 arms takes as long as 100 of one.
    """
    revisions = dict[str, Mapping[str, int]]()
    earlier = dict[tuple[str, int], list[int]]()
    for number, (row, arm) in enumerate(shown):
        if row.catalogue_version == version and is_known[number]:
            continue
        if row.decision not in revisions:
            revisions[row.decision] = revisions_in(row)
        if (revision := revisions[row.decision].get(arm)) is not None:
            earlier.setdefault((arm, revision), []).append(number)
    return earlier
