"""The table of keys is true: names, types, lifetimes, and one hash tag for each script."""

import re
from functools import partial
from unittest.mock import AsyncMock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.crc import key_slot

from app.platform.errors import Unavailable
from app.storage import redis_keys
from app.storage.arm_effects import MERGED
from app.storage.redis_client import RedisClient, scripts
from app.storage.types import (
    ArmId,
    ArmWrite,
    BanditChange,
    CarriedWrite,
    DeadLetter,
    DecisionId,
    DefaultWrite,
    FoldedCounts,
    LearnerId,
    MoveWrite,
    Position,
    QuotaCount,
    QuotaTerms,
    RewardWrite,
    RowWrite,
    SignalWrite,
)
from learner_names import UID, learner_in
from store_clients import connect
from store_server import ON_CLUSTER

OTHER_UID, MOVED_UID = "fedcba9876543210", "00112233445566ff"
ANN, BOB = (learner_in(0, 16, stem) for stem in ("ann", "bob"))
TTL_MS = 600_000


def unsaid(_kept: bytes) -> int | None:
    return None


@pytest.mark.parametrize(("partitions", "spread"), [(16, [10, 3, 3]), (64, [25, 19, 20])])
def test_partitions_are_spread_over_three_nodes_as_the_documents_say(partitions, spread):
    nodes = [3 * key_slot(redis_keys.log(n).encode()) // 16_384 for n in range(partitions)]
    assert [nodes.count(node) for node in range(3)] == spread


def table():
    """Rows of the table in the module's docstring: (pattern, type, lifetime)."""
    rows = []
    for line in redis_keys.__doc__.splitlines():
        if found := re.match(
            r"    (\{\S+\}:\S+(?: \w+>\S*)*)\s+(string|hash|zset|set|stream|list) +.*?\s{2,}(\S.*)", line
        ):
            name, kind, lives = found.groups()
            name = re.sub(r"<[^>]*>", "*", name)
            pattern = re.escape(redis_keys.PREFIX + name).replace(r"\*", ".+")
            rows.append((re.compile(pattern), kind, lives))
    return rows


async def exercise(store):
    """Call every method that writes, so that every kind of key exists."""
    await store.registry.create_catalogue("films", OTHER_UID.encode())
    await store.registry.create_bandit("b", OTHER_UID.encode(), catalogue="films")
    await break_off(store)
    await store.registry.create_catalogue("films", UID.encode())
    await store.registry.create_bandit("b", UID.encode(), catalogue="films")
    change = BanditChange({1: UID.encode()})
    await store.registry.change_bandit("b", UID, change, expected=UID.encode(), record=UID.encode() + b"2")
    await move(store)
    await store.arms.upsert(UID, [ArmWrite("a", b"1", b"doc"), ArmWrite("b", b"2")], keep_ms=TTL_MS)
    await store.arms.delete(UID, ["b"], keep_ms=TTL_MS)
    await store.arms.take_times(UID, {"nobody": 1})
    assert await store.arms.fit(UID, 2, b"basis", [ArmWrite("a", b"1", b"doc")], keeps_changes=False)
    observation = RewardWrite(ANN, 2, b"p", "once", ttl_ms=TTL_MS)
    signal = SignalWrite("first", 0, 1.0, "sum")
    rewards = [RewardWrite(ANN, 2, b"p", f"{ms}", expires_ms=ms, signal=signal) for ms in (1, 2**40)]
    *_, outcome = await store.rewards.append(0, [observation, *rewards])
    assert await store.waiting.drop_expired(0, margin_ms=1, count=1) == 1
    await store.side_data.append_forget(ANN, payload=b"", now_ms=1, ttl_ms=TTL_MS)
    [entry] = await store.rewards.read(0, "0-0", 1)
    await store.learners.apply(
        0,
        expected="0-0",
        watermark=outcome.entry_id,
        states={ANN: b"state"},
        tails={BOB: [entry.entry_id]},
        dead=[DeadLetter(entry, "why")],
        folded={UID: FoldedCounts(1)},
        arms={ArmId(UID, "a", 1): b"sums", ArmId(UID, "b", 2): b"other", ArmId(UID, "d", 3): b"merged"},
        known_arms=[ArmId(UID, "d", 3)],
    )
    other, gone = ArmId(UID, "b", 2), ArmId(UID, "d", 3)
    assert await store.effects.sums(0, [other, gone]) == [b"other", None]
    assert await store.effects.drop_sums(0, UID, {("a", 1): b"read before", ("b", 2): b"other"}) == 1
    assert [some async for some in store.effects.all_sums(0, UID)] == [{("a", 1): b"sums"}]
    assert not await store.effects.merge(0, UID, "a", b"whole", {1: b"read before", MERGED: b""})
    assert await store.effects.merge(0, UID, "a", b"whole", {1: b"sums", MERGED: b""})
    assert [some async for some in store.effects.all_sums(0, UID)] == [{("a", MERGED): b"whole"}]
    assert await store.arms.revisions(UID, ["a", "unknown"]) == [3, 0]
    assert [ms > 0 for ms in await store.arms.named_until(UID, [1, 7])] == [False, False]
    assert await store.priors.write("b", UID, b"record", expected=0, since_ms=1) == 1
    await store.effects.note_seen({UID: ("b", "2 0"), "deleted": ("b", "2 0")})
    assert await store.effects.folded_at_fit() == {UID: "2 0"}
    assert await store.effects.write("b", UID, expected=0, record=b"effects") == 1
    assert await store.effects.write("b", UID, expected=0, record=b"late") == 0
    await store.quotas.put(UID, "q", b"r", b"", QuotaTerms("u", 1, 0, 0, 0, "none", "shown"), most=9)
    await store.arms.keep_behaviour(UID, {"a": b"liked"}, ttl_ms=TTL_MS)
    await store.quotas.count(UID, [("show", [QuotaCount("q", "u", 1)])], after="")
    await store.quotas.changes(UID, "")
    await store.quotas.changes_between(UID, "1-1", "2-1")
    await store.quotas.trim(UID, 10**13)
    await store.quotas.delete(UID, "another")
    await store.quotas.changed(UID)
    key = LearnerId(UID, "had")
    await store.frequency_caps.take(key, [("d", "a")], within_ms=TTL_MS, most=1, most_kept=9)
    assert (await store.followed_arms.follow(UID, "me", TTL_MS)).is_ours
    places = {"before": Position(), "after": Position(1, "a")}
    assert await store.followed_arms.advance(UID, "me", collection="arms_1", quality=b"q", **places)
    await store.leases.join("worker", TTL_MS)
    for partition in (None, 0):
        await store.write_once.put(partition, "short", b"", ttl_ms=TTL_MS)
        await store.write_once.put(partition, "long", b"", ttl_ms=None)
    await decide(store)
    times = {"lease_ms": TTL_MS, "keep_ms": TTL_MS}
    assert await store.jobs.add(UID, "job", b"waiting", **times)
    assert await store.jobs.keep(UID, "job", b"done", **times, result=b"r") == "kept"
    await store.event_logs.create("slates", "home", UID.encode())
    await store.event_logs.append("slates", "home", uid=UID, position=0, event=b"e")
    await store.event_logs.save_snapshot("slates", "home", uid=UID, position=1, state=b"s")


async def move(store):
    """Another bandit is moved to another catalogue, and a learner of it is carried."""
    other = MOVED_UID.encode()
    await store.registry.create_catalogue("films-2", other)
    await store.registry.create_bandit("moved", other, catalogue="films")
    write = MoveWrite(1, b"record", "films", OTHER_UID, 1, "films-2", MOVED_UID, b"prior", 1, 1)
    change = BanditChange({1: other}, move=write)
    record = other + b"2"
    assert await store.registry.change_bandit("moved", MOVED_UID, change, expected=other, record=record) == (
        record
    )
    assert await store.moves.append(0, MOVED_UID, learner="_moved", number=1, payload=b"p")
    assert not await store.moves.append(0, MOVED_UID, learner="_moved", number=1, payload=b"p")
    assert await store.moves.carry(0, MOVED_UID, [CarriedWrite("ann", None, 0, b"state")]) == 1
    assert await store.moves.carry(0, MOVED_UID, [CarriedWrite("ann", None, 0, b"other")]) == 0


async def break_off(store):
    """Delete a bandit and a catalogue; of the latter, the arms are not yet gone."""
    assert await store.registry.delete_bandit("b", OTHER_UID, catalogue="films")
    with pytest.MonkeyPatch.context() as broken:
        broken.setattr(store.registry, "erase_catalogue", AsyncMock(side_effect=Unavailable("gone")))
        with pytest.raises(Unavailable):
            await store.registry.delete_catalogue("films", OTHER_UID)


async def decide(store):
    """A decision that is logged, one that got its default, one activated; a learner erased, one idle."""
    forget = partial(store.side_data.append_forget, payload=b"", now_ms=1, ttl_ms=TTL_MS)
    gone = [learner_in(0, 16, stem) for stem in ("gone", "left")]
    erased = [await forget(learner) for learner in gone]
    one, two, three = (DecisionId(ANN, name) for name in ("one", "two", "three"))
    await store.waiting.log(one, b"record", due_ms=1, expires_ms=2**40, known_entry=0)
    await store.waiting.log(two, b"record", due_ms=2**40, expires_ms=2**40, known_entry=0)
    times = {"known_entry": 2**40, "expires_ms": 2**40, "ttl_ms": TTL_MS, "due_ms": 2**40}
    await store.waiting.activate(three, record=b"record", **times)
    write = DefaultWrite(one, "one/a", 3, 2**40, 0, b"p")
    await store.waiting.append_defaults(0, [one], [write])
    for learner, expires in ((ANN, 2**40), (BOB, 1)):
        await store.side_data.touch(learner, expires_ms=expires)
    await store.side_data.expire(BOB, payload=b"", now_ms=2, ttl_ms=TTL_MS)
    for learner in (ANN, gone[0]):
        await store.choices.put_event(learner, "e", b"choice", ttl_ms=TTL_MS)
    await store.rows.write(0, [RowWrite(DecisionId(ANN, "four"), 3, 2**40, b"record", TTL_MS)])
    assert await store.learners.apply(
        0, expected=await store.learners.watermark(0), watermark=erased[1], states={}
    )
    assert await store.side_data.erase(gone[0], erased[0], decision_knew=unsaid, event_knew=unsaid)


@pytest.mark.anyio
async def test_the_table_describes_every_key_and_nothing_else(store, store_url):
    await exercise(store)
    rows = table()
    assert len(rows) == 70
    used = set()
    async with connect(store_url) as client:
        async for key in client.scan_iter():
            matching = [row for row in rows if row[0].fullmatch(key.decode())]
            assert len(matching) == 1, key
            _, kind, lives = matching[0]
            used.add(matching[0])
            assert (await client.type(key)).decode() == kind, key
            expires = await client.pttl(key) > 0
            if "forever" not in lives or "ttl_ms" not in lives:
                assert expires == bool(re.search("ttl_ms|keep_ms", lives)), key
    # Of a cluster, whose keys are in many slots, no script can write to a list of all catalogues.
    of_one_server = [keys for keys in redis_keys.WRITTEN_CATALOGUES if ON_CLUSTER]
    used |= {row for row in rows if any(row[0].fullmatch(key) for key in of_one_server)}
    assert used == set(rows), "a row of the table has no key"


@pytest.mark.anyio
async def test_each_script_touches_one_hash_tag(store, monkeypatch):
    calls = {}
    script = RedisClient.script

    async def recorded(self, name, keys, args=(), **how):
        calls.setdefault(name, []).append(keys)
        return await script(self, name, keys, args, **how)

    monkeypatch.setattr(RedisClient, "script", recorded)
    await store.arms.behind({UID: 0})
    monkeypatch.setattr(RedisClient, "is_cluster", True)
    await exercise(store)
    await store.rewards.backlog(0)
    await store.rewards.lag(0)
    assert [page async for page in store.rewards.of_learners(0, [ANN], "+")]
    await store.arms.changed(UID, 0)
    await store.arms.documents(UID, ["a"], most_bytes=1)
    await store.followed_arms.read(UID, ["a"])
    await store.learners.changed({0: ""})
    await store.write()
    await store.rows.read(0, UID, after="", before="", count=1, most_bytes=1)
    await store.rows.sizes(0, UID, pieces=1)
    await store.side_data.erase_visitor(ANN, "v", row_names=lambda _: True, event_names=lambda _: True)
    await store.rows.trim(0, UID, before_ms=1, count=1)
    await store.rewards.replay_dead(0, await store.rewards.dead_letters(0))
    await store.waiting.due(0, 1, 1)
    await store.event_logs.read("slates", "home", uid="", position=0, count=1)
    await store.jobs.jobs(UID)
    await store.rewards.trim(0, 1)
    await store.learners.stored(0, [ANN])
    await store.learners.names(0, UID)
    await store.registry.delete_bandit("b", UID, catalogue="films")
    assert not await store.effects.folded_at_fit()
    await store.side_data.erase_bandit(UID)
    await store.quotas.erase(UID)
    await store.followed_arms.changes(UID, Position(), 1)
    await store.followed_arms.forget(UID, [Position(1, "b")])
    await store.followed_arms.leave(UID, "me")
    await store.registry.delete_catalogue("films", UID)
    of_one_server = {"catalogues_behind"} if ON_CLUSTER else set()
    assert set(calls) == set(scripts()) - of_one_server
    for name, keys_of_calls in calls.items():
        for keys in keys_of_calls:
            assert len({re.fullmatch(r"shortlist3:\{([^{}]+)\}:.+", key).group(1) for key in keys}) == 1, name


WORDS = st.text("ab:.1{}", min_size=1, max_size=4)


@pytest.mark.rest
@given(st.tuples(WORDS, WORDS), st.tuples(WORDS, WORDS))
def test_no_two_pairs_of_words_share_a_key(one, other):
    for field in (redis_keys.seen_field, redis_keys.seen_first_field):
        keys = [field(LearnerId(UID, name), word) for name, word in (one, other)]
        assert (keys[0] == keys[1]) == (one == other)


@pytest.mark.rest
@pytest.mark.anyio
async def test_a_scan_names_an_arm_once_when_the_server_names_it_twice(store, monkeypatch):
    """A server may, while its table shrinks; here it does, within and across batches."""
    values = {f"arm-{n}".encode(): n.to_bytes(8, "little") + b"features" for n in range(4)}
    batches = iter([(7, [0, 1]), (9, []), (8, [1, 2, 0]), (0, [3, 2])])

    async def answer(self, *words):
        cursor, names = next(batches)
        return cursor, {f"arm-{n}".encode(): values[f"arm-{n}".encode()] for n in names}

    monkeypatch.setattr(RedisClient, "bulk", answer)
    arms = [arm for batch in [b async for b in store.arms.scan(UID)] for arm in batch]
    assert [arm.id for arm in arms] == ["arm-0", "arm-1", "arm-2", "arm-3"]
    assert [arm.revision for arm in arms] == [0, 1, 2, 3]


@pytest.mark.rest
@pytest.mark.anyio
async def test_revisions_stay_exact_up_to_the_limit_of_a_double(store, store_url):
    """The catalogue's counters start close to 2^53, where a float formatted carelessly loses digits."""
    start = 2**53 - 10
    async with connect(store_url) as client:
        await client.hset(redis_keys.counters(UID), mapping={"version": start, "revision": start})
    done = await store.arms.upsert(UID, [ArmWrite("a", b"1"), ArmWrite("b", b"1")], keep_ms=TTL_MS)
    assert (done.version, list(done.revisions)) == (start + 1, [start + 1, start + 2])
    again = await store.arms.upsert(UID, [ArmWrite("a", b"2"), ArmWrite("b", b"1")], keep_ms=TTL_MS)
    assert (again.version, list(again.revisions)) == (start + 2, [start + 3, start + 2])
    assert await store.arms.retired_features(UID, start + 1) == b"1"
    assert await store.arms.version(UID) == start + 2
    arms = [arm async for batch in store.arms.scan(UID) for arm in batch]
    assert {arm.id: arm.revision for arm in arms} == {"a": start + 3, "b": start + 2}


@pytest.mark.rest
@pytest.mark.anyio
async def test_the_log_goes_on_when_the_clock_has_run_backwards(store, store_url):
    """The newest entry lies in the future: later ones share its millisecond and keep counting."""
    future_ms = 2**43
    async with connect(store_url) as client:
        await client.xadd(redis_keys.log(0), {"b": UID, "l": ANN.name, "p": ""}, id=f"{future_ms}-7")
    reward = RewardWrite(ANN, 2, b"p", "once", ttl_ms=TTL_MS)
    [outcome] = await store.rewards.append(0, [reward])
    assert outcome.entry_id == f"{future_ms}-8"
    assert await store.side_data.append_forget(ANN, payload=b"", now_ms=1, ttl_ms=TTL_MS) == f"{future_ms}-9"


@pytest.mark.rest
@pytest.mark.anyio
async def test_documents_are_read_many_at_a_time(store, store_url):
    """A command for each arm would cost the store more than what it reads."""
    async with connect(store_url) as client:
        await client.config_resetstat()
        await store.arms.documents(UID, [f"a{n}" for n in range(200)], most_bytes=10**6)
        commands = await client.info("commandstats")
    assert sum(each["calls"] for name, each in commands.items() if name.startswith("cmdstat_h")) <= 10
