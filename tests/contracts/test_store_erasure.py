"""What is erased of a learner or a bandit in every store, key by key."""

import pytest
from test_store_traces import ANN, BOB, FUTURE_MS, TTL_MS, erase, fold, forget, kept

from app.platform.errors import Unavailable
from app.storage.learner_side_data import LearnerSideData
from app.storage.store import Store
from app.storage.types import DecisionId, LearnerId, RewardWrite, SignalWrite
from learner_names import UID, learner_in
from store_clients import connect, traces

pytestmark = [pytest.mark.anyio, pytest.mark.rest]

OTHER_UID = "fedcba9876543210"


STRANGER = learner_in(0, 4, "ann", OTHER_UID)


async def expire(store: Store, now_ms: int, learner: LearnerId = ANN) -> str | None:
    return await store.side_data.expire(learner, payload=b"F", now_ms=now_ms, ttl_ms=TTL_MS)


async def live(store: Store, learner: LearnerId) -> None:
    """Leave every trace that a learner can leave."""
    signals = [SignalWrite(f"d{n}", 0, 1.0, "sum") for n in range(2)]
    writes = [
        RewardWrite(learner, 10**13, b"p", f"r{n}", expires_ms=FUTURE_MS, signal=signal)
        for n, signal in enumerate(signals)
    ]
    for write in [*writes, RewardWrite(learner, 10**13, b"p", "o", ttl_ms=TTL_MS)]:
        assert (await store.rewards.append(0, [write]))[0].status == "accepted"
    await store.side_data.touch(learner, expires_ms=FUTURE_MS)
    future = {"due_ms": FUTURE_MS, "expires_ms": FUTURE_MS, "known_entry": 10**13}
    await store.waiting.log(DecisionId(learner, "one"), b"record", **future)
    two = DecisionId(learner, "two")
    await store.waiting.activate(two, ttl_ms=TTL_MS, record=b"r", **future)
    for event in ("e1", "e2"):
        await store.choices.put_event(learner, event, b"choice", ttl_ms=TTL_MS)


EVERYTHING = {"log", "dead", "changes", "states", "seen", "seen-until", "decisions", "due", "active"}


EVERYTHING |= {"idle", "event", "events"}


EXPIRES = {"changes", "seen", "seen-until", "active", "forgotten", "forgotten-until"}


async def test_a_learner_that_is_idle_expires_once(store: Store):
    await store.side_data.touch(ANN, expires_ms=500)
    await store.side_data.touch(ANN, expires_ms=400)
    assert list((await store.waiting.due(0, 499, 10)).idle) == []
    assert await expire(store, 499) is None
    assert (await store.waiting.due(0, 500, 10)).idle == [ANN]
    entry_id = await expire(store, 500)
    assert [entry.entry_id for entry in await store.rewards.read(0, "0-0", 10)] == [entry_id]
    assert await expire(store, 501) is None
    assert list((await store.waiting.due(0, FUTURE_MS, 10)).idle) == []
    assert (await store.waiting.due(0, 0, 10)).erase == {ANN: entry_id}


async def test_a_repeated_call_to_forget_leaves_a_learner_that_came_back_its_time_to_live(store: Store):
    await forget(store)
    await store.side_data.touch(ANN, expires_ms=5_000)
    await forget(store)
    assert (await store.waiting.due(0, 5_000, 10)).idle == [ANN]


async def test_whoever_is_touched_before_it_expires_lives_on(store: Store):
    await store.side_data.touch(ANN, expires_ms=500)
    await store.side_data.touch(ANN, expires_ms=900)
    assert await expire(store, 500) is None
    assert list(await store.rewards.read(0, "0-0", 10)) == []


async def test_erasing_waits_until_forgetting_is_folded(store: Store, store_server: str):
    await live(store, ANN)
    entry_id = await forget(store)
    before = await kept(store, store_server, ANN)
    assert await erase(store, entry_id) is False
    assert await kept(store, store_server, ANN) == before
    await fold(store)
    assert await erase(store, entry_id) is True


async def test_all_that_is_kept_of_a_learner_is_erased_and_nothing_of_others(store: Store, store_server: str):
    for learner in (ANN, BOB, STRANGER):
        await live(store, learner)
    await fold(store, dead=9)
    letters = await store.rewards.dead_letters(0)
    await store.rewards.replay_dead(0, [letter for letter in letters if letter.entry.learner == ANN][:1])
    assert await kept(store, store_server, ANN) == EVERYTHING
    others = [await kept(store, store_server, learner) for learner in (BOB, STRANGER)]
    entry_id = await forget(store)
    await store.rewards.append(0, [RewardWrite(BOB, 10**13, b"p", "newest", ttl_ms=TTL_MS)])
    await fold(store)
    watermark = await store.learners.watermark(0)
    assert await store.learners.apply(0, expected=watermark, watermark=watermark, states={ANN: None})
    assert await erase(store, entry_id)
    assert await kept(store, store_server, ANN) == EXPIRES
    assert [await kept(store, store_server, learner) for learner in (BOB, STRANGER)] == others
    assert not (await store.waiting.due(0, FUTURE_MS, 10)).erase
    assert [decision.learner for decision, _ in (await store.waiting.due(0, FUTURE_MS, 10)).decisions] == [
        learner for learner in (BOB, STRANGER) for _ in range(2)
    ]


async def test_of_a_deleted_bandit_no_key_is_left(store: Store, store_server: str):
    """Also of learners that were forgotten, idle, or have entries that are not folded. Others keep theirs."""
    for learner in (ANN, BOB, STRANGER):
        await live(store, learner)
    await fold(store, dead=4)
    await forget(store, BOB)
    await live(store, learner_in(0, 4, "eve"))
    before = await kept(store, store_server, STRANGER)
    await store.rewards.append(0, [RewardWrite(STRANGER, 10**13, b"p", "newest", ttl_ms=TTL_MS)])
    for _ in range(2):
        await store.side_data.erase_bandit(UID)
        async with connect(store_server) as client:
            left = await traces(client, UID)
        assert {trace.split(": ")[0].split(":")[-1] for trace in left} == {"changes", "deleted"}
    assert await kept(store, store_server, STRANGER) == before
    assert {entry.learner for entry in await store.rewards.read(0, "0-0", 100)} == {STRANGER}
    assert await store.rewards.backlog(0) == 5, "what was erased and not yet folded still counts"


async def test_a_bandit_without_learners_is_erased(store: Store):
    await store.registry.create_catalogue("films", OTHER_UID.encode())
    await store.registry.create_bandit("b", UID.encode(), catalogue="films")
    assert await store.registry.delete_bandit("b", UID, catalogue="films")
    assert await store.registry.deletions() == {UID: "bandit"}
    await store.side_data.erase_bandit(UID)
    assert await store.registry.deletions() == {}


async def test_erasing_a_bandit_that_was_broken_off_goes_on(store: Store, monkeypatch: pytest.MonkeyPatch):
    await store.registry.create_catalogue("films", OTHER_UID.encode())
    await store.registry.create_bandit("b", UID.encode(), catalogue="films")
    await live(store, ANN)
    await store.registry.delete_bandit("b", UID, catalogue="films")

    async def breaks(*arguments: object) -> None:
        raise Unavailable("the store does not answer")

    for step in ("decisions", "members", "entries", "dead_letters", "keys"):
        with monkeypatch.context() as broken:
            broken.setattr(LearnerSideData, f"_erase_{step}", breaks)
            with pytest.raises(Unavailable):
                await store.side_data.erase_bandit(UID)
        assert await store.registry.deletions() == {UID: "bandit"}
    await store.side_data.erase_bandit(UID)
    assert await store.registry.deletions() == {}


@pytest.mark.parametrize("name", [f"x:{UID}", f"{UID}", f"a.{UID}.b"])
async def test_a_learner_with_the_uid_of_another_bandit_in_its_name_is_not_erased(store: Store, name: str):
    stranger = LearnerId(OTHER_UID, name)
    await store.choices.put_event(stranger, "e", b"choice", ttl_ms=TTL_MS)
    await store.side_data.erase_bandit(UID)
    assert await store.choices.get_event(stranger, "e") == b"choice"
