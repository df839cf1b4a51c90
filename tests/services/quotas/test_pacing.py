"""An even pace against its plan, with traffic that varies tenfold over the day, by a clock of our own."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest

from app.services.quotas.quota_rules import BanditQuota, QuotaRule
from app.services.quotas.shares import SLICE_S, Shares
from app.storage.protocol import QuotaTerms, Share, ShareAsked

pytestmark = pytest.mark.anyio

DAY_S = 3_600.0  # a short one: what is drawn is drawn for slices of 100 ms


@dataclass
class Clock:
    seconds: float = 0.0

    def __call__(self) -> float:
        return self.seconds


@dataclass
class StoreByClock:
    """``QuotaStore.share`` as the script does it, for processes that neither fail nor ask late."""

    clock: Clock
    terms: QuotaTerms
    shares: dict[tuple[int, str], tuple[int, int]] = field(default_factory=dict)

    async def share(
        self, bandit_uid: str, process: str, number: int, asked: Sequence[ShareAsked]
    ) -> tuple[int, Sequence[Share]]:
        now, per, most = round(1_000 * self.clock()), self.terms.per_ms, self.terms.most
        start = now // per * per
        (ask,) = asked
        share, _ = self.shares.get((start, process), (0, 0))
        spent = ask.spent if ask.window_ms == start else 0
        of_window = [held for (window, _), held in self.shares.items() if window == start]
        free = most - sum(held for held, _ in of_window) + share - spent
        fair = math.ceil(free / (2 * max(len(of_window), 1)))
        held = min(ask.wanted, max(ask.needed, fair), free)
        self.shares[start, process] = spent + max(held, min(share - spent, ask.wanted)), spent
        of_window = [held for (window, _), held in self.shares.items() if window == start]
        granted, total = (sum(each[place] for each in of_window) for place in (0, 1))
        mine = self.shares[start, process][0]
        return now, [Share(True, True, start, start + per, mine, granted, total, 0, most, fair)]

    async def release(self, *_: object, **__: object) -> int:
        return 0

    async def reward(self, bandit_uid: str, counts: Mapping[str, int]) -> None:
        raise NotImplementedError


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
    clock, rng = Clock(), np.random.default_rng(most + processes)
    rule = QuotaRule(most, arm="a", per_s=DAY_S, pace="even").checked()
    store = StoreByClock(clock, rule.terms("u"))
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
