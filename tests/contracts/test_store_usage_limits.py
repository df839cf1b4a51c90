"""Contract of a store: more of what it counts and refuses."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable

import pytest
from test_store_usage import (
    ANN,
    FAR_MS,
    FEW,
    LIVES,
    PARTITIONS,
    THINGS,
    TTL_MS,
    bounded,
    content,
    filled,
    kind_of,
    leave,
    most_of,
    observation,
    reward,
)

from app.platform.errors import QuotaReached, StoreFull
from app.storage import redis_keys
from app.storage.store import Store
from app.storage.types import DecisionId, DefaultWrite, Kind, LearnerId, RewardWrite
from learner_names import learner_in
from store_clients import connect, flush

pytestmark = [pytest.mark.anyio, pytest.mark.rest]
PERIOD_MS = 600_000  # of the ledger
EXPIRING: tuple[Kind, ...] = ("events", "activations", "dedupe")


async def pass_time(url: str, periods: int) -> None:
    """As if so many periods had passed: what expires is expired, and the ledgers say that it was then."""
    async with connect(url) as client:
        async for key in client.scan_iter():
            if (left_ms := await client.pttl(key)) > 0:
                await client.pexpire(key, max(0, left_ms - periods * PERIOD_MS))
        for partition in range(PARTITIONS):
            key = redis_keys.ledger(partition).encode()
            old = await client.hgetall(key)  # type: ignore[misc]
            if old:
                new = dict(earlier(name, value, periods) for name, value in old.items())
                await client.delete(key)
                await client.hset(key, mapping=new)  # type: ignore[misc]


async def period_of(url: str) -> int:
    """The period of the ledger that the server is in."""
    async with connect(url) as client:
        seconds, _ = await client.time()
    return int(seconds) * 1_000 // PERIOD_MS


def earlier(field: bytes, value: bytes, periods: int) -> tuple[bytes, bytes]:
    if b"-until:" in field:
        return field, value
    if field.endswith((b":first", b":last")):
        return field, b"%d" % (int(value) - periods)
    return re.sub(rb"\d+$", lambda found: b"%d" % (int(found[0]) - periods), field), value


async def test_what_is_full_of_observations_has_room_for_rewards(url: str) -> None:
    async with bounded(url, dedupe=FEW) as store:
        await filled(store, "dedupe")
        held = (await store.usage.read())["dedupe"]
        assert await filled(store, "reward") > 3
        assert held <= most_of("dedupe") < (await store.usage.read())["dedupe"] <= most_of("reward")


@pytest.mark.parametrize("kind", EXPIRING)
async def test_there_is_room_again_when_what_was_held_has_expired(url: str, kind: Kind) -> None:
    async with bounded(url, **{kind: FEW}) as store:
        fit = await filled(store, kind)
        await pass_time(url, TTL_MS // PERIOD_MS - 1)
        with pytest.raises(StoreFull):
            await leave(store, kind, fit)
        await pass_time(url, 2)
        assert (await store.usage.read())[kind] == 0
        assert await filled(store, kind) == fit
        await pass_time(url, 1_000_000)
        assert await filled(store, kind) == fit, "also without a look in between"
        async with connect(url) as client:
            await pass_time(url, TTL_MS // PERIOD_MS + 1)
            await store.usage.read()
            ledger = await client.hgetall(redis_keys.ledger(0))  # type: ignore[misc]
        assert ledger == {kind.encode(): b"0"}, "nothing is left of periods that are over"


async def test_what_expires_at_several_times_is_released_at_each(url: str) -> None:
    async with bounded(url) as store:
        period, seen, left = -1, list[int](), list[int]()
        while period != await period_of(url):  # again, if a period of the server's clock ended meanwhile
            async with connect(url) as client:
                await flush(client)
            period, seen, left = await period_of(url), [], []
            for n, periods in enumerate((1, 3, 3, 7)):
                await store.choices.put_event(ANN, f"e{n}", b"choice", ttl_ms=periods * PERIOD_MS)
                seen.append((await store.usage.read())["events"])
            for _ in range(9):
                await pass_time(url, 1)
                left.append((await store.usage.read())["events"] // seen[0])
        assert seen == [seen[0], 2 * seen[0], 3 * seen[0], 4 * seen[0]]
        assert left[1:] == [3, 3, 1, 1, 1, 1, 0, 0]


async def test_waiting_decisions_make_room_when_they_are_due_or_erased(url: str) -> None:
    async with bounded(url, waiting=FEW) as store:
        fit = await filled(store, "waiting")
        one, two = (DecisionId(ANN, f"decided-{n:04}") for n in range(2))
        for _ in range(2):
            await store.waiting.append_defaults(
                0, [one], [DefaultWrite(one, "x/a", 1, FAR_MS, 0, b"default")]
            )
        await leave(store, "waiting", fit)
        with pytest.raises(StoreFull):
            await leave(store, "waiting", fit + 1)
        with pytest.raises(StoreFull):
            await store.waiting.activate(DecisionId(ANN, "new"), record=b"record", **LIVES)
        assert not await store.waiting.is_active(DecisionId(ANN, "new"))
        assert await store.waiting.activate(two, record=b"r", **LIVES) == "activated"
        await store.side_data.erase_bandit(ANN.bandit_uid)
        assert (await store.usage.read())["waiting"] == 0
        assert await filled(store, "waiting") == fit


@pytest.mark.parametrize("thing", THINGS)
async def test_of_many_processes_at_once_exactly_as_many_have_room_as_fit(url: str, thing: str) -> None:
    kind = kind_of(thing)
    async with bounded(url, **{kind: FEW}) as one, bounded(url, **{kind: FEW}) as two:

        async def attempt(store: Store, n: int) -> bool:
            try:
                await leave(store, thing, n)
            except StoreFull:
                return False
            return True

        done = await asyncio.gather(*(attempt((one, two)[n % 2], n) for n in range(200)))
        held = (await one.usage.read())[kind]
        assert held <= most_of(thing) < held + held // sum(done) + 500


async def test_the_bound_is_for_all_partitions_together(url: str) -> None:
    """Also when each process has its own partitions, and looks only every now and then."""
    learners = [learner_in(partition, PARTITIONS, "key") for partition in range(PARTITIONS)]
    async with bounded(url, events=FEW) as one, bounded(url, events=FEW) as two:
        put, refused = 0, 0
        for n in range(60):
            process = (one, two)[n % 2]
            try:
                await leave(process, "events", n, learners[n % PARTITIONS])
                put += 1
            except StoreFull:
                refused += 1
            if n % 5 == 4:
                await asyncio.gather(one.usage.read(), two.usage.read())
        held = (await one.usage.read())["events"]
        assert put > 10 < refused
        assert FEW * 3 // 4 < held <= FEW + 3 * held // put
        for process in (one, two):
            for learner in learners:
                with pytest.raises(StoreFull):
                    await leave(process, "events", 1_000, learner)


SIZES: dict[str, Callable[[Store, int], Awaitable[object]]] = {
    "events": lambda store, n: store.choices.put_event(
        LearnerId(ANN.bandit_uid, f"u{n % 200}"), f"visit-{n}", b"x" * (n * 7), ttl_ms=TTL_MS
    ),
    "waiting": lambda store, n: store.waiting.log(
        DecisionId(ANN, f"d{n}"), b"x" * (n * 7), due_ms=n, expires_ms=FAR_MS, known_entry=0
    ),
    "activations": lambda store, n: leave(store, "activations", n),
    "dedupe": lambda store, n: store.rewards.append(0, [observation(f"{n}-" + "x" * (n % 120))]),
    "reward": lambda store, n: store.rewards.append(0, [reward(f"{n}-" + "x" * (n % 120))]),
}
OURS = re.compile(rb":(event|events|decisions|due|active|seen|seen-until|seen-ends)(:|$)")


@pytest.mark.parametrize("thing", THINGS)
async def test_no_less_is_counted_than_the_server_says_that_it_takes(url: str, thing: str) -> None:
    async with bounded(url) as store, connect(url) as client:
        await asyncio.gather(*(SIZES[thing](store, n) for n in range(400)))
        counted = (await store.usage.read())[kind_of(thing)]
        ours = [key async for key in client.scan_iter() if OURS.search(key)]
        taken = sum([await client.memory_usage(key, samples=0) for key in ours])
        assert taken <= counted <= 4 * taken


async def statuses(store: Store, *rewards: RewardWrite) -> list[str]:
    return [outcome.status for outcome in await store.rewards.append(0, rewards)]


async def test_there_is_room_for_rewards_again_when_what_expired_is_dropped(url: str) -> None:
    """The bytes of each hash go with it; a default counts for the same one."""
    soon, later = 10 * PERIOD_MS, FAR_MS
    async with bounded(url) as store:
        for n in range(3):
            await statuses(store, reward(f"s{n}", expires_ms=soon))
        first = (await store.usage.read())["dedupe"]
        await statuses(
            store, reward("l0", expires_ms=later), observation("o"), reward("l1", expires_ms=later)
        )
        second = (await store.usage.read())["dedupe"] - first
        assert first > 0 < second
        assert await store.waiting.drop_expired(0, margin_ms=0, count=10) == 1
        assert (await store.usage.read())["dedupe"] == second
        assert await store.waiting.drop_expired(0, margin_ms=0, count=10) == 0
        assert (await store.usage.read())["dedupe"] == second
        assert await store.waiting.drop_expired(0, margin_ms=-2 * FAR_MS, count=10) == 1
        await pass_time(url, TTL_MS // PERIOD_MS + 1)
        assert (await store.usage.read())["dedupe"] == 0
        async with connect(url) as client:
            assert await client.hgetall(redis_keys.ledger(0)) == {b"dedupe": b"0"}  # type: ignore[misc]
            assert not await client.exists(redis_keys.seen_ends(0))
    async with bounded(url, dedupe=FEW) as store:
        known = int((await store.rewards.read(0, "0-0", 100))[-1].entry_id.partition("-")[2])

        async def fill(name: str) -> int:
            for n in range(1_000):
                write = RewardWrite(ANN, known, b"p", f"{name}{n:04}", expires_ms=soon)
                try:
                    known_statuses.update(await statuses(store, write))
                except StoreFull:
                    return n
            raise AssertionError("there is no bound")

        known_statuses: set[str] = set()
        fit = await fill("a")
        assert fit > 10
        known += fit
        assert await store.waiting.drop_expired(0, margin_ms=0, count=10) == 1
        assert await fill("b") == fit
        assert known_statuses == {"accepted"}


async def test_a_call_of_many_rewards_is_refused_as_a_whole_and_what_was_promised_goes_on(url: str) -> None:
    forgotten = LearnerId(ANN.bandit_uid, learner_in(0, PARTITIONS, "gone").name)
    async with bounded(url, dedupe=FEW) as store:
        assert await statuses(store, reward("old", expires_ms=1)) == ["accepted"]
        assert await store.waiting.drop_expired(0, margin_ms=0, count=10) == 1
        await store.side_data.append_forget(forgotten, payload=b"F", now_ms=20, ttl_ms=TTL_MS)
        fit = await filled(store, "reward")
        assert await filled(store, "dedupe") < 3
        taken = [reward("decided-0000"), reward("decided-0001", first=False), reward("decided-0000")]
        refused = [reward("old", expires_ms=1), reward("x", forgotten)]
        before = await content(url)
        for new in (reward("new"), observation("new")):
            with pytest.raises(StoreFull):
                await store.rewards.append(0, [*taken, *refused, new])
        assert await content(url) == before
        told = ["duplicate"] * 3 + ["expired", "forgotten"]
        assert await statuses(store, *taken, *refused) == told
        assert await content(url) == before
        assert fit > 10


async def test_what_comes_twice_in_a_call_needs_room_once(url: str) -> None:
    async with bounded(url) as store:
        await statuses(store, reward("a"), observation("a"))
        one = (await store.usage.read())["dedupe"]
        await statuses(store, *[reward("a"), observation("a")] * 3)
        assert (await store.usage.read())["dedupe"] == one
        await statuses(store, *[reward("b"), observation("b")] * 50)
        assert (await store.usage.read())["dedupe"] == 2 * one
    bound = 2 * one * 16 // 12 + 1  # a call with observations is bounded as they are
    many = [reward("c"), observation("c")] * 50
    for bytes_more, outcome in ((0, None), (one * 17 // 12, ["accepted"] * 2 + ["duplicate"] * 98)):
        async with bounded(url, dedupe=bound + bytes_more) as store:
            if outcome is None:
                with pytest.raises(StoreFull):
                    await store.rewards.append(0, many)
            else:
                assert await statuses(store, *many) == outcome
                assert (await store.usage.read())["dedupe"] == 3 * one


async def test_defaults_are_counted_and_never_refused(url: str) -> None:
    async with bounded(url, dedupe=FEW) as store:
        decisions = [DecisionId(ANN, f"decided-{n:04}") for n in range(7, 47)]
        one = decisions[0]
        for decision in decisions:
            await store.waiting.log(decision, b"record", due_ms=1, expires_ms=FAR_MS, known_entry=0)
        await filled(store, "dedupe")
        before = (await store.usage.read())["dedupe"]
        for _ in range(2):
            for decision in decisions:
                write = DefaultWrite(decision, f"{decision.id}/a", 10, FAR_MS, 0, b"default")
                await store.waiting.append_defaults(0, [decision], [write])
        defaults = (await store.usage.read())["dedupe"] - before
        assert defaults > FEW * 4 // 16, "beyond the bound, to which observations left a quarter"
        with pytest.raises(StoreFull):
            await store.rewards.append(0, [reward(one.id)])
        await pass_time(url, TTL_MS // PERIOD_MS + 1)
        assert (await store.usage.read())["dedupe"] == defaults
        await store.rewards.append(0, [reward(one.id)])
        *_, entry = await store.rewards.read(0, "0-0", 1_000)
        assert (entry.first, entry.came) == (False, ())
        assert await store.waiting.drop_expired(0, margin_ms=-2 * FAR_MS, count=10) == 1
        assert (await store.usage.read())["dedupe"] == 0


async def test_dedupe_keys_of_a_deleted_bandit_count_until_they_would_have_been_dropped(url: str) -> None:
    async with bounded(url) as store:
        await statuses(store, reward("a"), reward("b"))
        held = (await store.usage.read())["dedupe"]
        await store.side_data.erase_bandit(ANN.bandit_uid)
        assert (await store.usage.read())["dedupe"] == held
        assert await store.waiting.drop_expired(0, margin_ms=-2 * FAR_MS, count=10) == 1
        assert (await store.usage.read())["dedupe"] == 0


RECORD = ANN.bandit_uid.encode() + b"made so"
LARGE = 200_000  # bytes: room for some campaigns


async def event(store: Store, name: str, position: int, data: bytes = b"x" * 1_000) -> str:
    return await store.event_logs.append("slates", name, uid=ANN.bandit_uid, position=position, event=data)


async def test_campaigns_have_room_together_until_some_are_deleted(url: str) -> None:
    async with bounded(url, campaigns=LARGE) as one, bounded(url, campaigns=LARGE) as two:
        made = 0
        for number in range(1_000):
            try:
                await (one, two)[number % 2].event_logs.create("slates", f"c{number}", RECORD)
            except QuotaReached:
                break
            made += 1
        assert 5 < made < 50
        before = await content(url)
        with pytest.raises(QuotaReached, match="SHORTLIST_MAX_CAMPAIGNS_MB"):
            await two.event_logs.create("centers", "another", RECORD)
        assert await one.event_logs.create("slates", "c0", b"0" * 16 + b"other") == RECORD
        assert await content(url) == before
        assert (await two.usage.read())["campaigns"] <= LARGE
        assert await one.event_logs.delete("slates", "c1")
        assert not await one.event_logs.delete("slates", "c1")
        assert await two.event_logs.create("centers", "another", RECORD) == RECORD
        for number in range(made):
            await one.event_logs.delete("slates", f"c{number}")
        await one.event_logs.delete("centers", "another")
        assert (await one.usage.read())["campaigns"] == 0


async def test_a_campaign_grows_until_there_is_no_room_and_keeps_what_it_has(url: str) -> None:
    async with bounded(url, campaigns=LARGE) as store:
        await store.event_logs.create("slates", "c", RECORD)
        taken = 0
        for position in range(1_000):
            try:
                assert await event(store, "c", position) == "appended"
            except QuotaReached:
                break
            taken += 1
        assert 100 < taken < 200
        before = await content(url)
        with pytest.raises(QuotaReached):
            await event(store, "c", taken)
        assert await event(store, "c", 0) == "overtaken"
        await store.event_logs.save_snapshot(
            "slates", "c", uid=ANN.bandit_uid, position=taken, state=b"s" * 20_000
        )
        assert await content(url) == before, "a snapshot without room is not saved"
        found = await store.event_logs.read("slates", "c", uid="", position=0, count=1_000)
        assert found is not None
        assert len(found.events) == taken
        assert (await store.usage.read())["campaigns"] <= LARGE


async def test_of_a_campaign_no_less_is_counted_than_it_takes(url: str) -> None:
    async with bounded(url) as store, connect(url) as client:
        for name, size in (("c", 3), ("d", 2_000)):
            await store.event_logs.create("slates", name, RECORD)
            for position in range(300):
                await event(store, name, position, b"x" * size)
            await store.event_logs.save_snapshot(
                "slates", name, uid=ANN.bandit_uid, position=300, state=b"s" * 70_000
            )
        keys = [key async for key in client.scan_iter() if b"{k:" in key]
        taken = sum([await client.memory_usage(key, samples=0) for key in keys])
        counted = (await store.usage.read())["campaigns"]
        assert taken <= counted <= 1.5 * taken
