"""Contract of a store: what keys have had is counted, and bounded without ever being refused."""

from __future__ import annotations

import asyncio
from itertools import count

import pytest
from test_store_usage import PARTITIONS, TTL_MS, bounded
from test_store_usage_limits import PERIOD_MS, pass_time

from app.storage import redis_keys
from app.storage.store import Store
from app.storage.types import Exposures, LearnerId
from learner_names import learner_in
from store_clients import connect

pytestmark = pytest.mark.anyio

ANN = learner_in(0, PARTITIONS, "ann")
BOUND = 100_000
FOR_NEW, FOR_KNOWN = BOUND * 11 // 16, BOUND * 15 // 16
SHIFT = 2**28


def key(number: int) -> LearnerId:
    """In the partition of ANN."""
    return LearnerId(ANN.bandit_uid, learner_in(0, PARTITIONS, f"key{number}-").name)


async def show(
    store: Store, key: LearnerId, *arms: str, decision: str = "d", most: int = 1, within_ms: int = TTL_MS
) -> Exposures:
    shown = [(decision, arm) for arm in arms]
    return await store.frequency_caps.take(key, shown, within_ms=within_ms, most=most, kept=1_000)


async def had(store: Store, key: LearnerId) -> list[str]:
    return [arm for arm, _ in (await show(store, key)).shown]


async def held(store: Store) -> int:
    return (await store.usage.read())["repeats"]


def arms(number: int, size: int = 8, first: int = 0) -> list[str]:
    return [f"{n:0{size}}" for n in range(first, first + number)]


async def filled(store: Store) -> list[LearnerId]:
    """Keys that have had fifty arms each, until there was no room for another one."""
    known = list[LearnerId]()
    for number in count():
        taken = await show(store, key(number), *arms(50))
        assert taken.allowed
        if not taken.remembered:
            return known
        known.append(key(number))
    raise AssertionError


@pytest.mark.parametrize(
    ("number", "size"),
    [(1, 3), (7, 128), (100, 20), (127, 3), (127, 128), (128, 3), (128, 41), (400, 100), (1_000, 20)],
)
async def test_no_less_is_counted_than_the_server_says_that_it_takes(url: str, number: int, size: int):
    async with bounded(url) as store, connect(url) as client:
        for start in range(0, number, 50):
            await show(store, ANN, *arms(min(50, number - start), size, start), decision=f"{start:022}")
        taken = await client.memory_usage(redis_keys.exposures(0, ANN), samples=0)
        assert taken <= await held(store) <= 2 * taken + 100
        await show(store, ANN, *arms(500, size, 2_000))  # and after it was large and is small again
        await store.frequency_caps.drop(ANN, [("d", arm) for arm in arms(490, size, 2_000)])
        await show(store, ANN, "last")
        taken = await client.memory_usage(redis_keys.exposures(0, ANN), samples=0)
        assert taken <= await held(store)


async def test_beyond_the_bound_new_keys_are_not_limited_and_known_ones_are(url: str):
    async with bounded(url, repeats=BOUND) as store, bounded(url, repeats=BOUND) as other:
        known = await filled(store)
        before = await held(store)
        assert len(known) > 10
        assert FOR_NEW * 9 // 10 < before <= FOR_NEW
        await other.usage.read()
        for process in (store, other):
            for _ in range(3):
                taken = await show(process, key(9_999), *arms(50))
                assert (taken.allowed, taken.remembered, list(taken.shown)) == (True, False, [])
        assert await held(store) == before
        for each in known:
            refused = await show(other, each, arms(50)[7], decision="again")
            assert (refused.allowed, refused.remembered) == (False, True)
            assert sorted(await had(store, each)) == arms(50)
        more = await show(other, known[0], *arms(10, first=100), decision="more")
        assert (more.allowed, more.remembered, len(more.shown)) == (True, True, 60)


async def test_the_newest_of_a_key_are_kept(store: Store):
    for number in range(5):
        answer = await store.frequency_caps.take(ANN, [(f"d{number}", "a")], within_ms=60_000, most=0, kept=3)
    assert answer.names == ["d2", "d3", "d4"]


@pytest.mark.rest
async def test_known_keys_that_grow_have_the_newest_in_place_of_the_oldest(url: str):
    async with bounded(url, repeats=BOUND) as store, connect(url) as client:
        known, forgot = await filled(store), 0
        for turn in range(1, 40):
            shown = arms(50, first=50 * turn)
            for each in known:
                taken = await show(store, each, *shown, decision=f"t{turn}")
                names = [arm for arm, _ in taken.shown]
                assert taken.allowed
                assert names[-50:] == shown or not taken.remembered
                assert set(names) & set(shown), "the newest are limited"
                forgot += not taken.remembered
                assert len(names) == len(set(names)) == 50 * (turn + 1) or forgot
        assert forgot > 100
        assert FOR_KNOWN * 9 // 10 < await held(store) <= FOR_KNOWN
        keys = [redis_keys.exposures(0, each) for each in known]
        assert sum([await client.memory_usage(each, samples=0) for each in keys]) <= await held(store)


@pytest.mark.rest
async def test_there_is_room_again_when_what_was_had_has_expired(url: str):
    async with bounded(url, repeats=BOUND) as store:
        known = await filled(store)
        await pass_time(url, TTL_MS // PERIOD_MS - 1)
        assert not (await show(store, key(9_999), *arms(50))).remembered
        await pass_time(url, 2)
        assert await held(store) == 0
        assert await filled(store) == known


@pytest.mark.rest
async def test_a_key_that_goes_on_is_counted_once_and_as_long_as_it_lives(url: str):
    async with bounded(url) as store:
        await show(store, ANN, "a", within_ms=5 * PERIOD_MS)
        one = await held(store)
        for turn in range(2, 9):
            await age(url, 3)
            await show(store, ANN, f"a{turn}", within_ms=5 * PERIOD_MS)
            assert one < await held(store) < one + turn * 60
            await show(store, ANN, f"a{turn}", within_ms=5 * PERIOD_MS)
        assert one < await held(store) < one + 9 * 60, "repeated, it changes nothing"
        await age(url, 7)
        assert await held(store) == 0
        await show(store, ANN, "a", within_ms=5 * PERIOD_MS)
        assert await held(store) == one


async def age(url: str, periods: int) -> None:
    """As if so many periods had passed, for what ANN has had as well."""
    await pass_time(url, periods)
    async with connect(url) as client:
        mark = await client.zscore(redis_keys.exposures(0, ANN), "counted")
        if mark is not None:
            await client.zadd(redis_keys.exposures(0, ANN), {"counted": mark - periods * SHIFT})


@pytest.mark.rest
@pytest.mark.parametrize("way", ["forgotten", "expired", "deleted"])
async def test_what_was_had_is_no_longer_counted_when_it_goes(url: str, way: str):
    visitor, other = key(1), LearnerId("f" * 16, "other")
    async with bounded(url) as store:
        await show(store, other, *arms(5))
        rest = await held(store)
        for each in (ANN, visitor):
            await show(store, each, *arms(300))
        if way == "deleted":
            await store.side_data.erase_bandit(ANN.bandit_uid)
        else:
            for each in (ANN, visitor, visitor):
                if way == "forgotten":
                    await store.side_data.append_forget(each, payload=b"F", now_ms=1, ttl_ms=TTL_MS)
                else:
                    await store.side_data.touch(each, expires_ms=1)
                    await store.side_data.expire(each, payload=b"F", now_ms=2, ttl_ms=TTL_MS)
        assert await held(store) == rest
        assert await had(store, ANN) == []
        assert await had(store, other) == arms(5)
        await show(store, ANN, *arms(300))
        await pass_time(url, TTL_MS // PERIOD_MS + 1)
        assert await held(store) == 0, "it was not taken away twice"


@pytest.mark.rest
async def test_what_an_older_version_has_left_is_counted_when_it_grows(url: str):
    async with bounded(url, repeats=BOUND) as store, connect(url) as client:
        await show(store, ANN, *arms(100))
        whole = await held(store)
        await client.zrem(redis_keys.exposures(0, ANN), "counted")
        await client.delete(redis_keys.ledger(0))
        assert (await held(store), len(await had(store, ANN))) == (0, 100)
        known = await filled(store)
        taken = await show(store, ANN, "new")
        assert (taken.allowed, len(taken.shown)) == (True, 101)
        assert whole < await held(store) - sum([await counted(url, each) for each in known]) < whole + 100
        refused = await show(store, ANN, arms(100)[3], decision="again")
        assert not refused.allowed


async def counted(url: str, key: LearnerId) -> int:
    async with connect(url) as client:
        return int(await client.zscore(redis_keys.exposures(0, key), "counted") or 0) % SHIFT


async def test_of_many_processes_at_once_no_more_is_held_than_fits(url: str):
    async with bounded(url, repeats=BOUND) as one, bounded(url, repeats=BOUND) as two:
        done = await asyncio.gather(*(show((one, two)[n % 2], key(n % 150), *arms(50)) for n in range(300)))
        remembered = {n % 150 for n, taken in enumerate(done) if taken.remembered}
        both = {n % 150 for n, taken in enumerate(done) if taken.remembered and taken.shown}
        assert remembered == both
        assert 10 < len(remembered) < 60
        assert await held(one) == sum([await counted(url, key(n)) for n in range(150)]) <= FOR_NEW
