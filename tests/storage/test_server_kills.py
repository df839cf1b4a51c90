"""Servers and services killed while they write: what was acknowledged is there, once, whatever was killed.

The writers repeat a call that failed, as the store's contract lets them. Kills come at seeded numbers of
acknowledged calls and are not aligned with any write: a dozen calls are under way at each.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest
import redis

from app.platform.errors import Unavailable
from app.storage.embedded.server import EmbeddedServer
from app.storage.store import Store
from app.storage.types import ArmWrite, LearnerId, RewardWrite
from waiting import DEADLINE_S, wait_until

pytestmark = pytest.mark.rest

UID = "0123456789abcdef"
PARTITIONS = 2
LEARNERS = [f"learner-{n}" for n in range(4)]
TTL_MS = 3_600_000


async def persevere(call, *words, **named):
    """The outcome of the call at the first attempt that gets one."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        try:
            return await call(*words, **named)
        except Unavailable:
            assert time.monotonic() < deadline, "the server does not come back"
            await asyncio.sleep(0.002)


class Traffic:
    """Writers that note what was acknowledged, and appliers; until ``stopped``."""

    def __init__(self, store):
        self.store, self.stopped = store, False
        self.acknowledged = 0
        self.rewards = {}  # (learner, word) in the order of acknowledgement
        self.arms, self.version = {}, 0

    async def reward(self, writer):
        number = 0
        while not self.stopped:
            learner = LEARNERS[(writer + number) % len(LEARNERS)]
            word = f"{writer}.{number}"
            rewards = [RewardWrite(LearnerId(UID, learner), 1, word.encode(), word, ttl_ms=TTL_MS)]
            [outcome] = await persevere(self.store.rewards.append, writer % PARTITIONS, rewards)
            assert outcome.status in {"accepted", "duplicate"}
            self.rewards[learner, word] = None
            self.acknowledged += 1
            number += 1

    async def upsert(self):
        number = 0
        while not self.stopped:
            arms = [
                ArmWrite(f"arm-{number % 7}", b"%d" % number),
                ArmWrite(f"arm-{number % 5}", b"%d!" % number),
            ]
            done = await persevere(self.store.arms.upsert, UID, arms, keep_ms=TTL_MS)
            self.arms |= {
                arm.id: (revision, arm.features) for arm, revision in zip(arms, done.revisions, strict=True)
            }
            self.version = done.version
            self.acknowledged += 1
            number += 1

    async def apply(self, partition):
        while not self.stopped:
            await self.fold(partition)

    async def fold(self, partition):
        watermark = await persevere(self.store.learners.watermark, partition)
        entries = await persevere(self.store.rewards.read, partition, watermark, 20)
        keys = sorted({entry.learner for entry in entries})
        if not entries:
            await asyncio.sleep(0.001)
            return
        stored = dict(zip(keys, await persevere(self.store.learners.stored, partition, keys), strict=True))
        states, tails = {}, {}
        for key in keys:
            own = [entry for entry in entries if entry.learner == key]
            if len(stored[key].tail) > 5:
                states[key] = state_of(stored[key]) + written(own)
            else:
                tails[key] = [entry.entry_id for entry in own]
        with contextlib.suppress(Unavailable):  # it may have been applied: the next round reads the watermark
            await self.store.learners.apply(
                partition, expected=watermark, watermark=entries[-1].entry_id, states=states, tails=tails
            )

    async def run(self, kills):
        writers = [self.reward(writer) for writer in range(10)]
        appliers = [self.apply(partition) for partition in range(PARTITIONS) for _ in range(2)]
        await asyncio.gather(self.upsert(), *writers, *appliers, self.stop_after(kills))
        for partition in range(PARTITIONS):
            while await persevere(self.store.rewards.backlog, partition):
                await self.fold(partition)

    async def stop_after(self, kills):
        try:
            await kills
        finally:
            self.stopped = True


def written(entries):
    return b"".join(entry.payload + b" " for entry in entries)


def state_of(stored):
    return (stored.checkpoint or b"") + written(stored.tail)


async def losses(store, traffic):
    """What was acknowledged and is not as it should be."""
    wrong = []
    folded = []
    for partition in range(PARTITIONS):
        stored = await store.learners.stored(partition, [LearnerId(UID, learner) for learner in LEARNERS])
        for learner, each in zip(LEARNERS, stored, strict=True):
            folded += [(learner, word) for word in state_of(each).decode().split()]
    if sorted(folded) != sorted(traffic.rewards):
        missing, doubled = set(traffic.rewards) - set(folded), len(folded) - len(set(folded))
        wrong.append(f"{len(missing)} rewards are missing, {doubled} are doubled")
    arms = {arm.id: (arm.revision, arm.features) async for batch in store.arms.scan(UID) for arm in batch}
    if arms != traffic.arms or await store.arms.version(UID) != traffic.version:
        wrong.append("the catalogue differs")
    return wrong


async def kill_during_traffic(server, kills, rng):
    """Kill the server ``kills`` times under traffic, and return the traffic that it saw."""
    store = Store(server.url, partitions=PARTITIONS)
    await store.open()
    traffic = Traffic(store)

    async def killing():
        for _ in range(kills):
            goal = traffic.acknowledged + int(rng.integers(20, 150))
            await wait_until(lambda goal=goal: enough(traffic, goal), what="writes are acknowledged")
            pid = server.pid
            os.kill(pid, signal.SIGKILL)
            await wait_until(lambda pid=pid: is_restarted(server, pid), what="another server is started")

    try:
        await traffic.run(killing())
    finally:
        await store.close()
    return traffic


async def enough(traffic, goal):
    return traffic.acknowledged >= goal


async def is_restarted(server, pid):
    return server.pid != pid


async def losses_after_restart(directory, traffic):
    with EmbeddedServer(directory) as server:
        store = Store(server.url, partitions=PARTITIONS)
        try:
            await store.open()
            return await losses(store, traffic)
        finally:
            await store.close()


@pytest.mark.parametrize("kills", [10, pytest.param(100, marks=pytest.mark.slow)])
def test_a_killed_server_loses_and_doubles_nothing(tmp_path, kills):
    async def main():
        with EmbeddedServer(tmp_path, healthy_s=0.0) as server:  # always the shortest pause
            traffic = await kill_during_traffic(server, kills, np.random.default_rng(kills))
        assert len(traffic.rewards) > 10 * kills
        assert await losses_after_restart(tmp_path, traffic) == []

    asyncio.run(main())


SERVICE = """
    import asyncio, sys
    from pathlib import Path
    from app.storage.embedded.server import EmbeddedServer
    from app.storage.types import LearnerId, RewardWrite
    from app.storage.store import Store

    async def write(store, writer):
        for number in range(10**9):
            word = f"{sys.argv[2]}.{writer}.{number}"
            learner = LearnerId("0123456789abcdef", "ann")
            reward = RewardWrite(learner, 1, word.encode(), word, ttl_ms=3_600_000)
            await store.rewards.append(0, [reward])
            print(word, flush=True)

    async def main(url):
        store = Store(url, partitions=2)
        await store.open()
        await asyncio.gather(*(write(store, writer) for writer in range(8)))

    with EmbeddedServer(Path(sys.argv[1])) as server:
        asyncio.run(main(server.url))
"""


@pytest.mark.parametrize("kills", [3, pytest.param(40, marks=pytest.mark.slow)])
def test_a_killed_service_loses_nothing_that_it_acknowledged(tmp_path, kills):
    rng = np.random.default_rng(kills)
    acknowledged = []
    for kill in range(kills):
        service = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(SERVICE), str(tmp_path), str(kill)],
            stdout=subprocess.PIPE,
            cwd=Path(__file__).parents[2],
            text=True,
        )
        try:
            own = [service.stdout.readline().strip() for _ in range(int(rng.integers(1, 400)))]
        finally:
            service.kill()
            rest, _ = service.communicate()
        acknowledged += own + rest.splitlines()[:-1]  # the last line may be half a word
    assert "" not in acknowledged, "a service ended by itself"
    assert found_in_log(tmp_path) >= set(acknowledged)


def found_in_log(directory):
    with EmbeddedServer(directory) as server, redis.Redis.from_url(server.url) as connection:
        entries = connection.xrange("shortlist3:{p:0}:log")
    words = [fields[b"p"].decode() for _, fields in entries]
    assert len(words) == len(set(words)), "an entry is doubled"
    return set(words)
