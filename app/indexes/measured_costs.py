"""What reads cost on this machine: measured once, when a search first needs to know.

Notation
    unit        the time in which a scan reads one coordinate of one arm; all costs are in units

Three things are measured: how long a scan takes for a coordinate, how long arms take that are picked or read
in full, and how long a search takes that reads next to nothing. That search is dozens of calls of numpy, and
all overhead is made of such calls. So every overhead is the usual one, times how much longer than usual the
search takes.

Times are processor time of the one thread, so that other threads and processes do not count, and the least of
several repeats. But who else uses the memory slows a scan down, by a factor of six where that was tried, and
then everything else looks cheap. So a scan is taken to be at most three times as slow as one in the nearest
cache. The noise that is left is bounded: what is measured is clipped to a range around what is usual. A plan
that is made from wrong costs takes longer, and promises the same.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable

import numpy as np

from app.algorithms.guarantee import exactly
from app.algorithms.mips import blocked
from app.algorithms.mips.bounded_me import Round, follow
from app.algorithms.mips.read_costs import ReadCosts
from app.algorithms.mips.rewards import BlockedRewards, blocked_rewards
from app.algorithms.types import Rows

Clock = Callable[[], float]

# Measured with care, and many large layouts, on one core where a scan reads eight coordinates a nanosecond.
USUAL = ReadCosts(
    picked=3.5,
    whole=3.0,
    query=950_000.0,
    coordinate=60.0,
    arm=200.0,
    decision=250_000.0,
    check=2_000_000.0,
    large=2.0**24,
)
# There the search that is timed here took so many units.
_USUAL_SEARCH = 560_000.0
# How many times more, or less, than usual an overhead can be, and a read.
MOST_OVERHEAD, MOST_READ = 3.0, 2.0

# A search that takes less time than so many seconds is planned by its reads alone.
_SHORT_S = 2e-3
# A scan from memory is taken to be at most so many times as slow as one from the cache.
_SLOWER = 3.0
# 48 MB to scan, the first 512 KB of it from the cache; the arms that are read; those that are searched.
_SCANNED, _CACHED = (3_072, 4_096), 32
_READ = 512
_SEARCHED = (64, 256)
_REPEATS, _SCANS = 15, 4
_SEED = 0


class MeasuredCosts:
    """``measure`` at the first call, from whatever thread; the same costs ever after."""

    def __init__(self, measuring: Callable[[], ReadCosts] | None = None) -> None:
        self._measuring = measuring or measure
        self._costs: ReadCosts | None = None
        self._lock = threading.Lock()

    def __call__(self) -> ReadCosts:
        """Return the costs. Takes some tens of milliseconds at its first call."""
        with self._lock:
            if self._costs is None:
                self._costs = self._measuring()
            return self._costs


def measure(clock: Clock = time.thread_time) -> ReadCosts:
    """Measure all costs. ``clock`` returns seconds. Cost: about 50 ms and 70 MB, which are freed."""
    rng = np.random.default_rng(_SEED)
    numbers = rng.standard_normal(2**16 + 1).astype(np.float32)
    vectors, weights = np.resize(numbers, _SCANNED), numbers[: _SCANNED[1]]
    memory = _least(lambda: np.matmul(vectors, weights), clock, _SCANS) / vectors.size
    cached = vectors[:_CACHED]
    cache = _least(lambda: np.matmul(cached, weights), clock, _REPEATS) / cached.size
    unit = min(memory, _SLOWER * cache)

    rewards = blocked_rewards(blocked.build(vectors, rng=rng, rows=np.arange(_READ)), weights)
    places: Rows = np.arange(0, _READ, 8)
    reads = len(places) * rewards.dim
    picked = _least(lambda: rewards.pull(0, rewards.dim, places), clock, _REPEATS) / reads
    whole = _least(lambda: rewards.whole(places), clock, _REPEATS) / reads

    few = blocked.build(np.resize(numbers, _SEARCHED), rng=rng)
    search = _least(lambda: _search(blocked_rewards(few, weights[: few.dim])), clock, _REPEATS)
    return costs_of(unit, picked=picked, whole=whole, search=search)


def costs_of(unit: float, *, picked: float, whole: float, search: float) -> ReadCosts:
    """Return the costs that follow from these times, in seconds; they are finite whatever the times are.

    ``unit``, ``picked``, ``whole``: of one coordinate in a scan, of a picked arm, of an arm read in full.
    ``search``: of the search that is timed.
    """
    slower = _clipped(_ratio(search, unit * _USUAL_SEARCH), MOST_OVERHEAD)
    return ReadCosts(
        picked=USUAL.picked * _clipped(_ratio(picked, unit * USUAL.picked), MOST_READ),
        whole=USUAL.whole * _clipped(_ratio(whole, unit * USUAL.whole), MOST_READ),
        query=USUAL.query * slower,
        coordinate=USUAL.coordinate * slower,
        arm=USUAL.arm * slower,
        decision=USUAL.decision * slower,
        check=USUAL.check * slower,
        large=USUAL.large * _clipped(_ratio(_SHORT_S, unit * USUAL.large), MOST_OVERHEAD),
    )


def _ratio(time_s: float, usual_s: float) -> float:
    """Return how many times longer than usual something takes; 1 where that cannot be told."""
    return time_s / usual_s if time_s > 0.0 and usual_s > 0.0 else 1.0


def _clipped(ratio: float, most: float) -> float:
    return min(max(ratio, 1.0 / most), most) if math.isfinite(ratio) else 1.0


def _search(rewards: BlockedRewards) -> None:
    """A search that reads one grain of all arms, and a few arms in full."""
    follow([Round(rewards.rounded(1), 10), Round(rewards.dim, 5)], rewards, 5, exactly())


def _least(work: Callable[[], object], clock: Clock, repeats: int) -> float:
    """Return the least time of some repeats, in seconds."""
    times = []
    for _ in range(repeats):
        started = clock()
        work()
        times.append(clock() - started)
    return min(times)
