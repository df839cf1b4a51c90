"""Arm effects from rewards of a log alone, as a fit makes them from the sums of the store. All is pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from app.bandits.effect_version import EffectVersion
from app.bandits.prior_version import PriorVersion
from app.bandits.settings import BanditRecord
from app.fold.arm_sums import add_entry
from app.learners.effect_chains import steps_of
from app.learners.effect_fits import fitted, has_history
from app.learners.effect_totals import CollectedSums
from app.records.arm_sums import ArmSums
from app.records.log_entries import Item

SumsOfArms = Mapping[tuple[str, int], ArmSums]
"""By arm, and revision of its features."""


def arms_after(sums: SumsOfArms, items: Sequence[Item]) -> SumsOfArms:
    """The sums of arms after some more rewards, in their order."""
    changed = dict[tuple[str, int], ArmSums]()
    for entry, reward in items:
        of_revision = reward.arm, reward.revision
        after = add_entry(changed.get(of_revision) or sums.get(of_revision), entry, reward)
        if after is not None:
            changed[of_revision] = after
    return {**sums, **changed}


def effects_of(sums: SumsOfArms, record: BanditRecord, prior: PriorVersion | None) -> EffectVersion:
    """The effects of these sums, as a first version, by the learned prior of the time.

    As if features of arms had not changed: rows do not say how.
    """
    now_ms, clock = max((arm_sums.time_ms for arm_sums in sums.values()), default=0), record.clock_of_arms
    collected = CollectedSums(
        space=0,
        signals=record.signal_count,
        half_life_s=None if clock is None else clock.half_life_s,
        until_ms=now_ms,
    )
    collected.add_sums([(arm, arm_sums) for (arm, _), arm_sums in sums.items()])
    totals, centres = collected.totals(), has_history(prior)
    version, *_ = fitted(totals, steps_of(totals, {}), None, record, number=1, now_ms=now_ms, centres=centres)
    return version
