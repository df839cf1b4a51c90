"""Contract of a store: entries that could not be folded, and how far folding is behind."""

import pytest
from test_store_folding import fill
from test_store_rewards import append, forget, log_of, reward

from app.storage.store import Store
from app.storage.types import DeadLetter
from waiting import wait_until

pytestmark = pytest.mark.anyio


async def leave_out(store, entries):
    before = await store.learners.watermark(0)
    letters = [DeadLetter(entry, "too strange") for entry in entries]
    return await store.learners.apply(
        0, expected=before, watermark=entries[-1].entry_id, states={}, dead=letters
    ), letters


async def test_dead_letters_are_kept_with_their_reason_and_replayed_once(store: Store):
    await append(store, reward("1"), reward("2", first="w"), reward("3", first="w"))
    entries = await log_of(store)
    applied, letters = await leave_out(store, entries[1:])
    assert applied
    assert await store.rewards.dead_letters(0) == letters
    assert (await store.rewards.lag(0)).dead == 2
    new = await store.rewards.replay_dead(0, letters)
    assert await store.rewards.dead_letters(0) == []
    assert await store.rewards.backlog(0) == 2
    again = (await log_of(store))[3:]
    assert [(e.entry_id, e.origin, e.payload, e.first) for e in again] == [
        (id_, old.entry_id, old.payload, old.first) for id_, old in zip(new, entries[1:], strict=True)
    ]
    assert await store.rewards.replay_dead(0, letters) == ["missing", "missing"]
    assert await store.rewards.backlog(0) == 2, "a repetition puts nothing back"
    await store.rewards.trim(0, 2**45)
    assert len(await store.rewards.read(0, "0-0", 10)) == 2


@pytest.mark.rest
async def test_a_replayed_entry_may_die_again(store: Store):
    await append(store, reward("1"))
    _, letters = await leave_out(store, await log_of(store))
    await store.rewards.replay_dead(0, letters)
    (entry,) = await store.rewards.read(0, letters[0].entry.entry_id, 1)
    await leave_out(store, [entry])
    (letter,) = await store.rewards.dead_letters(0)
    assert (letter.entry.payload, letter.reason) == (entry.payload, "too strange")
    await store.rewards.replay_dead(0, [letter])
    assert (await log_of(store))[-1].origin == entry.entry_id


async def test_a_dead_letter_of_a_forgotten_learner_is_not_replayed(store: Store):
    await append(store, reward("1"), reward("2", learner="bob"))
    entries = await log_of(store)
    _, letters = await leave_out(store, entries)
    await forget(store, 5_000)
    outcome = await store.rewards.replay_dead(0, letters)
    assert outcome[0] == "forgotten"
    assert [e.learner.name for e in await store.rewards.read(0, entries[-1].entry_id, 9)][-1] == "bob"


@pytest.mark.rest
async def test_a_worker_that_was_slower_leaves_no_dead_letter(store: Store):
    ids = await fill(store, 2)
    entries = await log_of(store)
    await store.learners.apply(0, expected="0-0", watermark=ids[0], states={})
    letter = DeadLetter(entries[0], "why")
    assert not await store.learners.apply(0, expected="0-0", watermark=ids[0], states={}, dead=[letter])
    assert await store.rewards.dead_letters(0) == []


@pytest.mark.rest
async def test_lag_is_the_age_of_the_oldest_entry_that_waits(store: Store):
    assert await store.rewards.lag(0) == await store.rewards.lag(1)
    assert (await store.rewards.lag(0)).age_s == 0.0
    ids = await fill(store, 2)

    async def aged():
        return (await store.rewards.lag(0)).age_s > 0

    await wait_until(aged, what="the entry grows old")
    await store.learners.apply(0, expected="0-0", watermark=ids[1], states={})
    assert (await store.rewards.lag(0)).age_s == 0.0
