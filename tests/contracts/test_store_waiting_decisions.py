"""Contract of a store: decisions that wait for rewards, their activation, and their defaults."""

import asyncio
from typing import Literal

import pytest

from app.storage.store import Store
from app.storage.types import DecisionId, DefaultWrite, RewardWrite, SignalWrite
from learner_names import learner_in

pytestmark = [pytest.mark.anyio, pytest.mark.rest]

ANN, BOB = learner_in(0, 4, "ann"), learner_in(0, 4, "bob")
ONE, TWO = DecisionId(ANN, "one"), DecisionId(BOB, "two")
TTL_MS = 60_000
EXPIRES_MS = 2**45


def default(decision: DecisionId, arm: str = "a") -> DefaultWrite:
    return DefaultWrite(decision, f"{decision.id}/{arm}", 10, EXPIRES_MS, 0, b"default")


async def activate(
    store: Store, decision: DecisionId, record: bytes | None = b"r", known_entry: int = 0
) -> str:
    times = {"known_entry": known_entry, "expires_ms": EXPIRES_MS, "ttl_ms": TTL_MS, "due_ms": 50}
    return await store.waiting.activate(decision, record=record, **times)


async def log(store: Store, decision: DecisionId, record: bytes = b"r", due_ms: int = 1) -> None:
    await store.waiting.log(decision, record, due_ms=due_ms, expires_ms=EXPIRES_MS, known_entry=0)


async def decisions(store: Store, now_ms: int) -> list[tuple[DecisionId, bytes]]:
    return list((await store.waiting.due(0, now_ms, 100)).decisions)


async def payloads(store: Store) -> list[tuple[bytes, bool, tuple[tuple[int, float], ...]]]:
    """Of all entries: payload, whether the first with its decision key, and what had come before."""
    return [(entry.payload, entry.first, entry.came) for entry in await store.rewards.read(0, "0-0", 1_000)]


def reward(
    text: bytes, aggregate: Literal["first", "sum"], arm: str = "a", value: float = 1.0
) -> RewardWrite:
    """Of the decision ``one``. ``text``: its payload, and where rewards are summed its dedupe key."""
    signal = SignalWrite(f"one/{arm}", 0, value, aggregate)
    name = text.decode() if aggregate == "sum" else None
    return RewardWrite(ANN, 0, text, name, expires_ms=EXPIRES_MS, signal=signal)


async def test_a_logged_decision_is_due_at_its_time_and_logged_once(store: Store):
    await log(store, ONE, b"first", 100)
    await log(store, ONE, b"again")
    await log(store, TWO, b"\x00\xff", 50)
    assert await decisions(store, 49) == []
    assert await decisions(store, 99) == [(TWO, b"\x00\xff")]
    assert await decisions(store, 100) == [(TWO, b"\x00\xff"), (ONE, b"first")]


async def test_an_arm_without_a_reward_gets_its_default_once(store: Store):
    await log(store, ONE)
    await store.rewards.append(0, [reward(b"reward", "first")])
    writes = [default(ONE, "a"), default(ONE, "b")]
    last = await store.waiting.append_defaults(0, [ONE], writes)
    assert await payloads(store) == [(b"reward", True, ()), (b"default", True, ())]
    assert (await store.rewards.read(0, "0-0", 10))[-1].entry_id == last
    assert await decisions(store, 2**45) == []
    assert await store.waiting.append_defaults(0, [ONE], writes) is None
    assert len(await payloads(store)) == 2


async def test_of_many_workers_exactly_one_appends_a_default(store: Store):
    await log(store, ONE)
    ids = await asyncio.gather(*(store.waiting.append_defaults(0, [ONE], [default(ONE)]) for _ in range(50)))
    assert len([entry_id for entry_id in ids if entry_id]) == 1
    assert len(await payloads(store)) == 1


async def test_a_late_reward_replaces_the_default(store: Store):
    await log(store, ONE)
    await store.waiting.append_defaults(0, [ONE], [default(ONE)])
    for number in range(2):
        await store.rewards.append(0, [reward(b"%d" % number, "sum")])
    assert await payloads(store) == [(b"default", True, ()), (b"0", False, ()), (b"1", False, ((0, 1.0),))]


async def test_a_decision_is_activated_once_and_then_waits(store: Store):
    assert await store.waiting.is_active(ONE) is False
    assert [await activate(store, ONE), await activate(store, ONE, b"again")] == ["activated", "duplicate"]
    assert await activate(store, TWO, None) == "activated"
    assert [await store.waiting.is_active(decision) for decision in (ONE, TWO)] == [True, True]
    assert await store.waiting.is_active(DecisionId(BOB, "one")) is False
    assert await decisions(store, 2**45) == [(ONE, b"r")], "one without a record does not wait"


async def test_what_was_decided_before_its_learner_was_forgotten_counts_as_nothing(store: Store):
    await log(store, ONE)
    await store.side_data.append_forget(ANN, payload=b"F", now_ms=10, ttl_ms=TTL_MS)
    assert await store.waiting.append_defaults(0, [ONE], [default(ONE)]) is None
    late, new = DecisionId(ANN, "late"), DecisionId(ANN, "new")
    assert await activate(store, late) == "forgotten"
    assert await activate(store, new, known_entry=1) == "activated"
    assert await payloads(store) == [(b"F", True, ())]


async def test_entries_of_rewards_that_are_summed_say_what_came_before(store: Store):
    """A default that was replaced is no longer in the sum."""
    await log(store, ONE)
    await store.waiting.append_defaults(0, [ONE], [default(ONE, "a")])
    values = [0.1, 0.2, -1e9, 0.25, 1e9, 0.0]
    for number, value in enumerate(values):
        arm = "ab"[number == 4]
        for _ in range(2):
            await store.rewards.append(0, [reward(b"%d" % number, "sum", arm, value)])
    entries = (await store.rewards.read(0, "0-0", 100))[1:]
    sums = [(0, 0.1), (0, 0.1 + 0.2), (0, 0.1 + 0.2 - 1e9), (0, 0.1 + 0.2 - 1e9 + 0.25)]
    assert [entry.came for entry in entries] == [(), *((each,) for each in sums[:3]), (), (sums[3],)]
    assert [entry.first for entry in entries] == [number == 4 for number in range(6)]
