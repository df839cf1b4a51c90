"""Merging the sums of arms that no token names any more into those of the next features of the arm.

Features that were replaced are kept ``MERGED_WITHIN_MS`` longer than a token can name them. In this time a
fit still knows how far they are from the next ones, and puts what is left of their sums in their place, in
one compare-and-set for each arm and partition. Those of an arm that is gone are dropped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from app.catalogues.catalogues import MERGED_WITHIN_MS
from app.learning.arm_sums import merged_sums
from app.learning.effect_chains import Chained, Chains, Step, merged_steps, sums_of
from app.learning.prior_fits import Fittable
from app.records.arm_sums import ArmSums, MergedSums
from app.records.records import pack
from app.storage.arm_effects import MERGED
from app.storage.store import Store
from app.storage.types import ArmId


@dataclass(frozen=True, slots=True)
class _Unnamed:
    """An arm of whose ``steps`` the first ``count`` are named by no token. ``factors``: of each signal."""

    arm: str
    steps: Sequence[Step]
    count: int
    factors: Sequence[Sequence[float]]


async def merge(
    store: Store, bandit: Fittable, chains: Chains, chained: Chained, current: Mapping[str, int]
) -> None:
    """Merge, and drop. ``current``: the revisions of arms that are there.

    Cost: a step in the store for each arm that has changed, and one for each such arm and partition whose
    sums are due. Raises Unavailable.
    """
    places = dict[str, list[int]]()
    for place, step in enumerate(chains.steps):
        places.setdefault(step.arm, []).append(place)
    earlier = [step.revision for step in chains.steps if current.get(step.arm) != step.revision]
    left = await store.arms.named_until(bandit.catalogue_uid, earlier)
    named = {revision for revision, ms in zip(earlier, left, strict=True) if ms > MERGED_WITHIN_MS}
    named |= {revision for revision in current.values() if revision}
    for arm, own in places.items():
        steps = [chains.steps[place] for place in own]
        # The first ones: an arm has its features one after the other.
        count = next((k for k, step in enumerate(steps) if step.revision in named), len(steps))
        if count:
            factors = [[float(of_signal[place]) for place in own] for of_signal in chained.factors]
            for partition in range(store.partitions):
                await _merge_arm(store, partition, bandit, _Unnamed(arm, steps, count, factors))


async def _merge_arm(store: Store, partition: int, bandit: Fittable, unnamed: _Unnamed) -> None:
    arm, half_life_s = unnamed.arm, bandit.record.half_life_s
    first = unnamed.steps[: unnamed.count]
    revisions = [*dict.fromkeys(step.revision for step in first), MERGED]
    asked = [ArmId(bandit.uid, arm, revision) for revision in revisions]
    stored = dict(zip(revisions, await store.effects.sums(partition, asked), strict=True))
    owns, read = dict[Step, ArmSums | MergedSums](), {MERGED: b""}
    for revision, data in stored.items():
        if data is None:
            continue
        own = sums_of(revision, data)
        step = Step(arm, own.revision, revision == MERGED)
        if own.space != bandit.record.space or (revision != MERGED and step not in first):
            continue
        other = owns.get(step)
        if isinstance(own, ArmSums) and isinstance(other, ArmSums):
            own = merged_sums(other, own, half_life_s or 0.0)
        owns[step], read[revision] = own, data
    if not any(step in owns for step in first):
        return
    if unnamed.count == len(unnamed.steps):
        sums = {(arm, revision): data for revision, data in read.items() if data}
        await store.effects.drop_sums(partition, bandit.uid, sums)
        return
    merged = merged_steps(owns, unnamed.steps, unnamed.factors, unnamed.count, half_life_s=half_life_s)
    await store.effects.merge(partition, bandit.uid, arm, pack(merged), read)
