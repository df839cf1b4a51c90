"""Contract of a store: how full it is, and what is refused then; what gives room back never is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

import pytest
from filled_store import PARTITIONS, filled

from app.platform.errors import QuotaReached, StoreFull
from app.storage.memory import Level, StoreMemory
from app.storage.store import Store
from app.storage.types import (
    ArmWrite,
    DecisionId,
    DefaultWrite,
    LoggedReward,
    RewardWrite,
    RowWrite,
    SignalWrite,
)
from learner_names import learner_in

pytestmark = pytest.mark.anyio

ANN = learner_in(0, PARTITIONS, "ann")
UID = ANN.bandit_uid
FAR_MS = 2**45
ONE = DecisionId(ANN, "decision-one")
ROW = RowWrite(ONE, 1_000, 0, b"record", FAR_MS)
REWARD = RewardWrite(ANN, 0, b"p", "r/one", expires_ms=FAR_MS, signal=SignalWrite("one/a", 0, 1.0, "sum"))
SHARES = {"all": 50, "optional": 87, "new": 97, "rewards": 150}  # far enough from the levels

Write = Callable[[Store], Awaitable[object]]
REFUSED: Mapping[str, tuple[Level, type[Exception], Write]] = {
    "a job": (Level.OPTIONAL, StoreFull, lambda s: s.jobs.add(UID, "j", b"", lease_ms=1, keep_ms=1)),
    "a choice": (Level.NEW, StoreFull, lambda s: s.choices.put_event(ANN, "e", b"c", ttl_ms=9_000)),
    "a wait": (
        Level.NEW,
        StoreFull,
        lambda s: s.waiting.log(ONE, b"w", due_ms=1, expires_ms=FAR_MS, known_entry=0),
    ),
    "an observation": (
        Level.NEW,
        StoreFull,
        lambda s: s.rewards.append(0, [RewardWrite(ANN, 0, b"p", "o", ttl_ms=9_000)]),
    ),
    "an arm": (Level.NEW, StoreFull, lambda s: s.arms.upsert(UID, [ArmWrite("a", b"f")], keep_ms=1)),
    "a catalogue": (Level.NEW, QuotaReached, lambda s: s.registry.create_catalogue("c", UID.encode())),
    "a bandit": (
        Level.NEW,
        QuotaReached,
        lambda s: s.registry.create_bandit("b", UID.encode(), catalogue="c"),
    ),
    "a campaign": (
        Level.NEW,
        QuotaReached,
        lambda s: s.event_logs.create("slates", f"c{s.memory.use.most}", UID.encode()),
    ),
    "a result": (
        Level.NEW,
        QuotaReached,
        lambda s: s.event_logs.append("slates", "c", uid=UID, position=0, event=b"e"),
    ),
    "a reward": (Level.REWARDS, StoreFull, lambda s: s.rewards.append(0, [REWARD])),
    "an activation": (
        Level.REWARDS,
        StoreFull,
        lambda s: s.waiting.activate(ONE, expires_ms=FAR_MS, known_entry=0, ttl_ms=1, record=None, due_ms=1),
    ),
}


@pytest.mark.parametrize("name", REFUSED)
async def test_each_write_is_refused_from_its_level_on(url: str, name: str):
    level, error, write = REFUSED[name]
    for share in SHARES.values():
        async with filled(url, share) as store:
            if share < level:
                await write(store)
            else:
                with pytest.raises(error, match="SHORTLIST_MAX_STORE_MB"):
                    await write(store)


async def test_what_gives_room_back_and_the_fold_are_never_refused(url: str):
    async with filled(url, SHARES["all"]) as store:
        await store.rewards.append(0, [REWARD])
        await store.waiting.log(ONE, b"w", due_ms=1, expires_ms=FAR_MS, known_entry=0)
        await store.event_logs.create("slates", "c", UID.encode())
    async with filled(url, SHARES["rewards"]) as store:
        default = DefaultWrite(ONE, "x/a", 1, FAR_MS, 0, b"default")
        entry = await store.waiting.append_defaults(0, [ONE], [default])
        assert entry
        assert await store.learners.apply(0, expected="0-0", watermark=entry, states={ANN: b"state"})
        await store.side_data.append_forget(ANN, payload=b"F", now_ms=1, ttl_ms=1)
        assert await store.waiting.drop_expired(0, margin_ms=-2 * FAR_MS, count=10)
        assert await store.event_logs.delete("slates", "c")
        await store.event_logs.save_snapshot("slates", "c", uid=UID, position=0, state=b"s")
        await store.side_data.erase_bandit(UID)
        await store.write()


async def test_rows_that_are_there_get_their_rewards_and_others_are_left_out(url: str):
    logged = RewardWrite(
        ANN, 0, b"p", "r/one", expires_ms=FAR_MS, signal=REWARD.signal, logged=LoggedReward(ROW, b"+")
    )
    other = RowWrite(DecisionId(ANN, "decision-two"), 1_001, 0, b"record", FAR_MS)
    late = RewardWrite(
        ANN, 0, b"p", "r/two", expires_ms=FAR_MS, signal=SignalWrite("two/a", 0, 1.0, "sum"),
        logged=LoggedReward(other, b"+"),
    )  # fmt: skip
    async with filled(url, SHARES["all"]) as store:
        await store.rows.write(0, [ROW])
    async with filled(url, SHARES["optional"]) as store:
        assert [done.status for done in await store.rewards.append(0, [logged, late])] == ["accepted"] * 2
        assert not store.effects.has_space()
        found = await store.rows.of_learner(ANN, 10)
    assert [(row.record, row.rewards) for row in found] == [(b"record", b"+")]


async def test_a_level_ends_two_points_below_where_it_began(url: str):
    class Server:
        """One that says that it takes so much of 1,000 bytes, besides what it holds for its clients."""

        held = 0

        async def memory(self) -> list[dict[str, int]]:
            return [{"used_memory": self.held + 500, "mem_clients_normal": 500}, {"used_memory": 1}]

    server = Server()
    memory = StoreMemory(server, 1_000)  # type: ignore[arg-type]  # all that it asks
    told = []
    for server.held in (799, 800, 781, 779, 800):
        await memory.look()
        told.append(memory.is_reached(Level.OPTIONAL))
    assert told == [False, True, True, False, True]


@pytest.mark.parametrize(
    ("facts", "most_bytes", "most"),
    [
        ({}, None, 0),
        ({"total_system_memory": 1_000}, None, 700),
        ({"total_system_memory": 1_000, "maxmemory": 500}, None, 350),
        ({"total_system_memory": 1_000, "maxmemory": 500}, 600, 475),
        ({"total_system_memory": 1_000}, 600, 600),
    ],
)
async def test_what_a_server_may_take(facts: dict[str, int], most_bytes: int | None, most: int):
    class Server:
        async def memory(self) -> list[dict[str, int]]:
            return [facts]

    memory = StoreMemory(Server(), most_bytes)  # type: ignore[arg-type]  # all that it asks
    assert (await memory.look()).most == most
    assert not memory.is_reached(Level.OPTIONAL)
