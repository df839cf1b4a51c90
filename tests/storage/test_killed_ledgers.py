"""Ledgers after the server was killed: they say what is there, to the byte."""

import asyncio
import os
import signal

import pytest
from redis.asyncio import Redis

from app.platform.errors import Unavailable
from app.storage.embedded.server import EmbeddedServer
from app.storage.store import Store
from app.storage.types import DecisionId, LearnerId, LoggedReward, RewardWrite, RowWrite, SignalWrite
from waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.rest]

UID = "0123456789abcdef"
EVENT, WAITING = 400, 250  # as put_event.lua and waiting.lua say
FIELD, KEY, NUMBER = 80, 165, 32  # as dedupe_keys.lua says
ROW, LEARNER = 200, 200  # as rows.lua says


async def test_a_killed_server_has_counted_exactly_what_it_holds(tmp_path):
    with EmbeddedServer(tmp_path) as server:
        store = Store(server.url, partitions=4)
        await store.open()
        done = []

        async def leave(n):
            learner = LearnerId(UID, f"user-{n % 7}")
            for step in range(10_000):
                try:
                    await store.choices.put_event(learner, f"{n}-{step}", b"x" * (step % 400), ttl_ms=600_000)
                    await store.waiting.log(
                        DecisionId(learner, f"{n}-{step}"),
                        b"y" * (step % 300),
                        due_ms=1,
                        expires_ms=2**45,
                        known_entry=0,
                    )
                    row = RowWrite(DecisionId(learner, f"{n}-{step}"), step, 0, b"z" * (step % 300), 1)
                    logged = LoggedReward(row, b"w" * (step % 30))
                    ends_ms = 2**41 + step
                    rewards = [
                        RewardWrite(
                            learner,
                            0,
                            b"p",
                            f"r/{n}-{step}",
                            expires_ms=ends_ms,
                            signal=SignalWrite(f"{n}-{step}", 0, 1.0, "sum"),
                            logged=logged,
                        ),
                        RewardWrite(learner, 1, b"p", f"o/{n}-{step}", ttl_ms=600_000),
                    ]
                    if step % 2:
                        await store.rows.write(learner.partition(4), [row])
                    await store.rewards.append(learner.partition(4), rewards)
                    if step % 50 == 49:
                        await store.rows.trim(learner.partition(4), UID, before_ms=step // 2, count=9)
                except Unavailable:
                    return
                done.append(step)

        async def answers():
            try:
                await store.ping()
            except Unavailable:
                return False
            return True

        async def many():
            return len(done) > enough

        for cycle in range(3):
            enough = len(done) + 200
            working = asyncio.gather(*(leave(100 * cycle + n) for n in range(20)))
            await wait_until(many, what="writes are under way")
            os.kill(server.pid, signal.SIGKILL)
            await working
            await wait_until(answers, what="the server is back")
            async with Redis.from_url(server.url) as client:
                assert dict(await store.usage.read()) == await recounted(client)
        await store.close()


async def recounted(client):
    """What the ledgers must say: the sum over everything that is there."""
    events, waiting, dedupe, log = 0, 0, 0, 0
    async for key in client.scan_iter(match="*:event:*"):
        name = key.rpartition(b"/")[2]
        events += EVENT + len(key) + len(name) + 9 * await client.strlen(key) // 8
    async for key in client.scan_iter(match="*:decisions"):
        for member, record in (await client.hgetall(key)).items():
            waiting += WAITING + 2 * len(member) + 9 * len(record) // 8
    async for key in client.scan_iter(match="*:seen:*"):
        dedupe += KEY + 9 * len(key) // 8
    async for key in client.scan_iter(match="*:seen-until:*"):
        for field, value in (await client.hgetall(key)).items():
            dedupe += (
                FIELD + 9 * len(field) // 8 + (max(NUMBER, 9 * len(value) // 8) if len(value) > 1 else 0)
            )
    async for key in client.scan_iter(match="*:rows:*"):
        learner = key.rpartition(b"/")[2]
        log += LEARNER + 9 * len(key) // 8
        for field, value in (await client.hgetall(key)).items():
            log += ROW + 2 * len(field) + len(learner) + 9 * len(value) // 8
    held = {"events": events, "waiting": waiting, "activations": 0, "dedupe": dedupe}
    return {**held, "campaigns": 0, "log": log, "repeats": 0, "moves": 0, "effects": 0}
