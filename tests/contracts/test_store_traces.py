"""Contract of a store: what is kept of learners besides their states, and that all of it goes."""

import asyncio

import pytest

from app.storage.store import Store
from app.storage.types import DeadLetter, DecisionId, LearnerId
from learner_names import learner_in
from store_clients import connect, traces

pytestmark = pytest.mark.anyio
ANN, BOB = learner_in(0, 4, "ann"), learner_in(0, 4, "bob")
TTL_MS = 600_000
FUTURE_MS = 2**45


async def forget(store: Store, learner: LearnerId = ANN, now_ms: int = 1_000) -> str:
    return await store.side_data.append_forget(learner, payload=b"F", now_ms=now_ms, ttl_ms=TTL_MS)


def told(kept: bytes) -> int | None:
    """A record may end with the number of the entry that was known."""
    number = kept.partition(b":")[2]
    return int(number) if number else None


async def erase(store: Store, entry_id: str) -> bool:
    return await store.side_data.erase(ANN, entry_id, decision_knew=told, event_knew=told)


async def fold(store: Store, dead: int = 0) -> None:
    """All states of the log are b"state"; the first ``dead`` entries become dead letters."""
    watermark = await store.learners.watermark(0)
    entries = await store.rewards.read(0, watermark, 1_000)
    states = {entry.learner: b"state" for entry in entries}
    letters = [DeadLetter(entry, "why") for entry in entries[:dead]]
    last = entries[-1].entry_id
    assert await store.learners.apply(0, expected=watermark, watermark=last, states=states, dead=letters)


async def kept(store: Store, url: str, learner: LearnerId) -> set[str]:
    """Kinds of keys that name the learner, or have it among their members."""
    kinds = set()
    async with connect(url) as client:
        for trace in await traces(client, learner.name):
            name = trace.split(": ")[0]
            if learner.bandit_uid in trace:
                kinds.add(name.split(":")[2])
    return kinds


async def test_what_was_decided_since_a_learner_was_forgotten_is_kept(store: Store):
    """Another process may erase late, or for the second time; by then the learner may have come back."""
    future = {"due_ms": FUTURE_MS, "expires_ms": FUTURE_MS, "known_entry": 2**40}
    await store.choices.put_event(ANN, "e1", b"old:0", ttl_ms=TTL_MS)
    await store.choices.put_event(ANN, "e2", b"old:0", ttl_ms=TTL_MS)
    await store.waiting.log(DecisionId(ANN, "old"), b"record:0", **future)
    entry_id = await forget(store)
    number = int(entry_id.partition("-")[2])
    await store.waiting.log(DecisionId(ANN, "new"), b"record:%d" % number, **future)
    await store.choices.put_event(ANN, "e3", b"new:%d" % number, ttl_ms=TTL_MS)
    await fold(store)
    assert await erase(store, entry_id)
    assert [await store.choices.get_event(ANN, event) for event in ("e1", "e2")] == [None, None]
    await store.choices.put_event(ANN, "e1", b"new:%d" % number, ttl_ms=TTL_MS)
    for _ in range(2):
        assert [await store.choices.get_event(ANN, event) for event in ("e1", "e3")] == [
            b"new:%d" % number
        ] * 2
        assert [decision.id for decision, _ in (await store.waiting.due(0, FUTURE_MS, 10)).decisions] == [
            "new"
        ]
        assert await erase(store, entry_id)
    entry_id = await forget(store, now_ms=2_000)
    await fold(store)
    assert await erase(store, entry_id)
    assert [await store.choices.get_event(ANN, event) for event in ("e1", "e3")] == [None, None]
    assert not (await store.waiting.due(0, FUTURE_MS, 10)).decisions


async def test_a_choice_that_took_the_place_of_one_that_is_erased_is_kept(store: Store):
    """It came while another process, which had read the old one, was about to erase it."""
    await store.choices.put_event(ANN, "e", b"old:0", ttl_ms=TTL_MS)
    entry_id = await forget(store)
    await fold(store)

    def late(kept: bytes) -> int | None:
        assert kept == b"old:0"
        replaced.append(asyncio.ensure_future(replace_it()))
        return told(kept)

    async def replace_it() -> None:
        assert await erase(store, entry_id)
        await store.choices.put_event(ANN, "e", b"new:9", ttl_ms=TTL_MS)

    replaced: list[asyncio.Future[None]] = []
    script = store.redis.script  # type: ignore[attr-defined]

    async def after_it(name: str, *arguments: object, **options: object) -> object:
        if name == "erase_events" and not replaced[0].done():
            store.redis.script = script  # type: ignore[attr-defined]
            await replaced[0]
        return await script(name, *arguments, **options)

    store.redis.script = after_it  # type: ignore[attr-defined]
    assert await store.side_data.erase(ANN, entry_id, decision_knew=told, event_knew=late)
    assert await store.choices.get_event(ANN, "e") == b"new:9"
