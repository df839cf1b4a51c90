"""What choosing remembers of a learner: the choices made for events, and the slots of its warm-up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from app.storage.protocol.learner_id import LearnerId


class Had(NamedTuple):
    """What a key has had lately, arms or else, and when in ms, by the clock of the store.

    ``allowed``: none of what was shown was had too often before. ``remembered``: all of it, and nothing
    was dropped to make room.
    """

    allowed: bool
    remembered: bool
    now_ms: int
    arms: Sequence[tuple[str, int]]


class Choices(Protocol):
    """An event of a learner has one value, written once; it goes when the learner is erased.

    The slots 0, 1, 2 ... of a learner's warm-up are taken once each; they go when the learner is forgotten.
    """

    async def put_event(self, learner: LearnerId, event: str, value: bytes, *, ttl_ms: int) -> bytes:
        """Store ``value`` for ``ttl_ms`` unless the event has one; return the one that it has now."""
        ...

    async def get_event(self, learner: LearnerId, event: str) -> bytes | None: ...

    async def take_warm_up_slots(
        self, learner: LearnerId, *, count: int, most: int, claim: str, ttl_ms: int
    ) -> int:
        """Take the next ``count`` slots; return the first of them, at least ``most`` if all are taken.

        The same ``claim`` gets the same slots: with one that is not empty the call is idempotent. All slots
        of the learner are free again ``ttl_ms`` after the last call that took some.
        """
        ...

    async def take_repeats(
        self, key: LearnerId, shown: Sequence[tuple[str, str]], *, within_ms: int, most: int, kept: int
    ) -> Had:
        """Write what a key has now, (name, arm) each once, unless it has an arm more than ``most`` times.

        ``most`` 0: any number. The last ``kept`` are kept, for ``within_ms``. They go with the learner.
        Without room what is new takes the place of the oldest that the key has had; of a key that has had
        nothing, nothing is kept.
        """
        ...

    async def drop_repeats(self, key: LearnerId, shown: Sequence[tuple[str, str]]) -> None:
        """As if these had not been written."""

    async def next_warm_up_slot(self, learner: LearnerId) -> int:
        """The slot that ``take_warm_up_slots`` would take next without a claim; none is taken."""
        ...
