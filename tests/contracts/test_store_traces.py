"""Contract of a store: what is kept of learners besides their states, and that all of it goes."""

import asyncio

import pytest

from app.platform.errors import Unavailable
from app.storage.learner_side_data import LearnerSideData
from app.storage.store import Store
from app.storage.types import DeadLetter, DecisionId, LearnerId, RewardWrite
from learner_names import UID, learner_in
from store_clients import connect, traces

pytestmark = pytest.mark.anyio

OTHER_UID = "fedcba9876543210"
ANN, BOB = learner_in(0, 4, "ann"), learner_in(0, 4, "bob")
STRANGER = learner_in(0, 4, "ann", OTHER_UID)
TTL_MS = 600_000
FUTURE_MS = 2**45


async def forget(store: Store, learner: LearnerId = ANN, now_ms: int = 1_000) -> str:
    return await store.side_data.append_forget(learner, payload=b"F", now_ms=now_ms, ttl_ms=TTL_MS)


async def expire(store: Store, now_ms: int, learner: LearnerId = ANN) -> str | None:
    return await store.side_data.expire(learner, payload=b"F", now_ms=now_ms, ttl_ms=TTL_MS)


def told(kept: bytes) -> int | None:
    """A record may end with the number of the entry that was known."""
    number = kept.partition(b":")[2]
    return int(number) if number else None


async def erase(store: Store, entry_id: str) -> bool:
    return await store.side_data.erase(ANN, entry_id, decision_knew=told, event_knew=told)


async def take(store: Store, learner: LearnerId = ANN) -> int:
    return await store.choices.take_warm_up_slots(learner, count=1, most=10, claim="", ttl_ms=TTL_MS)


async def fold(store: Store, dead: int = 0) -> None:
    """All states of the log are b"state"; the first ``dead`` entries become dead letters."""
    watermark = await store.learners.watermark(0)
    entries = await store.rewards.read(0, watermark, 1_000)
    states = {entry.learner: b"state" for entry in entries}
    letters = [DeadLetter(entry, "why") for entry in entries[:dead]]
    last = entries[-1].entry_id
    assert await store.learners.apply(0, expected=watermark, watermark=last, states=states, dead=letters)


async def live(store: Store, learner: LearnerId) -> None:
    """Leave every trace that a learner can leave."""
    writes = [RewardWrite(learner, f"r{n}", f"d{n}", 10**13, None, b"p", FUTURE_MS) for n in range(2)]
    for write in [*writes, RewardWrite(learner, "o", None, 10**13, TTL_MS, b"p")]:
        assert (await store.rewards.append(0, [write]))[0].status == "accepted"
    await store.side_data.touch(learner, expires_ms=FUTURE_MS)
    future = {"due_ms": FUTURE_MS, "expires_ms": FUTURE_MS}
    await store.waiting.log(DecisionId(learner, "one"), b"record", **future)
    two = DecisionId(learner, "two")
    await store.waiting.activate(two, issued_ms=10**13, ttl_ms=TTL_MS, record=b"r", **future)
    for event in ("e1", "e2"):
        await store.choices.put_event(learner, event, b"choice", ttl_ms=TTL_MS)
    await take(store, learner)


async def kept(store: Store, url: str, learner: LearnerId) -> set[str]:
    """Kinds of keys that name the learner, or have it among their members."""
    kinds = set()
    async with connect(url) as client:
        for trace in await traces(client, learner.name):
            name = trace.split(": ")[0]
            if learner.bandit_uid in trace:
                kinds.add(name.split(":")[2])
    return kinds


EVERYTHING = {"log", "dead", "changes", "states", "seen", "seen-until", "turns", "decisions", "due", "active"}
EVERYTHING |= {"idle", "event", "events"}
EXPIRES = {"changes", "seen", "seen-until", "active", "forgotten", "forgotten-until"}


@pytest.mark.rest
async def test_forgetting_frees_the_turns_of_a_warm_up(store: Store):
    assert [await take(store), await take(store), await take(store, BOB)] == [0, 1, 0]
    await forget(store)
    assert [await take(store), await take(store, BOB)] == [0, 1]
    await forget(store)
    assert await take(store) == 1, "a repetition frees nothing that was taken since"


@pytest.mark.rest
async def test_a_learner_that_is_idle_expires_once_with_its_turns(store: Store):
    await take(store)
    await store.side_data.touch(ANN, expires_ms=500)
    await store.side_data.touch(ANN, expires_ms=400)
    assert list((await store.waiting.due(0, 499, 10)).idle) == []
    assert await expire(store, 499) is None
    assert await take(store) == 1, "who has not expired keeps its turns"
    assert (await store.waiting.due(0, 500, 10)).idle == [ANN]
    entry_id = await expire(store, 500)
    assert [entry.entry_id for entry in await store.rewards.read(0, "0-0", 10)] == [entry_id]
    assert await take(store) == 0
    assert await expire(store, 501) is None
    assert list((await store.waiting.due(0, FUTURE_MS, 10)).idle) == []
    assert (await store.waiting.due(0, 0, 10)).erase == {ANN: entry_id}


@pytest.mark.rest
async def test_a_repeated_call_to_forget_leaves_a_learner_that_came_back_its_time_to_live(store: Store):
    await forget(store)
    await store.side_data.touch(ANN, expires_ms=5_000)
    await forget(store)
    assert (await store.waiting.due(0, 5_000, 10)).idle == [ANN]


@pytest.mark.rest
async def test_whoever_is_touched_before_it_expires_lives_on(store: Store):
    await store.side_data.touch(ANN, expires_ms=500)
    await store.side_data.touch(ANN, expires_ms=900)
    assert await expire(store, 500) is None
    assert list(await store.rewards.read(0, "0-0", 10)) == []


@pytest.mark.rest
async def test_erasing_waits_until_forgetting_is_folded(store: Store, store_server: str):
    await live(store, ANN)
    entry_id = await forget(store)
    before = await kept(store, store_server, ANN)
    assert await erase(store, entry_id) is False
    assert await kept(store, store_server, ANN) == before
    await fold(store)
    assert await erase(store, entry_id) is True


async def test_what_was_decided_since_a_learner_was_forgotten_is_kept(store: Store):
    """Another process may erase late, or for the second time; by then the learner may have come back."""
    future = {"due_ms": FUTURE_MS, "expires_ms": FUTURE_MS}
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


@pytest.mark.rest
async def test_all_that_is_kept_of_a_learner_is_erased_and_nothing_of_others(store: Store, store_server: str):
    for learner in (ANN, BOB, STRANGER):
        await live(store, learner)
    await fold(store, dead=9)
    letters = await store.rewards.dead_letters(0)
    await store.rewards.replay_dead(0, [letter for letter in letters if letter.entry.learner == ANN][:1])
    assert await kept(store, store_server, ANN) == EVERYTHING
    others = [await kept(store, store_server, learner) for learner in (BOB, STRANGER)]
    entry_id = await forget(store)
    await store.rewards.append(0, [RewardWrite(BOB, "newest", None, 10**13, TTL_MS, b"p")])
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


@pytest.mark.rest
async def test_of_a_deleted_bandit_no_key_is_left(store: Store, store_server: str):
    """Also of learners that were forgotten, idle, or have entries that are not folded. Others keep theirs."""
    for learner in (ANN, BOB, STRANGER):
        await live(store, learner)
    await fold(store, dead=4)
    await forget(store, BOB)
    await live(store, learner_in(0, 4, "eve"))
    before = await kept(store, store_server, STRANGER)
    await store.rewards.append(0, [RewardWrite(STRANGER, "newest", None, 10**13, TTL_MS, b"p")])
    for _ in range(2):
        await store.side_data.erase_bandit(UID)
        async with connect(store_server) as client:
            left = await traces(client, UID)
        assert {trace.split(": ")[0].split(":")[-1] for trace in left} == {"changes", "deleted"}
    assert await kept(store, store_server, STRANGER) == before
    assert {entry.learner for entry in await store.rewards.read(0, "0-0", 100)} == {STRANGER}
    assert await store.rewards.backlog(0) == 5, "what was erased and not yet folded still counts"


@pytest.mark.rest
async def test_a_bandit_without_learners_is_erased(store: Store):
    await store.registry.create_catalogue("films", OTHER_UID.encode())
    await store.registry.create_bandit("b", UID.encode(), catalogue="films")
    assert await store.registry.delete_bandit("b", UID, catalogue="films")
    assert await store.registry.deletions() == {UID: "bandit"}
    await store.side_data.erase_bandit(UID)
    assert await store.registry.deletions() == {}


@pytest.mark.rest
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
    assert await take(store) == 0


@pytest.mark.rest
@pytest.mark.parametrize("name", [f"x:{UID}", f"{UID}", f"a.{UID}.b"])
async def test_a_learner_with_the_uid_of_another_bandit_in_its_name_is_not_erased(store: Store, name: str):
    stranger = LearnerId(OTHER_UID, name)
    await take(store, stranger)
    await store.choices.put_event(stranger, "e", b"choice", ttl_ms=TTL_MS)
    await store.side_data.erase_bandit(UID)
    assert await take(store, stranger) == 1
    assert await store.choices.get_event(stranger, "e") == b"choice"
