"""Fits the arm effects of bandits again while rewards come, in the worker that holds partition 0.

A bandit is looked at ``EVERY_S`` after the last time, sooner while a tenth of the time since the first look
is less: at first a second may bring most of its rewards. Where this takes more than ``SHARE`` of a core the
next look comes later, but after ``LONGEST_S`` at most. A bandit whose arms have changed is found within
``ARMS_EVERY_S``, and each hour sums without a naming token are merged or dropped. A bandit with a half-life
is looked at after each eighth of the half-life, since all its arms fade. Every ``LOOK_EVERY_S`` the log says
whether one key gives most rewards. While nothing is learned, fades or changes the cost is a call every
``ARMS_EVERY_S``.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from app.learners.effect_fits import EffectFits
from app.learners.prior_fits import Fittable
from app.platform.background import repeat
from app.platform.errors import NotFound
from app.storage.store import Store
from workers.changed_bandits import ChangedBandits, KnownBandits

EVERY_S = 1.0
GROWTH = 0.1  # of the time since the first look: of a steady stream as much of the rewards
LONGEST_S = 60.0
SHARE = 0.05
PAUSE_S = 0.1
LOOK_EVERY_S = 600.0  # whether one key teaches most
MERGE_EVERY_S = 3_600.0  # sums that no token names any more
ARMS_EVERY_S = 10.0
FADED = 1 / 8  # of a half-life, in which sums lose a twelfth
IDLE_S = 2.0  # without news: others may have lost the partition
BATCH_SIZE = 500  # bandits whose counts are read in one call


@dataclass(slots=True)
class _Schedule:
    """Times of one bandit: of the first look, and from when on the next look and the next merging are due.

    ``waits``: sums wait for being merged. ``fade_s``: from when on they have faded enough for another look.
    """

    first_s: float
    look_s: float = 0.0
    merge_s: float = 0.0
    fade_s: float = math.inf
    waits: bool = False


class EffectFitting:
    """``owns(partition)``: whether this worker folds a partition."""

    def __init__(
        self,
        store: Store,
        bandits: KnownBandits,
        fits: EffectFits,
        *,
        owns: Callable[[int], bool],
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._bandits = bandits
        self._fits = fits
        self._owns = owns
        self._now_s = now_s
        self._changed = ChangedBandits()
        self._schedules: dict[str, _Schedule] = {}  # by uid
        # By uid, bandits without a known change: the entries folded before their last fit.
        self._doubted: dict[str, str | None] = {}
        self._arms: dict[str, tuple[str, int]] = {}  # by uid: its catalogue, in which version
        self._arms_s = 0.0
        self._taught: set[str] = set()  # since the last look at who teaches
        self._look_at: float | None = None

    def changed(self, uids: Iterable[str] | None) -> None:
        """Note changed learners of these bandits; None: of unknown ones."""
        self._changed.add(uids)
        for uid in uids or ():
            self._doubted.pop(uid, None)

    async def run(self) -> None:
        """Fit until cancelled. An unreachable store is waited for."""
        await repeat(self._next_round, every_s=PAUSE_S, waits="arm effects are not fitted")

    async def _next_round(self) -> None:
        await self._changed.wait(IDLE_S)
        await self.round()

    async def round(self) -> bool:
        """Fit what is due; False: there was nothing to do. Raises Unavailable."""
        # One worker fits for all: the one with partition 0.
        if not self._owns(0):
            self._changed.leave_to_others()
            return False
        changed = self._changed.uids
        if not self._changed.is_complete:
            folded, others = await self._store.effects.folded_at_fit(), self._bandits.with_learned_priors()
            self._doubted |= {uid: folded.get(uid) for uid in others if uid not in changed}
            changed |= dict.fromkeys(others)
            self._changed.is_complete = True
        await self._look_at_arms()
        due = [bandit for bandit in map(self._due, list(changed)) if bandit is not None]
        for start in range(0, len(due), BATCH_SIZE):
            await self._fit_changed(due[start : start + BATCH_SIZE])
        await self._look_at_keys()
        return bool(due)

    def _due(self, uid: str) -> Fittable | None:
        """The bandit, if a look is due."""
        bandit = self._bandits.by_uid(uid)
        if bandit is None or bandit.record.arm_effects == "off":
            self._changed.uids.pop(uid, None)
            self._schedules.pop(uid, None)
            self._doubted.pop(uid, None)
            self._arms.pop(uid, None)
            return None
        schedule = self._schedules.setdefault(uid, _Schedule(self._now_s()))
        return bandit if self._now_s() >= schedule.look_s else None

    async def _fit_changed(self, bandits: Sequence[Fittable]) -> None:
        """Fit the changed bandits. After a start all are doubted: of these, in thousands few, the ones with
        entries folded since their fit, and all moved ones or with a half-life.
        """
        waiting, folded_at_fit = {bandit.uid: None for bandit in bandits}, dict[str, tuple[str, str]]()
        doubted = {
            bandit.uid: self._doubted.get(bandit.uid)
            for bandit in bandits
            if not bandit.record.space and bandit.record.arm_half_life_s is None
        }
        # Before their counts are read: a later change is a new one.
        for uid in waiting:
            self._changed.uids.pop(uid, None)
        try:
            for bandit, folded in zip(bandits, await self._fits.folded(bandits), strict=True):
                self._arms[bandit.uid] = bandit.catalogue_uid, folded.arms
                if doubted.get(bandit.uid) != (text := f"{folded.rewards} {folded.arms}"):
                    with contextlib.suppress(NotFound):
                        waits = await self._fit(bandit)
                        folded_at_fit[bandit.uid] = bandit.name, f"{text} waits" if waits else text
                del waiting[bandit.uid]
                self._doubted.pop(bandit.uid, None)
            await self._store.effects.note_seen(folded_at_fit)
        finally:
            self._changed.uids |= waiting

    async def _look_at_arms(self) -> None:
        """Find the bandits whose arms have changed, and those of which sums are to be merged."""
        if self._now_s() < self._arms_s:
            return
        self._arms_s = self._now_s() + ARMS_EVERY_S
        behind = set(await self._store.arms.behind(dict(self._arms.values())))
        uids = [uid for uid, (catalogue_uid, _) in self._arms.items() if catalogue_uid in behind]
        for uid, schedule in self._schedules.items():
            if (schedule.waits and self._arms_s >= schedule.merge_s) or self._now_s() >= schedule.fade_s:
                uids.append(uid)
        self._changed.add(uids)

    async def _fit(self, bandit: Fittable) -> bool:
        """Fit a bandit, and set the time of the next look; return whether its sums wait for being merged.

        Raises NotFound, Unavailable.
        """
        schedule = self._schedules[bandit.uid]
        self._taught.add(bandit.uid)
        merges = self._now_s() >= schedule.merge_s
        version, used_s, schedule.waits = await self._fits.fit(bandit, merges=merges)
        half_life_s = bandit.record.arm_half_life_s
        has_some = half_life_s is not None and version is not None and len(version.names) > 0
        schedule.fade_s = self._now_s() + FADED * (half_life_s or 0.0) if has_some else math.inf
        if merges:
            schedule.merge_s = self._now_s() + MERGE_EVERY_S
        cheap_s = min(max(GROWTH * (self._now_s() - schedule.first_s), PAUSE_S), EVERY_S)
        schedule.look_s = self._now_s() + min(max(cheap_s, used_s / SHARE), LONGEST_S)
        return schedule.waits

    async def _look_at_keys(self) -> None:
        if self._look_at is None and self._taught:
            self._look_at = self._now_s() + LOOK_EVERY_S
        elif self._look_at is not None and self._now_s() >= self._look_at:
            await self._fits.look_at_keys(self._taught)
            self._taught, self._look_at = set(), None
