"""Cancellation: long work in other threads takes turns, and can be told to stop.

One thread of a process works at a time. Two at once would leave no core to the event loop on a machine with
two, and requests would wait for whole time slices of the scheduler. Long work gives way to other work between
its parts; short work does not.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

_WORKING = threading.Lock()
_NEXT = threading.Lock()  # who has it works next: else the one that gives way would win the lock again
_LOOK_EVERY_S = 0.05


class Cancelled(Exception):
    """The work was told to stop."""


@dataclass(kw_only=True, slots=True, eq=False)
class Cancellation:
    """Tells work in another thread to stop, or to wait."""

    _cancelled: threading.Event = field(default_factory=threading.Event, init=False, repr=False)

    def cancel(self) -> None:
        self._cancelled.set()

    def check(self) -> None:
        """For the work, now and then. Raises Cancelled."""
        if self._cancelled.is_set():
            raise Cancelled

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Wait until no other work goes on, and hold all other work back. Raises Cancelled."""
        self._take(_NEXT)
        try:
            self._take(_WORKING)
        finally:
            _NEXT.release()
        try:
            yield
        finally:
            _WORKING.release()

    def give_way(self) -> None:
        """Within a turn, as ``check``: if other work waits, wait until it has had its turn."""
        if _NEXT.locked():
            _WORKING.release()
            with _NEXT:
                _WORKING.acquire()  # not to be stopped meanwhile: the turn ends with the lock
        self.check()

    def _take(self, lock: threading.Lock) -> None:
        # In short waits: a lock cannot be waited for and be told to stop.
        self.check()
        while not lock.acquire(timeout=_LOOK_EVERY_S):
            self.check()
