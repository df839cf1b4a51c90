"""Contract of a store: what keys have had is bounded without ever being refused."""

from __future__ import annotations

import asyncio

import pytest
from filled_store import PARTITIONS, filled

from app.storage.store import Store
from app.storage.types import Exposures, LearnerId
from learner_names import learner_in

pytestmark = pytest.mark.anyio

ANN = learner_in(0, PARTITIONS, "ann")
BOB = learner_in(0, PARTITIONS, "bob")
TTL_MS = 3_600_000


async def show(store: Store, key: LearnerId, *arms: str, decision: str = "d", most: int = 1) -> Exposures:
    shown = [(decision, arm) for arm in arms]
    return await store.frequency_caps.take(key, shown, within_ms=TTL_MS, most=most, most_kept=1_000)


async def had(store: Store, key: LearnerId) -> list[str]:
    return [arm for arm, _ in (await show(store, key)).shown]


async def test_an_arm_that_was_shown_as_often_is_refused_with_all_of_its_decision(store: Store):
    assert (await show(store, ANN, "a", "b")).allowed
    for _ in range(2):
        assert (await show(store, ANN, "a", "b")).allowed, "repeated, it changes nothing"
    refused = await show(store, ANN, "c", "b", decision="other")
    assert (refused.allowed, refused.remembered) == (False, True)
    assert await had(store, ANN) == ["a", "b"]


async def test_the_newest_of_a_key_are_kept(store: Store):
    for number in range(5):
        answer = await store.frequency_caps.take(
            ANN, [(f"d{number}", "a")], within_ms=60_000, most=0, most_kept=3
        )
    assert answer.names == ["d2", "d3", "d4"]


async def test_from_80_percent_on_new_keys_are_not_limited_and_known_ones_are(url: str):
    async with filled(url, 50) as store:
        await show(store, ANN, "a", "b")
    async with filled(url, 90) as store:
        for _ in range(3):
            taken = await show(store, BOB, "a")
            assert (taken.allowed, taken.remembered, list(taken.shown)) == (True, False, [])
        assert not (await show(store, ANN, "b", decision="again")).allowed
        more = await show(store, ANN, "c", decision="more")
        assert (more.allowed, more.remembered, len(more.shown)) == (True, True, 3)


async def test_in_a_full_store_what_is_new_takes_the_place_of_the_oldest(url: str):
    async with filled(url, 50) as store:
        for arm in "abc":
            await show(store, ANN, arm)
    async with filled(url, 150) as store:
        for arm, kept in (("d", "bcd"), ("e", "cde")):
            taken = await show(store, ANN, arm)
            assert (taken.allowed, taken.remembered) == (True, False)
            assert "".join(sorted(await had(store, ANN))) == kept
        assert not (await show(store, ANN, "e", decision="again")).allowed


@pytest.mark.parametrize("way", ["forgotten", "expired", "deleted"])
async def test_what_was_had_goes_with_its_learner(store: Store, way: str):
    other = LearnerId("f" * 16, "other")
    for each in (ANN, other):
        await show(store, each, "a", "b")
    if way == "deleted":
        await store.side_data.erase_bandit(ANN.bandit_uid)
    elif way == "forgotten":
        await store.side_data.append_forget(ANN, payload=b"F", now_ms=1, ttl_ms=TTL_MS)
    else:
        await store.side_data.touch(ANN, expires_ms=1)
        await store.side_data.expire(ANN, payload=b"F", now_ms=2, ttl_ms=TTL_MS)
    assert await had(store, ANN) == []
    assert await had(store, other) == ["a", "b"]


async def test_of_many_at_once_one_is_shown_what_may_be_shown_once(store: Store):
    done = await asyncio.gather(*(show(store, ANN, "a", decision=f"d{n}") for n in range(20)))
    assert sum(taken.allowed for taken in done) == 1
