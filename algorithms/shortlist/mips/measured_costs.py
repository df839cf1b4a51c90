"""Measured costs of reads on this machine.

Notation
    unit        the time in which a scan reads one coordinate of one arm; all costs are in units

Three things are measured: the time of a scan for a coordinate, of arms picked or read in full, and of a
search with next to no reads. Such a search is dozens of calls of numpy, and all overhead is made of such
calls. So every overhead is the usual one, times the search's time relative to the usual one.

Times are medians of several rounds. Every round begins with the scan, so the caches hold nothing of the later
parts, as between two searches, and other use of the memory slows down everything alike. The remaining noise
is bounded: measurements are clipped to a range around the usual ones. A plan from wrong costs takes longer,
and promises the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from shortlist.guarantee import exactly
from shortlist.mips import blocked
from shortlist.mips.bounded_me import Round, follow
from shortlist.mips.read_costs import ReadCosts
from shortlist.mips.rewards import BlockedRewards, blocked_rewards
from shortlist.types import Rows

Clock = Callable[[], float]
Work = Callable[[], object]

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
# On that machine the search that is timed here takes this many units.
_USUAL_SEARCH = 1_600_000.0
# How many times more, or less, than usual an overhead can be, and a read.
MOST_OVERHEAD, MOST_READ = 3.0, 2.0

# A search that takes less time than this many seconds is planned by its reads alone.
_SHORT_S = 2e-3
# What is scanned, 48 MB; arms of which some are read in every round; arms that are searched.
_SCANNED = (3_072, 4_096)
_READ, _ROUNDS = 512, 8
_SEARCHED = (64, 256)


def measure(clock: Clock, rng: np.random.Generator) -> ReadCosts:
    """Measure all costs, on vectors that ``rng`` draws. Cost: about 80 ms and 70 MB, which are freed.

    ``clock`` returns seconds, best of processor time of the one thread (``time.thread_time``), so that other
    threads and processes do not count.
    """
    numbers = rng.standard_normal(2**16 + 1).astype(np.float32)
    vectors, weights = np.resize(numbers, _SCANNED), numbers[: _SCANNED[1]]
    rows: Rows = np.arange(0, len(vectors), len(vectors) // _READ)
    rewards = blocked_rewards(blocked.build(vectors, rng=rng, rows=rows), weights)
    blocks = blocked.build(np.resize(numbers, _SEARCHED), rng=rng)

    def works(places: Rows) -> tuple[Work, ...]:
        """The timed work of a round, in order."""
        return (
            lambda: vectors @ weights,
            lambda: _search(blocked_rewards(blocks, weights[: blocks.dim])),
            lambda: rewards.pull(0, rewards.dim, places),
            lambda: rewards.whole(places),
        )

    times = [
        [_time(work, clock) for work in works(np.arange(part, _READ, _ROUNDS))] for part in range(_ROUNDS)
    ]
    scan, search, picked, complete = np.median(times, axis=0).tolist()
    reads = _READ // _ROUNDS * rewards.dim
    return costs_of(scan / vectors.size, picked=picked / reads, whole=complete / reads, search=search)


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
    """Return how many times longer than usual something takes; 1 where that is unknown."""
    return time_s / usual_s if time_s > 0.0 and usual_s > 0.0 else 1.0


def _clipped(ratio: float, most: float) -> float:
    return min(max(ratio, 1.0 / most), most) if math.isfinite(ratio) else 1.0


def _search(rewards: BlockedRewards) -> None:
    """A search that reads one grain of all arms, and a few arms in full."""
    follow([Round(rewards.rounded(1), 10), Round(rewards.dim, 5)], rewards, 5, exactly())


def _time(work: Work, clock: Clock) -> float:
    """Return the time of the work, in seconds."""
    started = clock()
    work()
    return clock() - started
