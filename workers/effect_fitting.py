"""Fits the arm effects of bandits again while rewards come, in the worker that holds partition 0.

A bandit is looked at ``EVERY_S`` after it was last, sooner while a tenth of the time since the first look is
less: at first a second may bring most of its rewards. Where that takes more than ``SHARE`` of a core it is
looked at later, but after ``LONGEST_S`` at most. Every ``LOOK_EVERY_S`` the log says whether one key teaches
most of it. While nothing is learned all that costs nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable

from app.learning.effect_fits import EffectFits
from app.platform.background import repeat
from app.platform.errors import NotFound
from workers.prior_fitting import KnownBandits

EVERY_S = 1.0
GROWTH = 0.1  # of the time since the first look: of a steady stream as much of the rewards
LONGEST_S = 60.0
SHARE = 0.05
PAUSE_S = 0.1
LOOK_EVERY_S = 600.0  # whether one key teaches most
DROP_EVERY_S = 3_600.0  # sums of arms that are gone
IDLE_S = 2.0  # without news: others may have lost the partition


class EffectFitting:
    """``owns(partition)``: whether this worker folds a partition."""

    def __init__(
        self,
        bandits: KnownBandits,
        fits: EffectFits,
        *,
        owns: Callable[[int], bool],
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._bandits = bandits
        self._fits = fits
        self._owns = owns
        self._now_s = now_s
        self._changed: dict[str, None] = {}
        self._knows_all = False
        self._due: dict[str, float] = {}  # by uid, from when on it is looked at again
        self._first: dict[str, float] = {}  # by uid, when it was looked at first
        self._taught: set[str] = set()  # since the last look at who teaches
        self._look_at: float | None = None
        self._drops: dict[str, float] = {}  # from when on sums of arms that are gone are dropped
        self._news = asyncio.Event()

    def changed(self, uids: Iterable[str] | None) -> None:
        """Learners of these bandits have changed; None: it is not known of which."""
        if uids is None:
            self._knows_all = False
        else:
            self._changed |= dict.fromkeys(uids)
        self._news.set()

    async def run(self) -> None:
        """Until it is cancelled. An unreachable store is waited for."""
        await repeat(self._next_round, every_s=PAUSE_S, waits="arm effects are not fitted")

    async def _next_round(self) -> None:
        if not self._changed:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), IDLE_S)
        self._news.clear()
        await self.round()

    async def round(self) -> bool:
        """Fit what is due; False: there was nothing to do. Raises Unavailable."""
        # One worker fits for all: the one that folds partition 0.
        if not self._owns(0):
            self._knows_all = False
            self._changed.clear()
            return False
        if not self._knows_all:
            self._changed |= dict.fromkeys(self._bandits.with_learned_priors())
            self._knows_all = True
        was_due = False
        for uid in list(self._changed):
            bandit = self._bandits.by_uid(uid)
            if bandit is None or bandit.record.arm_effects == "off":
                self._changed.pop(uid, None)
                self._due.pop(uid, None)
                self._first.pop(uid, None)
                self._drops.pop(uid, None)
            elif self._now_s() >= self._due.get(uid, 0.0):
                was_due = True
                # Before the fit: a change that comes during it is a new one.
                self._changed.pop(uid, None)
                self._taught.add(uid)
                try:
                    if self._now_s() >= self._drops.get(uid, 0.0):
                        self._drops[uid] = self._now_s() + DROP_EVERY_S
                        await self._fits.drop_gone(bandit)
                    _, used_s = await self._fits.fit(bandit)
                except NotFound:
                    continue
                except BaseException:
                    self._changed[uid] = None
                    raise
                self._due[uid] = self._now_s() + min(max(self._rest_s(uid), used_s / SHARE), LONGEST_S)
        await self._look_at_keys()
        return was_due

    def _rest_s(self, uid: str) -> float:
        """How long after a cheap fit the next one is due."""
        age_s = self._now_s() - self._first.setdefault(uid, self._now_s())
        return min(max(GROWTH * age_s, PAUSE_S), EVERY_S)

    async def _look_at_keys(self) -> None:
        if self._look_at is None and self._taught:
            self._look_at = self._now_s() + LOOK_EVERY_S
        elif self._look_at is not None and self._now_s() >= self._look_at:
            await self._fits.look_at_keys(self._taught)
            self._taught, self._look_at = set(), None
