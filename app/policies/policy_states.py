"""The states of stateful policies: one bounded cache in the memory of each process.

A state is of one version of its learner. Choices at this version use the state unchanged; before later ones
the policy follows the rewards between. After any other change (of the bandit, or a forgotten learner) the
state starts again. The learner and its version fix the generator of all draws for a state, so a choice with a
seed and its dry run do not depend on who came first.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from app.platform.cache import BoundedCache
from app.selection.computing import computed
from app.selection.selection import ReadSnapshot, SelectionRequest
from app.storage.types import LearnerId
from shortlist.linear.ridge import Posterior

ENTRY_BYTES = 500
Start = Callable[[Posterior, np.random.Generator], Any]
Follow = Callable[[Any, Posterior, np.random.Generator], Any]


@dataclass(frozen=True, slots=True, eq=False)
class Remembered:
    """A state, the bandit as stored, and the version of the learner followed so far."""

    state: Any
    bandit: bytes
    version: int


class PolicyStates:
    """``cache`` bounds the memory of all states together, and may hold other things by other keys."""

    def __init__(self, cache: BoundedCache[Hashable, Any]) -> None:
        self._cache = cache
        self._forgotten = 0  # how often a learner was: what was being made meanwhile is not kept

    async def of(
        self,
        request: SelectionRequest,
        snapshot: ReadSnapshot,
        *,
        start: Start,
        follow: Follow,
        nbytes: Callable[[Any], int],
        us: float,
    ) -> Any:
        """The state of the learner of a request, at the version of ``snapshot``.

        Args:
            start: makes a state from a posterior alone. follow: makes the next one of a state, and of a later
                posterior. Both are pure, and run in a thread where they take longer than 2 ms.
            nbytes: the memory of a state.
            us: about how many microseconds ``start`` and ``follow`` take.

        Awaits nothing for a state at this version. A dry run keeps none. Raises Unavailable (too much waits).
        """
        key, stored, version = _key(request.learner), request.bandit.stored, snapshot.learner_version
        before: Remembered | None = self._cache.get(key)
        if before is not None and (before.bandit != stored or before.version > version):
            before = None
        if before is not None and before.version == version:
            return before.state
        posterior, rng = snapshot.posterior, _generator(request.learner, version)
        work = partial(start, posterior, rng)
        if before is not None:
            work = partial(follow, before.state, posterior, rng)
        forgotten = self._forgotten
        state = await computed(work, request, snapshot.arms, us=us)
        if not request.dry_run and forgotten == self._forgotten:
            self._cache.put(key, Remembered(state, stored, version), ENTRY_BYTES + nbytes(state))
        return state

    def forget(self, learner: LearnerId) -> None:
        """Drop what is remembered of a learner."""
        self._forgotten += 1
        self._cache.drop(_key(learner))

    def forget_all(self) -> None:
        """Drop all states: the forgotten learners are unknown."""
        self._forgotten += 1
        self._cache.clear()


def _key(learner: LearnerId) -> Hashable:
    return "state", learner


def _generator(learner: LearnerId, version: int) -> np.random.Generator:
    """Not of ``hash``, which differs from process to process."""
    named = f"{version}/{learner.bandit_uid}/{learner.name}".encode()
    digest = hashlib.blake2b(named, digest_size=16).digest()
    return np.random.default_rng(int.from_bytes(digest, "little"))
