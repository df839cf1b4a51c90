"""The threads for a process's long work, by purpose: one kind must not wait for another."""

from __future__ import annotations

from app.platform.long_work import LongWork, Slots
from app.platform.machine import usable_cpus

THREADS = max(2, min(8, usable_cpus()))  # more would keep the interpreter from the event loop
WAITING = 256

REQUESTS = LongWork(threads=THREADS, waiting=WAITING, name="requests")
"""For what a request computes itself, up to some tenths of a second."""
LEARNERS = LongWork(threads=THREADS, waiting=WAITING, name="learners")
"""For what learners are made of: sums and posteriors, O(d^3)."""
MEASURING = LongWork(threads=4, waiting=WAITING, name="measuring")
"""For pages of the decision log, of which only so many are read at once."""
SEARCHES = Slots("searches", running=64, waiting=1_024)
"""For searches of arms that another process has."""
