"""How work in another thread is told to stop."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field


class Cancelled(Exception):
    """The work was told to stop."""


@dataclass(kw_only=True, slots=True, eq=False)
class Cancellation:
    """Tells work in another thread to stop."""

    _cancelled: threading.Event = field(default_factory=threading.Event, init=False, repr=False)

    def cancel(self) -> None:
        self._cancelled.set()

    def check(self) -> None:
        """For the work, now and then. Raises Cancelled."""
        if self._cancelled.is_set():
            raise Cancelled
