"""Contract of a store: what requests leave there is counted, and no more is held than the bounds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from app.platform.errors import StoreFull
from app.storage.store import Store
from app.storage.types import DecisionId, Kind, LearnerId, RewardWrite, SignalWrite
from learner_names import learner_in
from store_clients import connect
from store_server import patient_store

pytestmark = pytest.mark.anyio

TTL_MS = 3_600_000
FAR_MS = 2**45
PARTITIONS = 4
FEW = 10_000  # bytes: room for some of every kind
ANN = learner_in(0, PARTITIONS, "ann")
KINDS: tuple[Kind, ...] = ("events", "waiting", "activations", "dedupe")  # campaigns: below
THINGS = (*KINDS, "reward")  # dedupe keys are of observations, and of rewards
LIVES = {"known_entry": 0, "expires_ms": FAR_MS, "ttl_ms": TTL_MS, "due_ms": 1}


@asynccontextmanager
async def bounded(url: str, **bounds: int) -> AsyncIterator[Store]:
    """One process of several on the same store."""
    store = patient_store(url, partitions=PARTITIONS, bounds=bounds)
    try:
        await store.open()
        yield store
    finally:
        await store.close()


def kind_of(thing: str) -> Kind:
    return "dedupe" if thing == "reward" else thing  # type: ignore[return-value]  # the others are kinds


def most_of(thing: str, bound: int = FEW) -> int:
    """What may be held of it: a sixteenth is kept back for other processes, a quarter from observations."""
    return bound - bound * (4 if thing == "dedupe" else 1) // 16


def observation(name: str, learner: LearnerId = ANN) -> RewardWrite:
    return RewardWrite(learner, 0, b"payload", f"o/{name}", ttl_ms=TTL_MS)


def reward(
    name: str, learner: LearnerId = ANN, *, expires_ms: int = FAR_MS, first: bool = True
) -> RewardWrite:
    """Of the decision ``name``; with ``first`` it has a second dedupe key."""
    signal = SignalWrite(f"{name}/a", 0, 1.0, "sum") if first else None
    return RewardWrite(learner, 0, b"p", f"r/{name}/a/id", expires_ms=expires_ms, signal=signal)


async def leave(store: Store, kind: str, n: int, learner: LearnerId = ANN) -> Any:
    """The n-th of its kind: the same n is the same request."""
    decision = DecisionId(learner, f"decided-{n:04}")
    if kind == "dedupe":
        return await store.rewards.append(0, [observation(f"{n:04}", learner)])
    if kind == "reward":
        return await store.rewards.append(0, [reward(f"decided-{n:04}", learner, first=n % 2 == 0)])
    if kind == "events":
        return await store.choices.put_event(learner, f"visit-{n:04}", b"choice %d" % n, ttl_ms=TTL_MS)
    if kind == "waiting":
        return await store.waiting.log(decision, b"record %d" % n, due_ms=1, expires_ms=FAR_MS, known_entry=0)
    return await store.waiting.activate(decision, record=None, **LIVES)


async def filled(store: Store, kind: str) -> int:
    """How many of a kind had room."""
    for n in range(10_000):
        try:
            await leave(store, kind, n)
        except StoreFull:
            return n
    raise AssertionError("there is no bound")


async def content(url: str) -> dict[bytes, bytes]:
    async with connect(url) as client:
        return {key: await client.dump(key) async for key in client.scan_iter()}


@pytest.mark.parametrize("thing", THINGS)
async def test_beyond_the_bound_new_ones_are_refused_and_nothing_else_happens(url: str, thing: str) -> None:
    kind = kind_of(thing)
    async with bounded(url, **{kind: FEW}) as store, bounded(url, **{kind: FEW}) as other:
        fit = await filled(store, thing)
        assert 10 < fit < 150
        held = (await store.usage.read())[kind]
        assert most_of(thing) * 96 // 100 - 1_000 < held <= most_of(thing)
        await other.usage.read()
        before = await content(url)
        for process in (store, other):
            for n in (fit, fit + 2):  # of rewards as large as the first that found no space
                with pytest.raises(StoreFull, match=f"SHORTLIST_MAX_{kind.upper()}_MB"):
                    await leave(process, thing, n)
        assert await content(url) == before
        for n in range(fit):
            await leave(other, thing, n)
        assert await content(url) == before, "what was promised is there, and can be asked for again"
        for another in KINDS:
            if another != kind:
                await leave(store, another, 0)
        assert (await store.usage.read())[kind] == held


async def test_a_call_that_finds_no_space_refuses_no_other_that_came_with_it(url: str) -> None:
    """The last space is given once, and what is small has it when what is large has not."""
    async with bounded(url, dedupe=FEW) as store:
        large = [reward(f"large-{n}", first=False) for n in range(100)]
        small = [[reward(f"small-{n}", learner_in(n % 4, PARTITIONS), first=False)] for n in range(400)]
        writes = [*small[:2], large, *small[2:], small[0]]
        appends = (store.rewards.append(some[0].learner.partition(PARTITIONS), some) for some in writes)
        outcomes = await asyncio.gather(*appends, return_exceptions=True)
        refused = [isinstance(outcome, StoreFull) for outcome in outcomes]
        assert refused[2]
        assert not any(refused[:2])
        assert any(refused[3:])
        assert not refused[-1], "a duplicate takes none"
        held = (await store.usage.read())["dedupe"]
        assert held <= PARTITIONS * most_of("reward"), "before the first look at the others"
        again = await asyncio.gather(
            *(store.rewards.append(some[0].learner.partition(PARTITIONS), some) for some in writes),
            return_exceptions=True,
        )
        for outcome, later, was_refused in zip(outcomes, again, refused, strict=True):
            assert isinstance(outcome, StoreFull) == was_refused
            if not was_refused:
                assert [o.status for o in later] == ["duplicate"]  # type: ignore[union-attr]
        assert (await store.usage.read())["dedupe"] == held
        entries = [len(await store.rewards.read(partition, "0-0", 1_000)) for partition in range(PARTITIONS)]
        assert sum(entries) == refused.count(False) - 1
