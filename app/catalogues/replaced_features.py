"""Notices that features were replaced in place by those of another space: bandits take them for the old.

Of all arms of a catalogue with features replaced within an hour, each coordinate of the new features is
regressed on the same coordinate of the old ones. A space trained again is turned against the old, so little
of the new is explained. Slightly corrected features, or a price among them with nightly changes, are
explained in nearly all coordinates.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from app.catalogues.kept_arms import FoundArms
from app.storage.store import Store

LEAST_REPLACED = 1_000  # arms
LEAST_EXPLAINED = 0.5
WITHIN_S = 3_600.0
PERIOD_S = 600.0  # what was replaced in one such period is forgotten together
SHOWN_MS = 7 * 86_400_000  # for so long a finding says that features were replaced
_NAME = "features-replaced:"


@dataclass(slots=True)
class _Sums:
    """Sums over the arms replaced in one period: of x, y, x^2, y^2 and x y in each coordinate. (5, d)."""

    since: float
    count: int
    sums: NDArray[np.float64]


@dataclass(slots=True)
class ReplacedFeatures:
    """The replacements of features in one catalogue, as far as this process has written them."""

    _periods: deque[_Sums] = field(default_factory=deque)

    def written(self, before: FoundArms, ids: Sequence[str], features: NDArray[np.float64]) -> bool:
        """As ``add``, of arms as they were, and what is written of all of ``ids``. Shape: (n, d)."""
        if not before.ids:
            return False
        places = {arm_id: number for number, arm_id in enumerate(ids)}
        new = features[[places[arm_id] for arm_id in before.ids]]
        return new.shape == before.features.shape and self.add(before.features.astype(np.float64), new)

    def add(self, old: NDArray[np.float64], new: NDArray[np.float64], now: float | None = None) -> bool:
        """Note that arms got new features; whether these are of another space. Shapes: (n, d) both."""
        now = time.monotonic() if now is None else now
        # Arms written again without a change say nothing.
        changed = (old != new).any(axis=1)
        old, new = old[changed], new[changed]
        while self._periods and self._periods[0].since <= now - WITHIN_S:
            self._periods.popleft()
        if not len(old):
            return False
        if not self._periods or self._periods[-1].since <= now - PERIOD_S:
            self._periods.append(_Sums(now, 0, np.zeros((5, old.shape[1]))))
        last = self._periods[-1]
        last.count += len(old)
        # Sums alone: what is known of a million arms takes 5 d numbers.
        last.sums += [numbers.sum(axis=0) for numbers in (old, new, old**2, new**2, old * new)]
        count = sum(period.count for period in self._periods)
        if count < LEAST_REPLACED or explained(count, sum(period.sums for period in self._periods)) >= (
            LEAST_EXPLAINED
        ):
            return False
        self._periods.clear()  # what is replaced from now on is compared with these
        return True


def explained(count: int, sums: NDArray[np.float64] | int) -> float:
    """The share of the new features explained by the old ones, in the mean of the varying coordinates.

    ``sums``: of x, y, x^2, y^2 and x y in each coordinate. Shape: (5, d).
    """
    x, y, xx, yy, xy = np.asarray(sums) / count
    before, after = xx - x**2, yy - y**2
    # A coordinate equal in all arms is explained by anything; its variance is rounding.
    varies = after > 1e-12 * np.maximum(yy, 1e-300)
    if not varies.any():
        return 1.0
    shared = np.divide((xy - x * y) ** 2, before * after, out=np.zeros(len(x)), where=varies & (before > 0.0))
    return float(np.clip(shared[varies], 0.0, 1.0).mean())


async def keep_finding(store: Store, uid: str) -> None:
    """Note that the features of many arms of a catalogue were replaced by those of another space."""
    # In the store: then every process shows it, also after a restart.
    await store.write_once.put(None, _NAME + uid, b"1", ttl_ms=SHOWN_MS)


async def has_replaced(store: Store, uid: str) -> bool:
    """Return whether ``keep_finding`` noted such a replacement lately."""
    return await store.write_once.get(None, _NAME + uid) is not None
