"""Versioned things of bandits as this process serves them: the newest version, and older ones by number.

Polls of the store find new versions of bandits in use and read them: no choice waits. While the store does
not answer, the earlier version serves.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

from app.bandits.bandit import Bandit
from app.bandits.effect_version import EffectVersion
from app.bandits.prior_version import PriorVersion
from app.platform.cache import BoundedCache
from app.platform.deadlines import shared_task
from app.storage.arm_effects import ArmEffectStore
from app.storage.priors import PriorStore

V = TypeVar("V", PriorVersion, EffectVersion)
BANDIT_BYTES = 2_000


@dataclass(slots=True)
class _Newest(Generic[V]):
    """``version``: the newest of a bandit. ``bandit``: as asked for last; ``served``: the same with it."""

    version: V
    bandit: Bandit | None = None
    served: Bandit | None = None


class NewestVersions(ABC, Generic[V]):
    """``capacity_bytes`` bounds the memory of versions, except the one used last."""

    def __init__(self, store: PriorStore | ArmEffectStore, *, capacity_bytes: int) -> None:
        self._store = store
        self._changes = -1
        self._numbers: Mapping[str, int] = {}
        self._newest: BoundedCache[str, _Newest[V]] = BoundedCache(capacity_bytes)
        self._taking: dict[tuple[str, int], asyncio.Task[V | None]] = {}

    @abstractmethod
    def has_versions(self, bandit: Bandit) -> bool:
        """Return whether a bandit is served with versions, by its settings."""

    @abstractmethod
    def served_with(self, bandit: Bandit, version: V | None) -> Bandit:
        """The bandit as served with a version; None: without one."""

    def _may_be_unheard_of(self, bandit: Bandit) -> bool:  # noqa: ARG002 - of others none is
        """Return whether the bandit had a version from the beginning: then a poll is due if none is known."""
        return False

    @abstractmethod
    async def _read(self, uid: str, number: int) -> V | None:
        """A version that is not in memory; None: not kept. Raises Unavailable."""

    def cached(self, bandit: Bandit) -> Bandit | None:
        """The bandit with the newest version, if in memory: awaits nothing."""
        if not self.has_versions(bandit):
            return bandit
        newest = self._newest.get(bandit.uid)
        if newest is None:
            if self._numbers.get(bandit.uid, 0) or self._may_be_unheard_of(bandit):
                return None
            return self.served_with(bandit, None)
        # By identity: after any change of its settings the bandit is another object.
        if newest.bandit is not bandit:
            newest.bandit, newest.served = bandit, self.served_with(bandit, newest.version)
        return newest.served

    async def serving(self, bandit: Bandit) -> Bandit:
        """The bandit with the newest version. Raises Unavailable, if none was in memory."""
        if (cached := self.cached(bandit)) is not None:
            return cached
        if not self._numbers.get(bandit.uid, 0):
            await self.sync()
        version = await self._take(bandit.uid)
        return self.cached(bandit) or self.served_with(bandit, version)

    async def then(self, bandit: Bandit, number: int | None) -> Bandit | None:
        """The bandit as it served the decisions of this version; None: not kept.

        Raises Unavailable.
        """
        if not number:
            return self.served_with(bandit, None)
        version = await self.version(bandit.uid, number)
        return None if version is None else self.served_with(bandit, version)

    async def newest(self, uid: str) -> V | None:
        """The newest version of a bandit in the store; None: none was made. Raises Unavailable."""
        await self.sync()
        cached = self._newest.get(uid)
        if cached is not None and cached.version.number == self._numbers.get(uid, 0):
            return cached.version
        return await self._take(uid)

    async def version(self, uid: str, number: int) -> V | None:
        """A version of a bandit; None: not kept. Raises Unavailable."""
        cached = self._newest.peek(uid)
        if cached is not None and cached.version.number == number:
            return cached.version
        return await self._read(uid, number) if number else None

    async def sync(self) -> None:
        """Find out which versions are the newest, and read those of bandits in use. Raises Unavailable."""
        changes = await self._store.changes()
        # One number for all bandits: a poll that finds nothing new costs one small answer.
        if changes == self._changes:
            return
        self._numbers = await self._store.numbers()
        stale = [
            uid
            for uid in self._newest
            if (cached := self._newest.peek(uid)) is not None
            and cached.version.number != self._numbers.get(uid, 0)
        ]
        await asyncio.gather(*map(self._take, stale))  # side by side: a poll may find hundreds
        # Last: what failed on the way is done again at the next poll.
        self._changes = changes

    async def _take(self, uid: str) -> V | None:
        """The newest version of a bandit, read and held; callers share one read."""
        key = uid, self._numbers.get(uid, 0)
        return await asyncio.shield(shared_task(self._taking, key, partial(self._take_now, *key)))

    async def _take_now(self, uid: str, number: int) -> V | None:
        version = await self.version(uid, number)
        if number == self._numbers.get(uid, 0):  # else there is a newer one by now
            if version is None:
                self._newest.drop(uid)
            else:
                self._newest.put(uid, _Newest(version), BANDIT_BYTES + version.bytes)
        return version
