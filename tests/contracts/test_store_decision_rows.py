"""Contract of a store: rows of the decision log, which their rewards join in one step."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from app.storage import redis_keys
from app.storage.store import Store
from app.storage.types import (
    DecisionId,
    DefaultWrite,
    LearnerId,
    LoggedReward,
    RewardWrite,
    RowWrite,
    SignalWrite,
    StoredRow,
)
from learner_names import learner_in
from store_clients import connect

pytestmark = pytest.mark.anyio

PARTITIONS = 4
ANN, BOB = (learner_in(0, PARTITIONS, stem) for stem in ("ann", "bob"))
UID = ANN.bandit_uid
FAR_MS = 2**45
DAY_MS = 86_400_000
KNOWN = 2**40  # later than anything that is forgotten here


def unsaid(_kept: bytes) -> int | None:
    return None


def row(n: int, learner: LearnerId = ANN, *, known: int = KNOWN, record: bytes = b"record") -> RowWrite:
    """The n-th decision, made at ``1000 + n``."""
    return RowWrite(DecisionId(learner, f"decision-{n:07}"), 1_000 + n, known, record, DAY_MS)


def reward(of: RowWrite, text: bytes, *, arm: str = "a", wait: bool = False) -> RewardWrite:
    decision, key = of.decision, f"{of.decision.id}/{arm}"
    return RewardWrite(
        decision.learner,
        of.known_entry,
        b"payload",
        None if wait else f"r/{key}",
        expires_ms=FAR_MS,
        signal=SignalWrite(key, 0, 1.0) if wait else None,
        logged=LoggedReward(of, text),
    )


async def kept(store: Store, *, after: str = "", before: str = "", count: int = 100) -> list[StoredRow]:
    found: list[StoredRow] = []
    while True:
        page = await store.rows.read(0, UID, after=after, before=before, count=count, most_bytes=2**20)
        assert len(page.rows) <= count
        found += page.rows
        if not page.following:
            return found
        after = page.following


async def test_rows_are_read_from_the_newest_on(store: Store):
    rows = [row(n, (ANN, BOB)[n % 2], record=b"%d" % n) for n in range(7)]
    await store.rows.write(0, rows)
    expected = [position(each) for each in rows[::-1]]
    for count in (1, 3, 7, 100):
        found, before = list[str](), ""
        while before is not None:
            page = await store.rows.read(
                0, UID, after="", before=before, count=count, most_bytes=2**20, newest_first=True
            )
            found += [each.position for each in page.rows]
            before = page.following or None
        assert found == expected
    ends = {"after": "0000000001001-~", "before": "0000000001005", "count": 9, "most_bytes": 2**20}
    among = await store.rows.read(0, UID, **ends, newest_first=True)
    assert [each.position for each in among.rows] == expected[2:5]


async def contents(store: Store) -> dict[str, tuple[bytes, bytes]]:
    return {each.position: (each.record, each.rewards) for each in await kept(store)}


def position(of: RowWrite) -> str:
    return f"{of.issued_ms:013}-{of.decision.id}"


async def test_rows_are_read_in_their_order_a_page_at_a_time(store: Store):
    rows = [row(n, (ANN, BOB)[n % 2], record=b"%d" % n) for n in range(7)]
    await store.rows.write(0, rows[::-1])
    expected = [StoredRow(position(each), each.decision.learner, each.record, b"") for each in rows]
    for count in (1, 3, 7, 100):
        assert await kept(store, count=count) == expected
    assert await kept(store, after=position(rows[2])) == expected[3:]
    assert await kept(store, after="0000000001001-~", before="0000000001005") == expected[2:5]
    small = await store.rows.read(0, UID, after="", before="", count=100, most_bytes=1)
    assert (len(small.rows), small.following) == (1, position(rows[0]))
    assert await store.rows.read_row(rows[3].decision, rows[3].issued_ms) == expected[3]
    assert await store.rows.read_row(rows[3].decision, 1) is None
    assert await kept(store, before="0000000000001") == []
    assert (await store.rows.read(1, UID, after="", before="", count=9, most_bytes=9)).rows == []


async def test_a_row_is_written_once_whoever_writes_it(store: Store):
    one = row(1)
    for _ in range(2):
        await asyncio.gather(*(store.rows.write(0, [one, row(2)]) for _ in range(4)))
    await store.waiting.log(one.decision, b"waits", due_ms=1, expires_ms=FAR_MS, known_entry=KNOWN, row=one)
    await store.rewards.append(0, [reward(one, b"+1")])
    await store.rows.write(0, [one])
    assert await contents(store) == {position(one): (b"record", b"+1"), position(row(2)): (b"record", b"")}


@pytest.mark.rest
async def test_a_row_that_a_reward_has_made_gets_its_candidates_and_keeps_its_rewards(store: Store):
    one, other = row(1), row(2)
    whole, whole_other = (replace(each, candidates=b"1:2+3:c") for each in (one, other))
    await store.rewards.append(0, [reward(one, b"+1")])
    await store.rows.write(0, [whole, row(3)])
    await store.waiting.log(
        other.decision, b"waits", due_ms=1, expires_ms=FAR_MS, known_entry=KNOWN, row=whole_other
    )
    await store.rewards.append(0, [reward(one, b"+2", arm="b"), reward(other, b"+3")])
    for each in (one, replace(whole, candidates=b"later"), whole):
        await store.rows.write(0, [each])
    found = [(each.record, each.rewards, each.candidates) for each in await kept(store)]
    assert found == [(b"record", b"+1+2", b"1:2+3:c"), (b"record", b"+3", b"1:2+3:c"), (b"record", b"", b"")]
    assert await store.rows.read_row(one.decision, one.issued_ms) == (await kept(store))[0]


@pytest.mark.rest
async def test_an_accepted_reward_stands_at_the_end_of_its_row_which_is_made_if_it_is_missing(store: Store):
    rows = [row(n) for n in range(3)]
    await store.rows.write(0, rows[:1])
    writes = [reward(each, b"+%d" % n) for n, each in enumerate(rows[:2])]
    other = replace(reward(rows[2], b""), logged=None)
    for expected in (["accepted"] * 3, ["duplicate"] * 3):
        outcomes = await store.rewards.append(0, [writes[0], other, writes[1]])
        assert [outcome.status for outcome in outcomes] == expected
    await store.rewards.append(0, [reward(rows[0], b"+b", arm="b")])
    assert await contents(store) == {
        position(rows[0]): (b"record", b"+0+b"),
        position(rows[1]): (b"record", b"+1"),
    }


async def test_a_default_and_the_late_reward_stand_in_the_row(store: Store):
    one = row(1)
    await store.waiting.log(one.decision, b"waits", due_ms=1, expires_ms=FAR_MS, known_entry=KNOWN, row=one)
    write = DefaultWrite(
        one.decision, f"{one.decision.id}/a", one.issued_ms, FAR_MS, KNOWN, b"default", logged=b"-d"
    )
    for _ in range(2):
        await store.waiting.append_defaults(0, [one.decision], [write])
    assert await contents(store) == {position(one): (b"record", b"-d")}
    for _ in range(2):
        await store.rewards.append(0, [reward(one, b"+r", wait=True)])
    assert await contents(store) == {position(one): (b"record", b"-d+r")}


@pytest.mark.rest
async def test_a_decision_has_its_row_once_it_is_activated(store: Store):
    one = row(1)
    times = {"expires_ms": FAR_MS, "ttl_ms": DAY_MS, "due_ms": 1, "known_entry": KNOWN}
    for outcome in ("activated", "duplicate"):
        assert await store.waiting.activate(one.decision, record=None, row=one, **times) == outcome
    assert await contents(store) == {position(one): (b"record", b"")}


async def test_no_row_is_kept_of_a_learner_that_was_forgotten_and_later_ones_stay(store: Store):
    """Whether the row came before or after the erasing; what was decided knowing of it stays."""
    await store.rows.write(0, [row(n, learner, known=0) for n, learner in enumerate((ANN, BOB, ANN))])
    entry = await store.side_data.append_forget(ANN, payload=b"F", now_ms=5_000, ttl_ms=DAY_MS)
    number = int(entry.partition("-")[2])
    later = row(7, known=number)
    await store.rows.write(0, [later, row(8, known=number - 1)])
    await store.rewards.append(0, [reward(row(9, known=number - 1), b"+")])
    waiting = row(10, known=number - 1)
    await store.waiting.log(
        waiting.decision, b"w", due_ms=1, expires_ms=FAR_MS, known_entry=number - 1, row=waiting
    )
    assert await store.learners.apply(
        0, expected=await store.learners.watermark(0), watermark=entry, states={}
    )
    assert await store.side_data.erase(ANN, entry, decision_knew=unsaid, event_knew=unsaid)
    await store.rows.write(0, [row(3, known=0)])
    assert (await contents(store)).keys() == {position(row(1)), position(later)}
    await store.rows.trim(0, UID, before_ms=FAR_MS, count=10)


@pytest.mark.rest
async def test_a_late_row_is_not_kept_when_nothing_is_known_of_the_forgotten_any_more(store: Store):
    """The bound that is left refuses every decision from before, of any learner."""
    entry = await store.side_data.append_forget(ANN, payload=b"F", now_ms=5_000, ttl_ms=1)
    number = int(entry.partition("-")[2])
    assert await store.waiting.drop_expired(0, margin_ms=0, count=10) == 1, "the mark of the learner is gone"
    older, later = row(1, known=number - 1), row(2, known=number)
    await store.rows.write(0, [older, row(3, BOB, known=number - 1), later])
    assert (await contents(store)).keys() == {position(later)}


@pytest.mark.rest
async def test_nothing_is_kept_of_a_deleted_bandit(store: Store):
    await store.registry.create_catalogue("films", b"f" * 16)
    await store.registry.create_bandit("b", UID.encode(), catalogue="films")
    await store.rows.write(0, [row(n, (ANN, BOB)[n % 2]) for n in range(1_300)])
    await store.registry.delete_bandit("b", UID, catalogue="films")
    await store.side_data.erase_bandit(UID)
    await store.rows.write(0, [row(1)])
    await store.rewards.append(0, [reward(row(2), b"+")])
    assert await contents(store) == {}
    assert await store.rows.logs(0) == {}


async def test_what_was_dropped_does_not_come_back(store: Store):
    rows = [row(n) for n in range(6)]
    await store.rows.write(0, rows)
    assert await store.rows.logs(0) == {UID: DAY_MS}
    assert await store.rows.kept_from(0, UID) == 0
    assert await store.rows.trim(0, UID, before_ms=1_004, count=1, keep_ms=7) == 1
    assert await store.rows.trim(0, UID, before_ms=1_002, count=3) == 1
    assert await store.rows.kept_from(0, UID) == 1_004
    assert await store.rows.trim(0, UID, before_ms=1_004, count=3) == 2
    assert await store.rows.trim(0, UID, before_ms=1_002, count=3) == 0
    assert await store.rows.logs(0) == {UID: 7}
    assert [await store.rows.kept_from(partition, UID) for partition in (0, 1)] == [1_004, 0]
    await store.rows.write(0, rows)
    await store.rewards.append(0, [reward(rows[3], b"+"), reward(rows[4], b"+")])
    assert await contents(store) == {
        position(rows[4]): (b"record", b"+"),
        position(rows[5]): (b"record", b""),
    }
    await store.rows.trim(0, UID, before_ms=FAR_MS, count=9)
    assert await store.rows.kept_from(0, UID) == FAR_MS


@pytest.mark.rest
async def test_the_pieces_of_a_log_are_what_its_rows_take(store: Store, url: str):
    """With a piece for each row no less than they do; with fewer they stand for all, in the order of time."""
    assert await store.rows.sizes(0, UID, pieces=5) == []
    rows = [row(n, (ANN, BOB)[n % 2], record=b"x" * (1 + 100 * (n % 3))) for n in range(30)]
    await store.rows.write(0, rows)
    await store.rewards.append(0, [reward(rows[4], b"+" * 50)])
    pieces = await store.rows.sizes(0, UID, pieces=30)
    assert [ms for ms, _ in pieces] == [1_000 + n for n in range(30)]
    async with connect(url) as client:
        taken = [await client.memory_usage(redis_keys.rows(0, each), samples=0) for each in (ANN, BOB)]
        taken.append(await client.memory_usage(redis_keys.row_times(0, UID), samples=0))
    assert sum(taken) < sum(size for _, size in pieces) < 2 * sum(taken)
    few = await store.rows.sizes(0, UID, pieces=6)
    assert [(ms - 1_000) // 5 for ms, _ in few] == list(range(6)), "one of every five rows"
    assert {round(size) for _, size in few} <= {round(5 * size) for _, size in pieces}
    await store.rows.trim(0, UID, before_ms=1_020, count=100)
    assert len(await store.rows.sizes(0, UID, pieces=30)) == 10
    assert await store.rows.sizes(1, UID, pieces=30) == []


@pytest.mark.rest
async def test_a_row_takes_rewards_up_to_a_bound(store: Store):
    one = row(1)
    for n in range(70):
        [outcome] = await store.rewards.append(0, [reward(one, b"x" * 1_000, arm=f"a{n}")])
        assert outcome.status == "accepted"
    [(_, rewards)] = (await contents(store)).values()
    assert len(rewards) == 65_000


@pytest.mark.rest
async def test_many_at_once_write_every_row_and_every_reward_once(store: Store):
    rows = [row(n, (ANN, BOB)[n % 2]) for n in range(30)]

    async def write(n: int) -> Any:
        await store.rows.write(0, rows[n % 3 :: 2])
        return await store.rewards.append(0, [reward(each, b"+%d" % n) for each in rows[n % 5 :: 3]])

    await asyncio.gather(*(write(n) for n in range(12)))
    found = await contents(store)
    assert len(found) == 30
    assert all(rewards.count(b"+") == 1 for _, rewards in found.values())
