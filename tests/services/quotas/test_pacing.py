"""An even pace against its plan, with traffic that varies tenfold over the day, by a clock of our own."""

from __future__ import annotations

import asyncio
import math

import numpy as np
import pytest

from app.services.quotas.pace import SLICE_S
from app.services.quotas.quota_rules import BanditQuota, QuotaRule
from app.services.quotas.shares import Shares
from store_by_clock import OwnClock, StoreByClock

pytestmark = pytest.mark.anyio

DAY_S = 3_600.0  # a short one: what is drawn is drawn for slices of 100 ms


class Row:
    """Every row counts for the one quota."""

    @staticmethod
    def follow(_: object) -> None: ...

    @staticmethod
    def of(_: int) -> tuple[int]:
        return (0,)


@pytest.mark.parametrize("processes", [1, 3])
@pytest.mark.parametrize(("most", "demand"), [(1_000, 2.0), (10_000, 2.0), (5_000, 6.0)])
async def test_the_plan_is_followed_within_5_percent(processes: int, most: int, demand: float):
    """After each tenth of the window; and never more than the cap. False alarms: none seen in 200 seeds."""
    clock, rng = OwnClock(), np.random.default_rng(most + processes)
    rule = QuotaRule(most, arm="a", per_s=DAY_S, pace="even").checked()
    store = StoreByClock(clock, {"q": rule.terms("u")})
    all_shares = []
    for number in range(processes):
        shares = Shares(store, None, "b", asyncio.Event(), clock=clock, rng=np.random.default_rng(number))  # type: ignore[arg-type]
        await shares.become([BanditQuota("q", "u", rule)])
        shares.members = Row()  # type: ignore[assignment]
        all_shares.append(shares)
    shown, errors = 0, []
    slices = round(DAY_S / SLICE_S)
    for step in range(1, slices):
        clock.seconds = step * SLICE_S
        # At least twice the plan at any time, and tenfold that at the height of the day.
        wave = 1.0 + 9.0 * math.sin(math.pi * step / slices) ** 2
        for _ in range(rng.poisson(demand * most / slices * wave)):
            shares = all_shares[rng.integers(processes)]
            if not shares.now().out[0]:
                shown += await shares.take(None, [0]) is not None  # type: ignore[arg-type]
        if not step % round(1.0 / SLICE_S):
            for shares in all_shares:
                await shares.look()
        if not step % (slices // 10):
            errors.append(shown / most - step / slices)
    assert shown <= most
    assert max(map(abs, errors)) <= 0.05, errors
