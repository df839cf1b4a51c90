"""What rewards cost: bytes in the append-only file of a server, and memory of whoever keeps learners."""

import asyncio
import gc
import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_reward_ingestion import TTL_MS, UID, worker

from app.fold.checkpoints import restored
from app.fold.fold_batches import CheckpointedLearner
from app.records.log_entries import RewardEntry, encode
from app.records.records import LearnerState, state_bytes, state_to_bytes, vector_to_bytes
from app.storage.embedded.server import EmbeddedServer
from app.storage.store import Store
from app.storage.types import LearnerId, RewardWrite, StoredLearner
from log_entries import entry_of
from shortlist.linear import ridge_sums
from store_clients import connect
from store_server import patient_store

pytestmark = [pytest.mark.anyio, pytest.mark.rest]

MIB = 1 << 20


@pytest.fixture
async def own_store(tmp_path: Path) -> AsyncIterator[Store]:
    """A store with one partition on a server that nobody else uses."""
    with EmbeddedServer(tmp_path) as server:
        store = patient_store(server.url, partitions=1)
        store.url = server.url  # type: ignore[attr-defined]
        await store.open()
        yield store
        await store.close()


async def written_bytes(store: Any) -> int:
    """The size of the append-only file: all that was written, as long as it was not rewritten."""
    async with connect(store.url) as client:
        facts = await client.info("persistence")
    assert facts["aof_base_size"] < 1_000
    return int(facts["aof_current_size"])


@pytest.mark.parametrize(
    ("dim", "rewards", "most"),
    [
        (16, 100, 1_300),
        pytest.param(64, 250, 3_000, marks=pytest.mark.slow),
        pytest.param(256, 500, 6_000, marks=pytest.mark.slow),
        pytest.param(1_024, 800, 20_000, marks=pytest.mark.slow),
    ],
)
async def test_a_reward_costs_what_a_reward_is(own_store: Store, dim: int, rewards: int, most: int):
    """Single rewards of one learner, each applied before the next; at least one checkpoint is among them."""
    mine, rng = worker(own_store), np.random.default_rng(3)
    mine._kept.capacity = 64 * MIB  # private: how much it may keep in this test
    learner, state = LearnerId(UID, "_global"), state_bytes(dim, discounted=False)
    before = await written_bytes(own_store)
    for number in range(rewards):
        data = encode(RewardEntry(vector_to_bytes(rng.normal(size=dim)), 1.0))
        await own_store.rewards.append(0, [RewardWrite(learner, 2**42, data, f"n{number}", ttl_ms=TTL_MS)])
        mine.wake(0)
        await mine.drain()
    grown = await written_bytes(own_store) - before
    assert grown > rewards * 8 * dim + state
    assert grown / rewards < most


def taken(before: int) -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0] - before


def encoded_state(dim: int, half_life_s: float = 0.0) -> bytes:
    rows = np.random.default_rng(0).normal(size=(3, dim))
    sums = ridge_sums.add(ridge_sums.empty(dim), rows, np.ones(3), np.ones(3, dtype=bool))
    return state_to_bytes(LearnerState(3, sums, 0, half_life_s))


def name_of(number: int) -> str:
    return f"{number:060d}"


@pytest.mark.parametrize("dim", [2, 16, 64])
async def test_the_worker_keeps_no_more_in_memory_than_it_may(own_store: Store, dim: int):
    """Measured: arrays, objects, names and the dictionary that holds them."""
    capacity, data = MIB, encoded_state(dim)
    mine = worker(own_store)
    mine._kept.capacity = capacity  # private: how much it may keep in this test
    tracemalloc.start()
    try:
        before = taken(0)
        for number in range(3 * capacity // (2 * len(data) + 1_800)):
            learner = LearnerId("".join(UID), name_of(number))
            kept = CheckpointedLearner(restored(learner, StoredLearner(data)), 1_000 + number)
            mine._keep(0, {learner: kept})  # private: a state that no fold makes
        del kept, learner
        assert 0.6 * capacity < taken(before) <= capacity
    finally:
        tracemalloc.stop()


async def test_batches_of_large_learners_are_not_in_memory_together(own_store: Store):
    """Several partitions are worked on side by side, but not beyond what all may take together."""
    mine, at_once, most = worker(own_store), 0, 0

    async def stored(partition: int, learners: Any, known: Any = None) -> Any:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        for _ in range(5):
            await asyncio.sleep(0)
        at_once -= 1
        return [StoredLearner() for _ in learners]

    async def apply(partition: int, **words: Any) -> bool:
        return True

    own_store.learners.stored, own_store.learners.apply = stored, apply  # type: ignore[method-assign,assignment]

    def batch(dim: int) -> list[Any]:
        return [entry_of(1, LearnerId(UID, "x"), RewardEntry(vector_to_bytes(np.ones(dim)), 1.0))]

    # private: without reading the log, to time it alone
    await asyncio.gather(*(mine._apply(0, "0-0", batch(1_446)) for _ in range(6)))
    assert most == 2
    most = 0
    # private: without reading the log, to time it alone
    await asyncio.gather(*(mine._apply(0, "0-0", batch(16)) for _ in range(6)))
    assert most == 6
