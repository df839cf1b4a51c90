"""The bandits whose learners have changed, for what is fitted again while rewards come."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Sequence
from typing import Protocol

from app.learners.prior_fits import Fittable


class KnownBandits(Protocol):
    """The bandits known to this process."""

    def by_uid(self, uid: str) -> Fittable | None: ...

    def with_learned_priors(self) -> Sequence[str]: ...


class ChangedBandits:
    """The bandits changed and not looked at since, by uid: the first changed one comes first.

    ``is_complete``: True if all are named; else any other may have changed too.
    """

    def __init__(self) -> None:
        self.uids: dict[str, None] = {}
        self.is_complete = False
        self._news = asyncio.Event()

    def add(self, uids: Iterable[str] | None) -> None:
        """Note changed learners of these bandits; None: of unknown ones."""
        if uids is None:
            self.is_complete = False
        else:
            self.uids |= dict.fromkeys(uids)
        self._news.set()

    def leave_to_others(self) -> None:
        """Another worker looks at them. Whoever begins again looks at all."""
        self.uids.clear()
        self.is_complete = False

    async def wait(self, most_s: float) -> None:
        """Wait for a change, unless one was not looked at."""
        if not self.uids:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(most_s):
                    await self._news.wait()
        self._news.clear()
