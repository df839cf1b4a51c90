"""Merging sums of arms without a token into those of the arm's next features.

Replaced features are kept ``MERGED_WITHIN_MS`` longer than a token can name them. In this time a fit still
knows their distance from the next ones, and replaces their sums by the faded rest, in one compare-and-set for
each arm and partition. Sums of a deleted arm are dropped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from app.catalogues.catalogues import MERGED_WITHIN_MS
from app.learners.effect_chains import Chained, Chains
from app.learners.effect_totals import POWERS, Step, Sums, numbers_of, step_of, sums_of
from app.learners.prior_fits import Fittable
from app.records.arm_sums import MergedSums
from app.records.records import pack
from app.storage.arm_effects import MERGED
from app.storage.store import Store
from app.storage.types import ArmId
from shortlist.types import Matrix


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
    """Merge, and drop. ``current``: the revisions of the existing arms.

    Cost: a step in the store for each changed arm, and one for each such arm and partition with due sums.
    Raises Unavailable.
    """
    places = dict[str, list[int]]()
    for position, step in enumerate(chains.steps):
        places.setdefault(step.arm, []).append(position)
    earlier = [step.revision for step in chains.steps if current.get(step.arm) != step.revision]
    left = await store.arms.named_until(bandit.catalogue_uid, earlier)
    named = {revision for revision, ms in zip(earlier, left, strict=True) if ms > MERGED_WITHIN_MS}
    named |= {revision for revision in current.values() if revision}
    for arm, arm_positions in places.items():
        steps = [chains.steps[position] for position in arm_positions]
        # The first ones: an arm has its features one after the other.
        count = next((k for k, step in enumerate(steps) if step.revision in named), len(steps))
        if count:
            factors = [
                [float(of_signal[position]) for position in arm_positions] for of_signal in chained.factors
            ]
            for partition in range(store.partitions):
                await _merge_arm(store, partition, bandit, _Unnamed(arm, steps, count, factors))


async def _merge_arm(store: Store, partition: int, bandit: Fittable, unnamed: _Unnamed) -> None:
    arm, first = unnamed.arm, unnamed.steps[: unnamed.count]
    revisions = [*dict.fromkeys(step.revision for step in first), MERGED]
    asked = [ArmId(bandit.uid, arm, revision) for revision in revisions]
    stored = dict(zip(revisions, await store.effects.sums(partition, asked), strict=True))
    owns, read = list[Sums](), {MERGED: b""}
    for revision, data in stored.items():
        if data is None:
            continue
        own = sums_of(revision, data)
        if own.space == bandit.record.space and (revision == MERGED or step_of(arm, own) in first):
            owns.append(own)
            read[revision] = data
    if not any(step_of(arm, own) in first for own in owns):
        return
    if unnamed.count == len(unnamed.steps):
        sums = {(arm, revision): data for revision, data in read.items() if data}
        await store.effects.drop_sums(partition, bandit.uid, sums)
        return
    clock, factors = bandit.record.clock_of_arms, np.array(unnamed.factors)
    half_life_s = None if clock is None else clock.half_life_s
    merged = merged_sums(owns, unnamed.steps, factors, unnamed.count, half_life_s=half_life_s)
    await store.effects.merge(partition, bandit.uid, arm, pack(merged), read)


def merged_sums(
    owns: Sequence[Sums], steps: Sequence[Step], factors: Matrix, count: int, *, half_life_s: float | None
) -> MergedSums:
    """Merge the first ``count`` steps of an arm and all earlier sums into one, in one partition.

    At the revision of the next step, or the later one of merged sums; discounted to the latest of
    their times.

    ``owns``: of the partition, all to be merged. ``steps``: of the arm, in order, more than ``count``.
    ``factors``: of each step. Shape: (J, steps).
    """
    places = [steps.index(step_of(steps[0].arm, sums)) for sums in owns]
    goal = max(steps[count].revision, *(steps[position].revision for position in places))
    time_ms, total = max(sums.time_ms for sums in owns), np.zeros((4, len(factors), 1))
    numbers = numbers_of(owns, len(factors), half_life_s=half_life_s, until_ms=time_ms)
    for position, step in enumerate(steps):
        if step.revision > goal:
            break
        total = factors[:, [position]] ** POWERS * total
        total += numbers[:, :, [at == position for at in places]].sum(axis=2, keepdims=True)
    n, R, Q, F = map(tuple, total[:, :, 0].tolist())
    return MergedSums(sum(sums.decisions for sums in owns), owns[0].space, goal, time_ms, n, F, R, Q)
