"""Contract of a store: folding the reward log into states, exactly once; who has changed; trimming."""

import asyncio
import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_store_rewards import ANN, TTL_MS, UID, log_of, order, reward

from app.storage.store import Store
from app.storage.types import LearnerId, RewardWrite
from learner_names import learner_in

pytestmark = pytest.mark.anyio

OTHER_UID = "fedcba9876543210"
FUTURE_MS = 2**45


async def checkpoints(store, partition, learners):
    """Of learners without a tail."""
    found = await store.learners.stored(partition, learners)
    assert not any(each.tail or each.continues for each in found)
    return [each.checkpoint for each in found]


async def fill(store, count, *, partition=0, tag=""):
    outcomes = await store.rewards.append(partition, [reward(f"{tag}{i}") for i in range(count)])
    return [outcome.entry_id for outcome in outcomes]


async def test_states_and_watermark_change_together(store: Store):
    ids = await fill(store, 3)
    states = {
        LearnerId(UID, "ann"): bytes(range(256)),
        LearnerId(OTHER_UID, "ann"): b"",
        LearnerId(UID, "b:c"): b"2",
    }
    assert await store.learners.apply(0, expected="0-0", watermark=ids[1], states=states) is True
    assert await store.learners.watermark(0) == ids[1]
    assert await checkpoints(store, 0, [*states, LearnerId(UID, "nobody")]) == [
        bytes(range(256)),
        b"",
        b"2",
        None,
    ]
    assert await checkpoints(
        store, 0, [LearnerId(UID, "ann"), LearnerId(OTHER_UID, "ann"), LearnerId(UID, "ann")]
    ) == [bytes(range(256)), b"", bytes(range(256))]
    assert await checkpoints(store, 0, []) == []


def written(entries):
    return b"".join(entry.payload + b" " for entry in entries)


def state_of(stored):
    """What a learner stands for: its checkpoint, and the numbers of its tail."""
    return (stored.checkpoint or b"") + written(stored.tail)


async def states(store, partition, learners):
    return [state_of(each) for each in await store.learners.stored(partition, learners)]


async def fold(store, partition=0, count=3):
    """Fold one page: a state is the list of its learner's numbers, and an entry b"F" empties it.

    Whether a learner gets a checkpoint or a longer tail depends on how many entries there are.
    """
    watermark = await store.learners.watermark(partition)
    entries = await store.rewards.read(partition, watermark, count)
    if not entries:
        return False
    learners = list(dict.fromkeys(e.learner for e in entries))
    found = dict(zip(learners, await store.learners.stored(partition, learners), strict=True))
    whole, tails = {}, {}
    for learner in learners:
        own = [entry for entry in entries if entry.learner == learner]
        forgets = [place for place, entry in enumerate(own) if entry.payload == b"F"]
        if forgets:
            whole[learner] = written(own[forgets[-1] + 1 :]) or None
        elif order(own[-1].entry_id)[1] % 3 == 0:
            whole[learner] = state_of(found[learner]) + written(own)
        else:
            tails[learner] = [entry.entry_id for entry in own]
    last = entries[-1].entry_id
    return await store.learners.apply(
        partition, expected=watermark, watermark=last, states=whole, tails=tails
    )


async def trim(store, partition=0, before_ms=FUTURE_MS):
    """Drop what is old: learners that need some of it get a checkpoint, and then need none."""
    freed = set()
    while True:
        trimmed = await store.rewards.trim(partition, before_ms)
        assert not freed & set(trimmed.needing_checkpoint), "a checkpoint has left the old tail"
        watermark = await store.learners.watermark(partition)
        if trimmed.needing_checkpoint:
            whole = dict(
                zip(
                    trimmed.needing_checkpoint,
                    await states(store, partition, trimmed.needing_checkpoint),
                    strict=True,
                )
            )
            assert await store.learners.apply(
                partition, expected=watermark, watermark=watermark, states=whole
            )
            freed |= set(trimmed.needing_checkpoint)
        elif not trimmed.more:
            return


TAGS = itertools.count()

STEP = st.one_of(
    st.tuples(st.just("append"), st.lists(st.tuples(st.sampled_from("xyz"), st.integers(0, 12)), max_size=5)),
    st.tuples(st.just("forget"), st.sampled_from("xyz")),
    st.tuples(st.just("fold"), st.integers(1, 4)),
    st.tuples(st.just("trim"), st.none()),
)


@settings(max_examples=60)
@given(steps=st.lists(st.tuples(STEP, st.integers(1, 3)), max_size=30))
async def test_every_entry_is_folded_exactly_once(store: Store, steps):
    """A call may be made up to three times, as after lost replies; states are those of calls made once."""
    uid = f"{next(TAGS):016x}"  # examples share the store, and so its partition 0
    ids = {name: learner_in(0, 4, name, uid) for name in "xyz"}
    expected, seen = {name: [] for name in "xyz"}, set()
    now_ms = 1_000
    for (step, words), times in steps:
        now_ms += 1
        if step == "append":
            for learner, once in words:
                if (learner, once) not in seen:
                    seen.add((learner, once))
                    expected[learner].append(b"%d" % once)
        elif step == "forget":
            expected[words] = []
        for _ in range(times):
            if step == "append":
                rewards = [RewardWrite(ids[w], now_ms, b"%d" % n, f"{n}", ttl_ms=TTL_MS) for w, n in words]
                await store.rewards.append(0, rewards)
            elif step == "forget":
                await store.side_data.append_forget(ids[words], payload=b"F", now_ms=now_ms, ttl_ms=TTL_MS)
            elif step == "fold":
                await asyncio.gather(fold(store, count=words), fold(store, count=words))
            else:
                await trim(store)
        unfolded = await store.rewards.read(0, await store.learners.watermark(0), 10_000)
        assert await store.rewards.backlog(0) == len(unfolded)
    while await fold(store):
        pass
    found = await states(store, 0, list(ids.values()))
    assert [state.split() for state in found] == list(expected.values())
    assert await store.learners.names(0, uid) == sorted(
        name for (_, name), state in zip(ids.values(), found, strict=True) if state
    )


async def test_no_entry_that_is_in_a_tail_is_trimmed(store: Store):
    ann, bob = LearnerId(UID, ANN), LearnerId(UID, "bob")
    rewards = [RewardWrite(ann if n < 3 else bob, 1, b"x", f"{n}", ttl_ms=TTL_MS) for n in range(6)]
    ids = [outcome.entry_id for outcome in await store.rewards.append(0, rewards)]
    await store.learners.apply(
        0, expected="0-0", watermark=ids[4], states={}, tails={ann: ids[2:3], bob: ids[3:5]}
    )
    trimmed = await store.rewards.trim(0, FUTURE_MS)
    assert ([e.entry_id for e in await log_of(store)], set(trimmed.needing_checkpoint)) == (
        ids[2:],
        {ann, bob},
    )
    await store.learners.apply(0, expected=ids[4], watermark=ids[4], states={ann: b"1"})
    trimmed = await store.rewards.trim(0, FUTURE_MS)
    assert ([e.entry_id for e in await log_of(store)], set(trimmed.needing_checkpoint)) == (ids[3:], {bob})
    assert [e.entry_id for e in (await store.learners.stored(0, [bob]))[0].tail] == ids[3:5]
    await store.learners.apply(0, expected=ids[4], watermark=ids[4], states={bob: b"2"})
    assert not (await store.rewards.trim(0, FUTURE_MS)).needing_checkpoint
    assert [e.entry_id for e in await log_of(store)] == ids[5:]


async def learners(store, since):
    found = (await store.learners.changed({0: since}))[0]
    return found.watermark, None if found.learners is None else set(found.learners)
