"""Contract of a store: quotas, and the shares that processes have of them."""

from __future__ import annotations

import asyncio
import random

import pytest

from app.storage import redis_keys as keys
from app.storage.store import Store
from app.storage.types import LEAVES, QuotaChanges, QuotaTerms, Share, ShareAsked

pytestmark = pytest.mark.anyio

UID, FIRST, SECOND = "0123456789abcdef", "first-incarnation", "second-incarnation"
DAY_MS = 86_400_000


def terms(most: int = 100, per_ms: int = 0, from_ms: int = 0, to_ms: int = 0, uid: str = FIRST) -> QuotaTerms:
    return QuotaTerms(uid, most, per_ms, from_ms, to_ms)


async def put(store: Store, quota: str = "q", record: bytes = b"r", **fields: object) -> None:
    heard = (await store.quotas.changes(UID, 0)).number
    assert await store.quotas.put(UID, quota, record, terms(**fields), heard_changes=heard)  # type: ignore[arg-type]


class Process:
    """Asks as a process does: its calls are numbered."""

    def __init__(self, store: Store, name: str) -> None:
        self.store, self.name, self.number = store, name, 0

    async def share(
        self, spent: int, wanted: int, needed: int = 0, window: int = 0, number: int | None = None
    ) -> Share:
        self.number += 1
        asked = [ShareAsked("q", FIRST, window, spent, wanted, needed)]
        _, (share,) = await self.store.quotas.share(UID, self.name, number or self.number, asked)
        return share


async def test_a_quota_is_put_where_nothing_has_changed_since(store: Store):
    """So bounds on their number hold, whichever process checks them."""
    await put(store)
    await put(store, "q2")
    assert not await store.quotas.put(UID, "q3", b"s", terms(), heard_changes=1)
    await put(store, record=b"s")
    assert (await store.quotas.changes(UID, 0)).records == {"q": b"s", "q2": b"r"}
    assert await store.quotas.delete(UID, "q")
    assert not await store.quotas.delete(UID, "q")
    assert not await store.quotas.put(UID, "q", b"s", terms(), heard_changes=3)
    assert sorted((await store.quotas.changes(UID, 0)).records) == ["q2"]
    await store.quotas.erase(UID)
    assert await store.quotas.changes(UID, 0) == QuotaChanges(0, {}, True)


async def test_what_changed_since_is_told_and_everything_where_that_is_not_known(store: Store):
    store.quotas.most_changes = 3
    for quota in ("q", "q2"):
        await put(store, quota)
    first = await store.quotas.changes(UID, 0)
    assert first == QuotaChanges(2, {"q": b"r", "q2": b"r"}, True)
    assert await store.quotas.changes(UID, 1) == QuotaChanges(2, {"q2": b"r"}, False)
    assert await store.quotas.changes(UID, 2) == QuotaChanges(2, {}, False)
    await put(store, record=b"s")
    await store.quotas.delete(UID, "q2")
    assert await store.quotas.changes(UID, 2) == QuotaChanges(4, {"q": b"s", "q2": None}, False)
    for quota in ("q3", "q4"):
        await put(store, quota)
    assert await store.quotas.changes(UID, 3) == QuotaChanges(6, {"q2": None, "q3": b"r", "q4": b"r"}, False)
    assert await store.quotas.changes(UID, 2) == QuotaChanges(6, {"q": b"s", "q3": b"r", "q4": b"r"}, True)
    assert (await store.quotas.changes(UID, 9)).all  # the store has lost writes


async def test_all_processes_hear_of_changes(store: Store):
    before = await store.registry.version()
    assert await store.quotas.changed(UID) == 1
    registry = await store.registry.read()
    assert (registry.quotas, registry.version) == ({UID: 1}, before + 1)
    await store.quotas.erase(UID)
    assert (await store.registry.read()).quotas == {}


@pytest.mark.rest
async def test_shares_together_are_never_more_than_there_is(store: Store):
    await put(store, most=10)
    ann, bob = Process(store, "ann"), Process(store, "bob")
    first = await ann.share(0, 100)
    assert (first.mine, first.granted, first.spent, first.most) == (5, 5, 0, 10)  # a half at most
    second = await bob.share(0, 100)
    assert second.mine == 2  # a half of the five that are left, of two processes
    assert (await ann.share(5, 1, 1)).mine == 6
    third = await ann.share(6, 100, 100)
    assert third.granted == 10
    assert (await bob.share(2, 5, 5)).mine == 2
    assert (await ann.share(6, 0)).granted == 8  # what is not wanted goes back
    assert (await bob.share(2, 5, 5)).mine == 4


@pytest.mark.rest
async def test_a_process_that_leaves_has_no_part_any_more_and_what_it_spent_counts(store: Store):
    await put(store, most=20)
    ann, bob = Process(store, "ann"), Process(store, "bob")
    await ann.share(0, 6, 6)
    assert (await bob.share(0, 100)).fair == 4  # a half of 14, of two
    left = await ann.share(4, 0, LEAVES)
    assert (left.granted, left.spent) == (8, 4)
    assert (await bob.share(0, 100)).fair == 8  # a half of 16
    assert (await ann.share(4, 5, 5, number=1)).granted <= 20  # one that comes late


async def test_a_call_may_be_repeated_and_one_that_comes_late_changes_nothing(store: Store):
    await put(store, most=10)
    ann = Process(store, "ann")
    share = await ann.share(0, 4, 4)
    assert await ann.share(0, 4, 4, number=1) == share
    await ann.share(4, 2, 2)
    assert (await ann.share(0, 0, number=1)).mine == 6
    assert (await ann.share(4, 2, 2)).granted == 6


async def test_a_window_that_the_clock_has_left_backwards_goes_on(store: Store):
    """As if the clock had gone back by a day: what was counted in the later window is not granted again."""
    await put(store, most=10, per_ms=DAY_MS)
    today = (await Process(store, "ann").share(0, 0)).start_ms
    later = ["window", today + DAY_MS, "granted", 8, "spent", 8]
    redis = store.quotas._redis  # private: the latest window as it is stored
    await redis.command("HSET", keys.quota(UID, "q"), *later)
    share = await Process(store, "bob").share(0, 5, 5)
    assert (share.start_ms, share.until_ms, share.mine) == (today + DAY_MS, today + 2 * DAY_MS, 2)


@pytest.mark.rest
async def test_windows_are_multiples_since_from(store: Store):
    await put(store, per_ms=DAY_MS, from_ms=1_000)
    now_ms, (share,) = await store.quotas.share(UID, "ann", 1, [ShareAsked("q", FIRST, 0, 0, 5, 5)])
    assert (share.start_ms - 1_000) % DAY_MS == 0
    assert share.start_ms <= now_ms < share.until_ms == share.start_ms + DAY_MS
    assert share.mine == 5


async def test_a_new_window_begins_with_all_of_it(store: Store):
    await put(store, most=4, per_ms=50)
    ann = Process(store, "ann")
    windows = dict[int, int]()
    for _ in range(100):
        share = await ann.share(0, 4, 4, window=-5)  # what was spent in another window is no matter
        windows[share.start_ms] = max(windows.get(share.start_ms, 0), share.granted)
        await asyncio.sleep(0.002)
    assert len(windows) > 1
    assert set(windows.values()) == {4}


@pytest.mark.rest
async def test_outside_of_its_time_it_does_not_hold(store: Store):
    now_ms, _ = await store.quotas.share(UID, "ann", 1, [])
    await put(store, from_ms=now_ms + DAY_MS, to_ms=now_ms + 2 * DAY_MS)
    share = await Process(store, "ann").share(0, 5, 5)
    assert (share.known, share.holds, share.until_ms, share.mine) == (True, False, now_ms + DAY_MS, 0)
    await put(store, from_ms=1, to_ms=now_ms - 1)
    assert not (await Process(store, "ann").share(0, 5, 5)).holds


@pytest.mark.rest
async def test_another_incarnation_counts_anew_and_the_same_goes_on(store: Store):
    await put(store, most=10)
    ann = Process(store, "ann")
    await ann.share(0, 8, 8)
    await put(store, most=6)
    assert (await ann.share(8, 0)).most == 6
    assert (await ann.share(8, 5, 5)).mine == 8  # it is over
    await put(store, most=6, uid=SECOND)
    assert not (await ann.share(8, 5, 5)).known
    _, (share,) = await store.quotas.share(UID, "ann", 9, [ShareAsked("q", SECOND, 0, 0, 6, 6)])
    assert share.mine == 6


@pytest.mark.rest
async def test_rewards_are_counted_in_the_window(store: Store):
    await put(store, per_ms=DAY_MS)
    await store.quotas.reward(UID, {"q": 2, "none": 1})
    await store.quotas.reward(UID, {"q": 3})
    assert (await Process(store, "ann").share(0, 0)).rewarded == 5


@pytest.mark.rest
async def test_whatever_processes_do_they_never_have_more_than_there_is(store: Store):
    """Calls that are lost, late, or of processes that are killed; what each may have spent is summed."""
    draw = random.Random(4)
    await put(store, most=500)
    spent = 0
    alive = [Process(store, f"p{number}") for number in range(4)]
    held = dict.fromkeys(alive, 0)
    own = dict.fromkeys(alive, 0)
    for step in range(800):
        process = draw.choice(alive)
        while own[process] < held[process] and draw.random() < 0.8:
            own[process] += 1
            spent += 1
        if draw.random() < 0.02:  # killed: what it held is lost
            place = alive.index(process)
            alive[place] = Process(store, f"p{step}-again")
            held[alive[place]] = own[alive[place]] = 0
            continue
        wanted = draw.choice([0, 1, 5, 40])
        held[process] = min(held[process], own[process] + wanted)  # before it is given back
        share = await process.share(own[process], wanted, draw.choice([0, 1]))
        assert share.granted <= 500
        if draw.random() < 0.9:  # else the reply is lost
            held[process] = share.mine
    assert 400 <= spent <= 500
