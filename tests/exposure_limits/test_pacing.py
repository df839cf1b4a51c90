"""An even pace against its plan, with traffic that varies tenfold over the day, by a clock of our own."""

from __future__ import annotations

import math

import numpy as np
import pytest

from app.exposure_limits.rules import QuotaRule
from store_by_clock import SLICE_MS, OwnClock, StoreByClock, process_of

pytestmark = pytest.mark.anyio

DAY_S, MINUTE_S = 3_600.0, 60.0  # a short day: what is drawn is drawn for slices of 100 ms
SLICE_S = SLICE_MS / 1_000


@pytest.mark.rest
@pytest.mark.parametrize(
    ("processes", "most", "demand", "per_s", "off"),
    [
        (3, 1_000, 2.0, DAY_S, 0.01),
        (3, 1_000, 2.0, MINUTE_S, 0.08),
        (1, 5_000, 6.0, DAY_S, 0.01),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (
                (1, 1_000, 2.0, DAY_S, 0.01),
                (3, 10_000, 2.0, DAY_S, 0.01),
                (3, 5_000, 6.0, DAY_S, 0.01),
                (3, 10_000, 6.0, MINUTE_S, 0.08),
            )
        ),
    ],
)
async def test_the_plan_is_followed(processes: int, most: int, demand: float, per_s: float, off: float):
    """After each tenth of the window. Processes hear of each other every second."""
    clock, rng = OwnClock(), np.random.default_rng(most + processes)
    store = StoreByClock(clock, {"0": QuotaRule(most, arm="a", per_s=per_s, pace="even")})
    running = [await process_of(store) for _ in range(processes)]
    shown, choices, errors, slices = 0, 0, list[float](), round(per_s / SLICE_S)
    for step in range(1, slices):
        clock.seconds = step * SLICE_S
        # At least twice the plan at any time, and tenfold that at the height of the day.
        wave = 1.0 + 9.0 * math.sin(math.pi * step / slices) ** 2
        for _ in range(rng.poisson(demand * most / slices * wave)):
            process, choices = running[rng.integers(processes)], choices + 1
            if not process.known.closed().quotas:
                shown += await process.charge(None, [0]) is not None  # type: ignore[arg-type]
        if not step % round(1.0 / SLICE_S):
            for process in running:
                await process.poll()
        if not step % (slices // 10):
            errors.append(shown / most - step / slices)
    assert shown <= most
    assert max(map(abs, errors)) <= off, errors
    # Nearly every choice is accepted, or knows better, at the first try.
    assert store.asked - shown <= max(0.1 * choices, processes * most)


@pytest.mark.rest
async def test_a_slice_of_much_demand_is_ahead_by_little():
    """60 a minute: of a thousand choices of the first second that would show it, one or two do."""
    clock = OwnClock()
    store = StoreByClock(clock, {"0": QuotaRule(60, arm="a", per_s=60.0, pace="even")})
    process, shown = await process_of(store), 0
    for slice_number in range(10):
        clock.seconds = slice_number * SLICE_S
        for _ in range(100):
            if not process.known.closed().quotas:
                shown += await process.charge(None, [0]) is not None  # type: ignore[arg-type]
    assert 1 <= shown <= 2
    assert store.asked <= 3
