"""The learned priors that this process serves: of each bandit the newest version, and older ones by number.

Polls of the store find out which version is the newest (``sync``); its record is read when the bandit is next
asked for. While the store does not answer, the version that was served before goes on serving. ``report_of``
makes what the API shows of a version.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Protocol

import msgspec
import numpy as np

from app.bandits.bandit import Bandit
from app.bandits.prior_version import PriorVersion, bytes_to_prior
from app.learning.pooled_prior import PATIENCE_S
from app.platform.cache import BoundedCache
from app.platform.deadlines import task_for_all
from app.platform.errors import Unavailable
from app.platform.pools import LEARNERS
from app.storage.priors import PriorStore
from shortlist.linear import ridge_sums
from shortlist.linear.learned_prior import LearnedPrior
from shortlist.types import Matrix, Vector

LARGE_RECORD = 1 << 16  # bytes, about d = 125: what is read of it takes some milliseconds


class HasUid(Protocol):
    """A bandit, or what is known of one that is not served here."""

    @property
    def uid(self) -> str: ...


class _Served(msgspec.Struct, frozen=True, eq=False):
    """``bandit``: as it was asked for; ``with_prior``: the same as it is served. ``number``: of the store."""

    bandit: Bandit
    number: int
    with_prior: Bandit


class LearnedPriors:
    """``capacity_bytes`` bounds the memory of versions, save that of the one that was used last."""

    def __init__(self, store: PriorStore, *, capacity_bytes: int) -> None:
        self._store = store
        self._changes = -1
        self._numbers: Mapping[str, int] = {}
        self._versions: BoundedCache[tuple[str, int], PriorVersion] = BoundedCache(capacity_bytes // 2)
        self._served: BoundedCache[str, _Served] = BoundedCache(capacity_bytes // 2)
        self._reading: dict[tuple[str, int], asyncio.Task[PriorVersion | None]] = {}

    def cached(self, bandit: Bandit) -> Bandit | None:
        """The bandit with the newest version, if that is in memory: awaits nothing."""
        if bandit.record.prior != "learned":
            return bandit
        served = self._served.get(bandit.uid)
        # By identity: after any change of its settings the bandit is another object, and the prior is fitted
        # to it again.
        if served is None or served.bandit is not bandit:
            return bandit if not self._numbers.get(bandit.uid, 0) else None
        return served.with_prior if served.number == self._numbers.get(bandit.uid, 0) else None

    async def serving(self, bandit: Bandit) -> Bandit:
        """The bandit with the newest version of its prior. Raises Unavailable, if it never was in memory."""
        cached = self.cached(bandit)
        if cached is not None:
            return cached
        number, before = self._numbers.get(bandit.uid, 0), self._served.peek(bandit.uid)
        try:
            async with asyncio.timeout(None if before is None else PATIENCE_S):
                version = await self.version(bandit.uid, number)
        except (TimeoutError, Unavailable):
            if before is None:
                raise
            return bandit.with_prior(before.with_prior.prior)
        result = bandit.with_prior(version)
        self._served.put(
            bandit.uid, _Served(bandit, number, result), 2_000 + (version.bytes if version else 0)
        )
        return result

    async def then(self, bandit: Bandit, number: int | None) -> Bandit | None:
        """The bandit as it served decisions that name this version of the prior; None: it is not kept.

        Raises Unavailable.
        """
        if not number:
            return bandit.with_prior(None)
        version = await self.version(bandit.uid, number)
        return None if version is None else bandit.with_prior(version)

    async def version(self, uid: str, number: int) -> PriorVersion | None:
        """A version of the prior of a bandit; None: it is not kept. Raises Unavailable."""
        version = self._versions.get((uid, number))
        if version is not None:
            return version
        task = self._reading.get((uid, number))
        if task is None:
            task = self._reading[uid, number] = task_for_all(self._read(uid, number))
        return await asyncio.shield(task)

    async def kept(self, bandit: Bandit) -> Sequence[int]:
        """The numbers of the versions that rows may name, in order. Raises Unavailable."""
        return await self._store.kept(bandit.uid)

    async def newest(self, bandit: HasUid) -> PriorVersion | None:
        """The newest version as the store has it now; None: none was made. Raises Unavailable."""
        await self.sync()
        number = self._numbers.get(bandit.uid, 0)
        return await self.version(bandit.uid, number) if number else None

    async def sync(self) -> None:
        """Find out which versions are the newest. Raises Unavailable."""
        changes = await self._store.changes()
        # One number for all bandits: a poll that finds nothing new costs one small answer.
        if changes != self._changes:
            self._numbers = await self._store.numbers()
            self._changes = changes

    def oldest_s(self) -> float:
        """How long ago the oldest version was made that this process has served last; 0 without any."""
        served = (self._served.peek(uid) for uid in self._served)
        times_ms = [
            item.with_prior.prior.record.since_ms for item in served if item and item.with_prior.prior
        ]
        return max(0.0, time.time() - min(times_ms) / 1_000.0) if times_ms else 0.0

    async def _read(self, uid: str, number: int) -> PriorVersion | None:
        try:
            data = await self._store.read(uid, number)
            if data is None:
                return None
            read = partial(bytes_to_prior, data)
            version = read() if len(data) < LARGE_RECORD else await LEARNERS.run(read)
        finally:
            # In any case: after a failure the next caller reads again.
            del self._reading[uid, number]
        self._versions.put((uid, number), version, version.bytes)
        return version


def report_of(bandit: Bandit, version: PriorVersion | None) -> dict[str, object]:
    """What may be shown of a version, by name, without the covariance. Cost: O(D^3)."""
    names = ("version", "keys", "observations", "noise", "offset", "mean", "sd", "since_ms")
    answer: dict[str, object] = {**dict.fromkeys(names), "version": 0, "keys": 0, "observations": 0.0}
    if version is None or version.learned is None:
        return answer
    learned = version.learned
    served = bandit.with_prior(version)
    noise = _noise(served, learned)
    answer |= {
        "version": version.number,
        "keys": learned.keys,
        "observations": learned.observations,
        "noise": noise,
        "since_ms": version.record.since_ms,
    }
    if not version.shows:
        return answer
    spread = np.sqrt(np.einsum("dd->d", learned.covariance))
    if (mean := served.prior_mean) is not None:
        answer |= _numbers(bandit, mean, noise * spread)
    if bandit.record.signals is not None:
        noises = np.sqrt(learned.residuals.diagonal()).tolist()
        by_signal = zip(bandit.record.signals, noises, learned.mean, strict=False)  # others came later
        answer["signals"] = {
            name: {"noise": signal_noise, **_numbers(bandit, mean, signal_noise * spread)}
            for name, signal_noise, mean in by_signal
        }
    return answer


def _noise(served: Bandit, learned: LearnedPrior) -> float:
    """That of the reward, or of the weighted sum of the signals."""
    if served.weighing is None:
        return float(np.sqrt(learned.residuals[0, 0]))
    return served.posterior(ridge_sums.empty(learned.dim)).sigma


def covariance_of(bandit: Bandit, version: PriorVersion) -> Matrix:
    """By how much keys differ from the mean. Shape: (D, D). Cost: O(D^3)."""
    if version.learned is None:
        raise ValueError("a version without a prior has no covariance")
    return _noise(bandit.with_prior(version), version.learned) ** 2 * version.learned.covariance


def _numbers(bandit: Bandit, theta: Vector, spread: Vector) -> dict[str, object]:
    """A mean and how much keys differ from it, by what they are numbers of. Shapes: (D,), (D,)."""
    shown = dict[str, object]()
    if bandit.context is not None:
        theta, weights = bandit.context.weights(theta)
        shown["weights"] = weights.tolist()
    mean, offset = bandit.observed_theta(theta)
    if len(mean) < len(theta):
        shown["offset"] = offset
    return {"mean": mean.tolist(), "sd": spread[: len(mean)].tolist(), **shown}
