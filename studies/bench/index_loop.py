"""What the service's event loop does for one index: searches, and both ends of work in threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from app.indexes.live import LiveIndex, Maintenance, Work

LOOK_EVERY_S = 0.2
CHECK_EVERY = 4


@dataclass(slots=True)
class Stretch:
    """What the searches of a stretch of time showed: times in microseconds, winners among those checked."""

    us: list[float] = field(default_factory=list)
    hits: int = 0
    checked: int = 0


class IndexLoop:
    """``builds``: structures that were built. ``cpu_s``: processor time of all work, ``last_cpu_s``: of the
    last build of a structure, ``last_s``: how long that took, in seconds. One search of ``check_every`` is
    compared with a scan.
    """

    def __init__(self, index: LiveIndex, rng: np.random.Generator, check_every: int = CHECK_EVERY) -> None:
        self.index = index
        self._check_every = check_every
        self.builds = 0
        self.cpu_s = self.last_cpu_s = self.last_s = 0.0
        self._rng = rng
        self._running: dict[str, tuple[Work, threading.Thread]] = {}
        self._look_at = 0.0

    @property
    def is_busy(self) -> bool:
        """Whether some work is going on."""
        return bool(self._running)

    def look(self) -> None:
        """Begin work that is due, finish what is done."""
        for kind, (job, thread) in list(self._running.items()):
            if not thread.is_alive():
                del self._running[kind]
                self._finish(job)
        if time.monotonic() >= self._look_at:
            self._look_at = time.monotonic() + LOOK_EVERY_S
            self._begin("structure", self.index.begin_maintenance)
            self._begin("measurement", self.index.begin_measurement)

    def search_until(self, deadline: float, stretch: Stretch) -> None:
        """Search without a pause until ``deadline``, at least once."""
        while True:
            self.look()
            snapshot = self.index.snapshot()
            query = self._rng.standard_normal(snapshot.table.dim)
            started = time.perf_counter()
            found = snapshot.search(query, 1)
            stretch.us.append((time.perf_counter() - started) * 1e6)
            if len(stretch.us) % self._check_every == 0:
                stretch.checked += 1
                stretch.hits += found.rows[0] == snapshot.search_exact(query, 1).rows[0]
            if time.monotonic() >= deadline:
                return

    def settle(self) -> None:
        """Wait for the first build, and for all work that is going on."""
        while self.is_busy or self.builds == 0:
            self.look()
            time.sleep(0.01)

    def stop(self) -> None:
        """Cancel what is going on, and wait for it."""
        for job, thread in self._running.values():
            job.cancel()
            thread.join()
            self._finish(job)
        self._running.clear()

    def _begin(self, kind: str, begin: Callable[[], Work | None]) -> None:
        if kind in self._running:
            return
        job = begin()
        if job is not None:
            thread = threading.Thread(target=self._run, args=(job,), daemon=True)
            self._running[kind] = job, thread
            thread.start()

    def _run(self, job: Work) -> None:
        started = time.thread_time()
        job.run()
        took = time.thread_time() - started
        self.cpu_s += took
        if isinstance(job, Maintenance) and job.structure is not None:
            self.last_cpu_s, self.last_s = took, job.seconds

    def _finish(self, job: Work) -> None:
        self.builds += isinstance(job, Maintenance) and job.structure is not None
        self.index.finish(job)
