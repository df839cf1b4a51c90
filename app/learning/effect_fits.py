"""Fitting the arm effects of a bandit from the sums of its arms, and making that the newest version.

sums       of all partitions, added in their order, of the newest move and the newest features of each arm
fit        in a thread: the variance of the effects, of each signal by itself
written    if an arm has moved by a fifth of its deviation, or the variance by a tenth, or anything where it
           is asked for; if the newest version is still the one from before, else that one is the answer.
           Of the arms only those that moved, and all of them ``WHOLE_EVERY`` versions
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from app.bandits.effect_version import (
    EffectRecord,
    EffectVersion,
    change_of,
    gone_from,
    record_of,
    record_to_bytes,
    version_of,
)
from app.bandits.settings import BanditRecord
from app.learning import one_key_teaches
from app.learning.arm_sums import merged_sums
from app.learning.prior_fits import Computing, Fittable
from app.learning.served_effects import ServedEffects
from app.platform.errors import NotFound
from app.platform.metrics import Metrics
from app.records.arm_sums import ArmSums
from app.records.records import unpack
from app.storage.store import Store
from shortlist.linear import arm_effects
from shortlist.linear.arm_effects import EffectFit, EffectSums
from shortlist.types import Matrix

MOVED = 0.2  # deviations of an arm: with 0.5 films by genre lose .07 of what all arms gain, with 0.2 .02
GROWN = 0.1  # of the standard deviation of the effects
WHOLE_EVERY = 32  # versions
PARTITIONS_TOGETHER = 4  # whose sums are read at once
WHOLE_KEPT = 64  # as many bytes of a bandit as so many whole versions


class EffectFits:
    """Fits effects, one bandit at a time, and drops the sums of arms that are gone."""

    def __init__(self, store: Store, served: ServedEffects, metrics: Metrics) -> None:
        self._store = store
        self._served = served
        self._metrics = metrics
        self._one = asyncio.Lock()

    async def fit(
        self, bandit: Fittable, *, only_if_moved: bool = True
    ) -> tuple[EffectVersion | None, float]:
        """The version that stands now, and the seconds of a core that it took.

        ``only_if_moved``: make one only where an arm, or the variance, has moved far enough.

        Cost: reads the sums of all arms. Raises NotFound (the bandit is gone), Unavailable.
        """
        async with self._one:
            before, computing = await self._served.newest(bandit.uid), Computing()
            totals = dict[str, ArmSums]()
            for start in range(0, self._store.partitions, PARTITIONS_TOGETHER):
                # One after the other they wait as often for the loop: half of what a fit takes.
                partitions = range(start, min(start + PARTITIONS_TOGETHER, self._store.partitions))
                parts = await asyncio.gather(*(self._sums(partition, bandit.uid) for partition in partitions))
                await computing.run(_add_stored, totals, parts, bandit.record)
            number = 1 if before is None else before.number + 1
            version = await computing.run(fitted, totals, bandit.record, number)
            if before is None and not len(version.names):
                return None, computing.seconds
            record = await computing.run(_stored, before, version, MOVED if only_if_moved else 0.0)
            if record is None:
                return before, computing.seconds
            stands = await self._store.effects.write(
                bandit.name,
                bandit.uid,
                expected=number - 1,
                record=record_to_bytes(record),
                most_bytes=WHOLE_KEPT * len(record_to_bytes(version.whole_record())),
            )
            if stands is None:
                raise NotFound("there is no bandit with this name")
            self._metrics.effect_fits.labels("made" if stands else "late").inc()
            return await self._served.newest(bandit.uid), computing.seconds

    async def seen(self) -> dict[str, str]:
        """What ``folded`` was of each bandit, by uid, before its effects were fitted last."""
        return await self._store.effects.seen()

    async def folded(self, bandits: Sequence[Fittable]) -> Sequence[str]:
        """What was folded for these bandits: where it is the same, so are effects, unless they were moved."""
        counts = await self._store.priors.folded([bandit.uid for bandit in bandits])
        return [f"{count.entries} {count.replaced}" for count in counts]

    async def note_seen(self, seen: Mapping[str, str]) -> None:
        """Note what ``folded`` was of some bandits, by uid, before they were fitted."""
        await self._store.effects.note_seen(seen)

    async def _sums(self, partition: int, bandit_uid: str) -> Mapping[str, bytes]:
        """The sums of all arms in a partition."""
        # An arm that changes while they are read may come twice.
        sums = dict[str, bytes]()
        async for page in self._store.effects.all_sums(partition, bandit_uid):
            sums.update(page)
        return sums

    async def look_at_keys(self, bandit_uids: Iterable[str]) -> None:
        """Find out of which of these bandits one key gives most rewards: ``one_key_teaches``."""
        await one_key_teaches.look(self._store, bandit_uids)

    async def drop_gone(self, bandit: Fittable) -> int:
        """Drop the sums of deleted arms that no decision can name any more; how many were.

        Cost: reads the sums of all arms, and a step in the store for each. Raises Unavailable.
        """
        dropped = 0
        for partition in range(self._store.partitions):
            async for page in self._store.effects.all_sums(partition, bandit.uid):
                revisions = {arm: unpack(data, ArmSums).revision for arm, data in page.items()}
                named = await self._store.arms.nameable(bandit.catalogue_uid, revisions)
                pairs = zip(page.items(), named, strict=True)
                gone = {arm: data for (arm, data), is_named in pairs if not is_named}
                if gone:
                    dropped += await self._store.effects.drop_sums(partition, bandit.uid, gone)
        return dropped


def _add_stored(
    totals: dict[str, ArmSums], parts: Iterable[Mapping[str, bytes]], record: BanditRecord
) -> None:
    for sums in parts:
        arm_sums = ((arm, unpack(data, ArmSums)) for arm, data in sums.items())
        add_sums(totals, arm_sums, record.space, record.half_life_s)


def add_sums(
    totals: dict[str, ArmSums], sums: Iterable[tuple[str, ArmSums]], space: int, half_life_s: float | None
) -> None:
    """Add sums of arms to totals; those of earlier features than others are left out."""
    for arm, arm_sums in sums:
        if arm_sums.space == space:
            totals[arm] = merged_sums(totals.get(arm), arm_sums, half_life_s or 0.0)


def fitted(totals: Mapping[str, ArmSums], record: BanditRecord, number: int) -> EffectVersion:
    """The effects of arms with these totals, as a version with this number. Cost: O(K log K)."""
    arms, signals = sorted(totals), record.signal_count
    sums = [totals[arm] for arm in arms]
    n, F = (np.array([getattr(arm_sums, name) for arm_sums in sums], dtype=float) for name in ("n", "F"))
    R, Q = (_by_signal([getattr(arm_sums, name) for arm_sums in sums], signals) for name in ("R", "Q"))
    discounted = record.half_life_s is not None
    fits: list[EffectFit] = [
        arm_effects.fit(EffectSums(n, R[j], Q[j], F), discounted=discounted) for j in range(signals)
    ]
    return version_of(
        record_of(
            number,
            time.time_ns() // 1_000_000,
            space=record.space,
            decisions=sum(arm_sums.decisions for arm_sums in sums),
            fits=fits,
            arms=arms,
            revisions=[arm_sums.revision for arm_sums in sums],
            n=n,
            R=R,
        )
    )


def _by_signal(numbers: Sequence[Sequence[float]], signals: int) -> Matrix:
    """Shape: (J, K)."""
    by_signal = np.zeros((signals, len(numbers)))
    for row, number in enumerate(numbers):
        by_signal[: len(number), row] = number[:signals]
    return by_signal


def _stored(before: EffectVersion | None, now: EffectVersion, moved: float) -> EffectRecord | None:
    """What is to be stored of a version; None: it says what the one before says.

    ``moved``: by how many deviations an arm must have moved.
    """
    if before is None:
        return now.whole_record()
    old, new = before.record, now.record
    if (old.space, len(old.variances)) != (new.space, len(new.variances)):
        return now.whole_record()
    if not len(before.names) or not len(now.names):
        return now.whole_record() if len(before.names) or len(now.names) else None
    spreads = np.sqrt(old.variances), np.sqrt(new.variances)
    has_grown = (np.abs(spreads[1] - spreads[0]) > (GROWN if moved else 0.0) * np.maximum(*spreads)).any()
    changed = np.flatnonzero(_moved_arms(before, now, moved))
    if not len(changed) and not has_grown and not gone_from(before, now):
        return None
    # What the newest version needs must not take much more than all arms: the oldest are dropped by bytes.
    if new.number % WHOLE_EVERY == 1 or old.chained + len(changed) > len(now.names):
        return now.whole_record()
    return change_of(before, now, changed)


def _moved_arms(before: EffectVersion, now: EffectVersion, moved: float) -> NDArray[np.bool_]:
    """Which arms moved by so many deviations, or are known much better, since a version. Shape: (K,)."""
    effects, deviations = before.at(slice(None))
    if before.names != now.names or not np.array_equal(before.revisions, now.revisions):
        places = before.places_of(list(now.names), now.revisions.tolist())
        is_in_both, shape = places >= 0, now.R.shape
        old_effects, old_deviations = effects, deviations
        effects = np.zeros(shape)
        deviations = np.tile(np.sqrt(before.record.variances)[:, None], shape[1])
        effects[:, is_in_both], deviations[:, is_in_both] = (
            old_effects[:, places[is_in_both]],
            old_deviations[:, places[is_in_both]],
        )
    new_effects, new_deviations = now.at(slice(None))
    if not moved:
        differs: NDArray[np.bool_] = ((new_effects != effects) | (new_deviations != deviations)).any(axis=0)
        return differs
    has_moved = np.abs(new_effects - effects) > moved * np.minimum(deviations, new_deviations)
    has_changed: NDArray[np.bool_] = np.any(has_moved | (new_deviations < deviations / (1.0 + moved)), axis=0)
    return has_changed
