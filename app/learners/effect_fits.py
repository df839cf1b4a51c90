"""Fitting the arm effects of a bandit from the sums of its arms, and writing of the newest version.

sums       of all partitions, of the newest move, as of now (``effect_totals``)
fit        in a thread: the variance of the effects, of each signal by itself, and of each arm the sums of all
           its revisions, faded by the changes of its features (``effect_chains``)
written    if an arm has moved by a fifth of its deviation, or the variance by a tenth, or after any change
           where the caller asks; only if no newer version has come meanwhile, else that version is the
           answer. Holds the moved arms alone, and all arms every ``WHOLE_EVERY`` versions
merged     each hour: sums of revisions without a token (``effect_merging``)
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from app.bandits.effect_version import (
    AgeFit,
    EffectVersion,
    PlaceFit,
    gone_from,
    record_to_bytes,
    version_of_fit,
)
from app.bandits.prior_version import PriorVersion
from app.bandits.settings import BanditRecord, PositionRule
from app.fold import ages as age_fits
from app.fold import places as place_fits
from app.learners import one_key_teaches
from app.learners.effect_chains import (
    Chained,
    Chains,
    Drifts,
    chains_of,
    changes_of,
    steps_of,
)
from app.learners.effect_merging import merge
from app.learners.effect_totals import CollectedSums, Step, Totals
from app.learners.learned_priors import LearnedPriors
from app.learners.prior_fits import Computing, Fittable
from app.learners.served_effects import ServedEffects
from app.platform.cache import BoundedCache
from app.platform.errors import NotFound
from app.platform.metrics import Metrics
from app.records.age_sums import AgeSums
from app.records.place_sums import PlaceSums
from app.records.records import bytes_to_vector
from app.storage.arm_effects import SumsOf
from app.storage.store import Store
from shortlist.linear import arm_effects
from shortlist.linear.arm_effects import EffectFit
from shortlist.linear.learned_prior import LearnedPrior
from shortlist.types import Vector

MOVED = 0.2  # deviations of an arm: with 0.5 films by genre lose .07 of what all arms gain, with 0.2 .02
GROWN = 0.1  # of the standard deviation of the effects
WHOLE_EVERY = 32  # versions
PARTITIONS_TOGETHER = 4  # whose sums are read at once
WHOLE_KEPT = 48  # as many bytes of a bandit as so many whole versions in memory, or 64 in the store
KNOWN_BYTES = 32 << 20  # of the revisions of arms, and of how far features have changed
KNOWN_ARM_BYTES = 300
CHANGES_TOGETHER = 1_000  # of which the features are read at once
NUMBER_BYTES = 8

Stale = Mapping[SumsOf, bytes]


class Folded(NamedTuple):
    """``rewards``: what was folded for a bandit, as text. ``arms``: the version of its catalogue."""

    rewards: str
    arms: int


class FittedEffects(NamedTuple):
    """The newest version, and the ``seconds`` of a core for the fit.

    ``waits``: sums of earlier features wait for the end of their tokens, to be merged.
    """

    version: EffectVersion | None
    seconds: float
    waits: bool = False


@dataclass(frozen=True, slots=True)
class _KnownArms:
    """The revisions of arms in a version of a catalogue; 0 of a missing arm."""

    catalogue_uid: str
    version: int
    revisions: dict[str, int]


@dataclass(frozen=True, slots=True)
class _KnownDrifts:
    """``drifts``: by the prior of this number."""

    prior: int
    catalogue_uid: str
    drifts: Drifts


class EffectFits:
    """Fits effects, one bandit at a time, and merges or drops sums without a token."""

    def __init__(self, store: Store, served: ServedEffects, priors: LearnedPriors, metrics: Metrics) -> None:
        self._store = store
        self._served = served
        self._priors = priors
        self._metrics = metrics
        self._arms: BoundedCache[str, _KnownArms] = BoundedCache(KNOWN_BYTES)  # by uid of the bandit
        self._drifts: BoundedCache[str, _KnownDrifts] = BoundedCache(KNOWN_BYTES)
        self._one = asyncio.Lock()

    async def fit(
        self, bandit: Fittable, *, only_if_moved: bool = True, merges: bool = False
    ) -> FittedEffects:
        """Fit effects, and make a version.

        ``only_if_moved``: only after a large enough move of an arm or of the variance. ``merges``: merge and
        drop sums without a token.

        Cost: reads the sums of all arms. Raises NotFound (the bandit is gone), Unavailable.
        """
        async with self._one:
            before, computing = await self._served.newest(bandit.uid), Computing()
            prior = await self._priors.newest(bandit.uid)
            now_ms = time.time_ns() // 1_000_000
            totals, stale, tables = await self._totals(bandit, computing, now_ms)
            current = await self._revisions(bandit, {step.arm for step in totals.places})
            steps = await computing.run(steps_of, totals, current)
            if prior is not None and (prior.learned is None or prior.record.space != bandit.record.space):
                prior = None
            changes = await computing.run(changes_of, steps)
            drifts = await self._drifts_of(bandit, prior, changes, computing)
            number = 1 if before is None else before.number + 1
            make = partial(
                fitted,
                number=number,
                now_ms=now_ms,
                before=before,
                centres=has_history(prior),
                places=_places_of(bandit.record, before, tables.places),
                ages=_ages_of(before, prior, tables.ages),
            )
            version, chains, chained = await computing.run(make, totals, steps, drifts, bandit.record)
            if merges and prior is not None:
                for partition, sums in stale.items():
                    await self._store.effects.drop_sums(partition, bandit.uid, sums)
                await merge(self._store, bandit, chains, chained, current)
            if before is None and not _knows_anything(version):
                return FittedEffects(None, computing.seconds, bool(changes))
            record = await computing.run(stored_of, before, version, MOVED if only_if_moved else 0.0)
            if record is None:
                return FittedEffects(before, computing.seconds, bool(changes))
            stands = await self._store.effects.write(
                bandit.name,
                bandit.uid,
                expected=number - 1,
                record=record,
                most_bytes=WHOLE_KEPT * version.bytes,
            )
            if stands is None:
                raise NotFound("there is no bandit with this name")
            self._metrics.effect_fits.labels("made" if stands else "late").inc()
            return FittedEffects(await self._served.newest(bandit.uid), computing.seconds, bool(changes))

    async def _totals(
        self, bandit: Fittable, computing: Computing, now_ms: int
    ) -> tuple[Totals, Mapping[int, Stale], CollectedSums]:
        """The sums of all partitions; by partition, those of before a move; and those of places and ages."""
        stale, collected = dict[int, Stale](), collected_of(bandit.record, now_ms)
        for start in range(0, self._store.partitions, PARTITIONS_TOGETHER):
            # One after the other they wait as often for the loop: half of what a fit takes.
            partitions = range(start, min(start + PARTITIONS_TOGETHER, self._store.partitions))
            parts = await asyncio.gather(*(self._sums(partition, bandit.uid) for partition in partitions))
            results = await computing.run(lambda parts: [collected.add(stored) for stored in parts], parts)
            stale |= zip(partitions, results, strict=True)
        return await computing.run(collected.totals), stale, collected

    async def folded(self, bandits: Sequence[Fittable]) -> Sequence[Folded]:
        """Read the folded entries of these bandits, and the versions of their arms: while both stay the same,
        so do effects, unless they were moved.
        """
        counts = await self._store.priors.folded([bandit.uid for bandit in bandits])
        uids = list(dict.fromkeys(bandit.catalogue_uid for bandit in bandits))
        all_versions = await asyncio.gather(*map(self._store.arms.version, uids))
        versions = dict(zip(uids, all_versions, strict=True))
        return [
            Folded(f"{count.entries} {count.replaced}", versions[bandit.catalogue_uid])
            for bandit, count in zip(bandits, counts, strict=True)
        ]

    async def _sums(self, partition: int, bandit_uid: str) -> Mapping[SumsOf, bytes]:
        """All sums in a partition."""
        # An arm changed during the read may come twice.
        sums = dict[SumsOf, bytes]()
        async for page in self._store.effects.all_sums(partition, bandit_uid):
            sums.update(page)
        return sums

    async def look_at_keys(self, bandit_uids: Iterable[str]) -> None:
        """Find out of which of these bandits one key gives most rewards: ``one_key_teaches``."""
        await one_key_teaches.look(self._store, bandit_uids)

    async def _revisions(self, bandit: Fittable, arms: AbstractSet[str]) -> Mapping[str, int]:
        """The revisions of the arms' features now. Cost: a read of changed arms."""
        uid = bandit.catalogue_uid
        known_arms = self._arms.get(bandit.uid)
        if known_arms is None or known_arms.catalogue_uid != uid:
            known_arms = _KnownArms(uid, await self._store.arms.version(uid), {})
        changes = await self._store.arms.changed(uid, known_arms.version)
        revisions = {} if changes.ids is None else known_arms.revisions
        for arm in changes.ids or ():
            revisions.pop(arm, None)
        unknown = [arm for arm in arms if arm not in revisions]
        revisions.update(zip(unknown, await self._store.arms.revisions(uid, unknown), strict=True))
        known_arms = _KnownArms(uid, changes.version, revisions)
        self._arms.put(bandit.uid, known_arms, KNOWN_ARM_BYTES * len(revisions))
        return revisions

    async def _drifts_of(
        self,
        bandit: Fittable,
        prior: PriorVersion | None,
        changes: Mapping[tuple[int, int], str],
        computing: Computing,
    ) -> Drifts:
        """Return the drifts of these changes by a prior; unknown ones are computed."""
        if prior is None or not changes:
            return {}
        known_drifts, uid = self._drifts.get(bandit.uid), bandit.catalogue_uid
        drifts = dict[tuple[int, int], Vector]()
        if known_drifts is not None and (known_drifts.prior, known_drifts.catalogue_uid) == (
            prior.number,
            uid,
        ):
            drifts = {
                change: known_drifts.drifts[change] for change in changes if change in known_drifts.drifts
            }
        learned = prior.of_signals(bandit.record.signal_count).learned
        assert learned is not None  # noqa: S101 - for the type checker
        new = [change for change in changes if change not in drifts]
        for start in range(0, len(new), CHANGES_TOGETHER):
            batch = new[start : start + CHANGES_TOGETHER]
            asked = [(changes[change], revision) for change in batch for revision in change]
            features = await self._store.arms.features_of(uid, asked)
            batch_drifts = await computing.run(drifts_of, learned, features)
            drifts.update(zip(batch, batch_drifts, strict=True))
        size = KNOWN_ARM_BYTES * len(drifts)
        self._drifts.put(bandit.uid, _KnownDrifts(prior.number, uid, drifts), size)
        return drifts


def drifts_of(learned: LearnedPrior, features: Sequence[bytes | None]) -> Sequence[Vector]:
    """The drift (J,) of each two of some features, before and after; inf where one is unknown.

    With a context, the drift of an arm in a context of zeros.
    """
    dims = {len(data) // NUMBER_BYTES for data in features if data}
    result = [np.full(len(learned.mean), np.inf) for _ in range(len(features) // 2)]
    if len(dims) != 1:
        return result
    (dim,) = dims
    both = zip(features[::2], features[1::2], strict=True)
    complete = [(position, old, new) for position, (old, new) in enumerate(both) if old and new]
    if complete and dim <= learned.dim:
        changes = np.array([bytes_to_vector(new) - bytes_to_vector(old) for _, old, new in complete])
        data = arm_effects.drift(
            changes,
            learned.mean[:, :dim],
            learned.covariance[:dim, :dim],
            learned.residuals.diagonal(),
        )
        for (position, _, _), v in zip(complete, data.T, strict=True):
            result[position] = v
    return result


def collected_of(record: BanditRecord, now_ms: int) -> CollectedSums:
    """Empty sums of a bandit, which fade to ``now_ms`` by the clock of its arms."""
    clock = record.clock_of_arms
    return CollectedSums(
        space=record.space,
        signals=record.signal_count,
        half_life_s=None if clock is None else clock.half_life_s,
        until_ms=0 if clock is None else clock.at(now_ms),
    )


def _places_of(
    record: BanditRecord, before: EffectVersion | None, parts: Sequence[PlaceSums]
) -> PlaceFit | None:
    """Fit the places of lists; where lists teach nothing, the fit of before."""
    if not record.learns_places:
        return None if before is None else before.record.places
    fit_before = None if before is None else before.record.places
    stated = record.position.examination if isinstance(record.position, PositionRule) else None
    return place_fits.fitted_places(
        fit_before, parts, may_be_below=record.reward.allows_negative, stated=stated
    )


def _ages_of(
    before: EffectVersion | None, prior: PriorVersion | None, parts: Sequence[AgeSums]
) -> AgeFit | None:
    """What is known of the ages of arms; the former version's where there is no prior."""
    known = None if before is None else before.record.ages
    if prior is None or prior.learned is None:
        return known
    return age_fits.fitted_ages(known, parts, float(prior.learned.residuals[0, 0]))


def _knows_anything(version: EffectVersion) -> bool:
    record = version.record
    return bool(len(version.names)) or record.places is not None or record.ages is not None


def has_history(prior: PriorVersion | None) -> bool:
    """Return whether the offset of all arms measures how the history's likes differ from rewards."""
    return prior is not None and prior.learned is not None and prior.learned.history > 0


def fitted(
    totals: Totals,
    steps: Sequence[Step],
    drifts: Drifts | None,
    record: BanditRecord,
    *,
    number: int,
    now_ms: int,
    before: EffectVersion | None = None,
    centres: bool = False,
    places: PlaceFit | None = None,
    ages: AgeFit | None = None,
) -> tuple[EffectVersion, Chains, Chained]:
    """Fit the effects of arms with these totals, as a version with this number after ``before``.

    Cost: O(P log P) for P steps.

    With a half-life of arms all arms fade to now, also without new rewards: else an arm bad once would stay
    bad for ever.

    ``centres``: take off the common part of all arms. Not for all bandits: in games with noisy rewards and
    returning arms, bandits without a history lost .2 so.
    """
    chains = chains_of(totals, steps, drifts)
    fits = list[EffectFit]()
    if before is not None and before.record.space == record.space:
        fits += map(EffectFit, before.record.variances, before.record.noises)
    has_weights = record.clock_of_arms is not None or any(step.is_merged for step in steps)
    chained = chains.fit(fits, discounted=has_weights, centres=centres)
    version = version_of_fit(
        number,
        now_ms,
        space=record.space,
        decisions=totals.decisions,
        fits=chained.fits,
        arms=chains.names,
        revisions=chains.revisions,
        n=np.array([sums.n for sums in chained.sums]),
        R=np.array([sums.R for sums in chained.sums]),
        places=places,
        ages=ages,
    )
    return version, chains, chained


def stored_of(before: EffectVersion | None, now: EffectVersion, moved: float) -> bytes | None:
    """The record to store of a version; None: equal to the one before.

    ``moved``: the least move of an arm, in deviations.
    """
    if before is None:
        return record_to_bytes(now.stored())
    old, new = before.record, now.record
    is_other = (old.space, len(old.variances)) != (new.space, len(new.variances))
    has_moved = place_fits.have_moved(old.places, new.places, only_if_far=moved > 0.0)
    passed_ms = new.since_ms - old.since_ms
    has_moved |= age_fits.have_moved(old.ages, new.ages, passed_ms)
    if not is_other and not has_moved and not len(before.names) and not len(now.names):
        return None
    if is_other or not len(before.names) or not len(now.names):
        return record_to_bytes(now.stored())
    spreads = np.sqrt(old.variances), np.sqrt(new.variances)
    has_grown = (np.abs(spreads[1] - spreads[0]) > (GROWN if moved else 0.0) * np.maximum(*spreads)).any()
    changed = np.flatnonzero(_moved_arms(before, now, moved))
    if not len(changed) and not has_grown and not has_moved and not gone_from(before, now):
        return None
    # What the newest version needs must not take much more than all arms: the oldest are dropped by bytes.
    if new.number % WHOLE_EVERY == 1 or old.chained + len(changed) > len(now.names):
        return record_to_bytes(now.stored())
    return record_to_bytes(now.stored_after(before, changed))


def _moved_arms(before: EffectVersion, now: EffectVersion, moved: float) -> NDArray[np.bool_]:
    """Mark the arms moved by so many deviations since a version, or known much better or worse. -> (K,). ->
    (K,).
    """
    has_same = before.names == now.names
    effects, deviations = before.at(slice(None)) if has_same else before.of_arms(list(now.names))
    new_effects, new_deviations = now.at(slice(None))
    if not moved:
        differs: NDArray[np.bool_] = ((new_effects != effects) | (new_deviations != deviations)).any(axis=0)
        if has_same:
            differs |= before.revisions != now.revisions
        return differs
    narrow, wide = np.minimum(deviations, new_deviations), np.maximum(deviations, new_deviations)
    has_moved = np.abs(new_effects - effects) > moved * narrow
    has_changed: NDArray[np.bool_] = np.any(has_moved | (narrow < wide / (1.0 + moved)), axis=0)
    return has_changed
