"""The reward log in every store: tails of checkpoints, trimming and racing workers."""

import asyncio

import pytest
from test_store_folding import FUTURE_MS, OTHER_UID, TAGS, checkpoints, fill, fold, learners, states
from test_store_rewards import ANN, UID, append, forget, log_of, order, reward

from app.storage import redis_keys
from app.storage.store import Store
from app.storage.types import StoredLearner
from store_clients import connect
from waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.rest]

LOST = "8" * 13 + "-99"


async def test_learners_are_named_once_whether_they_are_a_checkpoint_a_tail_or_both(store: Store):
    ids = await fill(store, 3)
    names = ["ann", "b:c", "zoe", "zoe2"]
    states = dict.fromkeys([(UID, "ann"), (UID, "b:c"), (OTHER_UID, "other")], b"1")
    await store.learners.apply(0, expected="0-0", watermark=ids[0], states=states)
    tails = {(UID, "zoe"): ids[1:3], (UID, "zoe2"): ids[1:2], (UID, "ann"): ids[1:3]}
    await store.learners.apply(0, expected=ids[0], watermark=ids[2], states={}, tails=tails)
    assert await store.learners.names(0, UID) == names
    assert await store.learners.names(0, OTHER_UID) == ["other"]
    assert await store.learners.names(1, UID) == []


async def test_another_watermark_changes_nothing(store: Store):
    ids = await fill(store, 3)
    await store.learners.apply(
        0, expected="0-0", watermark=ids[0], states={(UID, "ann"): b"1", (UID, "bob"): b"1"}
    )
    for wrong in ("0-0", ids[1]):
        outcome = await store.learners.apply(
            0, expected=wrong, watermark=ids[2], states={(UID, "ann"): b"2", (UID, "bob"): None}
        )
        assert outcome is False
    assert await store.learners.watermark(0) == ids[0]
    assert await checkpoints(store, 0, [(UID, "ann"), (UID, "bob")]) == [b"1", b"1"]


async def test_a_call_that_was_applied_is_not_applied_again(store: Store):
    ids = await fill(store, 2)
    call = {"expected": "0-0", "watermark": ids[0], "states": {(UID, "ann"): b"1"}}
    assert await store.learners.apply(0, **call) is True
    assert await store.learners.apply(0, **call) is False
    assert await store.learners.watermark(0) == ids[0], (
        "which tells the caller that its first call was applied"
    )


async def test_of_racing_appliers_exactly_one_wins_and_its_states_stand(store: Store):
    watermark = "0-0"
    for cycle in range(20):
        [entry_id] = await fill(store, 1, tag=f"{cycle}/")
        calls = [
            {(UID, learner): b"%d/%d" % (cycle, racer) for learner in ("ann", "bob")} for racer in range(25)
        ]
        outcomes = await asyncio.gather(
            *(
                store.learners.apply(0, expected=watermark, watermark=entry_id, states=states)
                for states in calls
            )
        )
        assert outcomes.count(True) == 1
        winner = calls[outcomes.index(True)]
        assert await checkpoints(store, 0, list(winner)) == list(winner.values())
        watermark = entry_id


async def test_the_backlog_is_what_lies_above_the_watermark(store: Store):
    ids = await fill(store, 10)
    assert await store.rewards.backlog(0) == 10
    await append(store, reward("0"), reward("9"))  # duplicates are not entries
    assert await store.rewards.backlog(0) == 10
    for position in (0, 3, 9):
        await store.learners.apply(
            0, expected=await store.learners.watermark(0), watermark=ids[position], states={}
        )
        assert await store.rewards.backlog(0) == 9 - position
    await forget(store, 5_000)
    assert await store.rewards.backlog(0) == 1


async def test_nothing_above_the_watermark_is_trimmed(store: Store):
    ids = await fill(store, 10)
    await store.rewards.trim(0, FUTURE_MS)
    assert len(await log_of(store)) == 10
    await store.learners.apply(0, expected="0-0", watermark=ids[6], states={})
    await store.rewards.trim(0, FUTURE_MS)
    assert [e.entry_id for e in await log_of(store)] == ids[7:]
    assert await store.rewards.backlog(0) == 3


async def test_nothing_young_is_trimmed(store: Store):
    old = await fill(store, 3, tag="old")

    async def a_later_millisecond():
        ids = await fill(store, 1, tag=f"{next(TAGS)}-")
        return ids if order(ids[0])[0] > order(old[-1])[0] else None

    [young] = await wait_until(a_later_millisecond, what="the server's clock moves on")
    await store.learners.apply(0, expected="0-0", watermark=young, states={})
    await store.rewards.trim(0, order(old[0])[0])
    assert (await log_of(store))[0].entry_id == old[0]
    await store.rewards.trim(0, order(young)[0])
    assert [e.entry_id for e in await log_of(store)] == [young]
    assert (await store.learners.watermark(0), await store.rewards.backlog(0)) == (young, 0)


async def test_a_log_that_was_trimmed_empty_goes_on_where_it_was(store: Store):
    ids = await fill(store, 5)
    await store.learners.apply(0, expected="0-0", watermark=ids[-1], states={})
    await store.rewards.trim(0, FUTURE_MS)
    assert (await log_of(store), await store.rewards.backlog(0)) == ([], 0)
    more = await fill(store, 2, tag="more")
    assert order(ids[-1]) < order(more[0]) < order(more[1])
    assert await store.rewards.backlog(0) == 2
    assert [e.entry_id for e in await store.rewards.read(0, ids[-1], 10)] == more


async def test_appenders_and_appliers_at_once_lose_and_double_nothing(store: Store):
    words = [f"{n}" for n in range(400)]

    async def appender(own):
        for start in range(0, len(own), 8):
            batch = [reward(w, learner=w[-1], payload=w.encode()) for w in own[start : start + 8]]
            await store.rewards.append(1, batch)
            await store.rewards.append(1, batch[:3])

    appending = asyncio.gather(*(appender(words[n : n + 200]) for n in (0, 100, 200)))

    async def applier():
        while not appending.done() or await store.rewards.backlog(1):
            await fold(store, partition=1, count=16)

    await asyncio.gather(appending, *(applier() for _ in range(4)))
    learners = [(UID, f"{digit}") for digit in range(10)]
    found = await states(store, 1, learners)
    assert sorted(b"".join(found).decode().split()) == sorted(words)
    assert await store.rewards.backlog(1) == 0


async def test_a_tail_is_the_entries_since_the_checkpoint(store: Store):
    """Also of learners whose names begin alike, and with ids whose numbers have different lengths."""
    names = ["a", "a:", "a:1", "1.a", "b;", "\u00e9", "_pool"]
    writes = [reward(f"{n}", learner=names[n % 7]) for n in range(14)]
    ids = [outcome.entry_id for outcome in await store.rewards.append(0, writes)]
    owners = {(UID, name): [ids[n], ids[n + 7]] for n, name in enumerate(names)}
    for learner, (one, _) in owners.items():
        before = await store.learners.watermark(0)
        assert await store.learners.apply(
            0, expected=before, watermark=one, states={}, tails={learner: [one]}
        )
        [found] = await store.learners.stored(0, [learner])
        assert (found.checkpoint, [e.entry_id for e in found.tail]) == (None, [one])
    before = await store.learners.watermark(0)
    tails = {learner: [two] for learner, (_, two) in owners.items()}
    assert await store.learners.apply(0, expected=before, watermark=ids[-1], states={}, tails=tails)
    for learner, found in zip(owners, await store.learners.stored(0, list(owners)), strict=True):
        one, two = owners[learner]
        assert [(e.entry_id, e.learner) for e in found.tail] == [(one, learner), (two, learner)]
    assert await store.learners.names(0, UID) == sorted(name for _, name in owners)
    [later, *_] = await fill(store, 1, tag="later")
    whole = {(UID, "a"): b"whole", (UID, "a:"): None}
    assert await store.learners.apply(0, expected=ids[-1], watermark=later, states=whole)
    found = await store.learners.stored(0, list(owners))
    assert [(each.checkpoint, len(each.tail)) for each in found] == [(b"whole", 0), (None, 0)] + [
        (None, 2)
    ] * 5


async def test_what_follows_a_known_entry_of_a_tail_is_read_alone(store: Store):
    ids, ann, bob = await fill(store, 5), (UID, "ann"), (UID, "bob")
    await store.learners.apply(0, expected="0-0", watermark=ids[0], states={ann: b"1"})
    await store.learners.apply(0, expected=ids[0], watermark=ids[3], states={}, tails={ann: ids[1:4]})

    async def read(known):
        [found] = await store.learners.stored(0, [ann], {ann: known, bob: ids[2]})
        return found.continues, found.checkpoint, [entry.entry_id for entry in found.tail]

    assert await read(ids[2]) == (True, None, ids[3:4])
    assert await read(ids[3]) == (True, None, [])
    for unknown in (ids[0], ids[4], LOST):
        assert await read(unknown) == (False, b"1", ids[1:4])
    await store.learners.apply(0, expected=ids[3], watermark=ids[4], states={ann: b"2"})
    assert await read(ids[3]) == (False, b"2", []), "the checkpoint took the place of the tail"


async def test_a_checkpoint_alone_is_no_change_of_a_learner(store: Store):
    ids, ann = await fill(store, 2), (UID, "ann")
    await store.learners.apply(0, expected="0-0", watermark=ids[1], states={}, tails={ann: ids})
    assert await store.learners.apply(0, expected=ids[1], watermark=ids[1], states={ann: b"whole"})
    assert await store.learners.stored(0, [ann]) == [StoredLearner(b"whole")]
    assert not (await store.learners.changed({0: ids[0]}))[0].removed
    assert await learners(store, ids[1]) == (ids[1], set())
    assert not await store.learners.apply(0, expected=ids[0], watermark=ids[0], states={ann: b"older"})


async def test_a_long_log_is_trimmed_in_steps(store: Store):
    ids = await fill(store, 700)
    await store.learners.apply(
        0, expected="0-0", watermark=ids[-1], states={}, tails={(UID, ANN): [ids[600]]}
    )
    steps = [await store.rewards.trim(0, FUTURE_MS) for _ in range(4)]
    assert [step.more for step in steps] == [True, True, False, False]
    assert [len(step.needing_checkpoint) for step in steps] == [
        0,
        0,
        1,
        1,
    ]  # what is before it goes in the third
    assert (await log_of(store))[0].entry_id == ids[600]


async def test_tails_of_a_deleted_bandit_are_gone_for_good(store: Store):
    ids, ann = await fill(store, 3), (UID, "ann")
    await store.learners.apply(0, expected="0-0", watermark=ids[0], states={}, tails={ann: ids[:1]})
    await store.registry.delete_bandit("gone", UID, catalogue="any")
    assert await store.learners.stored(0, [ann]) == [StoredLearner()]
    await store.learners.apply(0, expected=ids[0], watermark=ids[1], states={}, tails={ann: ids[1:2]})
    assert await store.learners.stored(0, [ann]) == [StoredLearner()]
    assert not (await store.rewards.trim(0, FUTURE_MS)).needing_checkpoint


async def test_an_entry_that_the_log_has_lost_is_noticed(store: Store, store_server):
    ids, ann = await fill(store, 2), (UID, "ann")
    await store.learners.apply(0, expected="0-0", watermark=ids[1], states={}, tails={ann: ids})
    async with connect(store_server) as client:
        await client.xdel(redis_keys.log(0), ids[0])
    [found] = await store.learners.stored(0, [ann])
    assert [(e.entry_id, e.payload) for e in found.tail] == [(ids[0], b""), (ids[1], found.tail[1].payload)]
    assert found.tail[1].payload


@pytest.mark.parametrize("most", [1, 3, 10_000])
async def test_the_changes_of_all_partitions_come_together_however_many_are_listed(store: Store, most):
    store.learners.most_listed = most
    since: dict[int, str] = {}
    for partition in range(store.partitions):
        ids = await fill(store, 2, partition=partition)
        states = {(UID, f"{partition}-{number}"): b"1" for number in range(partition)}
        await store.learners.apply(partition, expected="0-0", watermark=ids[0], states=states)
        since[partition] = ("0-0", ids[0], LOST, "")[partition % 4]
    found = await store.learners.changed(since)
    assert list(found) == list(since)
    for partition, known in since.items():
        assert found[partition] == (await store.learners.changed({partition: known}))[partition]
        listed = [(UID, f"{partition}-{number}") for number in range(partition)]
        learners = found[partition].learners
        assert learners == (listed, (), None, None)[partition % 4]
    assert await store.learners.changed({}) == {}


async def test_changed_learners_are_those_applied_since(store: Store):
    ids = await fill(store, 6)
    ann, bob = (UID, "ann"), (UID, "b:ob")
    assert await learners(store, "") == ("0-0", None)
    assert await learners(store, "0-0") == ("0-0", set())
    await store.learners.apply(0, expected="0-0", watermark=ids[1], states={ann: b"1"})
    await store.learners.apply(0, expected=ids[1], watermark=ids[2], states={bob: b"1"})
    await store.learners.apply(0, expected=ids[2], watermark=ids[3], states={ann: None})
    assert await learners(store, "0-0") == (ids[3], {ann, bob})
    assert await learners(store, ids[1]) == (ids[3], {ann, bob})
    assert await learners(store, ids[2]) == (ids[3], {ann}), "a removal is a change"
    assert await learners(store, ids[3]) == (ids[3], set())
    assert await learners(store, LOST) == (ids[3], None)
    assert (await store.learners.changed({0: ids[2]}))[0].removed == [ann]
    assert (await store.learners.changed({0: ids[3]}))[0].newest == ids[5]
    assert await store.learners.apply(0, expected="0-0", watermark=ids[4], states={bob: b"2"}) is False
    assert await learners(store, ids[3]) == (ids[3], set())
    store.learners.changes_kept = 2
    await store.learners.apply(
        0, expected=ids[3], watermark=ids[4], states={(UID, f"{n}"): b"1" for n in range(5)}
    )
    assert await learners(store, ids[2]) == (ids[4], None)
