"""An even pace against its plan, with traffic that varies tenfold over the day, by a clock of our own."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
import pytest
from scipy.optimize import linprog

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


@dataclass(frozen=True)
class Town:
    """``means`` (contexts, arms) of rewards; the last arm has no quota. ``most`` (arms - 1,) in a window.

    Of ``visits`` each is of a context drawn evenly; the best arm that takes part is shown.
    """

    means: np.ndarray
    most: np.ndarray
    visits: int

    def shown(self, took_part: np.ndarray, context: int) -> int:
        return int(np.where([*took_part, True], self.means[context], -1.0).argmax())

    def best(self) -> float:
        """The most that holding back can earn: a linear program over the sets that take part.

        w (sets,) >= 0 with sum 1 is in which part of the slices each set takes part; what is shown of an arm
        is at most its quota.
        """
        contexts, arms = self.means.shape
        sets = [np.array(each) for each in itertools.product([False, True], repeat=arms - 1)]
        shown = np.zeros((arms, len(sets)))
        earned = np.zeros(len(sets))
        for place, took_part in enumerate(sets):
            for context in range(contexts):
                arm = self.shown(took_part, context)
                shown[arm, place] += self.visits / contexts
                earned[place] += self.means[context, arm] * self.visits / contexts
        found = linprog(-earned, A_ub=shown[:-1], b_ub=self.most, A_eq=np.ones((1, len(sets))), b_eq=[1.0])
        assert found.success
        return -float(found.fun)


@pytest.mark.rest
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 6))])
async def test_an_even_pace_earns_nearly_the_best_that_holds_back(seed: int):
    """Five arms of three contexts, four of them with a quota that binds; traffic varies tenfold."""
    rng, contexts, arms, visits = np.random.default_rng(seed), 3, 5, 12_000
    town = Town(rng.uniform(0.1, 1.0, (contexts, arms)), np.array([900, 1_500, 1_000, 2_000]), visits)
    rules = {
        f"{arm}": QuotaRule(int(most), arm=f"a{arm}", per_s=DAY_S, pace="even")
        for arm, most in enumerate(town.most)
    }
    store = StoreByClock(OwnClock(), rules)
    process = await process_of(store)
    earned, counts, slices = 0.0, np.zeros(arms), round(DAY_S / SLICE_S)
    for step in range(1, slices):
        store.clock.seconds = step * SLICE_S
        wave = 1.0 + 9.0 * math.sin(math.pi * step / slices) ** 2
        for _ in range(rng.poisson(visits / slices * wave / 5.5)):
            context, is_charged = int(rng.integers(contexts)), False
            while not is_charged:
                closed = process.known.closed().quotas
                arm = town.shown(np.array([name not in closed for name in rules]), context)
                is_charged = arm == arms - 1 or await process.charge(None, [arm]) is not None  # type: ignore[arg-type]
            earned += town.means[context, arm]
            counts[arm] += 1
    assert (counts[:-1] <= town.most).all()
    share = earned / (town.best() * counts.sum() / visits)
    assert share >= 0.95, share
