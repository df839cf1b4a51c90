"""How often a process asks the store for its shares, counted by a clock of our own."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any

import pytest

from app.policies.request import ChooseRequest
from app.quotas.ledger import BATCH_SIZE, QuotaLedger
from app.quotas.members import QuotaMembers
from app.quotas.rules import BanditQuota, QuotaRule
from app.storage.types import Share, ShareAsked
from headless_service import HeadlessService
from store_by_clock import OneQuota, OwnClock, StoreByClock

pytestmark = pytest.mark.anyio

RULE = QuotaRule(10**8, {"campaign": 1}, per_s=86_400).checked()


@dataclass
class Counting(StoreByClock):
    """Counts calls, and the quotas of the last one."""

    calls: int = 0
    last: int = 0

    async def share(
        self, bandit_uid: str, process: str, number: int, asked: Sequence[ShareAsked]
    ) -> tuple[int, Sequence[Share]]:
        self.calls, self.last = self.calls + 1, len(asked)
        return await super().share(bandit_uid, process, number, asked)


class QuotaOfRow(OneQuota):
    """Every row counts for the quota of its number."""

    def quotas_of(self, _: object, rows: Sequence[int]) -> list[list[int]]:
        return [[row] for row in rows]


async def shares_of(
    count: int, rule: QuotaRule = RULE
) -> tuple[QuotaLedger, Counting, OwnClock, asyncio.Event]:
    clock, low = OwnClock(), asyncio.Event()
    store = Counting(clock, {f"q{number}": rule.terms("u") for number in range(count)})
    shares = QuotaLedger(store, None, "b", low, clock=clock)  # type: ignore[arg-type]
    await shares.change([BanditQuota(f"q{number}", "u", rule) for number in range(count)], ())
    QuotaOfRow(shares)
    return shares, store, clock, low


async def show(shares: QuotaLedger, row: int) -> None:
    assert await shares.take(None, [row]) is not None  # type: ignore[arg-type]


@pytest.mark.rest
async def test_quotas_that_are_shown_now_and_then_are_not_asked_for_again():
    shares, store, clock, _ = await shares_of(300)
    for row in range(300):
        await show(shares, row)
    for _ in range(40):
        clock.seconds += 1.0
        await shares.sync_with_store()
    before = store.calls
    for row in range(300):
        await show(shares, row)
    assert store.calls == before
    await shares.leave()  # gives them back
    assert all(live.left == 0 for live in shares.by_id.values())


async def test_a_share_that_runs_low_is_doubled_before_a_choice_waits_for_it():
    shares, store, _, low = await shares_of(1)
    await show(shares, 0)
    for held in (8, 16, 32):
        calls = store.calls
        while not low.is_set():
            await show(shares, 0)
        low.clear()
        assert (store.calls, shares.by_id["q0"].left) == (calls, held // 2)
        await shares.refill()
        assert shares.by_id["q0"].left == 2 * held


@pytest.mark.rest
async def test_of_quotas_of_which_there_is_plenty_a_little_is_here_before_they_are_shown():
    """Each would be asked for when it is shown first: a script for almost every choice at the start."""
    shares, store, clock, _ = await shares_of(2 * BATCH_SIZE)
    clock.seconds += 1.0
    await shares.sync_with_store()
    before = store.calls
    for row in range(2 * BATCH_SIZE):
        await show(shares, row)
    assert store.calls == before


async def test_a_list_knows_what_is_left_without_asking():
    """What the store has not granted, and what this process holds; what was given back is there again."""
    rule = QuotaRule(20, {"campaign": 1}, per_s=86_400).checked()
    shares, store, _, _ = await shares_of(2, rule)
    before = store.calls
    assert shares.few(20) is None
    few = shares.few(21)
    assert few is not None
    assert dict(few.left) == {0: 20, 1: 20}
    assert store.calls == before
    taken = [await shares.take(None, [1]) for _ in range(16)]  # type: ignore[arg-type]
    few = shares.few(5)
    assert few is not None
    assert dict(few.left) == {1: 4}
    assert taken[0] is not None
    shares.give_back(taken[0])
    assert shares.few(5) is None


async def test_a_list_takes_one_arm_once_and_a_deleted_quota_is_used_up_no_more():
    rule = QuotaRule(1, arm="a", per_s=86_400).checked()
    shares, _, _, _ = await shares_of(1, rule)
    assert shares.few(5) is None
    await show(shares, 0)
    assert shares.states() == {"used_up": 1, "held_back": 0, "open": 0}
    assert shares.few(5) is None  # its arms are not eligible at all
    shares.members = QuotaMembers()  # in place of that of the test
    shares.members.add(0, rule)
    await shares.change([], ["q0"])
    assert shares.states() == {"used_up": 0, "held_back": 0, "open": 0}


async def test_of_two_windows_the_one_that_ends_first_ends_in_time():
    """Also where the store told of the longer one last."""
    clock, rules = OwnClock(), [QuotaRule(1, arm="a", per_s=seconds) for seconds in (10.0, 1_000.0)]
    store = StoreByClock(clock, {f"q{number}": rule.terms("u") for number, rule in enumerate(rules)})
    shares = QuotaLedger(store, None, "b", asyncio.Event(), clock=clock)  # type: ignore[arg-type]
    await shares.change([BanditQuota(f"q{number}", "u", rule) for number, rule in enumerate(rules)], ())
    QuotaOfRow(shares)
    await show(shares, 0)
    await shares.sync_with_store()
    assert shares.now().out[0]
    clock.seconds = 10.0
    assert not shares.now().out[0]


async def test_what_was_taken_in_one_window_is_not_given_back_in_the_next():
    shares, _, clock, _ = await shares_of(1, QuotaRule(3, arm="a", per_s=86_400).checked())
    taken = await shares.take(None, [0])  # type: ignore[arg-type]
    assert taken is not None
    clock.seconds = 86_400.0
    for _ in range(3):
        await show(shares, 0)
    shares.give_back(taken)
    await shares.sync_with_store()
    assert shares.now().out[0]


async def steps_of_a_change(count: int) -> int:
    """How many instructions of Python it takes to change one of so many quotas with an even pace."""
    rule, steps = QuotaRule(10**8, arm="a", per_s=86_400, pace="even").checked(), 0
    clock = OwnClock()
    store = StoreByClock(clock, {f"q{number}": rule.terms("u") for number in range(count)})
    shares = QuotaLedger(store, None, "b", asyncio.Event(), clock=clock)  # type: ignore[arg-type]
    await shares.change([BanditQuota(f"q{number}", "u", rule) for number in range(1, count)], ())

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal steps
        frame.f_trace_opcodes = "/app/quotas/" in frame.f_code.co_filename
        steps += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        await shares.change([BanditQuota("q0", "u", rule)], ["q1"])
    finally:
        sys.settrace(before)
    return steps


@pytest.mark.rest
async def test_a_change_of_a_quota_costs_the_same_however_many_there_are():
    few, many = await steps_of_a_change(10), await steps_of_a_change(1_000)
    assert few > 100
    assert many < 1.5 * few


@pytest.mark.rest
async def test_a_dry_run_holds_nothing_that_others_could_show(service: HeadlessService):
    await service.quiet()
    bandit = await service.bandit()
    await service.parts.quotas.put(bandit, "q", QuotaRule(1_000, arm="a3"))
    before = service.store.calls["quotas.share"]
    await service.parts.dry_runs.run(bandit, ChooseRequest(key="ann", k=4))
    assert service.store.calls["quotas.share"] == before
    await service.choose(bandit, k=4)
    assert service.store.calls["quotas.share"] == before + 1
