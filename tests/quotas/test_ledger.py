"""Shares of several processes over a real store: clocks differ or jump, replies are lost or late."""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter

import numpy as np
import pytest
from msgspec.structs import replace

from app.platform.errors import Unavailable
from app.platform.metrics import Metrics
from app.quotas.ledger import QuotaLedger
from app.quotas.quotas import Quotas
from app.quotas.rules import BanditQuota, QuotaRule
from app.quotas.share import IDLE, QuotaShare
from app.quotas.snapshot import QuotaBlockNames
from app.records.left_out import NOT_KEPT
from app.serving.constraints.base import Shown, View
from app.serving.constraints.quotas import QuotaConstraint
from app.storage import redis_keys as keys
from app.storage.store import Store
from headless_service import HeadlessService
from lossy_store import LossyStore
from store_by_clock import OneQuota
from waiting import wait_until

pytestmark = pytest.mark.anyio

UID = "0123456789abcdef"
HOUR_MS = 3_600_000


class Process:
    """The shares of one process. Its clock is ``ahead_s`` of the true one."""

    def __init__(self, store: Store | LossyStore) -> None:
        self.ahead_s = 0.0
        self.shown = Counter[int]()
        self.low = asyncio.Event()
        self.shares = QuotaLedger(
            store.quotas, store.write_once, UID, self.low, clock=lambda: time.monotonic() + self.ahead_s
        )

    async def serve(self, rule: QuotaRule) -> None:
        await self.shares.change([BanditQuota("q", "u", rule)], ())
        OneQuota(self.shares)

    @property
    def live(self) -> QuotaShare:
        return self.shares.by_id["q"]

    async def show(self, count: int = 1) -> int:
        """How many were shown, 0 or all; counted for the window that they were taken in."""
        if self.shares.now().out[0]:
            return 0
        taken = await self.shares.take(None, [0] * count)  # type: ignore[arg-type]
        if taken is None:
            return 0
        self.shown[self.live.state.start_ms] += taken.counts[0]
        return count


async def put(store: Store | LossyStore, rule: QuotaRule) -> None:
    assert await store.quotas.put(UID, "q", b"r", rule.terms("u"), heard_changes=0)


async def processes(store: Store | LossyStore, count: int, rule: QuotaRule) -> list[Process]:
    await put(store, rule)
    made = [Process(store) for _ in range(count)]
    for process in made:
        await process.serve(rule)
    return made


async def all_that_is_left(process: Process) -> None:
    for _ in range(1_000):
        if not await process.show():
            return
    raise AssertionError("there is no end")


def quota_of(most: int, **fields: object) -> QuotaRule:
    return QuotaRule(most, arm="a", **fields).checked()  # type: ignore[arg-type]


@pytest.mark.rest
async def test_a_window_that_a_process_thinks_is_over_goes_on_where_it_was(store: Store):
    """It counts the time from before it asks, so it is always a little early."""
    (process,) = await processes(store, 1, quota_of(20, per_s=86_400))
    for _ in range(9):
        await process.show()
    process.ahead_s = 86_400.0
    await all_that_is_left(process)
    assert process.shown.total() == 20
    assert len(process.shown) == 1


@pytest.mark.rest
async def test_an_answer_that_comes_after_the_end_of_a_window_gives_nothing_back(store: Store):
    lossy = LossyStore(store)
    (process,) = await processes(lossy, 1, quota_of(20, per_s=86_400))
    for _ in range(9):
        await process.show()
    lossy.hold["quotas.share"] = asyncio.Event()
    looking = asyncio.create_task(process.shares.sync_with_store())
    await wait_until(lambda: _held(lossy), what="an answer is on its way")
    process.ahead_s = 86_400.0
    process.shares.now()  # ends the window
    process.ahead_s = 0.0  # as if the window went on for longer by the answer
    lossy.hold.pop("quotas.share").set()
    await looking
    await all_that_is_left(process)
    assert process.shown.total() == 20


async def _held(lossy: LossyStore) -> bool:
    return lossy.held["quotas.share"] == 1


async def test_what_is_given_back_can_be_shown_at_once(store: Store):
    """And not only once the store was asked again."""
    (process,) = await processes(store, 1, quota_of(1))
    taken = await process.shares.take(None, [0])  # type: ignore[arg-type]
    assert taken is not None
    assert await process.show() == 0
    process.shares.give_back(taken)
    assert await process.show() == 1


@pytest.mark.rest
async def test_what_another_process_holds_is_not_free(store: Store):
    """Also what it has not spent yet: a list that counts on it is chosen for nothing."""
    one, other = await processes(store, 2, quota_of(100))
    await one.show()
    assert one.live.left > 0
    await other.shares.refresh(other.live)
    assert other.live.most_left == other.live.left + 100 - one.live.state.share


@pytest.mark.rest
async def test_what_a_process_holds_and_does_not_use_goes_back(store: Store):
    """Each round it holds less, until the others can show all that is left."""
    one, other = await processes(store, 2, quota_of(100))
    for _ in range(30):  # a share is large where much was shown
        await one.show()
        await one.shares.refill()
    held = one.live.left
    assert held > 1
    for _ in range(2 * held):
        await one.shares.sync_with_store()
        await other.shares.sync_with_store()
        await all_that_is_left(other)
    assert (one.live.left, other.shown.total()) == (0, 70)


@pytest.mark.rest
async def test_a_quota_is_open_again_as_soon_as_its_window_is_over(store: Store):
    """Before the store was asked about the next one."""
    (process,) = await processes(store, 1, quota_of(1, per_s=86_400))
    await all_that_is_left(process)
    assert process.shares.now().out[0]
    process.ahead_s = 86_400.0
    assert not process.shares.now().out[0]


async def test_a_quota_is_out_as_soon_as_the_last_of_it_was_shown(store: Store):
    """Else a choice would take an arm of it again and again, and be refused each time."""
    (process,) = await processes(store, 1, quota_of(20))
    for _ in range(20):
        assert await process.show() == 1
    assert process.shares.now().out[0]


@pytest.mark.rest
async def test_what_is_given_back_of_a_window_that_is_over_cannot_be_spent(store: Store):
    (process,) = await processes(store, 1, quota_of(3, per_s=86_400))
    taken = await process.shares.take(None, [0])  # type: ignore[arg-type]
    assert taken is not None
    process.ahead_s = 86_400.0
    process.shares.now()
    process.shares.give_back(taken)
    assert process.live.left <= 0
    await all_that_is_left(process)
    assert process.shown.total() == 3


@pytest.mark.rest
async def test_what_goes_back_is_not_spent_while_the_store_is_asked(store: Store):
    lossy = LossyStore(store)
    (one,) = await processes(lossy, 1, quota_of(16))
    other = Process(store)
    await other.serve(quota_of(16))
    for _ in range(5):
        await one.show()
    while one.live.demand.idle < IDLE - 1:
        await one.shares.sync_with_store()
    held, lossy.hold["quotas.share"] = one.live.left, asyncio.Event()
    looking = asyncio.create_task(one.shares.sync_with_store())
    await wait_until(lambda: _held(lossy), what="the store has taken back what was not used")
    await all_that_is_left(other)
    spending = [asyncio.create_task(one.show()) for _ in range(held)]
    await asyncio.gather(*(asyncio.sleep(0) for _ in spending))
    lossy.hold.pop("quotas.share").set()
    await asyncio.gather(looking, *spending)
    await all_that_is_left(one)
    assert held > 0
    assert one.shown.total() + other.shown.total() == 16


async def test_rows_of_each_day_name_blocks_that_are_stored_that_day(store: Store):
    (process,) = await processes(store, 1, quota_of(16))
    blocks, out = QuotaBlockNames(store.write_once, UID, process.low, process.shares.slots), np.ones(1, bool)
    names = [blocks.named(out, day=day, ttl_ms=1_000) for day in (1, 1, 2)]
    assert names[0] == names[1] != names[2]
    assert len(blocks._unkept) == 2  # private: what is not stored yet is not shown


async def test_a_row_names_no_quotas_that_came_or_went_while_its_choice_was_made(store: Store):
    """Their numbers may be others' now."""
    shares = QuotaLedger(store.quotas, store.write_once, UID, asyncio.Event())
    first, second = (BanditQuota(name, "u", quota_of(9)) for name in ("q", "r"))
    await shares.change([first], ())
    for quotas, gone in (([second], ()), ([], ["r"])):
        snapshot = shares.now()
        await shares.change(quotas, gone)
        assert snapshot.left_out(ttl_ms=1_000) == NOT_KEPT
        assert shares.now().left_out(ttl_ms=1_000) == ""


@pytest.mark.rest
async def test_windows_that_end_faster_than_the_store_answers_do_not_hang(store: Store):
    rule = quota_of(5, per_s=86_400)
    (process,) = await processes(store, 1, rule)
    clock = process.shares._clock  # private: a clock that jumps between two reads
    # private: a clock that jumps between two reads
    process.shares._clock = lambda: clock() + 1e6 * (process.live.state.until != float("inf"))  # always over
    with pytest.raises(Unavailable):
        await process.show()


async def test_what_was_of_a_deleted_quota_is_not_of_the_one_that_has_its_number(service: HeadlessService):
    """Else what is given back, or heard too late, would let more arms of the next one through."""
    await service.catalogue()
    bandit, quotas = await service.bandit(), service.parts.quotas
    await quotas.put(bandit, "before", quota_of_arm("a1"))
    shares, snapshot = quotas.ledgers[bandit.uid], bandit.catalogue.index.snapshot()
    row, before = snapshot.table.row_of("a1"), shares.by_id["before"]
    taken = await shares.take(snapshot, [row])
    assert taken is not None
    await quotas.put(bandit, "other", quota_of_arm("a2"))  # the bandit is not without quotas in between
    await quotas.delete(bandit, "before")
    await quotas.put(bandit, "after", quota_of_arm("a1"))
    assert shares.by_id["after"].number == before.number
    assert await shares.take(snapshot, [row]) is not None
    shares.give_back(taken)
    await shares.refresh(before)
    assert shares.by_id["after"].spent == 1
    constraint = QuotaConstraint(quotas)
    charge = await constraint.charge(View(state=shares), Shown(None, snapshot, [row], "d"))  # type: ignore[arg-type]
    for quota in ("other", "after"):
        await quotas.delete(bandit, quota)
    assert bandit.uid not in quotas.ledgers
    await quotas.put(bandit, "again", quota_of_arm("a1"))
    await constraint.refund(charge)  # type: ignore[arg-type]
    assert quotas.ledgers[bandit.uid].by_id["again"].spent == 0


async def test_a_quota_that_another_process_made_again_counts_from_0(service: HeadlessService):
    """It has the same id, and is another quota: what was spent of the first one is not of it."""
    await service.catalogue()
    bandit, quotas = await service.bandit(), service.parts.quotas
    await quotas.put(bandit, "q", quota_of_arm("a1"))
    shares, snapshot = quotas.ledgers[bandit.uid], bandit.catalogue.index.snapshot()
    for _ in range(9):
        assert await shares.take(snapshot, [snapshot.table.row_of("a1")]) is not None
    other = Quotas(service.store, Metrics())  # type: ignore[arg-type]
    await other.put(bandit, "another", quota_of_arm("a2"))  # the bandit is not without quotas in between
    await other.delete(bandit, "q")
    await other.put(bandit, "q", quota_of_arm("a1"))
    await quotas.replace({bandit.uid: sys.maxsize})
    assert ((await quotas.get(bandit, "q")).used, shares.by_id["q"].spent) == (0, 0)


async def test_a_process_knows_at_once_that_the_rewards_it_counts_use_a_quota_up(service: HeadlessService):
    await service.catalogue()
    bandit, quotas = await service.bandit(), service.parts.quotas
    await quotas.put(bandit, "q", QuotaRule(2, arm="a1", counts="rewarded"))
    for is_used_up in (False, True):
        await quotas.count_rewards(bandit, [("a1", None), ("a2", None)])
        assert quotas.ledgers[bandit.uid].now().out[0] == is_used_up


async def test_what_other_processes_hold_is_reserved(service: HeadlessService):
    await service.catalogue()
    bandit, quotas = await service.bandit(), service.parts.quotas
    await quotas.put(bandit, "q", quota_of_arm("a1"))
    other, snapshot = Quotas(service.store, Metrics()), bandit.catalogue.index.snapshot()  # type: ignore[arg-type]
    await other.replace({bandit.uid: 1})
    assert await other.ledgers[bandit.uid].take(snapshot, [snapshot.table.row_of("a1")]) is not None
    state, held = await quotas.get(bandit, "q"), other.ledgers[bandit.uid].by_id["q"].state.share
    assert held > 0
    assert (state.used, state.reserved, state.left) == (0, held, 9 - held)


async def test_it_is_said_when_a_quota_is_used_up_if_it_goes_on(service: HeadlessService):
    """3 of 9 were shown in 1,000 s: the others take 2,000 s, and of fewer than were shown none is left."""
    await service.catalogue()
    bandit, quotas, slack_ms = await service.bandit(), service.parts.quotas, 100_000
    now_ms = time.time_ns() // 1_000_000
    for number, to_ms in ((0, None), (1, now_ms + 1_500_000)):
        rule = QuotaRule(9, arm=f"a{number}", from_ms=now_ms - 1_000_000, to_ms=to_ms)
        assert (await quotas.put(bandit, f"q{number}", rule))[0].ends_ms is None
        snapshot = bandit.catalogue.index.snapshot()
        for _ in range(3):
            assert await quotas.ledgers[bandit.uid].take(snapshot, [snapshot.table.row_of(f"a{number}")])
        ends_ms = (await quotas.get(bandit, f"q{number}")).ends_ms
        if to_ms is None:
            assert ends_ms == pytest.approx(now_ms + 2_000_000, abs=slack_ms, rel=0)
        else:
            assert ends_ms is None
        lowered, _ = await quotas.put(bandit, f"q{number}", replace(rule, most=2))
        assert lowered.ends_ms == pytest.approx(now_ms, abs=slack_ms, rel=0)


async def test_a_quota_is_put_though_another_process_put_one_meanwhile(service: HeadlessService):
    """The store refuses what was checked before that, and it is checked again: none is lost."""
    await service.catalogue()
    bandit, quotas = await service.bandit(), service.parts.quotas

    async def meanwhile() -> None:
        await Quotas(service.store, Metrics()).put(bandit, "theirs", quota_of_arm("a2"))  # type: ignore[arg-type]

    service.store.before["quotas.put"] = meanwhile
    await quotas.put(bandit, "ours", quota_of_arm("a1"))
    assert {quota_id for quota_id, _ in quotas.rules(bandit)} == {"ours", "theirs"}


def quota_of_arm(arm: str) -> QuotaRule:
    return QuotaRule(9, arm=arm).checked()


async def test_quotas_that_are_gone_when_all_are_read_again_are_not_served(store: Store):
    """Which ones changed is not known to the store any more: as after 20,000 changes. Nor need it have noted
    more changes than before: as from a backup.
    """
    quotas = Quotas(store, Metrics())
    for number, name in enumerate(("q", "gone")):
        rule = QuotaRule(3, arm=name)
        quota = BanditQuota(name, UID, rule)
        assert await store.quotas.put(UID, name, quota.record, rule.terms(UID), heard_changes=number)
    await quotas.replace({UID: 3})
    assert [*quotas.ledgers[UID].by_id] == ["gone", "q"]
    assert await store.quotas.delete(UID, "gone")
    await store.redis.command("DEL", keys.quota_changes(UID))
    await quotas.replace({UID: 2})
    assert [*quotas.ledgers[UID].by_id] == ["q"]


async def test_with_a_slow_store_a_window_ends_here_not_later_than_in_the_store(store: Store):
    """The answer comes seven seconds after the store read its clock."""
    process, left_s = Process(store), list[float]()

    class SlowQuotas:
        def __getattr__(self, name: str) -> object:
            return getattr(store.quotas, name)

        async def share(self, *asked: object) -> object:
            now_ms, answers = await store.quotas.share(*asked)  # type: ignore[arg-type]
            process.ahead_s += 7.0
            left_s.extend((answer.until_ms - now_ms) / 1_000 - 7.0 for answer in answers)
            return now_ms, answers

    process.shares = QuotaLedger(
        SlowQuotas(), store.write_once, UID, process.low,  # type: ignore[arg-type]
        clock=lambda: time.monotonic() + process.ahead_s,
    )  # fmt: skip
    rule = quota_of(40, per_s=3_600)
    await put(store, rule)
    await process.serve(rule)
    await process.show()
    here = process.live.state.until - time.monotonic() - process.ahead_s
    assert 0.0 < here <= left_s[-1]
